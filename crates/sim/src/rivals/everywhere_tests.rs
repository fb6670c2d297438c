//! Every rival on every kind of host: it keeps sending, and the oracle is never refused.

use super::{NAMES, build};
use crate::scenario::Scenario;
use crate::{Trace, run, score};

const HOSTS: &str = r#"[
    {"name":"token bucket","limit":{"kind":"token_bucket","rate":5,"burst":5}},
    {"name":"slow token bucket","limit":{"kind":"token_bucket","rate":0.5,"burst":1}},
    {"name":"aligned window","limit":{"kind":"fixed_window","count":100,"window_s":20,"aligned":true}},
    {"name":"first-hit window","limit":{"kind":"fixed_window","count":50,"window_s":10,"aligned":false}},
    {"name":"sliding log","limit":{"kind":"sliding_log","count":50,"window_s":10}},
    {"name":"leaky","limit":{"kind":"leaky","rate":5,"queue":10}},
    {"name":"slots, rejecting","limit":{"kind":"concurrency_reject","slots":4}},
    {"name":"slots, queueing","limit":{"kind":"concurrency_queue","slots":4,"queue":100}},
    {"name":"several","limit":{"kind":"all","of":[
        {"kind":"token_bucket","rate":10,"burst":10},{"kind":"sliding_log","count":100,"window_s":20}]}},
    {"name":"steps","limit":{"kind":"steps","at":[
        [0,{"kind":"token_bucket","rate":10,"burst":10}],[60,{"kind":"token_bucket","rate":2,"burst":2}]]}},
    {"name":"503 and Retry-After","limit":{"kind":"token_bucket","rate":5,"burst":5},
        "signals":{"status":503,"retry_after":"seconds"}},
    {"name":"429, Retry-After, headers","limit":{"kind":"fixed_window","count":50,"window_s":10,"aligned":true},
        "signals":{"status":429,"retry_after":"seconds","headers":"ietf"}},
    {"name":"noise","limit":{"kind":"token_bucket","rate":5,"burst":5},
        "faults":[{"kind":"noise","share":0.05,"status":500}]},
    {"name":"outage","limit":{"kind":"token_bucket","rate":5,"burst":5},
        "faults":[{"kind":"outage","from_s":20,"to_s":40,"status":502}]},
    {"name":"block","limit":{"kind":"token_bucket","rate":5,"burst":5},
        "faults":[{"kind":"block","above_rps":20,"for_s":20}]},
    {"name":"workers apart","limit":{"kind":"token_bucket","rate":5,"burst":5},"workers":4,"coordinated":false}
]"#;

/// The hosts above, two minutes each, 20 + 80 ms away.
fn hosts() -> Vec<Scenario> {
    let mut hosts: Vec<serde_json::Value> = serde_json::from_str(HOSTS).unwrap();
    for host in &mut hosts {
        host["duration_s"] = 120.into();
        host["rtt_ms"] = 20.into();
        host["service"] = serde_json::json!({"mean_ms": 80, "cv": 0.3});
        host["demand"] = serde_json::json!({"kind": "greedy", "connections": 16});
    }
    Scenario::read(&serde_json::to_string(&hosts).unwrap()).unwrap()
}

fn trace(name: &str, scenario: &Scenario) -> Trace {
    run(scenario, 3, true, |i| {
        build(name, scenario, u64::from(i)).unwrap()
    })
}

/// Seconds: slightly more than the longest deliberate wait, Crawlee's block.
const SILENCE_MAX_S: f64 = 70.0;

#[test]
fn everyone_keeps_going_everywhere() {
    for scenario in hosts() {
        for name in NAMES {
            let trace = trace(name, &scenario);
            let last = trace.requests.iter().map(|r| r.sent).max().unwrap();
            let silence = scenario.duration_s - last.as_secs_f64();
            assert!(silence < SILENCE_MAX_S, "{name} on {}", scenario.name);
        }
    }
}

#[test]
fn the_oracle_is_never_refused_and_uses_nearly_all() {
    for scenario in hosts() {
        let score = score(&scenario, "oracle", 3, &trace("oracle", &scenario));
        println!(
            "{:26} {:.3} {}",
            scenario.name, score.utilisation, score.refused
        );
        let faultless = scenario.faults.is_empty();
        assert!(
            score.refused == 0 || !faultless,
            "{}: {score:?}",
            scenario.name
        );
    }
}
