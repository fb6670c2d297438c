//! Hands out units of work. Taking a unit acquires the permits of its pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use politely::core::Timestamp;
use politely_api::wire::{
    AHEAD_MAX_MS, Answer, FrontierUnit, FrontierUnitPage, Grant, Item, SLOTS_MAX, Want,
};
use politely_frontier::{CrawlName, FrontierError, Take, Token, Unit};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::owners::{Owner, Owners};
use super::{EmbeddedFrontier, FrontierService};
use crate::coordinator::{Coordinator, Number};
use crate::watch::Worker;

/// The longest time for which a refused domain is not offered again. An operator may lift a hold
/// earlier than the limiter expected.
const PUT_OFF_MAX: Duration = Duration::from_mins(1);
/// The longest time for which a domain is not offered again if its worker waits for a key of its
/// own, such as `consumer/{client}`. Another worker may take the domain.
const PUT_OFF_FOR_OTHERS: Duration = Duration::from_millis(100);
/// The time until a domain is offered again whose wait is unknown.
const AGAIN: Duration = Duration::from_secs(1);
/// The shortest pause between two looks of a call that waits.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(1);

/// A wish for units of work.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) crawl: Option<CrawlName>,
    /// The only domain that is wanted. It needs a crawl.
    pub(crate) domain: Option<String>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) units: u16,
    pub(crate) pages_per_unit: u16,
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    /// Values for the names of keys in the policy.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether each page is leased and reported by itself, by its URL. Other pages of its domain
    /// may then be taken meanwhile, and the worker sends the requests to a domain one after
    /// another.
    pub(crate) by_page: bool,
}

impl Wish {
    /// Returns the wish for one unit with at most `pages_max` pages.
    pub(super) fn unit(&self, pages_max: u32) -> Take {
        Take {
            crawl: self.crawl.clone(),
            pages_max,
            lease: self.lease,
            shares_domain: self.by_page,
        }
    }
}

/// Units of work that were handed out. Dropping it before [`Taken::into_units`] gives them back.
pub(crate) struct Taken {
    pub(super) units: Vec<FrontierUnit>,
    /// The crawl of each unit.
    crawls: Vec<CrawlName>,
    /// The time after which a look may find more.
    pub(super) wake: Option<Duration>,
    /// The frontier that gets the units back if they are not used.
    service: Option<FrontierService>,
}

/// The permits of the unit that is being taken.
pub(super) type Granted = Option<(Grant, Vec<Number>)>;

impl EmbeddedFrontier {
    /// Hands out units of work. Waits up to `wish.wait` until a domain may be handed out.
    pub(crate) async fn take(&self, wish: Wish) -> Result<Taken, FrontierError> {
        let (changed, coordinator) = (&self.0.changed, &self.0.coordinator);
        look_until(changed, coordinator, wish.wait, Duration::MAX, || {
            let looked = wish.clone();
            self.call(move |service| service.look(&looked))
        })
        .await
    }

    /// Hands out the units that may leave now.
    fn look(&self, wish: &Wish) -> Result<Taken, FrontierError> {
        let mut taken = Taken::new(FrontierService::embedded(self.clone()));
        let take = wish.unit(wish.pages_per_unit.into());
        while taken.units.len() < usize::from(wish.units) {
            let mut granted = None;
            let mut gate = |domain: &str, pages: u32| {
                if taken.has(domain) {
                    return Err(LOOK_MIN);
                }
                let acquired = acquire(&self.0.coordinator, wish, domain, pages);
                // Without an engine and without patience, a call is answered at once.
                let acquired = acquired.now_or_never().unwrap_or(Err(AGAIN));
                acquired.map(|permits| {
                    let slots = permits.0.slots;
                    granted = Some(permits);
                    u32::from(slots)
                })
            };
            let mut frontier = self.lock();
            let now = self.now();
            let unit = match (&wish.crawl, &wish.domain) {
                (Some(crawl), Some(domain)) => {
                    frontier.take_domain(crawl, domain, &take, now, &mut gate)
                }
                _ => frontier.take(&take, now, &mut gate),
            };
            let wake = frontier.wake(self.now());
            drop(frontier);
            match (unit, granted) {
                (Ok(Some(unit)), granted) => {
                    taken.add((&self.0.owners, self.now().at), wish, unit, granted);
                }
                (unit, granted) => {
                    refund(&self.0.coordinator, &wish.worker, granted);
                    taken.wake = wake;
                    if taken.units.is_empty() {
                        unit?;
                    }
                    break;
                }
            }
        }
        Ok(taken)
    }
}

/// Looks until a unit is taken, `wait` is over, or the coordinator closes. Between two looks it
/// waits for a change, and for `pause_max` at most.
pub(super) async fn look_until<Look: Future<Output = Result<Taken, FrontierError>>>(
    changed: &Notify,
    coordinator: &Coordinator,
    wait: Duration,
    pause_max: Duration,
    look: impl Fn() -> Look,
) -> Result<Taken, FrontierError> {
    let deadline = Instant::now() + wait;
    let mut closing = coordinator.closing();
    loop {
        let changed = changed.notified();
        tokio::pin!(changed);
        // A change after this line wakes the call, even if it comes before the wait.
        changed.as_mut().enable();
        let taken = look().await?;
        let left = deadline.saturating_duration_since(Instant::now());
        if !taken.units.is_empty() || left.is_zero() {
            return Ok(taken);
        }
        let pause = taken.wake.unwrap_or(pause_max).clamp(LOOK_MIN, pause_max);
        tokio::select! {
            () = tokio::time::sleep(pause.min(left)) => {}
            () = changed => {}
            _ = closing.wait_for(|closed| *closed) => return Ok(taken),
        }
    }
}

