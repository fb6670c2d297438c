//! Limiters that share cells, on Tokio's paused clock.

mod adoption;
mod commit_latency;
mod conformance;
mod frozen;
mod line;
mod loss;
mod own_keys;
mod refused;
mod upgrade;
mod watching;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use politely_core::config::Config;
use politely_core::gate::HoldReason;
use politely_core::host::CrawlDelay;
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};
use politely_store::{
    Engine, EngineError, Heartbeat, Memory, OnNotice, Pending, Version, Write, Written, cell_name,
};

use super::{Store, Unavailable, driver};
use crate::backend::Backend;
use crate::clock::Clock;
use crate::limiter::Limiter;
use crate::sync::sleep;

/// Starts a process of its own, as far as the engine can tell.
fn process(memory: &Memory, config: Config) -> Limiter {
    started(Arc::new(memory.clone()), config, Unavailable::Closed)
}

fn started(engine: Arc<dyn Engine>, config: Config, away: Unavailable) -> Limiter {
    let clock = Clock::tokio();
    let store = Store::new(Arc::new(config), clock.clone(), 1 << 10, 7, away);
    driven(store, clock, engine)
}

fn driven(store: Store, clock: Clock, engine: Arc<dyn Engine>) -> Limiter {
    let inner = Arc::clone(&store.0);
    inner.prefetches.run_on(tokio::runtime::Handle::current());
    tokio::spawn(async move { driver::run(&inner, engine).await });
    Limiter::new(Backend::Store(store), clock)
}

fn memory() -> Memory {
    Memory::new(Clock::tokio())
}

fn key() -> Key {
    Key::host("example.com").unwrap()
}

fn ok() -> Report {
    Report::of(Signal::Ok)
}

#[tokio::test(start_paused = true)]
async fn a_permit_comes_and_is_reported() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(1.0, 1.0));
    let permit = limiter.acquire(&key()).await.unwrap();
    permit.report(&ok());
    assert!(limiter.flush(Duration::from_secs(5)).await);
    let stats = limiter.stats();
    assert_eq!((stats.granted, stats.reported, stats.waiting), (1, 1, 0));
    assert!(stats.waits == 0 && stats.waited == Duration::ZERO && stats.memory > 0);
    assert_eq!(limiter.explain(&key()).unwrap().tally.reported, 1);
}

#[tokio::test(start_paused = true)]
async fn a_crawl_delay_that_one_read_holds_for_all() {
    let memory = memory();
    let limiters = [(); 2].map(|()| process(&memory, Config::fixed(20.0, 4.0)));
    sleep(Duration::from_secs(5)).await;
    let clock = Clock::tokio();
    let delay = CrawlDelay {
        pause: Duration::from_secs(1),
        fresh: Duration::from_hours(1),
    };
    limiters[0].crawl_delay(&key(), delay).unwrap();
    assert!(limiters[0].flush(Duration::from_secs(5)).await);
    let mut tasks = tokio::task::JoinSet::new();
    for limiter in &limiters {
        for _ in 0..5 {
            let (limiter, clock) = (limiter.clone(), clock.clone());
            tasks.spawn(async move {
                let permit = limiter.acquire(&key()).await.unwrap();
                let began = clock.now();
                sleep(Duration::from_millis(300)).await;
                permit.report(&ok());
                (began, clock.now())
            });
        }
    }
    let mut times = tasks.join_all().await;
    times.sort();
    for pair in times.windows(2) {
        let [(_, ended), (began, _)] = [pair[0], pair[1]];
        assert!(began.since(ended) >= Duration::from_secs(1), "{times:?}");
    }
    // A delay that is known already is not written.
    let commits = |limiter: &Limiter| limiter.commits().unwrap().commits;
    let before = commits(&limiters[1]);
    limiters[1].crawl_delay(&key(), delay).unwrap();
    assert!(limiters[1].flush(Duration::from_secs(5)).await);
    assert_eq!(commits(&limiters[1]), before);
}

