//! Redis is suspended for a moment, and for longer than a lease lasts.

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

#[test]
fn no_lease_runs_out_because_the_engine_stood_still() {
    let redis = RedisServer::start("");
    let mut crew = Crew::start(open_hosts(8, 24, 500.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&redis.url(), 4), &args);
    for (arrivals, length_ms) in [(40, 300), (80, 8_000), (120, 300)] {
        crew.until_arrivals(arrivals);
        redis.freeze();
        thread::sleep(Duration::from_millis(length_ms));
        redis.thaw();
        let back = crew.until_it_goes_on();
        eprintln!("stood still for {length_ms} ms, work goes on {back:.2?} later");
    }
    crew.finish();

    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
    crew.demand_books(&redis.url(), NUMBERS);
}
