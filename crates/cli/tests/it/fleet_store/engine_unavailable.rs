//! Redis is unavailable for a while. Either each process continues with its share, or no
//! process sends.

use std::thread;
use std::time::Duration;

use super::crew::{Crew, fixed, same};
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const PROCESSES: usize = 4;
const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 4,
};
const HOSTS: u64 = 8;
const AWAY: Duration = Duration::from_secs(8);
/// Longest time between a grant and its request: a permit starts at most 2 s ahead, and may be used
/// for at most half a second more.
const LAST_LEAVES_US: u64 = 2_500_000;

#[test]
fn shares_send_no_more_than_the_whole_and_one_each() {
    let (mut crew, redis) = start("share");
    redis.freeze();
    thread::sleep(AWAY / 4);
    let before = crew.arrivals();
    for member in &mut crew.members[..PROCESSES / 2] {
        member.kill();
    }
    thread::sleep(AWAY * 3 / 4);
    let alone = crew.arrivals() - before;
    redis.thaw();
    for member in &mut crew.members[..PROCESSES / 2] {
        member.start();
    }
    crew.finish();
    eprintln!("{alone} requests of two while the engine was unavailable");

    assert!(alone > 0, "nobody used their share{}", crew.story());
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, PROCESSES as f64);
    crew.demand_in_flight(NUMBERS.in_flight);
}

#[test]
fn closed_nothing_leaves() {
    let (mut crew, mut redis) = start("closed");
    redis.kill();
    let quiet_from = crew.now_us() + LAST_LEAVES_US;
    thread::sleep(AWAY);
    let quiet_until = crew.now_us();
    redis.start_again();
    crew.finish();

    for host in crew.target.hosts() {
        let entries = crew.entries(&host.name);
        let within = entries
            .iter()
            .find(|entry| (quiet_from..quiet_until).contains(&entry.arrived_us));
        assert!(
            within.is_none(),
            "{}: {within:?}, quiet {quiet_from}..{quiet_until}{}",
            host.name,
            crew.story()
        );
    }
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
}

fn start(away: &str) -> (Crew, RedisServer) {
    let redis = RedisServer::start("");
    let mut crew = Crew::start(open_hosts(HOSTS as usize, 24, 400.0));
    let args = fixed(
        NUMBERS,
        &format!("--lease 5s --timeout 1500ms --store-unavailable {away}"),
    );
    crew.hire(&same(&redis.url(), PROCESSES), &args);
    crew.until_arrivals(5 * HOSTS);
    (crew, redis)
}
