//! One domain with a million pages, and a million domains with one page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use politely_frontier::{
    Answer, Batch, Frontier, MemoryStore, NewPage, Settings, Store, StoreError, Table,
};

use crate::support::{crawl, done, moment, reopen, take_at, urls};

const MANY: u64 = 1_000_000;
/// The number of pages in one call.
const BATCH: u64 = 10_000;

/// A storage that counts the entries it returns.
#[derive(Default)]
struct CountingStore {
    inner: MemoryStore,
    entries: AtomicU64,
}

impl CountingStore {
    /// Returns the number of entries that were read since the last call.
    fn count(&self) -> u64 {
        self.entries.swap(0, Ordering::Relaxed)
    }
}

impl Store for CountingStore {
    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.inner.read(table, key)
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.inner.scan(table, prefix, from, &mut |key, value| {
            self.entries.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.inner.commit(batch)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }
}

/// Adds pages number 0 to [`MANY`], each with the URL that `url` returns.
fn fill(url: impl Fn(u64) -> String) -> Frontier<Arc<CountingStore>> {
    let store = Arc::new(CountingStore::default());
    let mut frontier = Frontier::open(store, Settings::default(), 7, moment(0)).unwrap();
    for first in (0..MANY).step_by(BATCH as usize) {
        let pages = (first..first + BATCH).map(|number| NewPage::of_url(url(number)));
        let answers = frontier.put(&crawl(), pages.collect(), moment(0)).unwrap();
        assert!(answers.iter().all(|answer| *answer == Answer::New));
    }
    frontier
}

#[test]
fn one_domain_with_a_million_pages_is_taken_from_its_front() {
    let mut frontier = fill(|number| format!("https://a.com/{number}"));
    frontier.store().count();
    for unit_number in 0..200 {
        let unit = take_at(&mut frontier, 1_000, 0).unwrap();
        let first = format!("https://a.com/{}", unit_number * 1_000);
        assert_eq!((unit.pages.len(), urls(&unit)[0]), (1_000, first.as_str()));
        let finished = done(unit.token, &urls(&unit));
        frontier.give_back(finished, moment(0)).unwrap();
        // The unit's pages, their runs twice, and a few rows of the domain.
        let entries = frontier.store().count();
        assert!(entries < 1_200, "{entries} entries were read");
    }
    // Opening reads no pages.
    let mut frontier = reopen(&frontier, Settings::default(), moment(1));
    let entries = frontier.store().count();
    assert!(entries < 50, "{entries} entries were read");
    let counts = frontier.counts(&crawl()).unwrap();
    assert_eq!((counts.ready, counts.finished()), (800_000, 200_000));
    let unit = take_at(&mut frontier, 1, 1).unwrap();
    assert_eq!(urls(&unit), ["https://a.com/200000"]);
}

#[test]
fn a_million_domains_are_handed_out_in_the_order_in_which_they_came() {
    let mut frontier = fill(|number| format!("https://{number}.com/"));
    let mut frontier = {
        let counts = frontier.counts(&crawl()).unwrap();
        assert_eq!((counts.domains, counts.ready), (MANY, MANY));
        frontier.store().count();
        // A call for one of them reads no other.
        let unit = take_at(&mut frontier, 10, 0).unwrap();
        assert_eq!(urls(&unit), ["https://0.com/"]);
        let entries = frontier.store().count();
        assert!(entries < 10, "{entries} entries were read");
        reopen(&frontier, Settings::default(), moment(1))
    };
    for number in 1..1_000 {
        let unit = take_at(&mut frontier, 10, 1).unwrap();
        assert_eq!(urls(&unit), [format!("https://{number}.com/")]);
    }
    // Words about a whole crawl end at once, whatever its size.
    frontier.delete(&crawl(), None, moment(2)).unwrap();
    assert_eq!(frontier.units_len(), 0);
}
