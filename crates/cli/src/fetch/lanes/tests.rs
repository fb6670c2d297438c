use super::pending::Page;
use super::*;
use crate::fetch::robots::Rules;
use politely::core::key::Key;
use politely::core::signal::{Resource, Signal};
use std::time::Duration;

const S: u64 = 1_000_000;
pub(super) fn policy() -> Policy {
    Policy {
        attempts_max: 2,
        ..Policy::crawler()
    }
}

pub(super) fn at(secs: f64) -> Timestamp {
    Timestamp::from_secs_f64(secs)
}

fn lanes(robots: bool, urls: &[(&str, u64)]) -> Lanes {
    let mut lanes = Lanes::new(robots, policy());
    for &(url, number) in urls {
        let lane = lane(&mut lanes, url);
        add(&mut lanes, lane, page(url, number), at(0.0));
    }
    lanes
}

/// A page whose URL ends with its number.
pub(super) fn page(url: &str, number: u64) -> Page {
    Page {
        url: format!("{url}?{number}").into(),
        ..Page::default()
    }
}

/// Adds a page, which the lane takes out of the crawl at once.
pub(super) fn add(lanes: &mut Lanes, lane: LaneId, page: Page, now: Timestamp) {
    lanes.add(lane, 1, now);
    assert!(lanes.filled(lane, vec![page], now));
}

fn number(pending: &Pending) -> u64 {
    let (_, number) = pending.page.url.split_once('?').unwrap();
    number.parse().unwrap()
}

pub(super) fn lane(lanes: &mut Lanes, url: &str) -> LaneId {
    let url = Url::parse(url).unwrap();
    lanes
        .lane_of(&url, || {
            Box::new([Box::new([Key::of_url(&url).unwrap()]) as KeySet])
        })
        .0
}

pub(super) fn take(lanes: &mut Lanes, now: Timestamp) -> Take<()> {
    lanes.take(now, |_| Ok(()))
}

pub(super) fn sent(take: Take<()>) -> (LaneId, Box<Pending>) {
    match take {
        Take::Send(job) => (job.lane, job.pending),
        Take::Drop(.., why) => panic!("dropped: {why}"),
        Take::Wait(until) => panic!("waits until {until:?}"),
        Take::Resolve(_) | Take::Fill(..) | Take::Finish(..) | Take::Done => panic!("done"),
    }
}

/// The robots.txt of a lane comes at the first second.
fn robots_come(lanes: &mut Lanes, id: LaneId, text: &[u8]) {
    let rules = Rules::of(Some(200), text, "politely").unwrap().into();
    let until = at(100.0);
    lanes.robots_answered(id, Standing::Known { rules, until }, at(1.0));
    lanes.came_back(id, at(1.0));
}

#[test]
fn a_slow_host_never_delays_a_fast_one() {
    let mut lanes = lanes(
        false,
        &[
            ("http://slow/", 1),
            ("http://fast/", 2),
            ("http://fast/", 3),
        ],
    );
    let may = |lane: &Lane| {
        if lane.name() == "slow" {
            Err(Refused::At(at(60.0)))
        } else {
            Ok(())
        }
    };
    for wanted in [2, 3] {
        let (_, pending) = sent(lanes.take(at(0.0), may));
        assert_eq!(number(&pending), wanted);
    }
    assert!(matches!(lanes.take(at(0.0), may), Take::Wait(Some(t)) if t == at(60.0)));
    assert_eq!(number(&sent(take(&mut lanes, at(60.0))).1), 1);
}

