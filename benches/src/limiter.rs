//! Grants of permits, compared in one run with `governor`'s keyed check with its default store.
//!
//! Both are warm, and both always allow. Keys are host names of about 22 bytes in random order. A
//! governor check is one GCRA update. A grant of this limiter maintains pace, in-flight leases,
//! holds, breakers, a control law and latency quantiles. Rounds alternate between the two, and a
//! ratio is the median of the rounds' ratios. A slow second of the machine therefore slows both.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use politely::core::Rng;
use politely::core::config::Limits;
use politely::core::gate::Refill;
use politely::core::host::Host;
use politely::{Config, Key, Limiter, Report, Signal};

use crate::cells::busy;

const ROUNDS: usize = 15;
const CALLS_PER_ROUND: usize = 1_000_000;

/// Runs everything and prints the table.
pub(crate) fn run() {
    // This runs first, and its memory is kept until everything else is measured. Freed memory would
    // be reused, and its growth would not be visible.
    let learned = learned(20_000, 300);
    let kept = ["discover", "aimd"].map(|law| memory(law, 1_000_000));
    drop((learned, kept));
    println!(
        "limiter: ns per call and ratios, median of {ROUNDS} rounds of {CALLS_PER_ROUND} calls"
    );
    println!("| keys | threads | governor check | grant | ratio | acquire + report | ratio |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for keys in [1_000, 1_000_000] {
        for threads in [1, 2] {
            let row = measure(keys, threads);
            println!(
                "| {keys} | {threads} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} |",
                median(row.governor.clone()),
                median(row.grant.clone()),
                row.ratio(&row.grant),
                median(row.cycle.clone()),
                row.ratio(&row.cycle)
            );
        }
    }
}

/// Nanoseconds per call, by round.
#[derive(Default)]
struct Row {
    governor: Vec<f64>,
    grant: Vec<f64>,
    cycle: Vec<f64>,
}

impl Row {
    fn ratio(&self, ours: &[f64]) -> f64 {
        let ratios = ours.iter().zip(&self.governor);
        median(ratios.map(|(ours, governor)| ours / governor).collect())
    }
}

fn measure(keys: usize, threads: usize) -> Row {
    let names = names(keys);
    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
    let governor: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(quota);
    let limiter = unlimited(keys);
    let strings: Vec<String> = names.iter().map(ToString::to_string).collect();
    for (name, string) in names.iter().zip(&strings) {
        let _ = governor.check_key(string);
        cycle(&limiter, name);
    }
    let mut row = Row::default();
    for round in 0..ROUNDS {
        let order = order(keys, round as u64);
        row.governor.push(per_call(threads, &order, |i| {
            let _ = black_box(governor.check_key(&strings[i]));
        }));
        row.cycle
            .push(per_call(threads, &order, |i| cycle(&limiter, &names[i])));
        row.grant
            .push(grants_only(&limiter, threads, &order, &names));
    }
    row
}

fn cycle(limiter: &Limiter, key: &Key) {
    let permit = limiter.try_acquire(key).expect("nothing is in the way");
    black_box(permit.report(&served()));
}

fn served() -> Report {
    Report {
        latency: Duration::from_millis(50),
        ..Report::of(Signal::Ok)
    }
}

/// Measures the grants alone: permits are kept, and dropped while the timer is stopped.
fn grants_only(limiter: &Limiter, threads: usize, order: &[usize], names: &[Key]) -> f64 {
    // At most a batch of permits is in flight, one or two per key as in real use, not fifty.
    let batch_len = names.len().min(50_000);
    slowest(threads, order, |chunk| {
        let mut time = Duration::ZERO;
        let mut permits = Vec::with_capacity(batch_len);
        for batch in chunk.chunks(batch_len) {
            let began = Instant::now();
            permits.extend(
                batch
                    .iter()
                    .map(|&i| limiter.try_acquire(&names[i]).expect("free")),
            );
            time += began.elapsed();
            permits.clear();
        }
        time
    })
}

/// Returns the nanoseconds per call of the slowest thread.
fn per_call(threads: usize, order: &[usize], call: impl Fn(usize) + Sync) -> f64 {
    slowest(threads, order, |chunk| {
        let began = Instant::now();
        for &i in chunk {
            call(i);
        }
        began.elapsed()
    })
}

/// Returns the nanoseconds per element of the slowest thread, each of which takes a share of
/// `order`.
fn slowest(threads: usize, order: &[usize], take: impl Fn(&[usize]) -> Duration + Sync) -> f64 {
    let share = order.len() / threads;
    let take = &take;
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let handles: Vec<_> = order
            .chunks(share)
            .map(|chunk| scope.spawn(move || take(chunk)))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no panic"))
            .collect()
    });
    times.iter().max().expect("a thread").as_nanos() as f64 / share as f64
}

/// Measures the memory of `keys` keys with one request each, under the default configuration with
/// this law.
fn memory(law: &str, keys: usize) -> Limiter {
    let names = names(keys);
    let before = resident();
    let limiter = Limiter::builder()
        .config(Config::default().with_law(law.parse().expect("a law's name")))
        .capacity(keys)
        .build()
        .expect("a valid configuration");
    for name in &names {
        cycle(&limiter, name);
    }
    let grown = resident().saturating_sub(before);
    println!(
        "memory per idle key incl. its name, {keys} keys, {law}: {} bytes resident, {} by its own count",
        grown / keys as u64,
        limiter.stats().memory / keys as u64
    );
    limiter
}

/// Returns the states of `keys` hosts that each received `requests` requests, as fast as the
/// default law allows.
fn learned(keys: usize, requests: u32) -> Vec<Host> {
    let config = Config::default();
    let before = resident();
    let hosts: Vec<Host> = (0..keys)
        .map(|_| busy(&config, requests, |_| served()).0)
        .collect();
    let grown = resident().saturating_sub(before);
    println!(
        "memory per key without its name after {requests} requests at the full pace, none refused: {} bytes resident",
        grown / keys as u64
    );
    hosts
}

fn unlimited(keys: usize) -> Limiter {
    let crawler = Config::crawler();
    let limits = Limits {
        rate_start: 1e9,
        rate_max: f64::INFINITY,
        burst: 1e9,
        refill: Refill::Continuous,
        in_flight: u32::from(u16::MAX),
        busy_share: f64::INFINITY,
        bytes_per_s: f64::INFINITY,
    };
    // The figure is for AIMD, because the default law limits each new key to two requests in
    // flight.
    let law = "aimd".parse().expect("a law's name");
    let config = crawler.with_law(law).with_limits(limits);
    Limiter::builder()
        .config(config)
        .capacity(keys)
        .build()
        .expect("a valid configuration")
}

fn names(keys: usize) -> Vec<Key> {
    let mut rng = Rng::new(7);
    (0..keys)
        .map(|i| {
            let name = format!("{:x}-{i}.example-{}.com", rng.next_u64() & 0xfff, i % 7);
            Key::host(&name).expect("a host name")
        })
        .collect()
}

fn order(keys: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed);
    (0..CALLS_PER_ROUND)
        .map(|_| rng.next_u64() as usize % keys)
        .collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4096
}
