//! P11 through the coordinator: bad pages do not slow down the good pages of their host.
//!
//! A worker asks for each page by its URL and reports without naming it, as a client of the plain
//! HTTP API does. It sends untried pages first, and in one of a few departures a page that is due
//! again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use politely::core::Rng;
use politely::core::config::Config;
use politely_api::wire::{ErrorKind, Grant, Item, Kind, Next, Told, ToldAnswer};
use tokio::time::{Instant, sleep, sleep_until};

use super::{AT_ONCE, Unwrapped, coordinator, item, told};

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Five minutes at the full rate. The first refusals hold the host for seconds, until a page has
/// shown that it alone is refused.
const PAGES: usize = 3_000;
const PATIENCE: Duration = Duration::from_mins(5);

/// The answer that a page always gives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    Good,
    /// This status, with this Retry-After unless it is empty.
    Status(u16, &'static str),
    Fails(ErrorKind),
}

const BAD: [Page; 12] = [
    Page::Status(429, ""),
    Page::Status(429, "2"),
    Page::Status(503, "2"),
    Page::Status(403, "2"),
    Page::Status(500, ""),
    Page::Status(502, ""),
    Page::Status(504, ""),
    Page::Status(404, "7200"),
    Page::Status(403, ""),
    Page::Fails(ErrorKind::Reset),
    Page::Fails(ErrorKind::Timeout),
    Page::Fails(ErrorKind::Malformed),
];

impl Page {
    fn told(self, grant: &Grant) -> Told {
        let mut said = told(grant);
        match self {
            Self::Good => {}
            Self::Status(status, after) => {
                said.status = Some(status);
                if !after.is_empty() {
                    said.headers = BTreeMap::from([("Retry-After".into(), after.into())]);
                }
            }
            Self::Fails(error) => (said.status, said.error) = (None, Some(error)),
        }
        said
    }
}

fn page(number: usize) -> Item {
    Item {
        url: Some(format!("http://h.example/{number}")),
        key: None,
        ..item("", "")
    }
}

struct Tried {
    page: usize,
    attempt: u16,
    free: u16,
}

/// Crawls `pages`. Returns the times from the beginning to the answer of each departure. The last
/// one served the last good page.
async fn crawl(pages: &[Page], config: Config) -> Vec<Duration> {
    let coordinator = coordinator(config);
    let worker = coordinator.worker("a");
    let began = Instant::now();
    let mut fresh: VecDeque<usize> = (0..pages.len()).collect();
    let mut again = BinaryHeap::new();
    let mut waits = BTreeMap::new();
    let mut good = pages.iter().filter(|page| **page == Page::Good).count();
    let (mut since_retry, mut probing) = (0, false);
    let mut answered = Vec::new();
    while good > 0 {
        let now = Instant::now();
        let due = again.peek().map(|Reverse((at, _))| *at);
        // A first retry tells whose fault the failure was, so it goes sooner.
        let turn = again.peek().is_some_and(|Reverse((_, page))| {
            let first = waits
                .get(page)
                .is_some_and(|tried: &Tried| tried.attempt == 1);
            since_retry >= if first { 3 } else { 9 }
        });
        let is_due = due.is_some_and(|at| at <= now);
        let retry = is_due && (fresh.is_empty() || turn && !probing);
        let mut tried = if retry {
            let Reverse((_, page)) = again.pop().unwrap();
            waits.remove(&page).unwrap()
        } else if let Some(page) = fresh.pop_front() {
            Tried {
                page,
                attempt: 0,
                free: 0,
            }
        } else {
            sleep_until(due.unwrap()).await;
            continue;
        };
        since_retry = if retry { 0 } else { since_retry + 1 };
        tried.attempt += 1;
        let item = Item {
            kind: if tried.attempt > 1 {
                Kind::Retry
            } else {
                Kind::First
            },
            ..page(tried.page)
        };
        let grant = coordinator.one(&worker, item, PATIENCE).await.granted();
        sleep(ROUND_TRIP).await;
        answered.push(began.elapsed());
        let answers = pages[tried.page];
        let said = Told {
            attempt: tried.attempt,
            free: tried.free,
            ..answers.told(&grant)
        };
        let heard: ToldAnswer = coordinator.tell(&worker, &said);
        assert!(heard.error.is_none() && !heard.late, "{heard:?}");
        if answers == Page::Good {
            (good, probing) = (good - 1, false);
        } else {
            probing |= !heard.url_fault && heard.hold_ms > 0;
        }
        if let Next::Retry { after_ms, free } = heard.next {
            tried.free += u16::from(free);
            let at = Instant::now() + Duration::from_millis(after_ms);
            again.push(Reverse((at, tried.page)));
            waits.insert(tried.page, tried);
        }
    }
    answered
}

/// Returns the pace of the good pages of `crawl`, as a share of that of `alone`, a crawl without
/// bad pages.
fn pace(crawl: &[Duration], alone: &[Duration]) -> f64 {
    let last = crawl.len() - 1;
    alone[last].as_secs_f64() / crawl[last].as_secs_f64()
}

