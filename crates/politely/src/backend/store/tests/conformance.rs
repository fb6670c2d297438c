//! The same events make the same bytes and the same answers in a bare [`Host`], in the registry,
//! and in a cell.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{
    AcquireRequest, CrawlDelay, Decision, Directions, Grant, Host, OperatorNumbers, Reason, Unused,
};
use politely_core::signal::{Report, Signal};
use politely_store::NodeId;
use proptest::prelude::*;

use super::{Store, driven, key, memory};
use crate::backend::store::Unavailable;
use crate::clock::Clock;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::sync::sleep;
use politely_core::Rng;
use politely_store::Engine;

const SEED: u64 = 7;

#[derive(Clone, Debug)]
enum Step {
    /// The number of ticks.
    Wait(u64),
    AcquireRequest {
        slots: u16,
        cost: u16,
        bytes: u64,
        ahead_ms: u64,
    },
    Report {
        which: usize,
        signal: Signal,
        retry_after_s: Option<u64>,
        latency_ms: u64,
        bytes: u64,
    },
    Cancel {
        which: usize,
        sent: bool,
    },
    Hold(u64),
    CrawlDelay(u64),
    Set {
        rate: Option<f64>,
        in_flight: Option<u32>,
    },
    Unpark,
    Forget,
    ResetBudgets,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let signal = prop_oneof![
        6 => Just(Signal::Ok),
        2 => Just(Signal::RateLimited),
        1 => Just(Signal::Overloaded),
        1 => Just(Signal::Unreachable),
        1 => Just(Signal::Blocked),
        1 => Just(Signal::UrlError),
    ];
    let step = prop_oneof![
        4 => (0_u64..400).prop_map(Step::Wait),
        6 => (1_u16..4, 1_u16..3, 0_u64..2_000, 0_u64..3_000).prop_map(
            |(slots, cost, bytes, ahead_ms)| Step::AcquireRequest { slots, cost, bytes, ahead_ms }
        ),
        5 => (0_usize..8, signal, prop::option::of(1_u64..20), 1_u64..900, 0_u64..9_000).prop_map(
            |(which, signal, retry_after_s, latency_ms, bytes)| Step::Report {
                which, signal, retry_after_s, latency_ms, bytes,
            }
        ),
        1 => (0_usize..8, any::<bool>()).prop_map(|(which, sent)| Step::Cancel { which, sent }),
        1 => (1_u64..5_000).prop_map(Step::Hold),
        1 => (0_u64..3_000).prop_map(Step::CrawlDelay),
        1 => (prop::option::of(0.2_f64..50.0), prop::option::of(1_u32..9))
            .prop_map(|(rate, in_flight)| Step::Set { rate, in_flight }),
        1 => Just(Step::Unpark),
        1 => Just(Step::Forget),
        1 => Just(Step::ResetBudgets),
    ];
    prop::collection::vec(step, 1..60)
}

fn configs() -> impl Strategy<Value = Config> {
    prop_oneof![
        Just(Config::crawler()),
        Just(Config::api()),
        Just(Config::fixed(3.0, 2.0)),
        Just(Config::api().with_law(LawConfig::Aimd(Arc::default()))),
        Just(byte_budget()),
        Just(declared_limits()),
    ]
}

fn byte_budget() -> Config {
    let mut config = Config::crawler();
    config.limits.bytes_per_s = 1_000.0;
    config
}

fn declared_limits() -> Config {
    let mut config = Config::fixed(20.0, 2.0);
    config.declared = "5/s; 20/min".parse().unwrap();
    config
}

/// The answer to a request.
#[derive(Debug, PartialEq)]
enum Said {
    Granted(u16, Timestamp),
    No(Reason, Timestamp),
    Heard(Directions),
}

/// A keeper of the key's state.
trait Keeper {
    type Permit;
    async fn ask(&mut self, ask: AcquireRequest) -> (Said, Vec<Self::Permit>);
    fn report(&mut self, permit: Self::Permit, report: &Report) -> Directions;
    fn cancel(&mut self, permit: Self::Permit, sent: bool);
    fn operate(&mut self, step: &Step);
    /// Waits until nothing is in flight.
    async fn settle(&mut self) {}
}