#[test]
fn a_lane_without_a_slot_is_woken_by_the_report_and_not_by_the_clock() {
    let mut lanes = lanes(
        false,
        &[("http://a/", 1), ("http://a/", 2), ("https://a/", 3)],
    );
    lanes.close_input();
    let (id, _) = sent(take(&mut lanes, at(0.0)));
    let full =
        |lane: &Lane| -> Result<(), _> { Err(Refused::Slot(at(120.0), lane.keys[0][0].clone())) };
    assert!(matches!(lanes.take(at(0.0), full), Take::Wait(Some(t)) if t == at(120.0)));
    lanes.came_back(id, at(1.0));
    // The key has two lanes: its http and its https one.
    let numbers = [
        number(&sent(take(&mut lanes, at(1.0))).1),
        number(&sent(take(&mut lanes, at(1.0))).1),
    ];
    assert_eq!(numbers.iter().sum::<u64>(), 5);
    lanes.came_back(0, at(2.0));
    lanes.came_back(1, at(2.0));
    // Out-of-date entries of earlier waits once kept the run alive until leases expired.
    assert!(matches!(take(&mut lanes, at(2.0)), Take::Done));
}

#[test]
fn a_page_that_waits_alone_holds_back_no_other_of_its_lane() {
    let mut lanes = lanes(
        false,
        &[("http://a/", 1), ("http://a/", 2), ("http://a/", 3)],
    );
    lanes.close_input();
    let held = |lane: &Lane| {
        let url = lane.next_url().expect("the page is known");
        if url.query() == Some("1") {
            Err(Refused::Page(at(60.0)))
        } else {
            Ok(())
        }
    };
    for wanted in [2, 3] {
        assert_eq!(number(&sent(lanes.take(at(0.0), held)).1), wanted);
        lanes.came_back(0, at(0.0));
    }
    assert!(matches!(lanes.take(at(0.0), held), Take::Wait(Some(t)) if t == at(60.0)));
    assert_eq!(lanes.waiting(), 1);
    assert_eq!(number(&sent(take(&mut lanes, at(60.0))).1), 1);
    lanes.came_back(0, at(61.0));
    assert!(matches!(take(&mut lanes, at(61.0)), Take::Done));
}

/// A lane may be due earlier than the limits said, because the answer to its last page can double
/// its rate.
#[test]
fn a_lane_that_waits_for_its_time_is_asked_again_at_a_report() {
    let mut lanes = lanes(false, &[("http://a/", 1), ("http://a/", 2)]);
    let (id, _) = sent(take(&mut lanes, at(0.0)));
    let later = |_: &Lane| -> Result<(), _> { Err(Refused::At(at(1.0))) };
    assert!(matches!(lanes.take(at(0.0), later), Take::Wait(Some(t)) if t == at(1.0)));
    lanes.came_back(id, at(0.1));
    assert_eq!(number(&sent(take(&mut lanes, at(0.1))).1), 2);
}

#[test]
fn a_page_that_came_back_goes_behind_all_that_waited_then_and_not_before_its_time() {
    let mut lanes = lanes(
        false,
        &[("http://a/", 1), ("http://a/", 2), ("http://a/", 3)],
    );
    let (id, first) = sent(take(&mut lanes, at(0.0)));
    let (_, second) = sent(take(&mut lanes, at(0.0)));
    lanes.put_back(id, first, at(5.0), at(1.0));
    lanes.put_back(id, second, Timestamp::ZERO, at(1.0));
    lanes.came_back(id, at(1.0));
    lanes.came_back(id, at(1.0));
    // This page is added after the others came back.
    add(&mut lanes, id, page("http://a/", 4), at(1.0));
    for (wanted, why) in [
        (3, "it waited when the others came back"),
        (2, "it came back before the next was added"),
        (4, "the first page still waits for its time"),
    ] {
        assert_eq!(number(&sent(take(&mut lanes, at(1.0))).1), wanted, "{why}");
    }
    assert!(matches!(take(&mut lanes, at(1.0)), Take::Wait(Some(t)) if t == at(5.0)));
    assert_eq!(number(&sent(take(&mut lanes, at(5.0))).1), 1);
}