async fn alone() -> Vec<Duration> {
    crawl(&vec![Page::Good; 2 * PAGES], Config::crawler()).await
}

#[tokio::test(start_paused = true)]
async fn no_kind_of_bad_page_slows_the_good_ones() {
    let alone = alone().await;
    let mut mixes: Vec<_> = BAD.into_iter().map(|bad| (bad, 5)).collect();
    for bad in [Page::Status(429, "2"), Page::Fails(ErrorKind::Reset)] {
        mixes.extend([(bad, 60), (bad, 2)]);
    }
    for (bad, every) in mixes {
        let page = |i| {
            if i % every == every - 1 {
                bad
            } else {
                Page::Good
            }
        };
        let pages: Vec<_> = (0..PAGES).map(page).collect();
        let share = pace(&crawl(&pages, Config::crawler()).await, &alone);
        assert!(share >= 0.9, "{bad:?}, one in {every}: {share:.3}");
    }
}

#[tokio::test(start_paused = true)]
async fn any_mix_of_bad_pages_leaves_the_good_ones_their_pace() {
    let alone = alone().await;
    for seed in 0..5 {
        let mut rng = Rng::new(seed);
        let every = 3 + seed * 10;
        let mut page = || match rng.next_u64() % every {
            0 => BAD[(rng.next_u64() % BAD.len() as u64) as usize],
            _ => Page::Good,
        };
        let pages: Vec<_> = (0..PAGES).map(|_| page()).collect();
        let share = pace(&crawl(&pages, Config::crawler()).await, &alone);
        assert!(share >= 0.9, "{seed}: {share:.3}");
    }
}

/// All pages fail for two minutes. Then they are served, with the attempts that they had.
#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_page_its_attempts() {
    let coordinator = coordinator(Config::crawler());
    let worker = coordinator.worker("a");
    let mut pages: Vec<(u16, u16, Instant)> = vec![(0, 0, Instant::now()); 20];
    let began = Instant::now();
    let mut left = pages.len();
    while left > 0 {
        let Some(number) = (0..pages.len()).min_by_key(|&number| pages[number].2) else {
            unreachable!("there are pages")
        };
        let (attempt, free, due) = &mut pages[number];
        sleep_until(*due).await;
        let grant = coordinator
            .one(&worker, page(number), PATIENCE)
            .await
            .granted();
        sleep(ROUND_TRIP).await;
        *attempt += 1;
        let is_away = (1..120).contains(&began.elapsed().as_secs());
        let answer = if is_away {
            Page::Fails(ErrorKind::Reset)
        } else {
            Page::Good
        };
        let said = Told {
            attempt: *attempt,
            free: *free,
            ..answer.told(&grant)
        };
        match coordinator.tell(&worker, &said).next {
            Next::Retry {
                after_ms,
                free: is_free,
            } => {
                *free += u16::from(is_free);
                *due = Instant::now() + Duration::from_millis(after_ms);
            }
            Next::Done if !is_away => {
                left -= 1;
                *due += Duration::from_hours(1);
            }
            other => panic!("page {number}, attempt {attempt}: {other:?}"),
        }
        // At most one attempt counted before the second page failed.
        assert!(*attempt - *free <= 2, "page {number}: {attempt}, {free}");
    }
}

/// The item's URL stands for several departures, which may go to several pages.
#[tokio::test(start_paused = true)]
async fn a_permit_for_several_departures_names_no_page() {
    let coordinator = coordinator(Config::fixed(10.0, 10.0));
    let worker = coordinator.worker("a");
    let mut faults = Vec::new();
    for slots in [1, 2] {
        for number in 0..2 {
            let granted = coordinator.one(&worker, page(100 + number), PATIENCE).await;
            coordinator.tell(&worker, &told(&granted.granted()));
            let item = Item { slots, ..page(0) };
            let grant = coordinator.one(&worker, item, PATIENCE).await.granted();
            let said = Page::Status(429, "2").told(&grant);
            let heard = coordinator.tell(&worker, &said);
            faults.push(heard.url_fault);
        }
    }
    assert_eq!(faults, [false, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn the_answer_says_how_long_a_redirects_target_waits() {
    let coordinator = coordinator(Config::fixed(10.0, 10.0));
    let worker = coordinator.worker("a");
    for (redirect, after) in [
        (Page::Status(302, "30"), 30_000),
        (Page::Status(302, ""), 0),
    ] {
        let grant = coordinator.one(&worker, page(1), AT_ONCE).await.granted();
        let heard = coordinator.tell(&worker, &redirect.told(&grant));
        assert_eq!((heard.target_after_ms, heard.hold_ms), (after, 0));
        let again = coordinator.tell(&worker, &redirect.told(&grant));
        assert_eq!((again.target_after_ms, again.late), (after, true));
    }
}
