//! Tests of the registry and the queues under shuttle, a scheduler that tries many interleavings.
//!
//! The sources are compiled a second time here. Shuttle's locks and atomics, and a `Notify` built
//! from them, replace `src/sync.rs`. So no feature and no separate build is needed. A lost wake-up
//! becomes a deadlock, and shuttle reports the schedule that led to it.
#![allow(
    dead_code,
    irrefutable_let_patterns,
    missing_docs,
    unused_imports,
    unreachable_patterns,
    unreachable_pub,
    reason = "the library's sources, of which these tests use a part"
)]
#![allow(clippy::pedantic, reason = "linted where they live")]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/departure.rs"]
mod departure;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/labels.rs"]
mod labels;
#[path = "../src/leases.rs"]
mod leases;
#[path = "../src/limiter/mod.rs"]
mod limiter;
#[path = "../src/lock_guard.rs"]
mod lock_guard;
#[path = "../src/locks.rs"]
mod locks;
#[path = "../src/permit.rs"]
mod permit;
#[path = "../src/recorder.rs"]
mod recorder;
#[path = "../src/saved_states.rs"]
mod saved_states;
#[path = "../src/slot.rs"]
mod slot;
#[path = "../src/snapshot.rs"]
mod snapshot;
#[path = "../src/stats.rs"]
mod stats;

#[cfg(feature = "policy")]
use politely::policy;

/// The rooms of the limiter's backends that these tests need.
#[path = "../src/backend"]
mod backend {
    pub(crate) mod local;
    pub(crate) mod operations;

    pub(crate) enum Backend {
        Local(local::Local),
    }

    impl Backend {
        pub(crate) fn operations(&self) -> &dyn operations::Operations {
            let Self::Local(local) = self;
            local
        }
    }
}

mod sync {
    use std::future::poll_fn;
    use std::task::{Poll, Waker};

    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

    /// Shuttle's mutex with the return types of `parking_lot`.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// Sleeps for ever. No time passes in these tests, so only a wake-up ends a wait.
    pub(crate) async fn sleep(_: std::time::Duration) {
        std::future::pending().await
    }

    /// The part of tokio's `Notify` that the sources use. One task waits, and an earlier wake-up is
    /// kept.
    #[derive(Debug, Default)]
    pub(crate) struct Notify(Mutex<(bool, Option<Waker>)>);

    impl Notify {
        pub(crate) fn notify_one(&self) {
            let mut state = self.0.lock();
            state.0 = true;
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        }

        pub(crate) async fn notified(&self) {
            poll_fn(|context| {
                let mut state = self.0.lock();
                if std::mem::take(&mut state.0) {
                    return Poll::Ready(());
                }
                state.1 = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }
}

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::gate::HoldReason;
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};
use shuttle::future::block_on;
use shuttle::thread;

use crate::clock::Clock;
use crate::error::{AcquireError, RefusalReason};
use crate::limiter::Limiter;

/// Number of schedules tried per test.
const SCHEDULES: usize = 1_000;

/// Returns a limiter without rate limits. No time passes and no lease expires, so only returned
/// permits free slots.
fn limiter(in_flight: u32, capacity: usize) -> Limiter {
    let mut config = Config::fixed(f64::INFINITY, 1e9);
    config.limits.in_flight = in_flight;
    config.lease = Duration::MAX;
    let clock = Clock::given(|| Timestamp::from_micros(1));
    let builder = Limiter::builder().config(config).clock(clock).seed(1);
    builder.capacity(capacity).build().unwrap()
}

fn key(name: &str) -> Key {
    Key::host(name).unwrap()
}

fn ok() -> Report {
    Report::of(Signal::Ok)
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

#[test]
fn no_wake_is_lost_between_looking_and_sleeping() {
    check(|| {
        let limiter = limiter(1, 8);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let limiter = limiter.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let permit = block_on(limiter.acquire(&key("a.example"))).unwrap();
                        permit.report(&ok());
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let tally = limiter.explain(&key("a.example")).unwrap().tally;
        assert_eq!((tally.granted, tally.reported, tally.live), (6, 6, 0));
        assert_eq!(limiter.stats().waiting, 0);
    });
}

#[test]
fn whoever_leaves_the_line_wakes_the_next() {
    check(|| {
        let limiter = limiter(1, 8);
        let held = limiter.try_acquire(&key("a.example")).unwrap();
        let quitter = thread::spawn({
            let limiter = limiter.clone();
            move || {
                let host = key("a.example");
                let mut waiting = Box::pin(limiter.acquire(&host));
                // This polls the future once and drops it, whatever its place in the queue.
                block_on(async {
                    let once = std::future::poll_fn(|context| {
                        std::task::Poll::Ready(waiting.as_mut().poll(context))
                    });
                    drop(once.await);
                    shuttle::future::yield_now().await;
                });
                drop(waiting);
            }
        });
        let patient = thread::spawn({
            let limiter = limiter.clone();
            move || drop(block_on(limiter.acquire(&key("a.example"))).unwrap())
        });
        drop(held);
        quitter.join().unwrap();
        patient.join().unwrap();
        let tally = limiter.explain(&key("a.example")).unwrap().tally;
        assert_eq!((tally.granted, tally.live), (tally.cancelled, 0));
    });
}

#[test]
fn closing_reaches_those_who_are_just_joining() {
    check(|| {
        let limiter = limiter(1, 8);
        let held = limiter.try_acquire(&key("a.example")).unwrap();
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let limiter = limiter.clone();
                thread::spawn(move || block_on(limiter.acquire(&key("a.example"))).map(drop))
            })
            .collect();
        limiter.close();
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Err(AcquireError::Closed));
        }
        held.report(&ok());
    });
}

