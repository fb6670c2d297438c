//! Limiters that share keys through one redis-server, against a token bucket in Lua on the same server, in one run.
//!
//! `cargo run --release -p politely-benches shared`. Every coordinator is a limiter with a connection and a thread of its own; server and
//! callers share the machine. The Lua script is the shortest that paces one key (server's clock, one hash, no leases, no
//! learning), called by as many tasks over as many connections, one call a permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use politely::cells::redis::Redis;
use politely::core::Rng;
use politely::{Ask, Config, Key, Limiter, Report, Signal};

use crate::servers::redis::RedisServer;

const COORDINATORS: usize = 8;
const TASKS: usize = 64;
/// Runs are long: so few callers have enough with them.
const TASKS_IN_RUNS: usize = 4;
const SECONDS: u64 = 5;
const LUA: &str = "local t=redis.call('TIME') local now=t[1]*1000000+t[2]
local s=redis.call('HMGET',KEYS[1],'tat') local tat=math.max(tonumber(s[1] or 0),now)
redis.call('HSET',KEYS[1],'tat',tat+ARGV[1]) return tat-now";

/// Runs everything and prints the table.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    println!("| what | a second | engine operations each | conflicts each |");
    println!("| --- | --- | --- | --- |");
    runtime.block_on(async {
        one_key(
            "permits of ONE key, 8 coordinators, one at a time",
            1,
            TASKS,
        )
        .await;
        one_key("… in runs of 16", 16, TASKS_IN_RUNS).await;
        many_keys().await;
        many_hosts().await;
        lua().await;
    });
}

fn unlimited() -> Config {
    let mut config = Config::fixed(1e9, 1e6);
    config.limits.rate_start = 1e9;
    config.limits.in_flight = 10_000;
    config
}

fn coordinator(server: &RedisServer, config: &Config) -> Limiter {
    let engine = Redis::connect(&server.url()).expect("a URL");
    let builder = Limiter::builder().config(config.clone());
    builder
        .store(Arc::new(engine))
        .build()
        .expect("sound numbers")
}

async fn settle(limiters: &[Limiter]) {
    for limiter in limiters {
        limiter.greet().await.expect("a server");
    }
    // A new epoch is quiet for a while.
    tokio::time::sleep(Duration::from_secs(4)).await;
}

async fn one_key(what: &str, slots: u16, tasks_each: usize) {
    let server = RedisServer::start("");
    let limiters: Vec<_> = (0..COORDINATORS)
        .map(|_| coordinator(&server, &unlimited()))
        .collect();
    settle(&limiters).await;
    let key = Key::host("example.com").expect("a host");
    let count = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let until = began + Duration::from_secs(SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for limiter in limiters
        .iter()
        .flat_map(|limiter| vec![limiter; tasks_each])
    {
        let (limiter, key, count) = (limiter.clone(), key.clone(), Arc::clone(&count));
        tasks.spawn(async move {
            let ask = Ask {
                slots,
                ..Ask::default()
            };
            while Instant::now() < until {
                let turn = limiter.turn();
                if let Ok(permit) = limiter.acquire_in_turn(&key, ask, turn).await {
                    count.fetch_add(u64::from(permit.slots()), Ordering::Relaxed);
                    for permit in permit.split() {
                        permit.report(&Report::of(Signal::Ok));
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    row(
        what,
        count.load(Ordering::Relaxed),
        began.elapsed(),
        &limiters,
    );
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
        &limiters,
    );
}

/// As a crawler asks: every host again and again, at the pace it allows.
async fn many_hosts() {
    let server = RedisServer::start("");
    let limiters = vec![coordinator(&server, &Config::fixed(2.0, 1.0))];
    settle(&limiters).await;
    let count = Arc::new(AtomicU64::new(0));
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
        &limiters,
    );
}

async fn lua() {
    let server = RedisServer::start("");
    let client = redis::Client::open(server.url()).expect("a URL");
    let count = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let until = began + Duration::from_secs(SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..COORDINATORS {
        let connection = client.get_multiplexed_async_connection().await;
        let connection = connection.expect("a server");
        for _ in 0..TASKS {
            let (mut connection, count) = (connection.clone(), Arc::clone(&count));
            tasks.spawn(async move {
                let script = redis::Script::new(LUA);
                while Instant::now() < until {
                    let mut call = script.key("bucket");
                    let wait: Result<i64, _> = call.arg(1).invoke_async(&mut connection).await;
                    count.fetch_add(u64::from(wait.is_ok()), Ordering::Relaxed);
                }
            });
        }
    }
    tasks.join_all().await;
    row(
        "a plain Lua token bucket, one key, 8 connections",
        count.load(Ordering::Relaxed),
        began.elapsed(),
        &[],
    );
}

fn row(what: &str, count: u64, took: Duration, limiters: &[Limiter]) {
    let commits = limiters.iter().filter_map(Limiter::commits);
    let (operations, conflicts) = commits.fold((0, 0), |(all, conflicts), c| {
        (
            all + c.commits + c.conflicts + c.reads,
            conflicts + c.conflicts,
        )
    });
    let each = |n: u64| n as f64 / count.max(1) as f64;
    println!(
        "| {what} | {:.0} | {:.3} | {:.3} |",
        count as f64 / took.as_secs_f64(),
        each(operations),
        each(conflicts)
    );
}
