//! A client whose timers have the resolution of a real runtime.

use politely_sim::Scenario;
use politely_sim::score::Score;

use super::{play, trace};

/// Returns a host that takes 20,000 requests a second and answers within half a millisecond. Its
/// client wakes at multiples of a millisecond, as a Tokio timer does.
fn fast_host() -> Scenario {
    let json = r#"[{"name": "open", "duration_s": 60, "rtt_ms": 0.2, "timer_ms": 1,
        "demand": {"kind": "greedy", "connections": 64}, "service": {"mean_ms": 0.2, "cv": 0.25},
        "limit": {"kind": "token_bucket", "rate": 20000, "burst": 20000}}]"#;
    Scenario::read(json).expect("a scenario").remove(0)
}

/// Regression: a timer wakes a waiting client up to a millisecond late. At more than some 700
/// requests a second, that gap counted as missing demand, and the law stopped climbing.
#[test]
fn a_client_with_timers_of_a_millisecond_finds_a_fast_limit() {
    let host = fast_host();
    let trace = trace("discover", &host, 1);
    let last = host.duration_s - 10.0;
    let in_last = |at: f64| at >= last;
    let sent = trace.requests.iter();
    let sent = sent.filter(|request| in_last(request.sent.as_secs_f64()));
    let per_s = sent.count() as f64 / 10.0;
    assert!(per_s >= 15_000.0, "{per_s}");
    let Score { refused_share, .. } = play("discover", &host, 1);
    assert!(refused_share <= 0.01, "{refused_share}");
}
