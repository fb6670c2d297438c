//! F1 and F3: processes are killed at any point, and others are started in their place.

use std::env;

use politely::core::Rng;

use super::crew::{Crew, fixed, same};
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

/// Number of kills, unless `POLITELY_TEST_KILLS` sets another one for a long run.
const KILLS: u64 = 40;
const HOSTS: u64 = 16;
const PROCESSES: usize = 4;
const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};

#[test]
fn killed_processes_cost_nothing_but_their_leases() {
    let kills =
        env::var("POLITELY_TEST_KILLS").map_or(KILLS, |kills| kills.parse().expect("a number"));
    let pages = 10 + kills / 2;
    let redis = RedisServer::start("");
    let mut crew = Crew::start(open_hosts(HOSTS as usize, pages as u32, 300.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&redis.url(), PROCESSES), &args);

    let mut chance = Rng::new(1);
    let mut killed = 0;
    for kill in 0..kills {
        crew.until_arrivals(kill * crew.pages() * 8 / (kills * 10));
        let member = &mut crew.members[(chance.next_u64() % PROCESSES as u64) as usize];
        killed += u64::from(member.kill());
        member.start();
    }
    crew.finish();
    eprintln!(
        "{killed} killed, {} requests for {} pages{}",
        crew.arrivals(),
        crew.pages(),
        crew.story()
    );

    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
}
