//! Compares limiters that share keys through one redis-server with other ways to share a key there,
//! all in one run.
//!
//! Run it with `cargo run --profile dist -p politely-benches shared`. Every coordinator is a
//! limiter with its own connection and thread. Server and callers share the machine.

mod cpu;
mod one_key;
mod rivals;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use politely::cells::Engine;
use politely::cells::redis::Redis;
use politely::core::Rng;
use politely::{Config, Key, Limiter, Report, Signal};

use self::cpu::Cpu;
use politely_testkit::redis::RedisServer;

const SECONDS: u64 = 5;

/// Runs everything and prints the tables.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        one_key::run().await;
        println!(
            "| what | a second | CPU us each, callers + server | engine operations each | conflicts each |"
        );
        println!("| --- | --- | --- | --- | --- |");
        many_keys().await;
        many_hosts().await;
    });
}

pub(crate) fn unlimited() -> Config {
    let mut config = Config::fixed(1e9, 1e6);
    config.limits.rate_start = 1e9;
    config.limits.in_flight = 10_000;
    config
}

fn coordinator(server: &RedisServer, config: &Config) -> Limiter {
    let engine = Redis::connect(&server.url()).expect("a URL");
    shared(Arc::new(engine), config)
}

/// Returns a limiter that shares its keys through `engine`.
pub(crate) fn shared(engine: Arc<dyn Engine>, config: &Config) -> Limiter {
    let builder = Limiter::builder().config(config.clone());
    builder.store(engine).build().expect("sound numbers")
}

pub(crate) async fn settle(limiters: &[Limiter]) {
    for limiter in limiters {
        limiter.ping().await.expect("a server");
    }
    // In a new epoch, no permits are granted for a short time.
    tokio::time::sleep(Duration::from_secs(4)).await;
}

async fn many_keys() {
    let server = RedisServer::start("");
    let limiters = vec![coordinator(&server, &unlimited())];
    settle(&limiters).await;
    let keys: Arc<Vec<Key>> = Arc::new(
        (0..100_000)
            .map(|i| Key::host(&format!("h{i}.example.com")).expect("a host"))
            .collect(),
    );
    let count = Arc::new(AtomicU64::new(0));
    let cpu = Cpu::of(&server);
    let began = Instant::now();
    let until = began + Duration::from_secs(2 * SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..1_024 {
        let (limiter, keys, count) = (limiters[0].clone(), Arc::clone(&keys), Arc::clone(&count));
        tasks.spawn(async move {
            let mut rng = Rng::new(seed);
            while Instant::now() < until {
                let key = &keys[rng.next_u64() as usize % keys.len()];
                if let Ok(permit) = limiter.acquire(key).await {
                    permit.report(&Report::of(Signal::Ok));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    tasks.join_all().await;
    row(
        "acquire + report over 100,000 keys, one coordinator",
        count.load(Ordering::Relaxed),
        began.elapsed(),
        cpu,
        &limiters,
    );
}

/// Measures many keys the way a crawler uses them: every host again and again, at its own rate.
async fn many_hosts() {
    let server = RedisServer::start("");
    let limiters = vec![coordinator(&server, &Config::fixed(2.0, 1.0))];
    settle(&limiters).await;
    let count = Arc::new(AtomicU64::new(0));
    let cpu = Cpu::of(&server);
    let began = Instant::now();
    let until = began + Duration::from_secs(2 * SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..2_000 {
        let key = Key::host(&format!("h{i}.example.com")).expect("a host");
        let (limiter, count) = (limiters[0].clone(), Arc::clone(&count));
        tasks.spawn(async move {
            while Instant::now() < until {
                if let Ok(permit) = limiter.acquire(&key).await {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    permit.report(&Report::of(Signal::Ok));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    tasks.join_all().await;
    row(
        "fetches of 2,000 hosts of 2 a second, 50 ms each",
        count.load(Ordering::Relaxed),
        began.elapsed(),
        cpu,
        &limiters,
    );
}

/// Returns the number of engine calls so far, and of those that met another limiter's write.
fn operations(limiters: &[Limiter]) -> (u64, u64) {
    let commits = limiters.iter().filter_map(Limiter::commits);
    commits.fold((0, 0), |(all, conflicts), c| {
        (
            all + c.commits + c.conflicts + c.reads,
            conflicts + c.conflicts,
        )
    })
}

fn row(what: &str, count: u64, took: Duration, mut cpu: Cpu<'_>, limiters: &[Limiter]) {
    let (operations, conflicts) = operations(limiters);
    let each = |n: u64| n as f64 / count.max(1) as f64;
    let (callers, server) = cpu.spent();
    println!(
        "| {what} | {:.0} | {:.1} + {:.1} | {:.3} | {:.3} |",
        count as f64 / took.as_secs_f64(),
        each(callers.as_micros() as u64),
        each(server.as_micros() as u64),
        each(operations),
        each(conflicts)
    );
}
