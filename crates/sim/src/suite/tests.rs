use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use politely_core::{Rng, Timestamp};
use politely_target::RetryAfter;
use politely_target::model::LimitSpec;

use super::*;
use crate::client::{Answer, Client, Reply};
use crate::run::phase;
use crate::trace::{Fate, Trace};
use crate::{generate, optimum, run};

/// Sends at a steady rate, whatever the answers are.
struct Steady {
    every: Duration,
    next: Timestamp,
    heard: Rc<RefCell<Vec<Reply>>>,
}

impl Client for Steady {
    fn ask(&mut self, now: Timestamp) -> Answer {
        if now < self.next {
            return Answer::At(self.next);
        }
        self.next = now + self.every;
        Answer::Go(0)
    }

    fn hear(&mut self, _now: Timestamp, reply: &Reply, _rng: &mut Rng) {
        self.heard.borrow_mut().push(*reply);
    }
}

fn steady(scenario: &Scenario, seed: u64, per_s: f64) -> (Trace, Vec<Reply>) {
    let heard = Rc::default();
    let trace = run(scenario, seed, false, |_| {
        Box::new(Steady {
            every: Duration::from_secs_f64(1.0 / per_s),
            next: Timestamp::ZERO,
            heard: Rc::clone(&heard),
        })
    });
    (trace, heard.take())
}

fn named(name: &str) -> Scenario {
    let mut suite = suite();
    suite.retain(|one| one.name == name);
    suite.pop().expect(name)
}

fn count(trace: &Trace, fate: Fate) -> usize {
    (trace.requests.iter())
        .filter(|request| request.fate == fate)
        .count()
}

#[test]
fn the_suite_is_valid_and_every_name_is_its_own() {
    let suite = suite();
    assert!(suite.len() >= 30, "{}", suite.len());
    let mut names: Vec<&str> = suite.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), suite.len());
}

#[test]
fn every_kind_of_limit_and_fault_is_in_it() {
    for kind in [
        "token_bucket",
        "fixed_window",
        "sliding_log",
        "sliding_counter",
        "leaky",
        "concurrency_reject",
        "concurrency_queue",
        "all",
        "steps",
        "walk",
        "day",
        "shared",
        "none",
        "noise",
        "outage",
        "brownout",
        "block",
        "ban",
    ] {
        assert!(
            NAMED_JSON.contains(&format!(r#"{{"kind": "{kind}""#)),
            "{kind}"
        );
    }
}

#[test]
fn the_same_seed_meets_the_same_host_and_another_another() {
    for mut scenario in suite() {
        scenario.duration_s = scenario.duration_s.min(30.0);
        let latencies = |seed| -> Vec<Duration> {
            let (trace, _) = steady(&scenario, seed, 12.0);
            trace.requests.iter().map(|one| one.latency).collect()
        };
        assert_eq!(latencies(1), latencies(1), "{}", scenario.name);
        assert_ne!(latencies(1), latencies(2), "{}", scenario.name);
    }
}

/// Other clients may lose their share; every other client's optimum stands.
#[test]
fn nobody_gets_more_than_the_optimum() {
    let drawn = generate(11, 30).into_iter().chain(suite());
    for mut scenario in drawn.filter(|one| !matches!(one.limit, LimitSpec::Shared { .. })) {
        scenario.duration_s = scenario.duration_s.min(1_000.0);
        // With slots, the optimum is that of the mean.
        scenario.service.cv = 0.0;
        for per_s in [3.0, 30.0] {
            let (trace, _) = steady(&scenario, 5, per_s);
            // Requests that noise or a brown-out failed had been accepted.
            let got = count(&trace, Fate::Served) + count(&trace, Fate::Noise);
            let best = optimum::accepted(&scenario, phase(5)).len();
            assert!(got <= best, "{}: {got} of {best}", scenario.name);
        }
    }
}

#[test]
fn a_liar_announces_twice_the_limit_with_all_of_it_left() {
    let mut scenario = named("lying headers");
    scenario.duration_s = 200.0;
    let (trace, heard) = steady(&scenario, 1, 20.0);
    assert!(count(&trace, Fate::Refused) > 1_000);
    for reply in heard {
        let quota = reply.quota.unwrap();
        assert_eq!((quota.limit, quota.remaining), (Some(1_200), Some(1_200)));
        assert_eq!(quota.window, Some(Duration::from_mins(1)));
    }
}

#[test]
fn an_absurd_wait_is_heard_with_every_refusal_and_only_then() {
    let mut scenario = named("absurd Retry-After");
    scenario.duration_s = 100.0;
    let (trace, heard) = steady(&scenario, 1, 12.0);
    assert!(count(&trace, Fate::Refused) > 50);
    for reply in heard {
        let said = (reply.status == 429).then_some(RetryAfter::ABSURD);
        assert_eq!(reply.retry_after, said);
    }
}

#[test]
fn who_does_not_listen_is_banned_for_longer_and_longer() {
    let scenario = named("escalating ban");
    let (trace, _) = steady(&scenario, 1, 12.0);
    // Refused within seconds of each ban's end: 10, 20 and most of 40 minutes of the hour.
    assert_eq!(count(&trace, Fate::Refused), 3 * 11);
    let (banned, all) = (count(&trace, Fate::Blocked), trace.requests.len());
    assert!(banned * 100 > all * 98, "{banned} of {all}");
}

#[test]
fn a_brownout_is_slow_and_fails_some() {
    let scenario = named("brown-out of 5 minutes");
    let (trace, _) = steady(&scenario, 1, 5.0);
    let during = |sent: Timestamp| (600.0..900.0).contains(&sent.as_secs_f64());
    let mean_of = |of: &dyn Fn(Timestamp) -> bool| {
        let latencies: Vec<f64> = (trace.requests.iter())
            .filter(|request| of(request.sent))
            .map(|request| request.latency.as_secs_f64())
            .collect();
        latencies.iter().sum::<f64>() / latencies.len() as f64
    };
    let (outside, inside) = (mean_of(&|sent| !during(sent)), mean_of(&during));
    assert!((0.19..0.21).contains(&outside), "{outside}");
    assert!((0.77..0.83).contains(&inside), "{inside}");
    let failed = count(&trace, Fate::Noise);
    assert!((240..360).contains(&failed), "a fifth of 1,500: {failed}");
}

#[test]
fn others_are_noticed() {
    let scenario = named("cross traffic of 4/s");
    let (trace, _) = steady(&scenario, 1, 8.0);
    let refused = count(&trace, Fate::Refused) as f64 / trace.requests.len() as f64;
    assert!((0.08..0.2).contains(&refused), "{refused}");
    let (trace, _) = steady(&scenario, 1, 4.0);
    let refused = count(&trace, Fate::Refused) as f64 / trace.requests.len() as f64;
    assert!(refused < 0.01, "{refused}");
}