/// The core alone.
struct Bare {
    host: Host,
    config: Config,
    clock: Clock,
}

impl Keeper for Bare {
    type Permit = (LeaseId, Unused);

    async fn ask(&mut self, ask: AcquireRequest) -> (Said, Vec<Self::Permit>) {
        match self.host.request(self.clock.now(), ask, &self.config) {
            Decision::Wait(wait) => (Said::No(wait.reason, wait.at), Vec::new()),
            Decision::Granted(Grant {
                lease,
                slots,
                start,
                unused,
                ..
            }) => {
                let mut permits: Vec<_> = unused.of_run(lease, slots).collect();
                permits.reverse();
                (Said::Granted(slots, start), permits)
            }
        }
    }

    fn report(&mut self, (lease, _): Self::Permit, report: &Report) -> Directions {
        let mut rng = Rng::of_lease(SEED, lease);
        self.host
            .report(self.clock.now(), lease, report, &self.config, &mut rng)
    }

    fn cancel(&mut self, (lease, unused): Self::Permit, sent: bool) {
        let unused = (!sent).then_some(unused);
        self.host
            .cancel(self.clock.now(), lease, unused, &self.config);
    }

    fn operate(&mut self, step: &Step) {
        let now = self.clock.now();
        match step {
            Step::Hold(ms) => {
                let until = now + Duration::from_millis(*ms);
                self.host.hold(now, until, HoldReason::Operator);
            }
            Step::CrawlDelay(ms) => {
                self.host.crawl_delay(now, crawl_delay(*ms), &self.config);
            }
            Step::Set { rate, in_flight } => {
                self.host.set(now, numbers(*rate, *in_flight), &self.config);
            }
            Step::Unpark => self.host.unpark(now, &self.config),
            Step::ResetBudgets => self.host.reset_budgets(now, None, &self.config),
            _ => self.host.forget(now, &self.config),
        }
    }
}

fn crawl_delay(ms: u64) -> CrawlDelay {
    CrawlDelay {
        pause: Duration::from_millis(ms),
        fresh: Duration::from_secs(20),
    }
}

fn numbers(rate: Option<f64>, in_flight: Option<u32>) -> OperatorNumbers {
    OperatorNumbers {
        rate,
        in_flight,
        ..OperatorNumbers::default()
    }
}

/// A limiter, with its keys in the registry or in cells.
impl Keeper for Limiter {
    type Permit = Permit;

    async fn ask(&mut self, ask: AcquireRequest) -> (Said, Vec<Permit>) {
        match self.request(&key(), ask, self.arrival()).await {
            Ok(permit) => {
                let said = Said::Granted(permit.slots(), permit.start());
                (said, permit.split().collect())
            }
            Err(refusal) => match refusal.reason {
                crate::RefusalReason::Wait(reason) => (Said::No(reason, refusal.at), Vec::new()),
                other => panic!("{other:?}"),
            },
        }
    }

    fn report(&mut self, permit: Permit, report: &Report) -> Directions {
        permit.report(report)
    }

    fn cancel(&mut self, mut permit: Permit, sent: bool) {
        if sent {
            permit.sent();
        }
        drop(permit);
    }

    fn operate(&mut self, step: &Step) {
        match step {
            Step::Hold(ms) => {
                let length = Duration::from_millis(*ms);
                self.hold(&key(), length, HoldReason::Operator).unwrap();
            }
            Step::CrawlDelay(ms) => {
                Self::crawl_delay(self, &key(), crawl_delay(*ms)).unwrap();
            }
            Step::Set { rate, in_flight } => {
                self.set_numbers(&key(), numbers(*rate, *in_flight))
                    .unwrap();
            }
            Step::Unpark => self.unpark(&key()),
            Step::ResetBudgets => self.reset_budgets(&key(), None),
            _ => Self::forget(self, &key()),
        }
    }

    async fn settle(&mut self) {
        assert!(self.flush(Duration::from_secs(1)).await);
    }
}

