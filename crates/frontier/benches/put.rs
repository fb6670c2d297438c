//! Measures how many pages a second the frontier on disk takes, and how long a unit takes.
//!
//! ```sh
//! cargo bench -p politely-frontier --bench put -- PAGES DOMAINS
//! ```

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use politely_core::Timestamp;
use politely_frontier::{
    CrawlName, Date, EmbeddedStore, Frontier, GiveBack, Moment, NewPage, Next, PageOutcome,
    Settings, Store as _, Take,
};

/// The number of pages in one call, as in a call of the coordinator.
const BATCH: usize = 5_000;
/// The number of units that are taken and given back.
const UNITS: usize = 20_000;

fn main() {
    // `cargo test --benches` passes flags of the test runner.
    let mut numbers = std::env::args().filter_map(|text| text.parse::<usize>().ok());
    let pages = numbers.next().unwrap_or(1_000_000);
    let domains = numbers.next().unwrap_or(100_000);
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(folder.path(), 64 << 20).expect("a new folder");
    let mut frontier = Frontier::open(store, Settings::default(), 1, now()).expect("a new store");
    let crawl: CrawlName = "bench".parse().expect("a name");
    for what in ["new", "known"] {
        let mut spent = Duration::ZERO;
        for first in (0..pages).step_by(BATCH) {
            let numbers = first..pages.min(first + BATCH);
            let batch: Vec<_> = numbers.map(|number| page(number, domains)).collect();
            let began = clock();
            frontier.put(&crawl, batch, now()).expect("a working store");
            frontier.store().sync().expect("a working disk");
            spent += began.elapsed();
        }
        let rate = pages as f64 / spent.as_secs_f64();
        println!("put of {pages} {what} pages on {domains} domains: {rate:.0} pages/s");
    }
    let mut spent = Vec::with_capacity(UNITS);
    for _ in 0..UNITS {
        let began = clock();
        let unit = frontier
            .take(&wish(&crawl), now(), &mut |_, pages| Ok(pages))
            .expect("a working store");
        let Some(unit) = unit else { break };
        spent.push(began.elapsed());
        let outcome = |page: politely_frontier::TakenPage| PageOutcome {
            url: page.url,
            status: 200,
            next: Next::Never,
        };
        let words = GiveBack {
            outcomes: unit.pages.into_iter().map(outcome).collect(),
            ..GiveBack::of_token(unit.token)
        };
        frontier.give_back(words, now()).expect("the owner");
    }
    spent.sort_unstable();
    let at = |share: usize| {
        spent
            .get(spent.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "take of a unit of 10 pages: median {:?}, p99 {:?}",
        at(50),
        at(99)
    );
    let bytes = frontier.store().disk_bytes().expect("a working disk");
    println!("disk: {} bytes per page", bytes / pages.max(1) as u64);
}

fn page(number: usize, domains: usize) -> NewPage {
    // A crawler finds pages of a few domains at a time.
    let domain = (number / 10).wrapping_mul(7_919) % domains;
    NewPage::of_url(format!(
        "https://www.example-{domain}.com/a/path/of/usual/length/{number}.html"
    ))
}

fn wish(crawl: &CrawlName) -> Take {
    Take {
        crawl: Some(crawl.clone()),
        pages_max: 10,
        lease: Duration::from_mins(1),
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Moment {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let millis = u64::try_from(since.as_millis()).expect("before the year 9999");
    Moment {
        at: Timestamp::from_micros(millis * 1_000),
        date: Date::from_millis(millis).expect("before the year 9999"),
    }
}