/// Acquires the permits of a domain's pages, or returns how long to wait.
pub(super) async fn acquire(
    coordinator: &Coordinator,
    wish: &Wish,
    domain: &str,
    pages: u32,
) -> Result<(Grant, Vec<Number>), Duration> {
    let item = Item {
        key: Some(domain.to_owned()),
        max_wait_ms: Some(if wish.by_page { 0 } else { AHEAD_MAX_MS }),
        is_queued: wish.by_page,
        slots: u16::try_from(pages).unwrap_or(SLOTS_MAX).min(SLOTS_MAX),
        labels: wish.labels.clone(),
        ..Item::default()
    };
    let items = [item];
    let acquired = coordinator.acquire(&wish.worker, &items, Want::All, Duration::ZERO, Vec::new());
    let mut outcome = acquired.await;
    let longest = if outcome.waits_for_own {
        PUT_OFF_FOR_OTHERS
    } else {
        PUT_OFF_MAX
    };
    let wait = |ms: Option<u64>| ms.map_or(AGAIN, Duration::from_millis).min(longest);
    match outcome.answers.pop() {
        Some(Answer::Granted(grant)) => Ok((grant, outcome.granted)),
        Some(Answer::Wait { retry_in_ms, .. }) => Err(wait(Some(retry_in_ms))),
        Some(Answer::Refused { retry_in_ms, .. }) => Err(wait(retry_in_ms)),
        Some(Answer::Error { error, .. }) => {
            tracing::warn!("no permits for the domain {domain}: {}", error.detail);
            Err(PUT_OFF_MAX)
        }
        None => Err(AGAIN),
    }
}

/// Gives permits back that no unit got.
pub(super) fn refund(coordinator: &Coordinator, worker: &Worker, granted: Granted) {
    if let Some((_, permits)) = granted {
        coordinator.take_back(worker, permits.into_iter());
    }
}

impl Taken {
    pub(super) fn new(service: FrontierService) -> Self {
        Self {
            units: Vec::new(),
            crawls: Vec::new(),
            wake: None,
            service: Some(service),
        }
    }

    /// Returns whether a unit of this domain was taken.
    pub(super) fn has(&self, domain: &str) -> bool {
        self.units.iter().any(|unit| unit.domain == domain)
    }

    /// Adds a unit that was taken at `now`, and remembers its owner.
    pub(super) fn add(
        &mut self,
        (owners, now): (&Owners, Timestamp),
        wish: &Wish,
        unit: Unit,
        of: Granted,
    ) {
        let (grant, permits) = of.unwrap_or_default();
        let urls = unit.pages.iter().map(|page| page.url.clone());
        let owner = Owner {
            worker: Arc::clone(&wish.worker),
            permits,
            ends: now + unit.lease,
            permit: grant.permit.clone(),
            urls: urls.take_while(|_| wish.by_page).collect(),
        };
        self.crawls.push(unit.crawl);
        owners.insert(unit.token, owner);
        let pages = unit.pages.into_iter().map(|page| FrontierUnitPage {
            url: page.url,
            priority: page.priority.level(),
            attempt: page.attempts.saturating_add(1),
            free: page.free,
            metadata: metadata(&page.metadata),
        });
        self.units.push(FrontierUnit {
            token: unit.token.0,
            domain: unit.domain,
            lease_ms: u64::try_from(unit.lease.as_millis()).unwrap_or(u64::MAX),
            grant,
            pages: pages.collect(),
        });
    }

    /// Returns the units, and the time after which to ask again if there is no unit.
    pub(crate) fn into_units(mut self) -> (Vec<FrontierUnit>, Option<Duration>) {
        let units = std::mem::take(&mut self.units);
        let wake = self.wake.filter(|_| units.is_empty());
        (units, wake)
    }
}

impl Taken {
    /// Returns the units, and the crawl of each.
    pub(crate) fn into_named_units(mut self) -> (Vec<FrontierUnit>, Vec<CrawlName>) {
        let crawls = std::mem::take(&mut self.crawls);
        let (units, _) = self.into_units();
        (units, crawls)
    }
}

/// Gives units back whose caller hung up before the answer.
impl Drop for Taken {
    fn drop(&mut self) {
        let tokens = self.units.drain(..).map(|unit| Token(unit.token));
        let units: Vec<_> = self.crawls.drain(..).zip(tokens).collect();
        if let Some(service) = self.service.take().filter(|_| !units.is_empty()) {
            service.give_up(units);
        }
    }
}

impl EmbeddedFrontier {
    /// Returns the pages of units whose caller hung up.
    pub(super) fn give_up(&self, units: Vec<(CrawlName, Token)>) {
        let now = self.now();
        for (_, token) in units {
            if let Err(why) = self.lock().drop_unit(token, now) {
                tracing::debug!("a unit whose caller hung up ends with its lease: {why}");
            }
            self.0.owners.end(token, &self.0.coordinator);
        }
    }
}

/// Returns the JSON of a page, or its text if another interface stored it.
pub(super) fn metadata(bytes: &[u8]) -> Option<serde_json::Value> {
    if bytes.is_empty() {
        return None;
    }
    let text = || String::from_utf8_lossy(bytes).into_owned().into();
    Some(serde_json::from_slice(bytes).unwrap_or_else(|_| text()))
}
