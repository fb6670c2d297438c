//! Promise P12 under random calls, faults and restarts, against a model.
//!
//! Of a unit there are never two owners whose words are both accepted. No page that was answered
//! `new` is lost, and none is handed out after an accepted `Next::Never`. The frontier stops and
//! opens again at any time; its storage fails before or after a batch is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_frontier::{
    Answer, Batch, Frontier, FrontierError, GiveBack, MemoryStore, Moment, NewPage, Next, Settings,
    Spacing, Store, StoreError, Table, Take, Token,
};
use proptest::prelude::*;

use crate::support::{crawl, date, outcome, take};

/// Pages are few, so that calls often meet.
const DOMAINS: u8 = 3;
const PAGES: u8 = 12;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>),
    /// The most pages, and whether the unit shares its domain.
    Take(u32, bool),
    /// An owner speaks: which unit, for each page what becomes of it, whether it keeps the rest,
    /// and a page that it found.
    Speak(usize, Vec<Word>, bool, u8),
    Extend(usize, u64),
    Drop(usize),
    /// Both clocks go on.
    Wait(u64),
    /// The wall clock steps, ahead or back.
    MoveWall(i64),
    /// The process stops and starts again.
    Restart,
    /// The next batch fails: before it is in the storage, or after.
    Fail(Fault),
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Never,
    Soon,
    Unvisited,
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Before,
    After,
}

/// A storage whose next batch may fail, in or out.
#[derive(Default)]
struct FaultyStore {
    inner: MemoryStore,
    fault: Mutex<Option<Fault>>,
}