#[tokio::test(start_paused = true)]
async fn two_share_a_rate_and_take_turns() {
    let memory = memory();
    let limiters = [(); 2].map(|()| process(&memory, Config::fixed(2.0, 1.0)));
    sleep(Duration::from_secs(5)).await;
    let clock = Clock::tokio();
    let began = clock.now();
    let mut tasks = tokio::task::JoinSet::new();
    for (i, limiter) in limiters.iter().enumerate() {
        for _ in 0..20 {
            let (limiter, clock) = (limiter.clone(), clock.clone());
            tasks.spawn(async move {
                let permit = limiter.acquire(&key()).await.unwrap();
                let left = clock.now();
                permit.report(&ok());
                (left, i)
            });
        }
    }
    let mut left = tasks.join_all().await;
    left.sort_unstable();
    for pair in left.windows(2) {
        let gap = pair[1].0.since(pair[0].0);
        assert!(gap >= Duration::from_millis(498), "{gap:?}");
    }
    let took = left.last().unwrap().0.since(began);
    assert!(took <= Duration::from_secs(21), "{took:?}");
    let first_half: usize = left[..20].iter().map(|(_, who)| who).sum();
    assert!((5..=15).contains(&first_half), "{first_half}");
    let commits: u64 = limiters
        .iter()
        .map(|l| l.commits().unwrap())
        .map(|c| c.commits + c.conflicts + c.reads)
        .sum();
    assert!(commits <= 75, "{commits} engine operations for 40 permits");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_returns_elsewhere_is_heard_of() {
    let memory = memory();
    let mut config = Config::fixed(1_000.0, 1.0);
    config.limits.in_flight = 1;
    let [one, other] = [(); 2].map(|()| process(&memory, config.clone()));
    sleep(Duration::from_secs(5)).await;
    let clock = Clock::tokio();
    let held = one.acquire(&key()).await.unwrap();
    let waits = tokio::spawn({
        let (other, clock) = (other.clone(), clock.clone());
        async move {
            let permit = other.acquire(&key()).await.unwrap();
            let at = clock.now();
            drop(permit);
            at
        }
    });
    sleep(Duration::from_secs(10)).await;
    assert!(!waits.is_finished());
    let returned = clock.now();
    held.report(&ok());
    let served = waits.await.unwrap();
    assert!(
        served.since(returned) < Duration::from_millis(50),
        "{:?}",
        served.since(returned)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hold_holds_for_all() {
    let memory = memory();
    let [one, other] = [(); 2].map(|()| process(&memory, Config::fixed(10.0, 1.0)));
    sleep(Duration::from_secs(5)).await;
    one.acquire(&key()).await.unwrap().report(&ok());
    one.hold(&key(), Duration::from_secs(30), HoldReason::Operator)
        .unwrap();
    assert!(one.flush(Duration::from_secs(5)).await);
    let clock = Clock::tokio();
    let began = clock.now();
    other.acquire(&key()).await.unwrap().report(&ok());
    assert!(clock.now().since(began) >= Duration::from_secs(29));
}

#[tokio::test(start_paused = true)]
async fn a_prefetch_is_taken_by_the_next_call() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(10.0, 1.0));
    sleep(Duration::from_secs(5)).await;
    assert!(limiter.try_acquire(&key()).is_err());
    assert_eq!(limiter.ready().await, [key()]);
    limiter.try_acquire(&key()).unwrap().report(&ok());
    assert_eq!(limiter.stats().granted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_at_once() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(0.1, 1.0));
    sleep(Duration::from_secs(5)).await;
    let ask = crate::AcquireRequest::default();
    let permit = limiter
        .request(&key(), ask.clone(), limiter.arrival())
        .await
        .unwrap();
    permit.report(&ok());
    let refusal = limiter
        .request(&key(), ask, limiter.arrival())
        .await
        .unwrap_err();
    let wait = refusal.at.since(limiter.now());
    assert!((9.0..=10.1).contains(&wait.as_secs_f64()), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_slot_everywhere_as_long_as_it_takes() {
    let mut config = Config::fixed(10.0, 4.0);
    config.limits.in_flight = 1;
    config.lease = Duration::from_secs(10);
    let memory = memory();
    let [here, there] = [(), ()].map(|()| process(&memory, config.clone()));
    let key = key();
    let permit = here.acquire(&key).await.unwrap();
    let slow = permit.during(sleep(Duration::from_mins(5)));
    let waits = tokio::time::timeout(Duration::from_secs(299), there.acquire(&key));
    let ((), waited) = tokio::join!(slow, waits);
    assert!(waited.is_err(), "it is under way");
    assert!(!permit.report(&ok()).late);
    let next = there.acquire(&key).await.unwrap();
    let lasts = next.lease();
    // Its process is killed, so no renewal comes.
    next.abandon();
    let began = here.now();
    here.acquire(&key).await.unwrap().report(&ok());
    let waited = here.now().since(began);
    assert!(
        waited >= lasts && waited < Duration::from_secs(13),
        "{waited:?}"
    );
}

/// Regression: each call made a key here, and the second found no room.
#[tokio::test(start_paused = true)]
async fn what_shared_keys_cannot_do_is_an_error_and_changes_nothing() {
    let limiter = process(&memory(), Config::fixed(1.0, 1.0));
    for name in ["a.example", "b.example"] {
        let key = Key::host(name).unwrap();
        let refused = [
            limiter
                .readmit(&crate::Earlier {
                    keys: std::slice::from_ref(&key),
                    start: limiter.now(),
                    lease: Duration::from_secs(1),
                    estimate: &crate::UnitCosts::NONE,
                })
                .map(drop),
            limiter.resume(&key, &crate::Recovery::default()),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(crate::SetError::Unsupported(_))));
        }
    }
    assert_eq!(limiter.keys(), []);
}

/// Returns the engine's value of [`key`].
async fn held(memory: &Memory) -> Vec<u8> {
    let held = memory.read(vec![cell_name(&key())]).await.remove(0);
    held.unwrap().unwrap()
}

/// Writes `value` there without a notice.
async fn overwrite(memory: &Memory, value: Vec<u8>) {
    let write = Write {
        cell: cell_name(&key()),
        expected: Version::of(&held(memory).await),
        before: None,
        value,
        keep: Duration::from_hours(1),
        notify: false,
    };
    memory.compare_and_set(vec![write]).await.remove(0).unwrap();
}

/// An engine that can be unavailable: calls fail after half a second, or never end.
struct Leaving {
    memory: Memory,
    away: Arc<AtomicBool>,
    hangs: bool,
    /// The number of heartbeats.
    looks: Arc<AtomicUsize>,
}

impl Leaving {
    async fn is_away(&self) -> Option<EngineError> {
        if !self.away.load(Ordering::Relaxed) {
            return None;
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(500)).await;
        Some(EngineError("no answer".to_owned()))
    }
}

impl Engine for Leaving {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        Box::pin(async move {
            match self.is_away().await {
                Some(why) => vec![Err(why); cells.len()],
                None => self.memory.read(cells).await,
            }
        })
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        Box::pin(async move {
            match self.is_away().await {
                Some(why) => vec![Err(why); writes.len()],
                None => self.memory.compare_and_set(writes).await,
            }
        })
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match self.is_away().await {
                Some(why) => Err(why),
                None => self.memory.heartbeat(epoch).await,
            }
        })
    }

    fn listen(&self, hear: OnNotice) {
        self.memory.listen(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        self.memory.watch(more, less)
    }
}

