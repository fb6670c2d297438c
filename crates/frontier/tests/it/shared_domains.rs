//! Units that share their domain: each page is leased by itself. Also the order of pages that are
//! due, and the delay of a domain.

use std::sync::Arc;
use std::time::Duration;

use politely_frontier::{Answer, Frontier, MemoryStore, NewPage, Revision, Settings, Take, Unit};
use proptest::prelude::*;

use crate::support::{crawl, date, done, in_memory, moment, put, reopen, take, take_at, urls};

const A: &str = "https://a.com/1";
const A2: &str = "https://a.com/2";
const A3: &str = "https://a.com/3";

type Memory = Frontier<Arc<MemoryStore>>;

fn share_at(frontier: &mut Memory, pages_max: u32, seconds: u64) -> Option<Unit> {
    let take = Take {
        shares_domain: true,
        ..take(pages_max)
    };
    let unit = frontier.take(&take, moment(seconds), &mut |_, pages| Ok(pages));
    unit.expect("a working store")
}

fn revise(frontier: &mut Memory, url: &str, again: Option<u64>, seconds: u64) -> Answer {
    let revision = Revision {
        page: NewPage {
            metadata: b"new".to_vec(),
            ..NewPage::of_url(url)
        },
        status: 200,
        again: again.map(date),
    };
    let revised = frontier.revise(&crawl(), revision, moment(seconds));
    revised.expect("a working store")
}

#[test]
fn a_unit_that_shares_its_domain_keeps_its_own_pages_only() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2, A3], 0);
    let lost = share_at(&mut frontier, 1, 0).expect("a page");
    let second = share_at(&mut frontier, 1, 0).expect("another page");
    assert_eq!((urls(&lost), urls(&second)), (vec![A], vec![A2]));
    let mut frontier = reopen(&frontier, Settings::default(), moment(1));
    let owner = take_at(&mut frontier, 9, 1).expect("a unit with an owner");
    assert_eq!(urls(&owner), [A3]);
    put(&mut frontier, &["https://a.com/4"], 1);
    assert_eq!(
        share_at(&mut frontier, 9, 1),
        None,
        "the domain has an owner"
    );
    frontier
        .give_back(done(owner.token, &[A3]), moment(2))
        .expect("the owner");
    let fourth = share_at(&mut frontier, 9, 2).expect("a page");
    assert_eq!(urls(&fourth), ["https://a.com/4"]);
    assert_eq!(revise(&mut frontier, A2, None, 3), Answer::Known);
    assert_eq!(frontier.counts(&crawl()).expect("a crawl").leased, 2);
    // The page that was lost comes again after its lease.
    frontier.end_expired(moment(60)).expect("a working store");
    let counts = frontier.counts(&crawl()).expect("a crawl");
    assert_eq!((counts.leased, counts.ready), (1, 1));
    assert_eq!(urls(&share_at(&mut frontier, 9, 61).expect("a page")), [A]);
}

#[test]
fn domains_take_turns_while_others_share_them() {
    let mut frontier = in_memory(Settings::default());
    put(
        &mut frontier,
        &[A, A2, "https://b.com/1", "https://b.com/2"],
        0,
    );
    let next = |seconds| {
        let unit = share_at(&mut frontier, 1, seconds).expect("a page");
        unit.domain
    };
    let domains: Vec<_> = (1..5).map(next).collect();
    assert_eq!(domains, ["a.com", "b.com", "a.com", "b.com"]);
}

#[test]
fn the_metadata_of_a_visited_page_is_the_latest() {
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A], 0);
    share_at(&mut frontier, 1, 0).expect("a page");
    assert_eq!(revise(&mut frontier, A, Some(5), 1), Answer::Known);
    let again = share_at(&mut frontier, 1, 5).expect("a page that is due");
    assert_eq!(again.pages[0].metadata, b"new");
}

#[test]
fn a_page_that_was_visited_elsewhere_comes_at_its_date() {
    let mut frontier = in_memory(Settings::default());
    assert_eq!(revise(&mut frontier, A, Some(9), 1), Answer::New);
    let page = frontier.page(&crawl(), A, None).expect("a crawl");
    let page = page.expect("a page");
    assert_eq!((page.visited, page.again), (Some(date(1)), Some(date(9))));
    assert_eq!(share_at(&mut frontier, 1, 8), None);
    assert!(share_at(&mut frontier, 1, 9).is_some());
}

#[test]
fn a_delay_counts_from_the_last_take() {
    let delay = Duration::from_secs(10);
    let mut frontier = in_memory(Settings::default());
    put(&mut frontier, &[A, A2, A3], 0);
    let set = |frontier: &mut Memory, delay, seconds| {
        let set = frontier.delay(&crawl(), "a.com", delay, moment(seconds));
        set.expect("a domain");
    };
    set(&mut frontier, delay, 0);
    assert!(share_at(&mut frontier, 1, 1).is_some(), "nothing was taken");
    assert_eq!(share_at(&mut frontier, 1, 10), None);
    let status = frontier.domain(&crawl(), "a.com", moment(10));
    assert_eq!(status.expect("a domain").wait, Duration::from_secs(1));
    let mut frontier = reopen(&frontier, Settings::default(), moment(10));
    assert_eq!(share_at(&mut frontier, 1, 10), None);
    assert!(share_at(&mut frontier, 1, 11).is_some());
    set(&mut frontier, Duration::ZERO, 12);
    assert!(share_at(&mut frontier, 1, 12).is_some(), "no delay is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Within a priority, a page leaves before all pages of a later second. Pages come in any
    /// order, in several calls, ahead of their dates or behind.
    #[test]
    fn pages_leave_in_the_order_of_their_dates(
        dates in prop::collection::vec(0_u64..200, 1..80),
        calls in 1_usize..9,
        first_take in 0_u64..220,
        most in 1_u32..40,
    ) {
        let mut frontier = in_memory(Settings::default());
        let mut dates_of = std::collections::BTreeMap::new();
        for (number, pages) in dates.chunks(dates.len().div_ceil(calls)).enumerate() {
            let seconds = 20 * number as u64;
            let page = |(place, due): (usize, &u64)| NewPage {
                due: Some(date(*due)),
                ..NewPage::of_url(format!("https://a.com/{number}-{place}"))
            };
            let pages: Vec<_> = pages.iter().enumerate().map(page).collect();
            for page in &pages {
                dates_of.insert(page.url.clone(), page.due);
            }
            frontier.put(&crawl(), pages, moment(seconds)).expect("a working store");
            if seconds == 20 {
                // Some pages are made ready before later calls add earlier ones.
                let taken = share_at(&mut frontier, 1, first_take.max(seconds));
                for page in taken.iter().flat_map(|unit| &unit.pages) {
                    dates_of.remove(&page.url);
                }
            }
        }
        let mut left = Vec::new();
        while let Some(unit) = share_at(&mut frontier, most, 1_000) {
            left.extend(unit.pages.into_iter().filter_map(|page| dates_of.remove(&page.url)));
            if dates_of.is_empty() {
                break;
            }
        }
        prop_assert!(dates_of.is_empty(), "{dates_of:?}");
        prop_assert!(left.is_sorted(), "{left:?}");
    }
}
