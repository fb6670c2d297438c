//! F13: a host that took all there came says "too many" to everybody at once, and for how long.

use politely::core::config::Config;
use politely_target::{Headers, HostSpec, Kind, LimitSpec, RetryAfter, Service, Signals};

use super::crew::{Crew, same};
use crate::servers::redis::RedisServer;

const IN_FLIGHT: usize = 8;
const HOLD_S: f64 = 5.0;
const STORM_AT_S: f64 = 6.0;

#[test]
fn a_storm_of_refusals_is_one_event() {
    let shut = LimitSpec::FixedWindow {
        count: 1,
        window_s: HOLD_S,
        aligned: false,
    };
    let open = LimitSpec::None {};
    let mut host = HostSpec::new(
        "storm",
        LimitSpec::Steps {
            at: vec![
                (0.0, open.clone()),
                (STORM_AT_S, shut),
                (STORM_AT_S + HOLD_S - 1.0, open),
            ],
        },
    );
    host.pages = 400;
    host.service = Service {
        mean_ms: 100.0,
        cv: 0.3,
    };
    host.signals = Signals {
        status: 429,
        retry_after: RetryAfter::Seconds,
        headers: Headers::None,
    };
    let redis = RedisServer::start("");
    let mut crew = Crew::start(vec![host]);
    let args = format!("--profile api --rate 40 --in-flight {IN_FLIGHT} --timeout 5s");
    let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
    crew.hire(&same(&redis.url(), 4), &args);
    crew.finish();
    let config = Config::api();
    let known = crew.look(&redis.url(), &config).remove(0);

    let entries = crew.entries("storm");
    let first = entries
        .iter()
        .filter(|entry| entry.kind == Kind::Refused)
        .min_by_key(|entry| entry.departed_us);
    let first = first.unwrap_or_else(|| panic!("nothing was refused{}", crew.story()));
    let end = first.departed_us + first.hold_ms.expect("a Retry-After") * 1_000;
    let within = entries
        .iter()
        .filter(|entry| entry.arrived_us > first.departed_us && entry.arrived_us < end)
        .count();
    let refused = entries
        .iter()
        .filter(|entry| entry.kind == Kind::Refused)
        .count();
    eprintln!(
        "{refused} refused, {within} came during the hold, {} cuts",
        known.law.cuts
    );
    assert!(
        within <= IN_FLIGHT,
        "{within} came during the hold{}",
        crew.story()
    );
    assert_eq!(known.law.cuts, 1, "{}", crew.story());
    crew.demand_all_pages();
}