/// Returns when permits were granted, in seconds. Two processes at 2/s ask for all they can get,
/// and the engine is unavailable from second 10 to 100.
async fn left_while_away(away: Unavailable, hangs: bool) -> Vec<f64> {
    let (memory, gone) = (memory(), Arc::new(AtomicBool::new(false)));
    let clock = Clock::tokio();
    let began = clock.now();
    let (tell, mut left) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..2 {
        let engine = Leaving {
            memory: memory.clone(),
            away: Arc::clone(&gone),
            hangs,
            looks: Arc::default(),
        };
        let limiter = started(Arc::new(engine), Config::fixed(2.0, 1.0), away);
        let (tell, clock) = (tell.clone(), clock.clone());
        tokio::spawn(async move {
            while let Ok(permit) = limiter.acquire(&key()).await {
                let _ = tell.send(clock.now().since(began).as_secs_f64());
                permit.report(&ok());
            }
        });
    }
    sleep(Duration::from_secs(10)).await;
    gone.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(90)).await;
    gone.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(20)).await;
    let mut all = Vec::new();
    while let Ok(at) = left.try_recv() {
        all.push(at);
    }
    all
}

fn between(left: &[f64], from: f64, to: f64) -> usize {
    left.iter().filter(|at| (from..to).contains(*at)).count()
}

/// P1 for two processes: burst 1, rate 2, one more at either end of the window, and `extra`.
fn assert_within_rate(left: &[f64], extra: usize) {
    for (i, from) in left.iter().enumerate() {
        for (j, to) in left.iter().enumerate().skip(i) {
            let may = 2.0 + 2.0 * (to - from + 0.001) + extra as f64;
            assert!((j - i + 1) as f64 <= may, "{} in {from} to {to}", j - i + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_leaves_while_the_engine_is_away() {
    for hangs in [false, true] {
        let left = left_while_away(Unavailable::Closed, hangs).await;
        assert_within_rate(&left, 0);
        // A grant may start up to two seconds later.
        assert_eq!(between(&left, 12.1, 100.0), 0, "{left:?}");
        assert!(between(&left, 100.0, 120.0) >= 30, "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_goes_on_with_its_share_for_a_minute() {
    for hangs in [false, true] {
        let left = left_while_away(Unavailable::Share, hangs).await;
        assert_within_rate(&left, 2);
        let shared = between(&left, 14.0, 70.0);
        assert!((90..=114).contains(&shared), "{shared} of 112: {left:?}");
        assert_eq!(between(&left, 74.0, 100.0), 0, "{left:?}");
        assert!(between(&left, 100.0, 120.0) >= 30, "{left:?}");
    }
}

/// Regression: the caller waited for the slot that it held itself.
#[tokio::test(start_paused = true)]
async fn a_key_named_twice_is_one_key() {
    let memory = memory();
    let mut config = Config::fixed(1_000.0, 1.0);
    config.limits.in_flight = 1;
    let limiter = process(&memory, config);
    sleep(Duration::from_secs(5)).await;
    let other = Key::host("other.example").unwrap();
    let keys = [key(), other, key()];
    let acquired = tokio::time::timeout(Duration::from_mins(1), limiter.acquire(&keys)).await;
    acquired.unwrap().unwrap().report(&ok());
    sleep(Duration::from_secs(1)).await;
    let arrival = limiter.arrival();
    let asked = limiter
        .request(&keys, crate::AcquireRequest::default(), arrival)
        .await;
    asked.unwrap().report(&ok());
}
