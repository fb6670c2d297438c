//! Tests of the merge of two states that were one. Whatever the order, the merged state promises no
//! more than either side.

use std::time::Duration;

use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{Ask, CrawlDelay, Decision, Host, OperatorNumbers, Reason};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{Op, config, config_discover, ops};
use crate::world::{World, unused};

/// A host and its caller, on one side of a split.
#[derive(Clone, Debug)]
struct Side {
    host: Host,
    config: Config,
    now: Timestamp,
    rng: Rng,
    given: Vec<LeaseId>,
}

impl Side {
    fn new(config: Config, seed: u64) -> Self {
        let now = Timestamp::from_micros(1_000_000_000);
        Self {
            host: Host::new(&config, now),
            config,
            now,
            rng: Rng::new(seed),
            given: Vec::new(),
        }
    }

    /// Returns this state after `ops` on another side of the split. With a `generation`, the ids of
    /// its later leases differ from those of the other sides.
    fn fork(&self, ops: &[Op], seed: u64, generation: Option<u32>) -> Self {
        let mut fork = self.clone();
        fork.rng = Rng::new(seed);
        if let Some(number) = generation {
            fork.host.generation(number);
        }
        fork.run(ops);
        fork
    }

    fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
        }
    }

    fn step(&mut self, op: &Op) {
        let (now, config) = (self.now, &self.config);
        let given = |which: usize| {
            let at = which % self.given.len().max(1);
            self.given.get(at).copied().unwrap_or(LeaseId(0))
        };
        match *op {
            Op::Request { slots, horizon_ms } => {
                let ask = Ask {
                    slots,
                    bytes: u64::from(slots) * 100,
                    ..Ask::within(Duration::from_millis(horizon_ms))
                };
                if let Decision::Granted(grant) = self.host.request(now, ask, config) {
                    let ids = grant.lease.0..grant.lease.0 + u64::from(grant.slots);
                    self.given.extend(ids.map(LeaseId));
                }
            }
            Op::Report { which, ref report } => {
                let lease = given(which);
                let rng = &mut self.rng;
                if which % 3 == 0 {
                    self.host.hear(now, lease, report, config, rng);
                } else {
                    self.host.report(now, lease, report, config, rng);
                }
            }
            Op::ReportAgain { which, ref report } => {
                self.host.release(now, given(which), report.bytes, config);
            }
            Op::Cancel { which, sent } => self.host.cancel(now, given(which), unused(sent), config),
            Op::Renew { which } => _ = self.host.renew(now, given(which), config),
            Op::Ahead { micros } => self.now = now + Duration::from_micros(micros),
            Op::Back { .. } => unreachable!("the clocks of those that share a state agree"),
            Op::SetRate { rate, burst } => {
                self.host
                    .set(now, OperatorNumbers::rate(rate, burst), config);
            }
            Op::Hold { millis } => {
                let until = now + Duration::from_millis(millis);
                self.host.hold(now, until, HoldReason::Operator);
            }
            Op::CrawlDelay { millis, fresh_ms } => {
                let told = CrawlDelay {
                    pause: Duration::from_millis(millis),
                    fresh: Duration::from_millis(fresh_ms),
                };
                self.host.crawl_delay(now, told, config);
            }
            Op::Unpark => self.host.unpark(now, config),
            Op::Evict => self.host.forget(now, config),
            Op::Restore => {
                self.host = Host::thaw(&self.host.snapshot(), now, config).unwrap().0;
            }
        }
    }
}

/// The sides of a state that was split, and the time of their join.
#[derive(Debug)]
struct Split {
    sides: Vec<Side>,
    now: Timestamp,
    config: Config,
}

impl Split {
    fn join(&self, a: &Host, b: &Host) -> Host {
        let mut joined = a.clone();
        joined.join(b, self.now, &self.config);
        joined
    }

    /// Joins the first two sides.
    fn joined(&self) -> Host {
        self.join(&self.sides[0].host, &self.sides[1].host)
    }
}

fn split(config: impl Strategy<Value = Config>, sides: usize) -> impl Strategy<Value = Split> {
    let generation = prop::option::of(1..3_u32);
    let fork = (ops(40), any::<u64>(), generation);
    (config, ops(60), vec(fork, sides), 0..3_000_000_u64).prop_map(
        |(config, before, forks, later)| {
            let mut one = Side::new(config.clone(), 1);
            one.run(&before);
            let forks = forks.iter();
            let sides: Vec<_> = forks
                .map(|(ops, seed, generation)| one.fork(ops, *seed, *generation))
                .collect();
            let latest = sides.iter().map(|side| side.now).max().unwrap();
            Split {
                sides,
                now: latest + Duration::from_micros(later),
                config,
            }
        },
    )
}

/// Draws requests, each as the time since the one before and a horizon, in microseconds.
fn asks() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![
        2 => Just(0),
        3 => 1..300_000_u64,
        3 => 300_000..3_000_000_u64,
        1 => 3_000_000..200_000_000_u64,
    ];
    let horizon = prop_oneof![3 => Just(0), 1 => 0..20_000_000_u64];
    vec((gap, horizon), 1..80)
}

