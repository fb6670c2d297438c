//! Measures the hand-over of locks between limiters that share an engine.
//!
//! Run it with `cargo run --profile dist -p politely-benches locks`. Engine and callers share the
//! machine. Each contended key has one task per limiter, which locks the key, keeps it for
//! [`HELD`] and releases it. A hand-over lasts from the release to the next lock of the key.
//! Further keys are locked once and kept.
//!
//! Then a limiter without an engine locks [`MANY`] keys, and each lock's memory is measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use politely::cells::Engine;
use politely::cells::redis::Redis;
use politely::cells::zookeeper::ZooKeeper;
use politely::core::lock::SessionId;
use politely::{Claimed, Config, Key, Limiter, LockRequest};
use politely_testkit::redis::RedisServer;
use politely_testkit::zookeeper::Ensemble;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::limiter::resident;

const LIMITERS: usize = 2;
const ROUND: Duration = Duration::from_secs(10);
/// The time for which a task keeps a contended key.
const HELD: Duration = Duration::from_millis(5);
/// The number of tasks that make the locks that are kept.
const LOCKERS: usize = 64;
/// The time-out of a session that is not renewed.
const TTL: Duration = Duration::from_secs(3);
const KILLS: usize = 50;
const MANY: usize = 1_000_000;

/// Runs everything and prints the table.
pub(crate) fn run() {
    let runtime = crate::runtime(Builder::new_multi_thread().worker_threads(2));
    println!(
        "| engine | keys | locks kept | hand-overs/s | p50 ms | p99 ms | after a kill, p99 s, ttl {TTL:?} |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (keys, kept) in [(64, 10_000), (4, 0)] {
        // The sessions of a measurement end by their time-outs, so each one has a server.
        let redis = RedisServer::start("");
        let engine = || Arc::new(Redis::connect(&redis.url()).expect("a URL")) as Arc<dyn Engine>;
        runtime.block_on(measure("Redis", engine, keys, kept));
    }
    let ensemble = Ensemble::start();
    let url = ensemble.url("/locks");
    let engine = || Arc::new(ZooKeeper::connect(&url).expect("a URL")) as Arc<dyn Engine>;
    runtime.block_on(measure("ZooKeeper", engine, 4, 1_000));
    runtime.block_on(many());
}

/// Measures the memory of locks, each on a key of its own.
async fn many() {
    let before = resident();
    let limiter = Limiter::builder().capacity(2 * MANY).build();
    let limiter = limiter.expect("sound numbers");
    let began = Instant::now();
    for number in 0..MANY {
        let request = LockRequest {
            session: SessionId(1 + number as u64 % 256),
            id: 1,
            max: 1,
            lasts: Duration::from_hours(1),
        };
        let key = key("many", number);
        let held = limiter.claim_lock(&key, request, Duration::ZERO).await;
        assert!(matches!(held, Ok(Claimed::Held { .. })), "{held:?}");
    }
    let each = (resident() - before) / MANY as u64;
    let per_s = MANY as f64 / began.elapsed().as_secs_f64();
    println!("{MANY} locks of one process: {each} bytes resident each, {per_s:.0} locks a second");
}

async fn measure(name: &str, engine: impl Fn() -> Arc<dyn Engine>, keys: usize, kept: usize) {
    let mut limiters = Vec::new();
    for _ in 0..LIMITERS {
        let builder = Limiter::builder().config(Config::fixed(10.0, 1.0));
        let limiter = builder.store(engine()).build().expect("sound numbers");
        limiter.ping().await.expect("an engine");
        limiters.push(limiter);
    }
    let guards = keep(&limiters[0], kept).await;
    let (waits, per_s) = hand_over(&limiters, keys).await;
    let [p50, p99] = [50, 99].map(|share| quantile(&waits, share) * 1e3);
    let killed = quantile(&after_kills(&limiters).await, 99);
    println!("| {name} | {keys} | {kept} | {per_s:.0} | {p50:.1} | {p99:.1} | {killed:.2} |");
    drop(guards);
}

fn key(kind: &str, number: usize) -> Key {
    Key::host(&format!("{kind}{number}.example.com")).expect("a host")
}

/// Locks `count` keys.
async fn keep(limiter: &Limiter, count: usize) -> Vec<politely::LockGuard> {
    let mut tasks = JoinSet::new();
    for first in 0..LOCKERS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in (first..count).step_by(LOCKERS) {
                let locked = limiter.lock(&key("kept", number), 1).await;
                guards.push(locked.expect("a lock"));
            }
            guards
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Returns the length of each hand-over between limiters in seconds, and their number per second.
async fn hand_over(limiters: &[Limiter], keys: usize) -> (Vec<f64>, f64) {
    let waits = Arc::new(Mutex::new(Vec::new()));
    let count = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..keys {
        // The limiter that released the key last, and when.
        let released: Arc<Mutex<Option<(usize, Instant)>>> = Arc::default();
        for (who, limiter) in limiters.iter().enumerate() {
            let (limiter, key) = (limiter.clone(), key("contended", number));
            let (waits, count) = (Arc::clone(&waits), Arc::clone(&count));
            let released = Arc::clone(&released);
            tasks.spawn(async move {
                while began.elapsed() < ROUND {
                    let guard = limiter.lock(&key, 1).await.expect("a lock");
                    let last = released.lock().expect("no task panicked").take();
                    if let Some((_, at)) = last.filter(|(last, _)| *last != who) {
                        let wait = at.elapsed().as_secs_f64();
                        waits.lock().expect("no task panicked").push(wait);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(HELD).await;
                    *released.lock().expect("no task panicked") = Some((who, Instant::now()));
                    drop(guard);
                }
            });
        }
    }
    tasks.join_all().await;
    let per_s = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    let waits = std::mem::take(&mut *waits.lock().expect("no task panicked"));
    (waits, per_s)
}

/// Returns the time from the last renewal of a holder until the next session holds the key, in
/// seconds.
async fn after_kills(limiters: &[Limiter]) -> Vec<f64> {
    let mut tasks = JoinSet::new();
    for number in 0..KILLS {
        let [one, other] = [0, 1].map(|who| limiters[who].clone());
        tasks.spawn(async move {
            let key = key("killed", number);
            let request = |session| LockRequest {
                session: SessionId(session),
                id: 1,
                max: 1,
                lasts: TTL,
            };
            let session = number as u64 * 2 + 1;
            let began = Instant::now();
            let held = one.claim_lock(&key, request(session), Duration::ZERO).await;
            assert!(matches!(held, Ok(Claimed::Held { .. })), "{held:?}");
            // The waiting session is renewed by its repeated calls.
            loop {
                let next = LockRequest {
                    lasts: 4 * TTL,
                    ..request(session + 1)
                };
                let waiting = other.claim_lock(&key, next, TTL).await;
                if matches!(waiting.expect("an answer"), Claimed::Held { .. }) {
                    return began.elapsed().as_secs_f64();
                }
            }
        });
    }
    tasks.join_all().await
}

fn quantile(of: &[f64], share: usize) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
        .get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}
