//! Measures the frontier on disk: adding pages, taking and giving back units, opening again.
//!
//! ```sh
//! cargo bench --profile dist -p politely-frontier --bench put -- PAGES DOMAINS
//! ```

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use politely_core::Timestamp;
use politely_core::key::KeyKind;
use politely_frontier::{
    CrawlName, Date, EmbeddedStore, Frontier, GiveBack, Moment, NewPage, Next, PageOutcome,
    Settings, Store as _, Take, ValidPage,
};

/// The number of pages in one call, as in a call of the coordinator.
const BATCH: usize = 5_000;
/// The number of units that are taken and given back.
const UNITS: usize = 20_000;
/// The memory for blocks that were read, as in the coordinator.
const CACHE_BYTES: u64 = 64 << 20;

fn main() {
    // `cargo test --benches` passes flags of the test runner.
    let mut numbers = std::env::args().filter_map(|text| text.parse::<usize>().ok());
    let pages = numbers.next().unwrap_or(1_000_000);
    let domains = numbers.next().unwrap_or(100_000);
    let folder = tempfile::tempdir().expect("a folder");
    let mut frontier = open(folder.path());
    let crawl: CrawlName = "bench".parse().expect("a name");
    for what in ["new", "known"] {
        put(&mut frontier, &crawl, what, pages, domains);
    }
    exchange(&mut frontier, &crawl);
    let bytes = frontier.store().disk_bytes().expect("a working disk");
    println!("disk: {} bytes per page", bytes / pages.max(1) as u64);
    drop(frontier);
    let before = resident_bytes();
    let frontier = open(folder.path());
    let memory = resident_bytes().saturating_sub(before);
    let domains = frontier.counts(&crawl).expect("the crawl").domains;
    println!("{} bytes of memory per domain", memory / domains.max(1));
}

fn open(folder: &Path) -> Frontier<EmbeddedStore> {
    let began = clock();
    let store = EmbeddedStore::open(folder, CACHE_BYTES).expect("a folder");
    let storage = began.elapsed();
    let frontier = Frontier::open(store, Settings::default(), 1, now()).expect("a whole store");
    println!("open: {:?}, of it the storage {storage:?}", began.elapsed());
    frontier
}

/// Puts pages as one caller does that checks the next pages while the last ones are stored.
fn put(
    frontier: &mut Frontier<EmbeddedStore>,
    crawl: &CrawlName,
    what: &str,
    pages: usize,
    domains: usize,
) {
    let (send, batches) = std::sync::mpsc::sync_channel(1);
    let checking = std::thread::spawn(move || {
        for first in (0..pages).step_by(BATCH) {
            let numbers = first..pages.min(first + BATCH);
            let page = |number| ValidPage::new(page(number, domains), KeyKind::Host);
            let batch = numbers.map(page).collect::<Result<Vec<_>, _>>();
            if send.send(batch.expect("valid pages")).is_err() {
                break;
            }
        }
    });
    let began = clock();
    let mut slowest = Duration::ZERO;
    for batch in batches {
        let began = clock();
        frontier
            .put_valid(crawl, &batch, now())
            .expect("a working store");
        frontier.store().sync().expect("a working disk");
        slowest = slowest.max(began.elapsed());
    }
    checking.join().expect("valid pages");
    let rate = pages as f64 / began.elapsed().as_secs_f64();
    println!(
        "put of {pages} {what} pages on {domains} domains: {rate:.0} pages/s, slowest call \
         {slowest:?}"
    );
}

/// Takes units of ten pages and gives them back.
fn exchange(frontier: &mut Frontier<EmbeddedStore>, crawl: &CrawlName) {
    let mut spent = Vec::with_capacity(UNITS);
    let began = clock();
    for _ in 0..UNITS {
        let began = clock();
        let unit = frontier
            .take(&wish(crawl), now(), &mut |_, pages| Ok(pages))
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
    let rate = spent.len() as f64 / began.elapsed().as_secs_f64();
    spent.sort_unstable();
    let at = |share: usize| {
        let place = (spent.len() * share / 100).min(spent.len().saturating_sub(1));
        spent.get(place).copied().unwrap_or_default()
    };
    println!(
        "take of a unit of 10 pages: median {:?}, p99 {:?}; {rate:.0} exchanges/s without fsync",
        at(50),
        at(99)
    );
}

/// Returns the memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4_096
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
        shares_domain: false,
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
