//! A worker is stopped (SIGSTOP) for longer than its lease, at each point where it holds something,
//! and then continued.

use super::notes::What;
use super::verdict::Numbers;
use super::worker::Freeze;
use super::{Fleet, Language, open_hosts};

const NUMBERS: Numbers = Numbers {
    rate: 10.0,
    burst: 1.0,
    in_flight: 2,
};

#[test]
fn frozen_before_it_read_its_permit() {
    let fleet = freeze(Freeze::Asked);
    // When the worker read the permit at last, its lease had expired.
    demand_unused(&fleet);
}

#[test]
fn frozen_before_it_sent_its_request() {
    let fleet = freeze(Freeze::Granted);
    demand_unused(&fleet);
}

#[test]
fn frozen_before_it_read_its_page() {
    let fleet = freeze(Freeze::Sent);
    let first = &fleet.workers[0].notes();
    let aborted = first.iter().find(|note| note.what == What::Aborted);
    let aborted = aborted.unwrap_or_else(|| panic!("it went on\n{}", fleet.story()));
    let heard = first
        .iter()
        .find(|note| note.permit == aborted.permit && note.what == What::HeardLate);
    assert!(heard.is_some(), "its report counted\n{}", fleet.story());
}

/// Freezes one worker until its lease has expired and other workers have used its slot. Asserts
/// that the host never has more requests in flight than the cap.
fn freeze(at: Freeze) -> Fleet {
    let args = NUMBERS.args();
    let mut serve: Vec<&str> = args.iter().map(String::as_str).collect();
    serve.extend(["--lease", "2s"]);
    // A request takes 300 ms, so four lanes keep both slots taken.
    let mut fleet = Fleet::start(open_hosts(1, 27, 300.0), &serve);
    let mut urls: Vec<_> = fleet.target.hosts()[0].page_urls().collect();
    let own = urls.split_off(24);
    let address = fleet.address;
    fleet.start_worker(Language::Rust, own, 1, address, Some(at));
    fleet.until("it is frozen", |fleet| fleet.workers[0].is_frozen());
    fleet.start_worker(Language::Rust, urls, 4, address, None);
    fleet.until("its lease has run out", |fleet| {
        fleet.ask("stats")["expired"] == 1
    });
    // Other workers' permits take both slots now.
    fleet.until("both slots are used again", |fleet| {
        let live = fleet.ask("stats");
        let of_first = live["workers"].as_array().into_iter().flatten();
        let of_first =
            of_first.filter(|worker| worker["client"] == "worker-0" && worker["live"] != 0);
        live["live"] == NUMBERS.in_flight && of_first.count() == 0
    });
    fleet.workers[0].thaw();
    fleet.finish();

    fleet.demand_all_pages();
    let judge = fleet.target.judge();
    assert!(
        judge.hosts[0].in_flight_max <= NUMBERS.in_flight,
        "{}",
        fleet.story()
    );
    fleet.demand_balance();
    fleet
}

/// Asserts that the worker did not use the permit that it had when it was frozen.
fn demand_unused(fleet: &Fleet) {
    let first = fleet.workers[0].notes();
    assert_eq!(first[0].what, What::Granted, "{}", fleet.story());
    let permit = &first[0].permit;
    let used = first
        .iter()
        .find(|note| note.permit == *permit && note.what == What::Got);
    assert!(used.is_none(), "{used:?}\n{}", fleet.story());
    assert_eq!(first[1].what, What::Stale, "{}", fleet.story());
}
