use super::*;
use crate::fetch::lanes::doubt::{Kept, Look};
use crate::fetch::lanes::sample::Sample;
use politely::core::fault::machine::{PROBE_EVERY, Trouble};
use politely::core::host::Doubt;

const SERVED: &str = "http://a/served";

/// Returns lanes with pages of one host, which served a page before.
fn doubted(pages: u64) -> Lanes {
    let urls: Vec<(&str, u64)> = (1..=pages).map(|number| ("http://a/", number)).collect();
    let mut lanes = lanes(false, &urls);
    lanes.close_input();
    lanes.served_page(0, SERVED, true);
    lanes
}

/// Sends the next page, whose answer leaves the host in `doubt`, and keeps it if it is unclear.
fn answer(lanes: &mut Lanes, doubt: Doubt) -> u64 {
    let (id, pending) = sent(take(lanes, at(1.0)));
    let number = number(&pending);
    lanes.doubt(id, doubt, Look::Odd(403), at(1.0));
    if matches!(doubt, Doubt::Unclear | Doubt::Suspected) {
        let kept = Kept {
            pending,
            alike: 403,
            bytes: 0,
            latency_ms: 0,
            saved: None,
            error: Some("403 Forbidden".to_owned()),
            onward: None,
        };
        lanes.keep(id, kept, at(1.0));
    }
    lanes.came_back(id, at(1.0));
    number
}

/// Returns the pages that end with the answers that were kept.
fn finished(lanes: &mut Lanes) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Take::Finish(_, page) = take(lanes, at(1.0)) {
        numbers.push(number(&page.pending));
    }
    numbers.sort_unstable();
    numbers
}

#[test]
fn kept_pages_end_with_their_answers_once_another_page_is_served() {
    let mut lanes = doubted(3);
    assert_eq!(answer(&mut lanes, Doubt::Unclear), 1);
    assert_eq!(answer(&mut lanes, Doubt::Unclear), 2);
    assert_eq!(lanes.waiting(), 3);
    assert_eq!(answer(&mut lanes, Doubt::None), 3);
    assert_eq!(finished(&mut lanes), [1, 2]);
    assert!(matches!(take(&mut lanes, at(1.0)), Take::Done));
}

#[test]
fn kept_pages_end_with_the_list() {
    let mut lanes = doubted(2);
    answer(&mut lanes, Doubt::Unclear);
    answer(&mut lanes, Doubt::Unclear);
    assert_eq!(finished(&mut lanes), [1, 2]);
    assert!(matches!(take(&mut lanes, at(1.0)), Take::Done));
}

#[test]
fn a_suspected_host_is_asked_for_a_page_that_it_served_and_then_for_a_refused_one() {
    let mut lanes = doubted(4);
    for doubt in [Doubt::Unclear, Doubt::Unclear, Doubt::Suspected] {
        answer(&mut lanes, doubt);
    }
    let (id, proof) = sent(take(&mut lanes, at(1.0)));
    assert_eq!(proof.purpose, Purpose::Proof);
    assert_eq!(proof.url().unwrap().as_str(), SERVED);
    assert!(
        matches!(take(&mut lanes, at(1.0)), Take::Wait(_)),
        "one at a time"
    );
    lanes.doubt(id, Doubt::Checking, Look::Page, at(1.0));
    lanes.came_back(id, at(1.0));
    let (id, checked) = sent(take(&mut lanes, at(1.0)));
    assert_eq!(number(&checked), 1);
    lanes.doubt(id, Doubt::Limited, Look::Page, at(1.0));
    lanes.came_back(id, at(1.0));
    let mut left: Vec<u64> = (0..3).map(|_| answer(&mut lanes, Doubt::None)).collect();
    left.sort_unstable();
    assert_eq!(left, [2, 3, 4]);
    assert!(matches!(take(&mut lanes, at(1.0)), Take::Done));
}

#[test]
fn the_pages_of_a_host_that_refuses_everything_are_set_aside() {
    let mut lanes = doubted(3);
    answer(&mut lanes, Doubt::Unclear);
    lanes.block(0, "blocked by the host".to_owned(), at(1.0));
    assert!(matches!(take(&mut lanes, at(1.0)), Take::Done));
    assert!(lanes.set_aside(0).is_some());
    let drained = std::iter::from_fn(|| lanes.drain(0)).count();
    assert_eq!(drained, 3);
}

#[test]
fn a_text_that_follows_others_twice_is_a_refusal_and_the_first_text_is_none() {
    let mut lanes = doubted(1);
    let mut look = |text| lanes.look(0, Sample::Text(text), false);
    assert_eq!(look(1), Look::Page);
    assert_eq!(look(1), Look::Page, "all pages of the site may be alike");
    assert!(matches!((look(2), look(3)), (Look::New(_), Look::New(_))));
    assert!(matches!(look(3), Look::Odd(_)));
    assert_eq!(look(1), Look::Page);
    for page in 10..50 {
        assert!(matches!(look(page), Look::New(_)), "{page}");
    }
    assert!(matches!(look(3), Look::Odd(_)), "also between pages");
}