#[test]
fn a_host_in_trouble_is_asked_for_what_was_not_tried_and_then_in_turn() {
    let mut lanes = lanes(false, &[("http://a/", 1), ("http://a/", 2)]);
    let mut now = at(0.0);
    let mut fail = |lanes: &mut Lanes, added: Option<u64>| {
        now = now + Duration::from_secs(1);
        let (id, mut pending) = sent(take(lanes, now));
        let tried = number(&pending);
        fail(lanes, id, &mut pending, tried, now);
        lanes.put_back(id, pending, Timestamp::ZERO, now);
        lanes.came_back(id, now);
        if let Some(added) = added {
            add(lanes, id, page("http://a/", added), now);
        }
        tried
    };
    let asked = [
        fail(&mut lanes, Some(3)),
        fail(&mut lanes, None),
        fail(&mut lanes, None),
        fail(&mut lanes, None),
        fail(&mut lanes, None),
        fail(&mut lanes, None),
    ];
    assert_eq!(asked, [1, 2, 3, 1, 2, 3]);
}

/// A page whose failures count ends without a further request as soon as that is known.
#[test]
fn a_page_that_failed_while_others_were_served_is_out_of_attempts() {
    let mut lanes = lanes(
        false,
        &[("http://a/", 1), ("http://a/", 2), ("http://a/", 3)],
    );
    let serve = |lanes: &mut Lanes, wanted: u64| {
        let (id, pending) = sent(take(lanes, at(1.0)));
        assert_eq!(number(&pending), wanted);
        lanes.tried(id);
        lanes.served(id);
        lanes.came_back(id, at(1.0));
    };
    for other in [2, 3] {
        let (id, mut pending) = sent(take(&mut lanes, at(1.0)));
        assert_eq!(number(&pending), 1);
        let verdict = fail(&mut lanes, id, &mut pending, 1, at(1.0));
        // Between its two failures, another page was served.
        let (not_before, host_serves) = (at(1.0), true);
        let charged = Verdict::Page {
            not_before,
            host_serves,
        };
        let is_first = other == 2;
        assert_eq!(verdict, if is_first { Verdict::Host } else { charged });
        pending.trouble = Some("504".into());
        lanes.put_back(id, pending, Timestamp::ZERO, at(1.0));
        lanes.came_back(id, at(1.0));
        serve(&mut lanes, other);
        if is_first {
            // The bad page came back while the third waited.
            serve(&mut lanes, 3);
            add(&mut lanes, id, page("http://a/", 3), at(1.0));
        }
    }
    let Take::Drop(_, pending, why) = take(&mut lanes, at(1.0)) else {
        panic!("not dropped")
    };
    assert_eq!((number(&pending), &*why), (1, "504 (failed 2 times)"));
}

#[test]
fn a_host_that_serves_nothing_is_given_up_with_all_that_waits() {
    let urls: Vec<(String, u64)> = (0..20).map(|i| (format!("http://a/{i}"), i)).collect();
    let urls: Vec<(&str, u64)> = urls.iter().map(|(url, i)| (url.as_str(), *i)).collect();
    let mut lanes = lanes(false, &urls);
    lanes.close_input();
    let (mut now, mut dropped, mut asked, mut open) = (at(0.0), 0, 0, at(0.0));
    loop {
        // The breaker rests for a minute after each failure.
        let may = |_: &Lane| {
            if open > now {
                Err(Refused::At(open))
            } else {
                Ok(())
            }
        };
        match lanes.take(now, may) {
            Take::Send(Job {
                lane, mut pending, ..
            }) => {
                asked += 1;
                open = now + Duration::from_mins(1);
                let tried = number(&pending);
                match fail(&mut lanes, lane, &mut pending, tried, now) {
                    Verdict::GivenUp(_) => dropped += 1,
                    verdict => {
                        assert_eq!(verdict, Verdict::Host);
                        lanes.put_back(lane, pending, Timestamp::ZERO, now);
                    }
                }
                lanes.came_back(lane, now);
            }
            Take::Wait(until) => now = until.unwrap(),
            Take::Drop(lane, _, why) => {
                assert!(why.contains("served nothing for 900 s"), "{why}");
                assert!(why.ends_with("refused"), "{why}");
                lanes.over(lane, true);
                dropped += 1;
            }
            Take::Done => break,
            Take::Resolve(_) | Take::Fill(..) | Take::Finish(..) => {
                panic!("has its key and its pages")
            }
        }
    }
    assert_eq!((dropped, asked, now), (20, 16, at(900.0)));
}

