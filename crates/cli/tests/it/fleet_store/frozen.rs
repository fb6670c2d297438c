//! A process is stopped for longer than its leases last, and then continued.

use std::thread;
use std::time::Duration;

use super::crew::{Crew, fixed, same};
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};
/// The time for which the process is stopped. It is longer than a lease.
const FROZEN: Duration = Duration::from_millis(3_500);

#[test]
fn a_frozen_process_does_not_go_on_with_what_it_had() {
    let redis = RedisServer::start("");
    let mut crew = Crew::start(open_hosts(16, 40, 400.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&redis.url(), 4), &args);
    crew.until_arrivals(30);
    for number in 0..4 {
        crew.members[number].freeze();
        thread::sleep(FROZEN);
        crew.members[number].thaw();
        crew.until_it_goes_on();
    }
    crew.finish();
    eprintln!("{}", crew.story());

    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
}
