//! Opens a frontier: reads the crawls, the domains and the live units, but no pages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::Frontier;
use super::fronts::Fronts;
use super::serial::Serial;
use crate::queue::{Ready, Run, RunId};
use crate::rows::{self, CrawlId, CrawlRow, DomainId, DomainRow, QueueId, UnitRow, VERSION};
use crate::schedule::{Crawl, Domain, Orders, Schedule};
use crate::units::{Held, Units};
use crate::{Batch, CrawlName, Date, Moment, Priority, Settings, Store, StoreError, Table, Token};

/// The longest pause of a domain that a restart restores. It bounds the effect of a wall clock that
/// was wrong before the restart.
const PAUSE_MAX: Duration = Duration::from_hours(24);

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

impl<S: Store> Frontier<S> {
    /// Opens the frontier in a storage, which may be empty. `seed` is a random number.
    ///
    /// # Errors
    /// Fails if the storage fails, is damaged, or has a layout of another version.
    pub fn open(store: S, settings: Settings, seed: u64, now: Moment) -> Result<Self, StoreError> {
        let mut frontier = Self {
            schedule: Schedule::new(settings.owners_max),
            units: Units::default(),
            fronts: Fronts::default(),
            crawls: BTreeMap::new(),
            serial: Serial::open(&store)?,
            next_domain: 1,
            next_queue: 1,
            stored_ids: (1, 1),
            next_crawl: 1,
            seed,
            rng: Rng::new(seed),
            latest: Timestamp::ZERO,
            failure: None,
            store,
            settings,
        };
        frontier.load(now)?;
        Ok(frontier)
    }

    /// Opens the frontier again after its storage failed. Everything that was acknowledged is
    /// there.
    ///
    /// # Errors
    /// Fails while the storage cannot be used. The frontier then still refuses every call.
    pub fn recover(&mut self, now: Moment) -> Result<(), StoreError> {
        let recovered = self.store.recover().and_then(|()| {
            let now = self.normalize(now);
            self.load(now)
        });
        self.failure = recovered.clone().err();
        recovered
    }

    fn load(&mut self, now: Moment) -> Result<(), StoreError> {
        self.schedule = Schedule::new(self.settings.owners_max);
        self.units = Units::default();
        self.fronts = Fronts::default();
        self.crawls.clear();
        self.serial = Serial::open(&self.store)?;
        self.next_domain = next(&self.store, b"i")?;
        self.next_queue = next(&self.store, b"q")?;
        self.stored_ids = (self.next_domain, self.next_queue);
        self.next_crawl = next(&self.store, b"n")?;
        self.seed = hash_seed(&self.store, self.seed)?;
        self.open_crawls()?;
        self.open_domains(now)?;
        self.open_units(now)
    }

    fn open_crawls(&mut self) -> Result<(), StoreError> {
        for (key, row) in self.entries(Table::Control, b"c")? {
            let row: CrawlRow = rows::decode("control", &row)?;
            let id = CrawlId(rows::id(&key[1..])?);
            let name = row.name.parse::<CrawlName>();
            let name = name.map_err(|_| rows::damaged("control", row.name.as_bytes()))?;
            self.crawls.insert(name.clone(), id);
            self.schedule.add_crawl(id, Crawl::new(name, row.is_paused));
        }
        Ok(())
    }

    fn open_domains(&mut self, now: Moment) -> Result<(), StoreError> {
        let schedule = &mut self.schedule;
        let mut error = None;
        let mut open = |key: &[u8], row: &[u8]| -> Result<(), StoreError> {
            let id = DomainId(rows::id(&key[1..])?);
            let row: DomainRow = rows::decode("domains", row)?;
            // A deleted crawl leaves its domains to be swept.
            if schedule.crawls().contains_key(&row.crawl) {
                let (domain, orders) = restored(&row, now);
                schedule.set_orders(id, orders);
                schedule.set(id, domain, now);
            }
            Ok(())
        };
        self.store
            .scan(Table::Domains, b"d", b"d", &mut |key, row| {
                error = open(key, row).err();
                error.is_none()
            })?;
        error.map_or(Ok(()), Err)
    }

    fn open_units(&mut self, now: Moment) -> Result<(), StoreError> {
        for (key, row) in self.entries(Table::Control, b"u")? {
            let token = Token(rows::number(&key[1..]));
            let row: UnitRow = rows::decode("control", &row)?;
            let Some(&(mut domain)) = self.schedule.domain(row.domain) else {
                continue;
            };
            let pages = self.without_outcome(domain.queue, row.pages)?;
            if !row.shares_domain {
                domain.owners = domain.owners.saturating_add(1);
            }
            domain.leased += pages.len() as u32;
            self.schedule.set(row.domain, domain, now);
            let held = Held {
                domain: row.domain,
                expires: now.at_of(row.expires, self.settings.lease_max),
                shares_domain: row.shares_domain,
                pages,
            };
            self.units.insert(token, held);
        }
        Ok(())
    }

    /// Returns the pages of a unit that have no outcome yet. The others have left their runs.
    fn without_outcome(
        &self,
        queue: QueueId,
        mut pages: Vec<Ready>,
    ) -> Result<Vec<Ready>, StoreError> {
        let runs: BTreeSet<RunId> = pages.iter().map(|page| page.run).collect();
        let keys: Vec<_> = runs.iter().map(|run| run.key(queue)).collect();
        let mut queued = BTreeSet::new();
        for (run, row) in runs
            .into_iter()
            .zip(self.store.read_many(Table::Queue, &keys)?)
        {
            if let Some(row) = row {
                queued.extend(Run::decode(&row)?.ready(run));
            }
        }
        pages.retain(|page| queued.contains(page));
        Ok(pages)
    }

    fn entries(&self, table: Table, prefix: &[u8]) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        self.store.scan(table, prefix, prefix, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(found)
    }
}

/// Returns the state of a domain that was stored.
fn restored(row: &DomainRow, now: Moment) -> (Domain, Orders) {
    let mut domain = Domain::new(row.crawl, row.queue);
    domain.pages = row.pages;
    domain.ready = row.ready;
    domain.dated = row.dated;
    domain.dated_first = row.dated_first;
    domain.priority = Priority::new(row.priority).unwrap_or_default();
    if row.next > Date::EPOCH {
        domain.next = now.at_of(row.next, PAUSE_MAX);
    }
    let orders = Orders {
        blocked_until: row.blocked_until,
        delay: Duration::from_millis(row.delay_ms),
        finished_max: row.finished_max,
    };
    (domain, orders)
}

/// Returns the next number of a counter.
fn next(store: &impl Store, key: &[u8]) -> Result<u32, StoreError> {
    let bytes = store.read(Table::Control, key)?;
    bytes.map_or(Ok(1), |bytes| rows::id(&bytes))
}

/// Returns the seed of the hashes of URLs. The first opening stores `seed`.
fn hash_seed(store: &impl Store, seed: u64) -> Result<u64, StoreError> {
    match store.read(Table::Control, b"v")?.as_deref() {
        None => {
            let mut batch = Batch::default();
            let value = [&[VERSION], seed.to_be_bytes().as_slice()].concat();
            batch.put(Table::Control, b"v", value);
            store.commit(batch)?;
            store.sync()?;
            Ok(seed)
        }
        Some([VERSION, seed @ ..]) => Ok(rows::number(seed)),
        Some(other) => {
            let version = other.first().copied().unwrap_or_default();
            let why = format!(
                "the frontier has the layout {version}, and this program reads {VERSION}; open it \
                 with the version that wrote it"
            );
            Err(StoreError(why))
        }
    }
}