/// A run may be killed in the middle of a ban.
#[test]
fn a_later_run_knows_the_text_of_a_ban_and_of_the_first_page() {
    let mut lanes = doubted(1);
    for text in [1, 2, 3, 3] {
        lanes.look(0, Sample::Text(text), false);
    }
    let proof = |lanes: &mut Lanes, text| lanes.look(0, Sample::Text(text), true);
    assert_eq!(proof(&mut lanes, 2), Look::Page, "its own text came once");
    let (_, known) = lanes.take_known(0).unwrap();
    let mut later = doubted(1);
    later.lane_mut(0).restore_known(known);
    assert!(matches!(proof(&mut later, 3), Look::Odd(_)));
    let mut look = |text| later.look(0, Sample::Text(text), false);
    assert!(matches!((look(3), look(1)), (Look::Odd(_), Look::Page)));
}

/// The page of the proof may be gone, with an answer of its own.
#[test]
fn a_refused_proof_is_followed_by_a_page_that_was_not_tried_and_in_the_end_by_a_kept_one() {
    let mut lanes = doubted(6);
    for doubt in [Doubt::Unclear, Doubt::Unclear, Doubt::Suspected] {
        answer(&mut lanes, doubt);
    }
    for next in [4, 5, 6, 1, 2] {
        let (id, proof) = sent(take(&mut lanes, at(1.0)));
        assert_eq!(proof.purpose, Purpose::Proof);
        lanes.doubt(id, Doubt::Suspected, Look::Odd(404), at(1.0));
        lanes.came_back(id, at(1.0));
        assert_eq!(answer(&mut lanes, Doubt::Suspected), next);
    }
    assert!(lanes.lane(0).keeps_refused());
    assert_eq!(lanes.waiting(), 6, "none ended with its answer");
}

#[test]
fn redirects_to_one_target_are_refusals_only_in_a_row() {
    let mut lanes = doubted(1);
    let mut look = |target| lanes.look(0, Sample::Target(target), false);
    assert!(matches!((look(1), look(2)), (Look::New(_), Look::New(_))));
    assert!(matches!((look(2), look(2)), (Look::Odd(_), Look::Odd(_))));
    assert!(matches!(look(1), Look::New(_)));
    assert_eq!(lanes.look(0, Sample::Target(2), true), Look::Page);
    assert!(matches!(
        lanes.look(0, Sample::Target(1), true),
        Look::Odd(_)
    ));
}

#[test]
fn a_kept_redirect_is_followed_once_the_doubt_is_over_and_begins_again_after_a_limit() {
    for (doubt, path) in [(Doubt::None, "/login"), (Doubt::Limited, "/")] {
        let mut lanes = doubted(2);
        let (id, pending) = sent(take(&mut lanes, at(1.0)));
        let to = Url::parse("http://a/login").unwrap();
        let kept = Kept {
            pending,
            alike: 7,
            bytes: 0,
            latency_ms: 0,
            saved: None,
            error: None,
            onward: Some((id, to)),
        };
        lanes.keep(id, kept, at(1.0));
        lanes.came_back(id, at(1.0));
        let (id, other) = sent(take(&mut lanes, at(1.0)));
        assert_eq!(number(&other), 2);
        lanes.doubt(id, doubt, Look::Page, at(1.0));
        lanes.came_back(id, at(1.0));
        let (_, first) = sent(take(&mut lanes, at(1.0)));
        assert_eq!(first.url().unwrap().path(), path, "{doubt:?}");
        assert_eq!(number(&first), 1);
    }
}

#[test]
fn another_kind_of_answer_ends_the_pages_that_were_kept_for_the_first() {
    let mut lanes = doubted(3);
    answer(&mut lanes, Doubt::Unclear);
    let (id, _) = sent(take(&mut lanes, at(1.0)));
    lanes.doubt(id, Doubt::Unclear, Look::Odd(404), at(1.0));
    lanes.came_back(id, at(1.0));
    assert_eq!(finished(&mut lanes), [1]);
}

#[test]
fn while_this_machine_is_at_fault_one_request_in_three_seconds_leaves() {
    let mut lanes = lanes(
        false,
        &[("http://a/", 1), ("http://b/", 2), ("http://c/", 3)],
    );
    for id in 0..2 {
        lanes.machine_failed(id, Trouble::Unresolved, at(0.0));
    }
    let next = at(0.0) + PROBE_EVERY;
    assert!(matches!(take(&mut lanes, at(0.0)), Take::Wait(Some(t)) if t == next));
    sent(take(&mut lanes, next));
    assert!(matches!(take(&mut lanes, next), Take::Wait(_)));
    assert_eq!(lanes.machine_works(next), Some(PROBE_EVERY));
    sent(take(&mut lanes, next));
    sent(take(&mut lanes, next));
}