/// Makes the same requests to both sides and to the merged state, which never grants more than
/// either side.
fn promises_no_more(split: &Split, asks: &[(u64, u64)]) {
    let mut hosts = [
        split.joined(),
        split.sides[0].host.clone(),
        split.sides[1].host.clone(),
    ];
    let mut granted = [0; 3];
    let mut now = split.now;
    for &(gap, horizon) in asks {
        now = now + Duration::from_micros(gap);
        let ask = Ask::within(Duration::from_micros(horizon));
        for (host, granted) in hosts.iter_mut().zip(&mut granted) {
            if let Decision::Granted(_) = host.request(now, ask.clone(), &split.config) {
                *granted += 1;
            }
        }
        let [joined, a, b] = granted;
        assert!(joined <= a && joined <= b, "{granted:?} at {now}");
    }
}

fn is_a_join(split: &Split) {
    let Split { sides, now, config } = split;
    let (now, joined) = (*now, split.joined());
    let bytes = joined.snapshot();

    let [a, b] = [&sides[0].host, &sides[1].host];
    assert_eq!(split.join(b, a).snapshot(), bytes, "in either order");
    for again in [&joined, a, b] {
        let again = split.join(&joined, again);
        assert_eq!(again.snapshot(), bytes, "joined again");
    }

    let (read, read_at) = Host::thaw(&bytes, now, config).expect("a state as any other");
    assert_eq!((&read, read_at), (&joined, now));
    assert_eq!(Host::restore(&bytes, now, config).as_ref(), Ok(&joined));

    let wait = joined.explain(now, config).wait;
    for side in sides {
        let mut alone = side.host.clone();
        if let Some(hold) = alone.look(now, config).wait
            && let Reason::Hold(_) | Reason::Parked(_) = hold.reason
        {
            assert!(
                wait.is_some_and(|wait| wait.at >= hold.at),
                "{hold:?}, {wait:?}"
            );
        }
        for lease in &side.given {
            let live = alone.renew(now, *lease, config);
            assert!(
                !live || joined.clone().renew(now, *lease, config),
                "{lease:?}"
            );
        }
        let (one, both) = (alone.tally(), joined.tally());
        assert!(one.granted <= both.granted && one.live <= both.live);
        let ended = both.reported + both.cancelled + both.expired;
        assert_eq!(both.granted, ended + both.live);
    }

    let mut world = World::new(config.clone(), 1);
    let mut used = joined;
    for i in 0..20 {
        world.poke(&mut used, now + Duration::from_millis(i * 700), i);
    }
}

/// The order of three merges does not matter: the states are equal to the byte, except for tokens
/// under rates that differ.
fn in_whichever_order(split: &Split) {
    let Split { sides, now, config } = split;
    let [a, b, c] = [&sides[0].host, &sides[1].host, &sides[2].host];
    let mut joins = [
        split.join(&split.join(a, b), c),
        split.join(a, &split.join(b, c)),
        split.join(&split.join(a, c), b),
    ];
    let told = joins.each_ref().map(|join| join.explain(*now, config));
    for other in &told[1..] {
        match (told[0].wait, other.wait) {
            (Some(one), Some(other)) => {
                let apart = one.at.since(other.at).max(other.at.since(one.at));
                assert!(apart <= Duration::from_micros(2), "{told:?}");
            }
            (one, other) => assert_eq!(one, other),
        }
    }
    let bytes = joins.each_mut().map(|join| {
        // This empties the buckets so deeply that their former tokens no longer matter.
        join.resume_after(*now, *now + Duration::from_hours(1_000_000), config);
        join.snapshot()
    });
    assert!(bytes.iter().all(|one| *one == bytes[0]), "{joins:?}");
}

/// The side whose writes were lost has a hold of half an hour. The other side has a hold of a
/// minute, set one second later.
#[test]
fn after_a_failover_the_longer_hold_stands_and_nobodys_slot_is_lost() {
    let mut old = Side::new(Config::api(), 1);
    let mut new = old.fork(&[], 2, Some(1_800_000_000));
    let ahead = Op::Ahead { micros: 1_000_000 };
    let ask = Op::Request {
        slots: 1,
        horizon_ms: 0,
    };
    let refused = |secs| Op::Report {
        which: 1,
        report: Report {
            status: Some(429),
            retry_after: Some(Duration::from_secs(secs)),
            ..Report::of(Signal::RateLimited)
        },
    };
    old.run(&[ask.clone(), ahead.clone(), ask.clone(), refused(1_800)]);
    new.run(&[ahead.clone(), ask.clone(), ahead, ask, refused(60)]);

    let (now, config) = (new.now, &new.config);
    let mut host = old.host.clone();
    host.join(&new.host, now, config);
    let told = host.explain(now, config);
    assert_eq!(
        told.line(now),
        "waits 30 min: hold, Retry-After (429, Retry-After: 60)"
    );
    assert_eq!(host.in_flight(), 2);
    for lease in [old.given[0], new.given[0]] {
        assert!(host.renew(now, lease, config), "{lease:?} is out");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_join_is_one(split in split(config(), 2)) {
        is_a_join(&split);
    }

    #[test]
    fn a_join_of_what_was_discovered_is_one(split in split(config_discover(), 2)) {
        is_a_join(&split);
    }

    #[test]
    fn three_join_in_whichever_order(split in split(config(), 3)) {
        in_whichever_order(&split);
    }

    #[test]
    fn three_that_discover_join_in_whichever_order(split in split(config_discover(), 3)) {
        in_whichever_order(&split);
    }

    #[test]
    fn a_join_promises_no_more_than_either(split in split(config(), 2), asks in asks()) {
        promises_no_more(&split, &asks);
    }

    #[test]
    fn a_join_of_what_was_discovered_promises_no_more(split in split(config_discover(), 2), asks in asks()) {
        promises_no_more(&split, &asks);
    }
}