/// Returns the answers of `keeper` to `steps`. Time passes as the steps say.
async fn said<K: Keeper>(keeper: &mut K, steps: &[Step]) -> Vec<Said> {
    let mut out: Vec<K::Permit> = Vec::new();
    let mut all = Vec::new();
    let clock = Clock::tokio();
    let (began, mut next) = (clock.now(), Duration::ZERO);
    for step in steps {
        // A call of the engine takes a moment, so each step begins at a fixed time.
        next += TICK;
        sleep((began + next).since(clock.now())).await;
        match step {
            Step::Wait(ticks) => next += TICK * *ticks as u32,
            Step::AcquireRequest {
                slots,
                cost,
                bytes,
                ahead_ms,
            } => {
                let ask = AcquireRequest {
                    slots: *slots,
                    cost: *cost,
                    bytes: *bytes,
                    horizon: Duration::from_millis(*ahead_ms),
                    ..AcquireRequest::default()
                };
                let (said, permits) = keeper.ask(ask).await;
                out.extend(permits);
                all.push(said);
            }
            Step::Report {
                which,
                signal,
                retry_after_s,
                latency_ms,
                bytes,
            } if !out.is_empty() => {
                let permit = out.swap_remove(which % out.len());
                let report = Report {
                    retry_after: retry_after_s.map(Duration::from_secs),
                    latency: Duration::from_millis(*latency_ms),
                    bytes: *bytes,
                    ..Report::of(*signal)
                };
                all.push(Said::Heard(keeper.report(permit, &report)));
            }
            Step::Cancel { which, sent } if !out.is_empty() => {
                let permit = out.swap_remove(which % out.len());
                keeper.cancel(permit, *sent);
            }
            Step::Report { .. } | Step::Cancel { .. } => {}
            other => keeper.operate(other),
        }
        keeper.settle().await;
    }
    next += TICK;
    sleep((began + next).since(clock.now())).await;
    for permit in out {
        keeper.cancel(permit, false);
    }
    keeper.settle().await;
    all
}

/// Runs `of` with a clock of its own that begins at the same second, so all see the same times.
fn alone<T>(run: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run())
}

const TICK: Duration = Duration::from_millis(10);
/// The time after the quiet beginning of the epoch.
const LATER: Duration = Duration::from_secs(10);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_same_events_leave_the_same_state(steps in steps(), config in configs()) {
        let bare = |first: u64| alone(async || {
            let clock = Clock::tokio();
            sleep(LATER).await;
            let mut host = Host::new(&config, clock.now());
            host.ids_from(LeaseId(first));
            let mut bare = Bare { host, config: config.clone(), clock };
            bare.operate(&Step::Set { rate: None, in_flight: None });
            let said = said(&mut bare, &steps).await;
            (said, bare.host.snapshot())
        });
        let registry = alone(async || {
            let builder = Limiter::builder().clock(Clock::tokio()).seed(SEED);
            let mut limiter = builder.config(config.clone()).build().unwrap();
            sleep(LATER).await;
            limiter.operate(&Step::Set { rate: None, in_flight: None });
            let said = said(&mut limiter, &steps).await;
            (said, limiter.snapshot(&key()).unwrap().state)
        });
        let shared = alone(async || {
            let engine: Arc<dyn Engine> = Arc::new(memory());
            let (clock, config) = (Clock::tokio(), Arc::new(config.clone()));
            // A node begins a cell with lease ids of its own. Those of node 0 begin with zero.
            let store = Store::with_id(NodeId(0), config, clock.clone(), 1 << 10, SEED, Unavailable::Closed);
            let mut limiter = driven(store, clock, engine);
            sleep(LATER).await;
            limiter.operate(&Step::Set { rate: None, in_flight: None });
            limiter.settle().await;
            let said = said(&mut limiter, &steps).await;
            (said, limiter.snapshot(&key()).unwrap().state)
        });
        prop_assert_eq!(registry, bare(0));
        // The upper bits of a lease id are the epoch, here the first.
        prop_assert_eq!(shared, bare(1 << 32));
    }
}
