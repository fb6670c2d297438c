//! All want the same key, which lets everybody go: what a permit costs.
//!
//! The contestants take turns on one redis-server, so that a neighbour's noise falls on all; medians of the rounds are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use politely::{Ask, Key, Limiter, Report, Signal};

use super::rivals::{Bottleneck, Lua};
use super::{coordinator, operations, settle, unlimited};
use crate::servers::redis::RedisServer;

pub(super) const COORDINATORS: usize = 8;
/// Callers of each.
pub(super) const TASKS: usize = 64;
/// Runs are long: so few callers have enough with them.
const TASKS_IN_RUNS: usize = 4;
pub(super) const ROUND: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

/// Prints both tables.
pub(super) async fn run() {
    let server = RedisServer::start("");
    let mut ours = Vec::new();
    for (name, slots, tasks) in [
        ("one at a time", 1, TASKS),
        ("in runs of 16", 16, TASKS_IN_RUNS),
    ] {
        ours.push(Ours::new(&server, name, slots, tasks).await);
    }
    let shared = Lua::new(&server, COORDINATORS, TASKS).await;
    let alone = Lua::new(&server, COORDINATORS * TASKS, 1).await;
    let bottleneck = Bottleneck::new(server.address);
    let mut rounds = [(); 5].map(|()| Vec::new());
    let mut cpu = [Duration::ZERO; 4];
    for _ in 0..ROUNDS {
        let mut spent = cpu_time(&server);
        let mut spend = |on: &mut Duration| {
            let now = cpu_time(&server);
            *on += now - std::mem::replace(&mut spent, now);
        };
        rounds[0].push(ours[0].round().await);
        spend(&mut cpu[0]);
        rounds[1].push(shared.round().await);
        spend(&mut cpu[1]);
        rounds[2].push(ours[1].round().await);
        spend(&mut cpu[2]);
        rounds[3].push(alone.round().await);
        spend(&mut cpu[3]);
        rounds[4].push(bottleneck.round());
    }
    let cpu_us = |i: usize| {
        let permits: f64 = rounds[i]
            .iter()
            .map(|per_s| per_s * ROUND.as_secs_f64())
            .sum();
        cpu[i].as_secs_f64() * 1e6 / permits
    };
    println!("one key, {COORDINATORS} coordinators, {ROUNDS} rounds of {ROUND:?} in turn");
    println!(
        "| permits | a second, median (each round) | CPU us each, callers and server | engine operations each | conflicts each | commit p50 | p99, of the slowest |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (ours, i) in ours.iter().zip([0, 2]) {
        println!(
            "| ours, {} | {} | {:.1} | {}",
            ours.name,
            figures(&rounds[i]),
            cpu_us(i),
            ours.costs()
        );
    }
    for (name, i) in [
        ("8 connections, pipelined", 1),
        ("a connection each caller", 3),
    ] {
        println!(
            "| Lua token bucket, {name} | {} | {:.1} | | | | |",
            figures(&rounds[i]),
            cpu_us(i)
        );
    }
    println!("| Bottleneck | {} | | | | | |", figures(&rounds[4]));
    println!("against each rival in the same round:");
    for (name, rival) in [("Lua, pipelined", 1), ("Lua", 3), ("Bottleneck", 4)] {
        for (ours, what) in [(0, "one at a time"), (2, "in runs of 16")] {
            let ratios = rounds[ours].iter().zip(&rounds[rival]);
            let mut ratios: Vec<f64> = ratios.map(|(ours, rival)| ours / rival).collect();
            ratios.sort_unstable_by(f64::total_cmp);
            println!(
                "- {what} / {name}: {:.2} ({ratios:.2?})",
                ratios[ratios.len() / 2]
            );
        }
    }
}

/// What this process and the server have computed so far.
fn cpu_time(server: &RedisServer) -> Duration {
    let info = server.cli(&["info", "server"]);
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    let pid = pid.expect("a process has a number").trim_end();
    ["self", pid]
        .map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
            let (_, after_name) = stat.rsplit_once(')').expect("a name");
            let ticks = after_name.split_whitespace().skip(11).take(2);
            let ticks: u64 = ticks
                .map(|ticks| ticks.parse::<u64>().expect("ticks"))
                .sum();
            Duration::from_millis(10 * ticks)
        })
        .into_iter()
        .sum()
}

fn figures(rounds: &[f64]) -> String {
    let mut sorted = rounds.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    format!("{:.0} ({rounds:.0?})", sorted[sorted.len() / 2])
}

/// Coordinators whose callers ask for `slots` permits at a time and report each at once.
struct Ours {
    name: &'static str,
    slots: u16,
    tasks: usize,
    limiters: Vec<Limiter>,
    permits: Arc<AtomicU64>,
}

impl Ours {
    async fn new(server: &RedisServer, name: &'static str, slots: u16, tasks: usize) -> Self {
        let limiters: Vec<_> = (0..COORDINATORS)
            .map(|_| coordinator(server, &unlimited()))
            .collect();
        settle(&limiters).await;
        Self {
            name,
            slots,
            tasks,
            limiters,
            permits: Arc::default(),
        }
    }

    async fn round(&self) -> f64 {
        let before = self.permits.load(Ordering::Relaxed);
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for limiter in self
            .limiters
            .iter()
            .flat_map(|limiter| vec![limiter; self.tasks])
        {
            let (limiter, permits) = (limiter.clone(), Arc::clone(&self.permits));
            let key = Key::host(&format!("{}.example.com", self.slots)).expect("a host");
            let ask = Ask {
                slots: self.slots,
                ..Ask::default()
            };
            tasks.spawn(async move {
                while began.elapsed() < ROUND {
                    let turn = limiter.turn();
                    if let Ok(permit) = limiter.acquire_in_turn(&key, ask, turn).await {
                        permits.fetch_add(u64::from(permit.slots()), Ordering::Relaxed);
                        for permit in permit.split() {
                            permit.report(&Report::of(Signal::Ok));
                        }
                    }
                }
            });
        }
        tasks.join_all().await;
        (self.permits.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
    }

    fn costs(&self) -> String {
        let permits = self.permits.load(Ordering::Relaxed) as f64;
        let (operations, conflicts) = operations(&self.limiters);
        let commits = self.limiters.iter().filter_map(Limiter::commits);
        let slowest = commits
            .max_by_key(|commits| commits.took_p99)
            .unwrap_or_default();
        format!(
            "{:.3} | {:.3} | {:.1?} | {:.1?} |",
            operations as f64 / permits,
            conflicts as f64 / permits,
            slowest.took_p50,
            slowest.took_p99,
        )
    }
}
