//! What all tests of the frontier need.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_frontier::{
    Answer, CrawlName, Date, Frontier, GiveBack, MemoryStore, Moment, NewPage, Next, PageOutcome,
    Settings, Store, Take, Token, Unit,
};

pub(crate) const LEASE: Duration = Duration::from_mins(1);

/// Both clocks at the same number of seconds.
pub(crate) fn moment(seconds: u64) -> Moment {
    Moment {
        at: Timestamp::from_micros(seconds * 1_000_000),
        date: date(seconds),
    }
}

pub(crate) fn date(seconds: u64) -> Date {
    Date::from_millis(seconds * 1_000).expect("before the year 9999")
}

pub(crate) fn crawl() -> CrawlName {
    "test".parse().expect("a name")
}

pub(crate) fn take(pages_max: u32) -> Take {
    Take {
        crawl: None,
        pages_max,
        lease: LEASE,
        shares_domain: false,
    }
}

pub(crate) fn in_memory(settings: Settings) -> Frontier<Arc<MemoryStore>> {
    let store = Arc::new(MemoryStore::default());
    Frontier::open(store, settings, 7, moment(0)).expect("an empty store")
}

/// Opens the frontier again over the same storage, as after a restart.
pub(crate) fn reopen<S: Store + Clone>(
    frontier: &Frontier<S>,
    settings: Settings,
    now: Moment,
) -> Frontier<S> {
    Frontier::open(frontier.store().clone(), settings, 8, now).expect("a store that is whole")
}

pub(crate) fn put<S: Store>(
    frontier: &mut Frontier<S>,
    urls: &[&str],
    seconds: u64,
) -> Vec<Answer> {
    let pages = urls.iter().copied().map(NewPage::of_url).collect();
    frontier
        .put(&crawl(), pages, moment(seconds))
        .expect("a working store")
}

/// Takes a unit through a gate that is always open.
pub(crate) fn take_at<S: Store>(
    frontier: &mut Frontier<S>,
    pages_max: u32,
    seconds: u64,
) -> Option<Unit> {
    let unit = frontier.take(&take(pages_max), moment(seconds), &mut |_, pages| Ok(pages));
    unit.expect("a working store")
}

pub(crate) fn urls(unit: &Unit) -> Vec<&str> {
    unit.pages.iter().map(|page| page.url.as_str()).collect()
}

pub(crate) fn outcome(url: &str, next: Next) -> PageOutcome {
    PageOutcome {
        url: url.to_owned(),
        status: 200,
        next,
    }
}

/// The words of an owner that visited `urls` for the last time and returns the rest.
pub(crate) fn done(token: Token, urls: &[&str]) -> GiveBack {
    let outcomes = urls.iter().map(|url| outcome(url, Next::Never));
    GiveBack {
        outcomes: outcomes.collect(),
        ..GiveBack::of_token(token)
    }
}
