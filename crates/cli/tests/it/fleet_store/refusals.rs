//! A host without a limit suddenly refuses a whole fleet at once, with a Retry-After.

use politely::core::config::Config;
use politely_target::{Headers, HostSpec, Kind, LimitSpec, RetryAfter, Service, Signals};

use super::crew::{Crew, same};
use super::proxy::Proxy;
use politely_testkit::redis::RedisServer;

const IN_FLIGHT: usize = 8;
/// The host serves all requests, refuses them between these two times, and serves them again. Its
/// refusals have a Retry-After of up to [`HOLD_S`].
const SHUT_AT_S: f64 = 8.0;
const OPEN_AT_S: f64 = 11.0;
const HOLD_S: f64 = 5.0;
/// The delay of the host's answers, in milliseconds. Many requests have left before the first
/// refusal arrives.
const WAY_MS: u64 = 300;

#[test]
fn a_storm_of_refusals_is_one_event() {
    let shut = LimitSpec::FixedWindow {
        count: 1,
        window_s: HOLD_S,
        aligned: false,
    };
    let at = vec![
        (0.0, LimitSpec::None {}),
        (SHUT_AT_S, shut),
        (OPEN_AT_S, LimitSpec::None {}),
    ];
    let mut host = HostSpec::new("storm", LimitSpec::Steps { at });
    host.pages = 60;
    host.service = Service {
        mean_ms: 20.0,
        cv: 0.3,
    };
    host.signals = Signals {
        status: 429,
        retry_after: RetryAfter::Seconds,
        headers: Headers::None,
    };
    let redis = RedisServer::start("");
    let mut crew = Crew::start(vec![host]);
    let near = crew.target.hosts()[0].url();
    let way = Proxy::start(
        near.trim_start_matches("http://")
            .parse()
            .expect("an address"),
    );
    way.delay(WAY_MS);
    let far = format!("http://{}", way.address);
    let args = format!("--profile api --in-flight {IN_FLIGHT} --timeout 5s");
    let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
    crew.hire_for(&same(&redis.url(), 4), &args, |url| {
        url.replace(&near, &far)
    });
    crew.finish();
    let known = crew.look_at(&redis.url(), &Config::api(), &far);

    let entries = crew.entries("storm");
    let refused: Vec<_> = entries
        .iter()
        .filter(|entry| entry.kind == Kind::Refused)
        .collect();
    let first = refused.iter().min_by_key(|entry| entry.departed_us);
    let first = first.unwrap_or_else(|| panic!("nothing was refused{}", crew.story()));
    let end = first.departed_us + first.hold_ms.expect("a Retry-After") * 1_000;
    let within = entries
        .iter()
        .filter(|entry| entry.arrived_us > first.departed_us && entry.arrived_us < end);
    let (refused, within, cuts) = (refused.len(), within.count(), known.law.cuts);
    eprintln!("{refused} refused, {within} came during the hold, {cuts} cuts");
    assert!(refused > 1, "no storm{}", crew.story());
    assert!(
        within <= IN_FLIGHT,
        "{within} came during the hold{}",
        crew.story()
    );
    assert_eq!(cuts, 1, "{}", crew.story());
    crew.demand_all_pages();
}
