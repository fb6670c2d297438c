//! Compares commits through the Redis adapter with plain `SET` of values of the same size. Both use
//! one server in one run: first a Redis, to which a script is sent, then a Valkey, which compares
//! by itself.
//!
//! Run it with `cargo run --profile dist -p politely-benches cells [CELLS]`; the default is a
//! million cells. `SET` is measured by `redis-benchmark -P 16` with its 50 connections. The adapter
//! sends calls of [`BATCH`] commits, with [`AT_ONCE`] calls at a time over one connection. Each
//! commit expects the version that the cell was given last. The values are real states of hosts
//! behind a version. Rounds alternate, and each figure is the median of its rounds. Server and
//! callers share the machine.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use politely::cells::redis::Redis;
use politely::cells::{Engine, Version, Write, Written};
use politely::core::host::{AcquireRequest, Decision, Host};
use politely::core::{Rng, Timestamp};
use politely::{Config, Report, Signal};
use tokio::runtime::Builder;

use politely_testkit::process::tool;
use politely_testkit::redis::RedisServer;

const BATCH: usize = 256;
const AT_ONCE: usize = 4;
const ROUNDS: usize = 3;
const COMMITS_PER_ROUND: usize = 300_000;
/// Bytes around the state, beside the version: the writer, the queue and the creation time
/// (`crates/store/src/record.rs`, one writer).
pub(crate) const HEAD: usize = 20;

/// Runs everything and prints the table.
pub(crate) fn run() {
    let cells: usize = std::env::args()
        .nth(2)
        .map_or(1_000_000, |cells| cells.parse().expect("CELLS is a number"));
    let runtime = crate::runtime(&mut Builder::new_current_thread());
    println!(
        "cells: {cells} cells, {AT_ONCE} calls of {BATCH} at a time, median of {ROUNDS} rounds of {COMMITS_PER_ROUND}"
    );
    println!(
        "| server | state | bytes of a value | SET/s | commits/s | ratio | call p50 | call p99 | engine's bytes per cell |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (name, state) in [("quiet", quiet()), ("learning", learning())] {
        let (redis, valkey) = (RedisServer::start(""), RedisServer::start_valkey());
        runtime.block_on(measure("Redis", &redis, name, &state, cells));
        drop(redis);
        runtime.block_on(measure("Valkey", &valkey, name, &state, cells));
    }
}

async fn measure(kind: &str, server: &RedisServer, name: &str, state: &[u8], cells: usize) {
    let engine = Redis::connect(&server.url()).expect("a URL");
    let mut desks = desks(cells);
    let before = used(server);
    for first in (0..cells / AT_ONCE).step_by(BATCH) {
        let calls = desks.iter_mut().map(|desk| {
            let upto = (first + BATCH).min(desk.names.len());
            desk.commit(&engine, (first..upto).collect(), state)
        });
        all(calls).await;
    }
    let grown = used(server).saturating_sub(before);
    let held = desks.iter().map(|desk| desk.names.len()).sum::<usize>();

    let (mut sets, mut ours, mut took) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        sets.push(raw_set(server, Version::LEN + HEAD + state.len(), cells));
        let began = Instant::now();
        let calls = desks
            .iter_mut()
            .map(|desk| desk.commit_many(&engine, state));
        let lengths = all(calls).await;
        ours.push(COMMITS_PER_ROUND as f64 / began.elapsed().as_secs_f64());
        took.extend(lengths.into_iter().flatten());
    }
    took.sort_unstable();
    let at = |share: usize| took[took.len() * share / 100].as_secs_f64() * 1e3;
    let (set, our) = (median(&mut sets), median(&mut ours));
    println!(
        "| {kind} | {name} | {} | {set:.0} | {our:.0} | {:.2} | {:.1} ms | {:.1} ms | {} |",
        Version::LEN + HEAD + state.len(),
        our / set,
        at(50),
        at(99),
        grown / held as u64,
    );
}

/// The cells that one caller changes, and the number of changes of each.
struct Desk {
    names: Vec<Arc<str>>,
    commits: Vec<u32>,
    rng: Rng,
}

fn desks(cells: usize) -> Vec<Desk> {
    let names = |desk: usize| -> Vec<Arc<str>> {
        let mine = (desk..cells / AT_ONCE * AT_ONCE).step_by(AT_ONCE);
        mine.map(|i| format!("politely:{{site/host-{i:07}.example.com}}").into())
            .collect()
    };
    (0..AT_ONCE)
        .map(|desk| Desk {
            commits: vec![0; cells / AT_ONCE],
            names: names(desk),
            rng: Rng::new(desk as u64),
        })
        .collect()
}

