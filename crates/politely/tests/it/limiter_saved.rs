//! Tests that saved keys leave memory and come back as they were.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use politely::core::Timestamp;
use politely::core::gate::HoldReason;
use politely::{
    Clock, Config, Key, Limiter, Refusal, RefusalReason, Report, SavedStates, Signal, Snapshot,
    Unreadable,
};

use crate::limiter_line::{key, ok};

/// Saved states in memory.
#[derive(Debug, Default)]
struct Disk {
    states: Mutex<HashMap<Key, Snapshot>>,
    is_broken: AtomicBool,
}

impl Disk {
    fn save(&self, limiter: &Limiter) {
        self.states.lock().unwrap().extend(limiter.take_learned());
    }
}

impl SavedStates for Disk {
    fn state_of(&self, key: &Key) -> Result<Option<Vec<u8>>, Unreadable> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(Unreadable);
        }
        let states = self.states.lock().unwrap();
        Ok(states.get(key).map(|saved| saved.state.clone()))
    }
}

/// A limiter for `capacity` keys, its disk, and the seconds of its clock.
struct Bench {
    limiter: Limiter,
    disk: Arc<Disk>,
    micros: Arc<AtomicU64>,
}

impl Bench {
    fn new(capacity: usize, limits: &str) -> Self {
        let micros = Arc::new(AtomicU64::new(1_000_000_000));
        let now = Arc::clone(&micros);
        let clock = Clock::given(move || Timestamp::from_micros(now.load(Ordering::Relaxed)));
        let mut config = Config::api();
        config.declared = limits.parse().unwrap();
        let disk = Arc::new(Disk::default());
        let limiter = Limiter::builder()
            .config(config)
            .clock(clock)
            .capacity(capacity)
            .seed(1)
            .saved_states(Arc::clone(&disk) as Arc<dyn SavedStates>);
        Self {
            limiter: limiter.build().unwrap(),
            disk,
            micros,
        }
    }

    fn ahead(&self, ms: u64) {
        self.micros.fetch_add(ms * 1_000, Ordering::Relaxed);
    }

    fn visit(&self, key: &Key, report: &Report) -> Result<(), Refusal> {
        let permit = self.limiter.try_acquire(key)?;
        permit.report(report);
        Ok(())
    }
}

fn nth(i: usize) -> Key {
    key(&format!("h{i}.example"))
}

fn left(limiter: &Limiter, key: &Key) -> u64 {
    limiter.explain(key).unwrap().budgets[0].remaining
}

#[test]
fn a_saved_key_leaves_with_a_spent_budget_and_comes_back_with_it() {
    for limits in ["3/day@UTC", "3/day"] {
        let bench = Bench::new(5, limits);
        for i in 0..5 {
            bench.visit(&nth(i), &ok()).unwrap();
        }
        let full = bench.visit(&nth(5), &ok()).unwrap_err();
        assert_eq!(full.reason, RefusalReason::Full, "nothing is saved yet");
        for i in 5..25 {
            bench.disk.save(&bench.limiter);
            bench.visit(&nth(i), &ok()).unwrap();
        }
        for visit in 2..=3 {
            for i in 0..25 {
                bench.disk.save(&bench.limiter);
                bench.ahead(1_000);
                assert_eq!(left(&bench.limiter, &nth(i)), 4 - visit);
                bench.visit(&nth(i), &ok()).unwrap();
            }
        }
        for i in 0..25 {
            bench.disk.save(&bench.limiter);
            bench.ahead(10_000);
            let refused = bench.visit(&nth(i), &ok()).unwrap_err();
            assert!(
                matches!(refused.reason, RefusalReason::Wait(_)),
                "{refused}"
            );
        }
        assert!(bench.limiter.stats().keys <= 5);
    }
}

#[test]
fn a_key_stays_without_a_save_after_its_last_change() {
    let bench = Bench::new(1, "10/day");
    bench.visit(&nth(0), &ok()).unwrap();
    bench.disk.save(&bench.limiter);
    bench.ahead(1_000);
    bench.visit(&nth(0), &ok()).unwrap();
    assert_eq!(
        bench.visit(&nth(1), &ok()).unwrap_err().reason,
        RefusalReason::Full
    );
    let learned = bench.limiter.take_learned();
    // The states are on their way to the disk.
    assert_eq!(
        bench.visit(&nth(1), &ok()).unwrap_err().reason,
        RefusalReason::Full
    );
    bench.disk.states.lock().unwrap().extend(learned);
    bench.ahead(1_000);
    bench.visit(&nth(1), &ok()).unwrap();
}

#[test]
fn leases_holds_and_operators_numbers_keep_a_saved_key_in_memory() {
    let bench = Bench::new(3, "10/day");
    let [leased, held, rated] = [nth(0), nth(1), nth(2)];
    let permit = bench.limiter.try_acquire(&leased).unwrap();
    let hour = Duration::from_hours(1);
    bench
        .limiter
        .hold(&held, hour, HoldReason::Operator)
        .unwrap();
    bench.limiter.set_rate(&rated, 1.0, 1.0).unwrap();
    bench.disk.save(&bench.limiter);
    assert_eq!(
        bench.visit(&nth(3), &ok()).unwrap_err().reason,
        RefusalReason::Full
    );
    permit.report(&ok());
    bench.disk.save(&bench.limiter);
    bench.ahead(1_000);
    bench.visit(&nth(3), &ok()).unwrap();
    let keys = bench.limiter.keys();
    assert!(keys.contains(&held) && keys.contains(&rated), "{keys:?}");
}

#[test]
fn a_key_whose_saved_state_cannot_be_read_is_refused() {
    let bench = Bench::new(10, "1/day");
    bench.visit(&nth(0), &ok()).unwrap();
    bench.disk.is_broken.store(true, Ordering::Relaxed);
    assert_eq!(
        bench.visit(&nth(1), &ok()).unwrap_err().reason,
        RefusalReason::Full
    );
    assert!(bench.limiter.explain(&nth(1)).is_none());
    bench.disk.is_broken.store(false, Ordering::Relaxed);
    bench.visit(&nth(1), &ok()).unwrap();
}

proptest! {
    /// With few places, each decision is the one of a limiter that keeps all keys in memory.
    #[test]
    fn a_key_that_left_memory_decides_as_if_it_had_stayed(
        steps in prop::collection::vec((0..9_usize, 0..5_u8, 0..3_000_u64, any::<bool>()), 0..150),
    ) {
        let limits = "4/min; 20/h; 30/day@UTC";
        let (small, large) = (Bench::new(3, limits), Bench::new(100, limits));
        for (i, kind, ms, is_saved) in steps {
            for bench in [&small, &large] {
                bench.ahead(ms * ms / 100);
            }
            if is_saved {
                small.disk.save(&small.limiter);
            }
            let report = match kind {
                0 => Report::of(Signal::RateLimited),
                1 => Report::of(Signal::Overloaded),
                _ => ok(),
            };
            let is_full = |done: &Result<(), Refusal>| {
                done.as_ref().is_err_and(|refusal| refusal.reason == RefusalReason::Full)
            };
            let mut done = small.visit(&nth(i), &report);
            if is_full(&done) {
                small.disk.save(&small.limiter);
                small.ahead(60);
                large.ahead(60);
                done = small.visit(&nth(i), &report);
            }
            // The other keys may be held.
            if !is_full(&done) {
                prop_assert_eq!(done, large.visit(&nth(i), &report));
                let explain = |bench: &Bench| bench.limiter.explain(&nth(i));
                prop_assert_eq!(explain(&small), explain(&large));
            }
        }
    }
}
