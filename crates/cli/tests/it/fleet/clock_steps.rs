//! The machine's clock is set back by an hour while the coordinator is down.
//!
//! While the coordinator runs, a step of the clock changes nothing. All its times come from
//! `politely::Clock`, which reads the wall clock once, at the start, and is monotonic from then on.
//! Only dates in Retry-After are compared with the wall clock, because servers mean that one.
//!
//! So one case is left: a start with a state that an earlier start wrote "in the future". This test
//! needs no faked library for it. The first coordinator runs in this process, and its clock is an
//! hour ahead.

use std::path::Path;
use std::time::{Duration, Instant};

use politely::Clock;
use politely::core::Timestamp;
use politely::core::config::Config;
use politely::core::control::LawConfig;
use politely_api::wire::{Acquired, Answer};
use politely_server::store::Store;
use politely_server::{Coordinator, Options, Server, Settings};
use serde_json::{Value, json};

use super::http::Http;
use super::verdict::Numbers;
use super::{Fleet, PATIENCE, open_hosts};

const NUMBERS: Numbers = Numbers {
    rate: 2.0,
    burst: 1.0,
    in_flight: 2,
};
const LEASE: Duration = Duration::from_secs(5);
const HOLD_S: u64 = 10;
/// A hold may last this much longer than the host asked, because holds are jittered.
const HOLD_LATER: f64 = 1.1;

#[test]
fn nobody_waits_out_the_hour_by_which_the_clock_was_set_back() {
    let args = NUMBERS.args();
    let mut serve: Vec<&str> = args.iter().map(String::as_str).collect();
    serve.extend(["--lease", "5s"]);
    let mut fleet = Fleet::start(open_hosts(1, 1, 0.0), &serve);
    fleet.kill_coordinator();
    let state = fleet.folder.path().join("state");
    std::fs::remove_dir_all(&state).expect("it was there");

    an_hour_ahead(&state, |say| {
        let out = grant(&say("acquire", wish("custom/out")));
        let _second = grant(&say("acquire", wish("custom/out")));
        assert!(out.is_some());
        let paced = grant(&say("acquire", wish("custom/paced"))).expect("free");
        say("report", told(&paced, 200, &json!({})));
        let held = grant(&say("acquire", wish("custom/held"))).expect("free");
        say(
            "report",
            told(&held, 429, &json!({"retry-after": HOLD_S.to_string()})),
        );
    });
    fleet.start_coordinator();
    let say = |path: &str, body: Value| fleet.say("POST", path, &body.to_string());

    let interval_ms = (1e3 / NUMBERS.rate) as u64;
    let paced = wait_ms(&say("acquire", wish("custom/paced")));
    assert!(
        paced.is_none_or(|ms| ms <= interval_ms),
        "paced: {paced:?} ms"
    );
    let held = wait_ms(&say("acquire", wish("custom/held")));
    let held = held.expect("the hold stands");
    assert!(
        held as f64 <= HOLD_S as f64 * 1e3 * HOLD_LATER,
        "held: {held} ms"
    );
    // Two permits take both slots. Their leases expire 5 s after the grant.
    let mut patient = wish("custom/out");
    patient["wait_ms"] = json!(4 * LEASE.as_millis() as u64);
    let out = say("acquire", patient);
    assert!(grant(&out).is_some(), "the slots did not return: {out}");
}

/// Runs a coordinator whose clock is an hour ahead, and passes `f` a function that calls it.
fn an_hour_ahead(state: &Path, f: impl FnOnce(&dyn Fn(&str, Value) -> Value)) {
    let system = Clock::system();
    let mut config = Config::crawler();
    config.law = LawConfig::Fixed;
    config.limits.rate_max = NUMBERS.rate;
    config.limits.rate_start = NUMBERS.rate;
    config.limits.in_flight = NUMBERS.in_flight as u32;
    config.lease = LEASE;
    let settings = Settings {
        config,
        clock: Clock::given(move || -> Timestamp { system.now() + Duration::from_hours(1) }),
        ..Settings::default()
    };
    let (store, kept) = Store::open(state).expect("an empty folder");
    let coordinator = Coordinator::resume(settings, store, kept).expect("it starts");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = Options {
        bind: "127.0.0.1:0".parse().expect("an address"),
        token: None,
        certificate: None,
        frontier: None,
        grpc: None,
        commit: "unknown",
        collector: None,
    };
    let server = runtime.block_on(Server::bind(coordinator, options));
    let server = server.expect("it listens");
    let address = server.address();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async {
        let _ = ended.await;
    }));
    f(&|path, body| {
        let path = format!("/api/v1/{path}");
        let mut http = Http::new(address);
        let answer = http.call("POST", &path, &body.to_string(), Instant::now() + PATIENCE);
        serde_json::from_slice(&answer.expect("an answer").body).expect("JSON")
    });
    drop(end);
    runtime.block_on(running).expect("it ends");
}

fn wish(key: &str) -> Value {
    json!({"client": "test", "wait_ms": 2_000, "items": [{"key": key}]})
}

fn told(permit: &str, status: u16, headers: &Value) -> Value {
    let item = json!({"permit": permit, "status": status, "headers": headers, "latency_ms": 5});
    json!({"client": "test", "items": [item]})
}

fn acquired(answer: &Value) -> Answer {
    let answer: Acquired = serde_json::from_value(answer.clone()).expect("an answer");
    answer.items.into_iter().next().expect("one item")
}

fn grant(answer: &Value) -> Option<String> {
    match acquired(answer) {
        Answer::Granted(grant) => Some(grant.permit),
        _ => None,
    }
}

fn wait_ms(answer: &Value) -> Option<u64> {
    match acquired(answer) {
        Answer::Wait { retry_in_ms, .. } => Some(retry_in_ms),
        Answer::Granted(grant) => (grant.start_in_ms > 0).then_some(grant.start_in_ms),
        other => panic!("{other:?}"),
    }
}
