//! Compares limiters that share keys through one redis-server with other ways to share a key there,
//! all in one run.
//!
//! Run it with `cargo run --profile dist -p politely-benches shared`. Every coordinator is a
//! limiter with its own connection and thread. Server and callers share the machine.

mod cpu;
mod one_key;
mod rivals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use politely::cells::Engine;
use politely::cells::redis::Redis;
use politely::core::Rng;
use politely::{Config, Key, Limiter, Report, Signal};
use tokio::runtime::Builder;

use self::cpu::Cpu;
use politely_testkit::redis::RedisServer;

const SECONDS: u64 = 5;

/// Runs everything and prints the tables.
pub(crate) fn run() {
    let runtime = crate::runtime(Builder::new_multi_thread().worker_threads(2));
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
    let keys: Arc<Vec<Key>> = Arc::new(hosts(100_000).collect());
    let what = "acquire + report over 100,000 keys, one coordinator";
    run_tasks(what, &unlimited(), 1_024, |seed, limiter, until| {
        let keys = Arc::clone(&keys);
        async move {
            let (mut rng, mut count) = (Rng::new(seed), 0);
            while Instant::now() < until {
                let key = &keys[rng.next_u64() as usize % keys.len()];
                if let Ok(permit) = limiter.acquire(key).await {
                    permit.report(&Report::of(Signal::Ok));
                    count += 1;
                }
            }
            count
        }
    })
    .await;
}

/// Measures many keys the way a crawler uses them: every host again and again, at its own rate.
async fn many_hosts() {
    let mut keys = hosts(2_000);
    let what = "fetches of 2,000 hosts of 2 a second, 50 ms each";
    run_tasks(
        what,
        &Config::fixed(2.0, 1.0),
        2_000,
        |_, limiter, until| {
            let key = keys.next().expect("one for each task");
            async move {
                let mut count = 0;
                while Instant::now() < until {
                    if let Ok(permit) = limiter.acquire(&key).await {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        permit.report(&Report::of(Signal::Ok));
                        count += 1;
                    }
                }
                count
            }
        },
    )
    .await;
}

fn hosts(count: usize) -> impl Iterator<Item = Key> {
    (0..count).map(|i| Key::host(&format!("h{i}.example.com")).expect("a host"))
}

/// Runs tasks on one coordinator, and prints the sum of what they count.
async fn run_tasks<Task: Future<Output = u64> + Send + 'static>(
    what: &str,
    config: &Config,
    tasks: u64,
    mut task: impl FnMut(u64, Limiter, Instant) -> Task,
) {
    let server = RedisServer::start("");
    let limiters = vec![coordinator(&server, config)];
    settle(&limiters).await;
    let cpu = Cpu::of(&server);
    let began = Instant::now();
    let until = began + Duration::from_secs(2 * SECONDS);
    let mut running = tokio::task::JoinSet::new();
    for number in 0..tasks {
        running.spawn(task(number, limiters[0].clone(), until));
    }
    let count = running.join_all().await.into_iter().sum();
    row(what, count, began.elapsed(), cpu, &limiters);
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
