//! Each mechanism has a switch, and each switch does something; nothing else makes two runs differ.

use politely_core::control::Mechanism;
use politely_sim::Scenario;
use politely_target::model::FaultSpec;

use super::{named, play, trace};

/// Where a mechanism shows.
fn where_it_shows(mechanism: Mechanism) -> Scenario {
    let mut scenario = named(match mechanism {
        Mechanism::Windows | Mechanism::Rounds | Mechanism::Replay => "fixed window 20 per 10 s",
        Mechanism::Budget => "leaky 5/s queue 10, nodelay",
        Mechanism::Verify | Mechanism::Outage => "token bucket 10/s burst 10",
        Mechanism::Slots => "concurrency 4, rejecting",
        Mechanism::Queue => "concurrency 4, queueing",
        Mechanism::Noise => "1 % noise",
        Mechanism::Quota => "fixed window 600/min, x headers",
    });
    if mechanism == Mechanism::Outage {
        scenario.faults.push(FaultSpec::Outage {
            from_s: 1_200.0,
            to_s: 1_260.0,
            status: 503,
        });
    }
    scenario
}

/// Returns the trace as bytes.
fn bytes(law: &str, scenario: &Scenario, seed: u64) -> String {
    format!("{:?}", trace(law, scenario, seed))
}

#[test]
fn without_any_one_mechanism_it_runs_and_runs_differently() {
    for (name, mechanism) in Mechanism::ALL {
        let scenario = where_it_shows(mechanism);
        let without = format!("discover-without-{name}");
        let run = play(&without, &scenario, 1);
        assert!(run.accepted > 0, "{without}");
        let as_a_whole = bytes("discover", &scenario, 1);
        assert!(bytes(&without, &scenario, 1) != as_a_whole, "{without}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_others() {
    for name in [
        "token bucket 10/s burst 10",
        "concurrency 4, rejecting",
        "1 % noise",
        "16 coordinated workers",
    ] {
        let mut scenario = named(name);
        scenario.duration_s = 600.0;
        let once = bytes("discover", &scenario, 1);
        assert!(once == bytes("discover", &scenario, 1), "{name}");
        assert!(once != bytes("discover", &scenario, 2), "{name}");
    }
}
