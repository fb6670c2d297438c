//! The coordinator is killed twelve times under load, and started again on the same port and state.

use std::time::{Duration, Instant};

use politely::core::Rng;
use politely_api::wire::{Acquired, Answer, Reported};
use politely_target::{Headers, LimitSpec, RetryAfter, Signals};
use serde_json::json;

use super::verdict::{Numbers, demand_permits_differ};
use super::{Fleet, notes, open_hosts, restart_alone};

const KILLS: usize = 12;
const NUMBERS: Numbers = Numbers {
    rate: 4.0,
    burst: 1.0,
    in_flight: 2,
};
/// Half an interval, in microseconds: the time for which a permit may be used.
const GOOD_FOR_US: u64 = 125_000;
/// Longest time between the coordinator's restart and the next request of a worker.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// The prefix of the keys that only the test uses.
const HELD: &str = "custom/held";

#[test]
fn a_killed_coordinator_goes_on_where_it_was() {
    let _alone = restart_alone();
    let mut hosts = open_hosts(16, 72, 250.0);
    for host in &mut hosts[..2] {
        host.limit = LimitSpec::TokenBucket {
            rate: 2.0,
            burst: 4,
        };
        host.signals = Signals {
            status: 429,
            retry_after: RetryAfter::Seconds,
            headers: Headers::None,
        };
        host.pages = 36;
    }
    let args = NUMBERS.args();
    let mut serve: Vec<&str> = args.iter().map(String::as_str).collect();
    serve.extend(["--lease", "10s"]);
    let mut fleet = Fleet::start(hosts, &serve);
    fleet.start_workers(8, 3);

    let mut chance = Rng::new(20);
    let wanted = fleet.pages_wanted();
    let mut back = Vec::new();
    for kill in 0..KILLS {
        let due = (kill + 1) * wanted * 8 / (KILLS * 10);
        fleet.until("the work goes on", |fleet| fleet.progress() >= due);
        let permit = acquire(
            &fleet,
            &format!("custom/account-{kill}"),
            &format!("wish-{kill}"),
        );
        // This hold is acknowledged, and longer than the coordinator will be down.
        let held = hold(&fleet, kill);

        fleet.kill_coordinator();
        std::thread::sleep(Duration::from_millis(chance.next_u64() % 500));
        fleet.start_coordinator();
        let returned = Instant::now();
        let returned_us = notes::wall_us() - fleet.began_us;
        fleet.until("permits are used again", |fleet| {
            arrived_since(fleet, returned_us)
        });
        back.push(returned.elapsed());

        demand_held(&fleet, kill, held);
        report_twice(&fleet, &permit);
    }
    fleet.finish();

    fleet.demand_all_pages();
    fleet.demand_limits(NUMBERS);
    let holds = fleet.demand_holds(GOOD_FOR_US);
    assert!(holds > 0, "nothing was refused\n{}", fleet.story());
    fleet.demand_balance();
    let permits = demand_permits_differ(&fleet.notes());
    let longest = back.iter().max().expect("it was killed");
    eprintln!(
        "{KILLS} kills, back after {longest:?} at most, {permits} permits, {holds} holds{}",
        fleet.story()
    );
    assert!(*longest <= BACK_WITHIN, "{back:?}");
}

/// Acquires a permit for the test itself.
fn acquire(fleet: &Fleet, key: &str, id: &str) -> String {
    let body = json!({"client": "test", "items": [{"id": id, "key": key}]});
    let answer: Acquired =
        serde_json::from_value(fleet.say("POST", "acquire", &body.to_string())).expect("an answer");
    match &answer.items[..] {
        [Answer::Granted(grant)] => grant.permit.clone(),
        other => panic!("{other:?}"),
    }
}

fn report(fleet: &Fleet, told: &serde_json::Value) -> Reported {
    let body = json!({"client": "test", "items": [told]});
    serde_json::from_value(fleet.say("POST", "report", &body.to_string())).expect("an answer")
}

/// Asserts that a permit from before the restart counts exactly once when it is reported twice.
fn report_twice(fleet: &Fleet, permit: &str) {
    let told = json!({"permit": permit, "status": 200, "latency_ms": 10});
    assert!(
        !report(fleet, &told).items[0].late,
        "{permit} was forgotten"
    );
    assert!(report(fleet, &told).items[0].late, "{permit} counted twice");
}

/// Makes a key hold for 20 s by a report. Returns the time just before that report.
fn hold(fleet: &Fleet, kill: usize) -> Instant {
    let key = format!("{HELD}-{kill}");
    let permit = acquire(fleet, &key, &key);
    let told = json!({"permit": permit, "status": 429, "headers": {"retry-after": "20"}, "latency_ms": 10});
    let before = Instant::now();
    assert!(report(fleet, &told).items[0].hold_ms > 19_000);
    before
}

/// Asserts that the hold does not end early.
fn demand_held(fleet: &Fleet, kill: usize, since: Instant) {
    let key = format!("{HELD}-{kill}");
    let body = json!({"client": "test", "items": [{"key": key}]});
    let answer: Acquired =
        serde_json::from_value(fleet.say("POST", "acquire", &body.to_string())).expect("an answer");
    let left = Duration::from_secs(20).saturating_sub(since.elapsed());
    match &answer.items[..] {
        [Answer::Wait { retry_in_ms, .. }] => {
            assert!(
                Duration::from_millis(*retry_in_ms) >= left,
                "{retry_in_ms} ms, not {left:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// Returns whether a request has arrived at any host since `since_us`.
fn arrived_since(fleet: &Fleet, since_us: u64) -> bool {
    fleet.target.hosts().iter().any(|host| {
        let entries = fleet.target.entries(&host.name);
        entries
            .iter()
            .rev()
            .take(50)
            .any(|entry| entry.arrived_us > since_us)
    })
}