impl Store for FaultyStore {
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.read(table, key)
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.inner.scan(table, prefix, from, visit)
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let fault = self.fault.lock().take();
        if fault != Some(Fault::Before) {
            self.inner.commit(batch)?;
        }
        fault.map_or(Ok(()), |_| {
            Err(StoreError("a fault of the test".to_owned()))
        })
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A unit as its owner and the model know it.
#[derive(Clone, Debug)]
struct Owned {
    token: Token,
    domain: String,
    left: BTreeSet<String>,
    shares_domain: bool,
    /// The latest monotonic time at which the frontier may accept a word. A restart with a wall
    /// clock that stepped can only shorten or keep this.
    ended: bool,
}

struct World {
    frontier: Frontier<Arc<FaultyStore>>,
    settings: Settings,
    now: Moment,
    units: Vec<Owned>,
    /// Pages that were answered `new`.
    accepted: BTreeSet<String>,
    /// Pages whose last outcome was accepted.
    finished: BTreeSet<String>,
    /// Pages of calls whose answer was lost: stored or not, finished or not.
    in_doubt: BTreeSet<String>,
    /// The highest token so far.
    highest: Token,
}

impl World {
    fn new(settings: Settings) -> Self {
        let now = Moment {
            at: Timestamp::from_micros(1),
            date: date(1_000_000),
        };
        let store = Arc::new(FaultyStore::default());
        Self {
            frontier: Frontier::open(store, settings.clone(), 3, now).unwrap(),
            settings,
            now,
            units: Vec::new(),
            accepted: BTreeSet::new(),
            finished: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            highest: Token(0),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(pages) => self.put(pages),
            Step::Take(pages_max, shares) => _ = self.take(*pages_max, *shares),
            Step::Speak(unit, words, keep, found) => self.speak(*unit, words, *keep, *found),
            Step::Extend(unit, seconds) => self.extend(*unit, *seconds),
            Step::Drop(unit) => self.speak(*unit, &[Word::Silent], false, 0),
            Step::Wait(seconds) => self.wait(*seconds),
            Step::MoveWall(seconds) => {
                let second = self.now.date.millis() / 1_000;
                self.now.date = date(second.saturating_add_signed(*seconds));
            }
            Step::Restart => self.restart(),
            Step::Fail(fault) => *self.frontier.store().fault.lock() = Some(*fault),
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now.at = self.now.at + Duration::from_secs(seconds);
        self.now.date = self.now.date.after(Duration::from_secs(seconds));
    }

    fn restart(&mut self) {
        let store = Arc::clone(self.frontier.store());
        *store.fault.lock() = None;
        // The monotonic clock of a new process starts anywhere.
        self.now.at = Timestamp::from_micros(self.now.at.as_micros() % 1_000_003);
        self.frontier = Frontier::open(store, self.settings.clone(), 4, self.now).unwrap();
    }

    /// Returns the result of a call. If the storage failed, the process starts again.
    fn result<T>(&mut self, result: Result<T, FrontierError>) -> Option<Result<T, FrontierError>> {
        if let Err(FrontierError::Store(_) | FrontierError::Closed(_)) = result {
            self.restart();
            return None;
        }
        Some(result)
    }

    fn put(&mut self, pages: &[u8]) {
        let urls: Vec<_> = pages.iter().map(|page| url(*page)).collect();
        let new = urls.iter().map(NewPage::of_url).collect();
        let result = self.frontier.put(&crawl(), new, self.now);
        match self.result(result) {
            None => self.in_doubt.extend(urls),
            Some(answers) => self.note(&urls, &answers.unwrap()),
        }
    }

    fn note(&mut self, urls: &[String], answers: &[Answer]) {
        for (url, answer) in urls.iter().zip(answers) {
            match answer {
                Answer::New => {
                    assert!(self.accepted.insert(url.clone()), "{url} was new twice");
                }
                Answer::Known => {
                    let is_known = self.accepted.contains(url) || self.in_doubt.contains(url);
                    assert!(is_known, "{url} was never added");
                    self.accepted.insert(url.clone());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn take(&mut self, pages_max: u32, shares_domain: bool) -> Option<Owned> {
        let wish = Take {
            shares_domain,
            ..take(pages_max)
        };
        let result = self
            .frontier
            .take(&wish, self.now, &mut |_, pages| Ok(pages));
        let unit = self.result(result)?.unwrap()?;
        assert!(unit.token > self.highest, "the fencing token only grows");
        self.highest = unit.token;
        let left: BTreeSet<_> = unit.pages.iter().map(|page| page.url.clone()).collect();
        assert_eq!(left.len(), unit.pages.len());
        for url in &left {
            assert!(!self.finished.contains(url), "{url} was finished");
            let is_known = self.accepted.contains(url) || self.in_doubt.contains(url);
            assert!(is_known, "{url} was never added");
        }
        // An earlier owner of one of these pages must be refused from now on: see `speak`.
        for other in &mut self.units {
            other.ended |= !other.left.is_disjoint(&left);
        }
        let live = self
            .units
            .iter()
            .filter(|other| !other.ended && !other.shares_domain && other.domain == unit.domain);
        if live.count() >= usize::from(self.settings.owners_max) {
            // The lease of at least one of them is over, and its words must be refused.
            let mut heard = 0;
            let domain = unit.domain.clone();
            for place in 0..self.units.len() {
                let other = &self.units[place];
                if other.domain == domain && !other.ended && !other.shares_domain {
                    let words = GiveBack {
                        keep: true,
                        ..GiveBack::of_token(other.token)
                    };
                    let result = self.frontier.give_back(words, self.now);
                    match self.result(result) {
                        None => return None,
                        Some(Ok(_)) => heard += 1,
                        Some(Err(FrontierError::Stale(_))) => self.units[place].ended = true,
                        Some(Err(why)) => panic!("{why}"),
                    }
                }
            }
            assert!(
                heard < usize::from(self.settings.owners_max),
                "{domain} has too many owners"
            );
        }
        let owned = Owned {
            token: unit.token,
            domain: unit.domain,
            left,
            shares_domain,
            ended: false,
        };
        self.units.push(owned.clone());
        Some(owned)
    }

    fn speak(&mut self, unit: usize, words: &[Word], keep: bool, found: u8) {
        if self.units.is_empty() {
            return;
        }
        let place = unit % self.units.len();
        let unit = self.units[place].clone();
        let soon = self.now.date.after(Duration::from_secs(5));
        let mut outcomes = Vec::new();
        let mut finished = BTreeSet::new();
        let mut gone = BTreeSet::new();
        for (url, word) in unit.left.iter().zip(words.iter().cycle()) {
            let next = match word {
                Word::Never => Next::Never,
                Word::Soon => Next::At(soon),
                Word::Unvisited => Next::Unvisited,
                Word::Silent => continue,
            };
            outcomes.push(outcome(url, next));
            gone.insert(url.clone());
            if next == Next::Never {
                finished.insert(url.clone());
            }
        }
        let words = GiveBack {
            outcomes,
            found: vec![NewPage::of_url(url(found))],
            keep,
            ..GiveBack::of_token(unit.token)
        };
        let result = self.frontier.give_back(words, self.now);
        match self.result(result) {
            // The words are in doubt. If they were accepted, the unit may go on or not.
            None => {
                self.in_doubt.insert(url(found));
                self.in_doubt.extend(finished);
                self.units.remove(place);
            }
            Some(Err(FrontierError::Stale(_))) => self.units[place].ended = true,
            Some(Err(why)) => panic!("{why}"),
            Some(Ok(accepted)) => {
                assert!(!unit.ended, "the unit {} ended before", unit.token);
                self.note(&[url(found)], &accepted.answers);
                self.finished.extend(finished);
                let owned = &mut self.units[place];
                owned.left.retain(|url| !gone.contains(url));
                assert_eq!(
                    accepted.kept as usize,
                    if keep { owned.left.len() } else { 0 }
                );
                owned.ended = accepted.kept == 0;
            }
        }
    }

    fn extend(&mut self, unit: usize, seconds: u64) {
        if self.units.is_empty() {
            return;
        }
        let place = unit % self.units.len();
        let Owned { token, ended, .. } = self.units[place];
        let result = self
            .frontier
            .extend(token, Duration::from_secs(seconds), self.now);
        match self.result(result) {
            None => {}
            Some(Ok(_)) => assert!(!ended, "the unit {token} ended before"),
            Some(Err(FrontierError::Stale(_))) => self.units[place].ended = true,
            Some(Err(why)) => panic!("{why}"),
        }
    }

    /// Visits all pages that are left, and checks that none was lost.
    fn drain(mut self) {
        *self.frontier.store().fault.lock() = None;
        self.restart();
        // All leases are over, and all dates have come.
        self.wait(10_000_000);
        let mut visits: BTreeMap<String, u32> = BTreeMap::new();
        // The pause after a unit starts when it expires, so nothing may be due at first.
        let mut idle = 0;
        while idle < 3 {
            // Longer than the spacing.
            self.wait(5);
            let Some(unit) = self.take(2, false) else {
                idle += 1;
                continue;
            };
            for url in &unit.left {
                *visits.entry(url.clone()).or_default() += 1;
            }
            self.speak(self.units.len() - 1, &[Word::Never], false, 0);
        }
        assert!(visits.values().all(|visits| *visits == 1), "{visits:?}");
        for url in &self.accepted {
            let is_done = self.finished.contains(url) || self.in_doubt.contains(url);
            assert!(is_done, "{url} was lost");
        }
        let counts = self.frontier.counts(&crawl());
        let finished = counts.map_or(0, |counts| counts.finished());
        let least = self.accepted.len() as u64;
        assert!(finished >= least, "{finished} finished of {least}");
    }
}

fn url(page: u8) -> String {
    format!("https://{}.com/{}", page % DOMAINS, page % PAGES)
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        Just(Word::Never),
        Just(Word::Soon),
        Just(Word::Unvisited),
        Just(Word::Silent)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let words = proptest::collection::vec(word(), 1..4);
    prop_oneof![
        4 => proptest::collection::vec(0..PAGES, 1..5).prop_map(Step::Put),
        6 => (1..4_u32, any::<bool>()).prop_map(|(most, shares)| Step::Take(most, shares)),
        6 => (any::<usize>(), words, any::<bool>(), 0..PAGES)
            .prop_map(|(unit, words, keep, found)| Step::Speak(unit, words, keep, found)),
        1 => (any::<usize>(), 0..200_u64).prop_map(|(unit, s)| Step::Extend(unit, s)),
        1 => any::<usize>().prop_map(Step::Drop),
        3 => (0..90_u64).prop_map(Step::Wait),
        1 => (-4_000..4_000_i64).prop_map(Step::MoveWall),
        1 => Just(Step::Restart),
        1 => prop_oneof![Just(Fault::Before), Just(Fault::After)].prop_map(Step::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_page_is_lost_and_no_stale_word_is_accepted(
        steps in proptest::collection::vec(step(), 1..80),
        owners_max in 1..3_u8,
        spacing in 0..3_u64,
    ) {
        let settings = Settings {
            owners_max,
            spacing: Spacing::Fixed(Duration::from_secs(spacing)),
            ..Settings::default()
        };
        let mut world = World::new(settings);
        for step in &steps {
            world.step(step);
        }
        world.drain();
    }
}
