//! An operator deletes all scripts and all data of Redis.

use super::crew::{Crew, fixed, same};
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};
const HOSTS: u64 = 8;

#[test]
fn scripts_and_cells_come_back() {
    let redis = RedisServer::start("");
    let mut crew = Crew::start(open_hosts(HOSTS as usize, 17, 500.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&redis.url(), 4), &args);
    for round in 1..=5 {
        crew.until_arrivals(round * HOSTS);
        redis.order(&["script", "flush"]);
    }
    for round in 1..=2 {
        crew.until_arrivals((5 + round * 4) * HOSTS);
        redis.order(&["flushall"]);
        let back = crew.until_it_goes_on();
        eprintln!("work goes on {back:.2?} after all is gone");
    }
    crew.finish();

    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
}