/// Records that the request for page `number` failed, on a host about which nothing else is known.
fn fail(
    lanes: &mut Lanes,
    lane: LaneId,
    pending: &mut Pending,
    number: u64,
    now: Timestamp,
) -> Verdict {
    let directions = Directions::unknown(now);
    lanes.failed(lane, pending, &failure(number), &directions, "refused", now)
}

/// A 502 from a gateway.
fn failure(number: u64) -> Report {
    Report {
        status: Some(502),
        resource: Some(Resource::of(&number.to_string())),
        ..Report::of(Signal::Overloaded)
    }
}

#[test]
fn robots_txt_comes_before_the_first_page_and_holds_no_slot_of_it() {
    let mut lanes = lanes(true, &[("http://a/x", 1)]);
    let (id, robots) = sent(take(&mut lanes, at(0.0)));
    assert_eq!(robots.hop.unwrap().path(), "/robots.txt");
    assert!(matches!(take(&mut lanes, at(0.0)), Take::Wait(_)));
    robots_come(&mut lanes, id, b"User-agent: *\nDisallow: /x");
    let Take::Drop(_, pending, why) = take(&mut lanes, at(1.0)) else {
        panic!("not dropped")
    };
    assert_eq!(
        (number(&pending), why.as_str()),
        (1, "robots.txt: Disallow: /x")
    );
}

#[test]
fn two_origins_whose_robots_redirect_to_each_other_do_not_wait_for_ever() {
    let mut lanes = lanes(true, &[("http://a/", 1), ("http://b/", 2)]);
    let (a, robots_a) = sent(take(&mut lanes, at(0.0)));
    let (b, robots_b) = sent(take(&mut lanes, at(0.0)));
    for (from, to, robots) in [(a, b, robots_a), (b, a, robots_b)] {
        lanes.put_back(to, robots, Timestamp::ZERO, at(1.0));
        lanes.came_back(from, at(1.0));
    }
    let purposes = [
        sent(take(&mut lanes, at(1.0))).1.purpose,
        sent(take(&mut lanes, at(1.0))).1.purpose,
    ];
    assert!(purposes.contains(&Purpose::Robots(a)) && purposes.contains(&Purpose::Robots(b)));
}

#[test]
fn a_host_set_aside_does_not_keep_the_run_alive_and_its_urls_are_found() {
    let mut lanes = lanes(
        false,
        &[("http://a/", 1), ("http://b/", 3), ("http://a/", 2)],
    );
    lanes.close_input();
    let aside = |_: &Lane| -> Result<(), _> { Err(Refused::SetAside("held for a day".to_owned())) };
    assert!(matches!(lanes.take(at(0.0), aside), Take::Done));
    assert_eq!(lanes.waiting(), 3);
    let mut numbers = Vec::new();
    let mut from = 0;
    while let Some((id, why)) = lanes.set_aside(from) {
        assert_eq!(why, "held for a day");
        let pages = std::iter::from_fn(|| lanes.drain(id));
        numbers.extend(pages.map(|pending| number(&pending)));
        from = id;
    }
    assert_eq!((numbers, lanes.waiting()), (vec![1, 2, 3], 0));
}

#[test]
fn waiting_is_counted_for_the_first_in_line() {
    let mut lanes = lanes(false, &[("http://a/", 1), ("http://a/", 2)]);
    assert_eq!(sent(take(&mut lanes, at(3.0))).1.waited_us, 3 * S);
    assert_eq!(sent(take(&mut lanes, at(5.0))).1.waited_us, 2 * S);
}

