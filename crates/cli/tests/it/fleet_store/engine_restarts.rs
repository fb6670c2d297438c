//! Redis is killed and started again with the data that it had on disk: nothing, a snapshot, or
//! every write.

use std::time::{Duration, Instant};

use politely::core::config::Config;
use politely_target::{HostSpec, LimitSpec, RetryAfter, Service, Signals};

use super::crew::{Crew, fixed, same};
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};
/// The furthest that a permit starts ahead, in seconds.
const HORIZON_S: f64 = 2.0;
const HOSTS: u64 = 8;

#[test]
fn without_persistence_nothing_is_granted_twice() {
    let (mut crew, mut redis) = start("");
    for kill in 1..=3 {
        crew.until_arrivals(kill * 4 * HOSTS);
        restart(&mut crew, &mut redis);
    }
    finish(crew, 0.0);
}

#[test]
fn with_every_write_on_disk_nothing_is_granted_twice() {
    let (mut crew, mut redis) = start("appendonly yes\nappendfsync everysec\n");
    for kill in 1..=3 {
        crew.until_arrivals(kill * 4 * HOSTS);
        restart(&mut crew, &mut redis);
    }
    finish(crew, 0.0);
}

#[test]
fn with_a_snapshot_no_more_is_granted_twice_than_was_since() {
    let (mut crew, mut redis) = start("");
    crew.until_arrivals(8 * HOSTS);
    let saved = Instant::now();
    redis.order(&["save"]);
    std::thread::sleep(Duration::from_secs(1));
    let lag = restart(&mut crew, &mut redis) - saved;
    let again = NUMBERS.rate * lag.as_secs_f64().min(HORIZON_S);
    finish(crew, again);
}

#[test]
fn what_was_learned_outlives_an_engine_that_keeps_nothing() {
    let mut host = HostSpec::new(
        "limited",
        LimitSpec::TokenBucket {
            rate: 6.0,
            burst: 6,
        },
    );
    host.pages = 90;
    host.service = Service {
        mean_ms: 20.0,
        cv: 0.3,
    };
    host.signals = Signals {
        retry_after: RetryAfter::Seconds,
        ..Signals::default()
    };
    let mut redis = RedisServer::start("");
    let mut crew = Crew::start(vec![host]);
    crew.hire(&same(&redis.url(), 2), &[]);
    crew.until_arrivals(50);
    let config = Config::crawler();
    let before = crew.look(&redis.url(), &config)[0].rate;
    restart(&mut crew, &mut redis);
    let after = crew.look(&redis.url(), &config)[0].rate;
    eprintln!("{before:.2}/s before, {after:.2}/s after");
    assert!(
        before > 2.0 * config.limits.rate_start,
        "nothing was learned: {before}{}",
        crew.story()
    );
    assert!(
        after > before / 2.0,
        "{before}/s was forgotten, {after}/s now{}",
        crew.story()
    );
    crew.finish();
    crew.demand_all_pages();
}

fn start(config: &str) -> (Crew, RedisServer) {
    let redis = RedisServer::start(config);
    let mut crew = Crew::start(open_hosts(HOSTS as usize, 20, 500.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&redis.url(), 4), &args);
    (crew, redis)
}

/// Kills Redis with SIGKILL, starts it again, and waits for the next request. Returns when it was
/// killed.
fn restart(crew: &mut Crew, redis: &mut RedisServer) -> Instant {
    redis.kill();
    let killed = Instant::now();
    redis.start_again();
    let back = crew.until_it_goes_on();
    eprintln!("work goes on {back:.2?} after the engine's return");
    killed
}

fn finish(mut crew: Crew, again: f64) {
    crew.finish();
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, again);
    crew.demand_in_flight(NUMBERS.in_flight + again.ceil() as u64);
}