impl Desk {
    async fn commit(&mut self, engine: &Redis, cells: Vec<usize>, state: &[u8]) -> Duration {
        let writes = cells.iter().map(|&i| {
            let known = self.commits[i];
            self.commits[i] += 1;
            let value = |version| [&self::version(i, version).0, &[7; HEAD][..], state].concat();
            Write {
                cell: Arc::clone(&self.names[i]),
                expected: (known > 0).then(|| version(i, known)),
                before: (known > 0).then(|| value(known).into()),
                value: value(known + 1),
                keep: Duration::from_hours(24),
                notify: false,
            }
        });
        let writes = writes.collect();
        let began = Instant::now();
        let written = engine.compare_and_set(writes).await;
        assert!(
            written.iter().all(|written| *written == Ok(Written::Done)),
            "nobody else writes: {:?}",
            written
                .iter()
                .find(|written| **written != Ok(Written::Done))
        );
        began.elapsed()
    }

    async fn commit_many(&mut self, engine: &Redis, state: &[u8]) -> Vec<Duration> {
        let calls = COMMITS_PER_ROUND / AT_ONCE / BATCH;
        let mut took = Vec::with_capacity(calls);
        for _ in 0..calls {
            // A call must not name a cell twice. So it takes one random cell from each of [`BATCH`]
            // equal ranges.
            let stride = (self.names.len() / BATCH).max(1);
            let some = (0..self.names.len() / stride).take(BATCH);
            let some = some
                .map(|i| i * stride + self.rng.next_u64() as usize % stride)
                .collect();
            took.push(self.commit(engine, some, state).await);
        }
        took
    }
}

pub(crate) fn version(cell: usize, commit: u32) -> Version {
    let mut bytes = [0; Version::LEN];
    bytes[..8].copy_from_slice(&u64::from(commit).to_le_bytes());
    bytes[8..].copy_from_slice(&(cell as u64).to_le_bytes());
    Version(bytes)
}

/// Returns the state of a host that served one request.
pub(crate) fn quiet() -> Vec<u8> {
    served(1).snapshot()
}

/// Returns the state of a host that served some requests and refused others, with one in flight.
pub(crate) fn learning() -> Vec<u8> {
    served(500).snapshot()
}

/// Returns a host that answered some requests, and the time afterwards. `answer` tells the outcome
/// of each, which are counted from 1.
pub(crate) fn busy(
    config: &Config,
    requests: u32,
    answer: impl Fn(u32) -> Report,
) -> (Host, Timestamp) {
    let (mut rng, mut now) = (Rng::new(1), Timestamp::from_micros(1_800_000_000_000_000));
    let mut host = Host::new(config, now);
    let mut asked = 0;
    while asked < requests {
        match host.request(now, AcquireRequest::default(), config) {
            Decision::Granted(grant) => {
                asked += 1;
                let report = answer(asked);
                now = grant.start + report.latency;
                host.report(now, grant.lease, &report, config, &mut rng);
            }
            Decision::Wait(wait) => now = wait.at,
        }
    }
    (host, now)
}

fn served(requests: u32) -> Host {
    let config = Config::default();
    let (mut host, now) = busy(&config, requests, |asked| {
        let signal = if asked % 100 == 0 {
            Signal::RateLimited
        } else {
            Signal::Ok
        };
        Report {
            latency: Duration::from_millis(40 + u64::from(asked % 30)),
            status: Some(if signal == Signal::Ok { 200 } else { 429 }),
            ..Report::of(signal)
        }
    });
    host.request(
        now + Duration::from_hours(1),
        AcquireRequest::default(),
        &config,
    );
    host
}

/// Returns the rate that `redis-benchmark` measures for `SET`.
fn raw_set(server: &RedisServer, bytes: usize, keys: usize) -> f64 {
    let out = Command::new(tool("redis-benchmark"))
        .args([
            "-h",
            &server.address.ip().to_string(),
            "-p",
            &server.address.port().to_string(),
        ])
        .args([
            "-t",
            "set",
            "-P",
            "16",
            "-d",
            &bytes.to_string(),
            "-r",
            &keys.to_string(),
        ])
        .args(["-n", &(2 * COMMITS_PER_ROUND).to_string(), "--csv"])
        .output()
        .expect("redis-benchmark runs");
    let said = String::from_utf8_lossy(&out.stdout);
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("\"SET\",\""));
    let rate = line.and_then(|line| line.split('"').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("redis-benchmark says no rate: {said}"))
}

fn used(server: &RedisServer) -> u64 {
    let info = server.cli(&["info", "memory"]);
    let used = info
        .lines()
        .find_map(|line| line.trim_end().strip_prefix("used_memory:"));
    used.and_then(|bytes| bytes.parse().ok()).expect("bytes")
}

pub(crate) fn median(rates: &mut [f64]) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

async fn all<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    futures_util::future::join_all(calls).await
}