#[test]
fn two_who_need_two_keys_neither_block_each_other_nor_leak() {
    check(|| {
        let limiter = limiter(1, 8);
        let (a, b) = (key("a.example"), key("b.example"));
        let threads: Vec<_> = [
            [a.clone(), b.clone()],
            [b.clone(), a.clone()],
            [a.clone(), a.clone()],
        ]
        .into_iter()
        .map(|keys| {
            let limiter = limiter.clone();
            thread::spawn(move || {
                block_on(limiter.acquire(&keys)).unwrap().report(&ok());
            })
        })
        .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        for key in [&a, &b] {
            let tally = limiter.explain(key).unwrap().tally;
            assert_eq!(tally.live, 0);
            assert_eq!(tally.granted, tally.reported + tally.cancelled);
        }
    });
}

#[test]
fn the_count_neither_drifts_nor_passes_the_bound() {
    check(|| {
        let limiter = limiter(1, 2);
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let limiter = limiter.clone();
                thread::spawn(move || {
                    for i in 0..2 {
                        match limiter.try_acquire(&key(&format!("h{}.example", thread * 2 + i))) {
                            Ok(permit) => drop(permit.report(&ok())),
                            Err(refusal) => assert_eq!(refusal.reason, RefusalReason::Full),
                        }
                        assert!(limiter.stats().keys <= 2);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(limiter.stats().keys, limiter.keys().len() as u64);
    });
}

#[test]
fn eviction_against_a_report_that_comes_late() {
    check(|| {
        let limiter = limiter(2, 1);
        let old = limiter.try_acquire(&key("old.example")).unwrap();
        let late = thread::spawn(move || old.report(&Report::of(Signal::UrlError)).late);
        let newcomer = thread::spawn({
            let limiter = limiter.clone();
            move || limiter.try_acquire(&key("new.example"))
        });
        assert!(!late.join().unwrap(), "a lease keeps its key");
        match newcomer.join().unwrap() {
            Err(refusal) => assert_eq!(refusal.reason, RefusalReason::Full),
            Ok(permit) => {
                assert_eq!(limiter.explain(&key("new.example")).unwrap().in_flight.0, 1);
                assert!(!permit.report(&ok()).late);
            }
        }
        assert_eq!(limiter.stats().keys, 1);
    });
}

#[test]
fn a_restore_against_permits_and_a_line() {
    check(|| {
        let limiter = limiter(1, 8);
        let host = key("a.example");
        let state = {
            drop(limiter.try_acquire(&host).unwrap());
            limiter.snapshot(&host).unwrap()
        };
        let held = limiter.try_acquire(&host).unwrap();
        let waiting = thread::spawn({
            let limiter = limiter.clone();
            move || {
                block_on(limiter.acquire(&key("a.example")))
                    .unwrap()
                    .report(&ok())
                    .late
            }
        });
        let restore = thread::spawn({
            let limiter = limiter.clone();
            move || limiter.restore(&key("a.example"), &state).unwrap()
        });
        held.report(&ok());
        // The two threads may run in either order. Neither waits for ever, and no slot stays taken.
        waiting.join().unwrap();
        restore.join().unwrap();
        assert_eq!(limiter.explain(&host).unwrap().in_flight.0, 0);
    });
}