#[test]
fn an_address_is_found_out_once_and_first() {
    let mut lanes = Lanes::new(false, policy());
    let url = Url::parse("http://a/").unwrap();
    let (id, _) = lanes.lane_of(&url, Box::default);
    add(&mut lanes, id, page("http://a/", 1), at(0.0));
    add(&mut lanes, id, page("http://a/", 2), at(0.0));
    assert!(matches!(take(&mut lanes, at(0.0)), Take::Resolve(0)));
    assert!(matches!(take(&mut lanes, at(0.0)), Take::Wait(_)));
    lanes.resolved(
        id,
        Box::new([Box::new([Key::host("a").unwrap()]) as KeySet]),
        at(1.0),
    );
    assert_eq!(number(&sent(take(&mut lanes, at(1.0))).1), 1);
}

#[test]
fn lanes_that_share_a_key_stand_in_line_and_are_not_all_asked_each_time() {
    let urls: Vec<(String, u64)> = (0..1_000).map(|i| (format!("http://h{i}/"), i)).collect();
    let urls: Vec<(&str, u64)> = urls.iter().map(|(url, i)| (url.as_str(), *i)).collect();
    let mut lanes = lanes(false, &urls);
    lanes.close_input();
    let key = Key::custom("run").unwrap();
    let mut free_at = at(0.0);
    let (mut asked, mut seen, mut now) = (0, Vec::new(), at(0.0));
    loop {
        // All lanes together may send one request each 100 ms.
        let may = |_: &Lane| {
            asked += 1;
            if free_at > now {
                return Err(Refused::Shared(free_at, key.clone()));
            }
            free_at = now + Duration::from_millis(100);
            Ok(())
        };
        match lanes.take(now, may) {
            Take::Send(job) => {
                seen.push(number(&job.pending));
                lanes.came_back(job.lane, now);
            }
            Take::Wait(until) => now = until.unwrap(),
            Take::Done => break,
            Take::Resolve(_) | Take::Fill(..) | Take::Finish(..) | Take::Drop(..) => {
                panic!("none of these")
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..1_000).collect::<Vec<_>>(), "none is lost");
    assert_eq!(now, at(99.9), "no slot is left unused");
    assert!(asked < 1_000 * 100, "{asked} asked");
}

#[test]
fn the_page_that_robots_forbids_is_the_page_that_is_dropped() {
    let mut lanes = lanes(true, &[("http://a/x", 1), ("http://a/private", 2)]);
    let (id, _) = sent(take(&mut lanes, at(0.0)));
    robots_come(&mut lanes, id, b"User-agent: *\nDisallow: /private");
    let Take::Send(job) = take(&mut lanes, at(1.0)) else {
        panic!("not sent")
    };
    // The retry has a delay, so the fresh page is next.
    lanes.put_back(id, job.pending, at(50.0), at(1.0));
    lanes.came_back(id, at(1.0));
    let Take::Drop(_, page, _) = take(&mut lanes, at(1.0)) else {
        panic!("not dropped")
    };
    assert_eq!(number(&page), 2);
}

/// Only the next answer of a refused page tells whose fault its refusal is.
#[test]
fn a_page_whose_refusal_held_the_host_is_tried_again_behind_one_other() {
    for (refused, order) in [
        (&[1][..], &[2, 1, 3, 4, 5, 6, 7, 8][..]),
        (&[1, 3], &[2, 1, 4, 3, 5, 6, 7, 8]),
        (&[1, 2, 5], &[1, 3, 2, 4, 6, 5, 7, 8]),
    ] {
        let urls: Vec<_> = (1..=8).map(|number| ("http://a/", number)).collect();
        let mut lanes = lanes(false, &urls);
        let mut seen = Vec::new();
        for _ in 0..8 + refused.len() {
            let (lane, mut pending) = sent(take(&mut lanes, at(0.0)));
            lanes.came_back(lane, at(0.0));
            if refused.contains(&number(&pending)) && pending.refused == 0 {
                (pending.refused, pending.blames_host) = (1, true);
                lanes.put_back(lane, pending, at(0.0), at(0.0));
            } else {
                seen.push(number(&pending));
            }
        }
        assert_eq!(seen, order, "{refused:?}");
    }
}

#[path = "doubt_tests.rs"]
mod doubts;
#[path = "supply_tests.rs"]
mod supply;
