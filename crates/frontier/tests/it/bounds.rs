//! Bounds, bad input and failing storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use politely_frontier::{
    Answer, Batch, Date, Frontier, FrontierError, Invalid, MemoryStore, NewPage, Settings, Store,
    StoreError, Table,
};

use crate::support::{crawl, in_memory, moment, put, reopen, take, take_at};

#[test]
fn full_means_a_bound_of_the_domain_the_crawl_or_the_frontier() {
    let settings = Settings {
        pages_per_domain_max: 2,
        pages_per_crawl_max: 4,
        domains_max: 2,
        ..Settings::default()
    };
    let mut frontier = in_memory(settings.clone());
    let urls = ["http://a/1", "http://a/2", "http://a/3", "http://a/1"];
    let answers = put(&mut frontier, &urls, 0);
    assert_eq!(
        answers,
        [Answer::New, Answer::New, Answer::Full, Answer::Known]
    );
    // A finished page still counts, since it is remembered.
    take_at(&mut frontier, 9, 0).unwrap();
    let urls = [
        "http://b/1",
        "http://c/1",
        "http://b/2",
        "http://a/2",
        "http://d/",
    ];
    let answers = put(&mut frontier, &urls, 0);
    let full = [
        Answer::New,
        Answer::Full,
        Answer::New,
        Answer::Known,
        Answer::Full,
    ];
    assert_eq!(answers, full);
    let mut frontier = reopen(&frontier, settings, moment(0));
    assert_eq!(put(&mut frontier, &["http://b/3"], 0), [Answer::Full]);
}

#[test]
fn a_bad_page_does_not_hinder_the_others() {
    let mut frontier = in_memory(Settings::default());
    let long = "x".repeat(64 * 1_024);
    let answers = put(&mut frontier, &["example.com/a", &long, "http://a/"], 0);
    let [
        Answer::Invalid(Invalid::Url(_)),
        Answer::Invalid(Invalid::UrlLen(65_536)),
        Answer::New,
    ] = answers[..]
    else {
        panic!("{answers:?}");
    };
}

#[test]
fn dates_end_with_the_year_9999() {
    assert_eq!(Date::from_millis(1 << 63), None);
    assert_eq!(Date::from_millis(253_402_300_800_000), None);
    assert!(Date::from_millis(253_402_300_799_999).is_some());
}

#[test]
fn calls_have_bounds() {
    let settings = Settings {
        pages_per_put_max: 2,
        crawls_max: 1,
        units_max: 1,
        pages_per_unit_max: 2,
        ..Settings::default()
    };
    let mut frontier = in_memory(settings);
    let page = NewPage::of_url("http://a/1");
    let many = frontier.put(&crawl(), vec![page.clone(); 3], moment(0));
    assert!(matches!(many, Err(FrontierError::TooManyPages(3, 2))));
    put(&mut frontier, &["http://a/1", "http://a/2"], 0);
    put(&mut frontier, &["http://a/3", "http://b/"], 0);
    let other = frontier.put(&"other".parse().unwrap(), vec![page], moment(0));
    assert!(matches!(other, Err(FrontierError::TooManyCrawls(1, _))));
    // A worker that takes and never returns.
    let unit = take_at(&mut frontier, u32::MAX, 0).unwrap();
    assert_eq!(unit.pages.len(), 2);
    let next = frontier.take(&take(1), moment(0), &mut |_, pages| Ok(pages));
    assert!(matches!(next, Err(FrontierError::TooManyUnits(1))));
    assert!(take_at(&mut frontier, 1, 60).is_some());
    let mut wish = take(1);
    wish.crawl = Some("unknown".parse().unwrap());
    let unknown = frontier.take(&wish, moment(60), &mut |_, pages| Ok(pages));
    assert!(matches!(unknown, Err(FrontierError::UnknownCrawl(_))));
}

#[test]
fn names_of_crawls_are_plain() {
    for name in ["", "a b", "a/b", "é", &"a".repeat(65)] {
        assert!(
            name.parse::<politely_frontier::CrawlName>().is_err(),
            "{name}"
        );
    }
}

/// A storage that is full after a while.
#[derive(Default)]
struct FullStore {
    inner: MemoryStore,
    is_full: AtomicBool,
}

impl Store for FullStore {
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
        if self.is_full.load(Ordering::Relaxed) {
            return Err(StoreError("no space left on device".to_owned()));
        }
        self.inner.commit(batch)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }

    fn recover(&self) -> Result<(), StoreError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(StoreError("still no space".to_owned()));
        }
        Ok(())
    }
}

#[test]
fn a_full_disk_closes_the_frontier_and_loses_nothing() {
    let store = Arc::new(FullStore::default());
    let settings = Settings::default();
    let mut frontier = Frontier::open(Arc::clone(&store), settings, 1, moment(0)).unwrap();
    put(&mut frontier, &["http://a/1"], 0);
    store.is_full.store(true, Ordering::Relaxed);
    let mut put_again = || frontier.put(&crawl(), vec![NewPage::of_url("http://a/2")], moment(0));
    let failed = put_again().unwrap_err().to_string();
    assert_eq!(
        failed,
        "the storage of the frontier failed: no space left on device; repair it or free some space"
    );
    let closed = put_again().unwrap_err().to_string();
    assert_eq!(
        closed,
        "the storage of the frontier failed before: no space left on device; repair it or free \
         some space"
    );
    let full = frontier.recover(moment(0)).unwrap_err();
    assert_eq!(frontier.failure(), Some(&full));
    store.is_full.store(false, Ordering::Relaxed);
    // Only the recovery reads what is stored.
    let again = frontier.put(&crawl(), vec![NewPage::of_url("http://a/2")], moment(0));
    assert!(matches!(again, Err(FrontierError::Closed(_))));
    frontier.recover(moment(0)).unwrap();
    assert_eq!(frontier.failure(), None);
    let answers = put(&mut frontier, &["http://a/1", "http://a/2"], 0);
    assert_eq!(answers, [Answer::Known, Answer::New]);
}
