//! The cost of a permit when all callers use the same key, which never limits them.
//!
//! The implementations take turns on one redis-server, so that noise of the machine affects all.
//! Medians of the rounds are compared.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use politely::{Ask, Key, Limiter, Report, Signal};

use super::cpu::Cpu;
use super::rivals::{Bottleneck, Lua};
use super::{coordinator, operations, settle, unlimited};
use politely_testkit::redis::RedisServer;

pub(super) const COORDINATORS: usize = 8;
/// Number of callers of each implementation.
pub(super) const TASKS: usize = 64;
/// Number of callers in the tests with runs, where so few callers suffice because runs are long.
const TASKS_IN_RUNS: usize = 4;
/// Number of callers that pause after every permit. Their latency is the time of a commit while the
/// machine has spare capacity.
const PACED: usize = 25;
const PAUSE: Duration = Duration::from_millis(38);
pub(super) const ROUND: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

/// Prints both tables.
pub(super) async fn run() {
    let server = RedisServer::start("");
    let ours = [
        Ours::new(&server, "one at a time", 1, TASKS, Duration::ZERO).await,
        Ours::new(&server, "in runs of 16", 16, TASKS_IN_RUNS, Duration::ZERO).await,
        Ours::new(&server, "one at a time, 5,000 a second", 1, PACED, PAUSE).await,
    ];
    let pipelined = Lua::new(&server, COORDINATORS, TASKS).await;
    let alone = Lua::new(&server, COORDINATORS * TASKS, 1).await;
    let bottleneck = Bottleneck::new(server.address);
    let mut rounds = [(); 6].map(|()| Rounds::default());
    for _ in 0..ROUNDS {
        let mut cpu = Cpu::of(&server);
        rounds[0].add(ours[0].round().await, &mut cpu);
        rounds[1].add(pipelined.round().await, &mut cpu);
        rounds[2].add(ours[1].round().await, &mut cpu);
        rounds[3].add(alone.round().await, &mut cpu);
        rounds[4].add(bottleneck.round(), &mut cpu);
        rounds[5].add(ours[2].round().await, &mut cpu);
    }
    println!("one key, {COORDINATORS} coordinators, {ROUNDS} rounds of {ROUND:?} in turn");
    println!(
        "| permits | a second, median (each round) | CPU us each, callers + server | engine operations each | conflicts each | commit p50 | p99, of the slowest |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (ours, i) in ours.iter().zip([0, 2, 5]) {
        println!("| ours, {} | {} | {}", ours.name, rounds[i], ours.costs());
    }
    for (name, i) in [
        ("Lua token bucket, 8 connections, pipelined", 1),
        ("Lua token bucket, a connection each caller", 3),
        ("Bottleneck, its callers' CPU not counted", 4),
    ] {
        println!("| {name} | {} | | | | |", rounds[i]);
    }
    println!("against each rival in the same round:");
    for (name, rival) in [("Lua, pipelined", 1), ("Lua", 3), ("Bottleneck", 4)] {
        for (ours, what) in [(0, "one at a time"), (2, "in runs of 16")] {
            let ratios = rounds[ours].per_s.iter().zip(&rounds[rival].per_s);
            let ratios: Vec<f64> = ratios.map(|(ours, rival)| ours / rival).collect();
            println!("- {what} / {name}: {:.2} ({ratios:.2?})", median(&ratios));
        }
    }
}

/// The results of one implementation.
#[derive(Default)]
struct Rounds {
    per_s: Vec<f64>,
    callers: Duration,
    server: Duration,
}

impl Rounds {
    fn add(&mut self, per_s: f64, cpu: &mut Cpu<'_>) {
        self.per_s.push(per_s);
        let (callers, server) = cpu.spent();
        self.callers += callers;
        self.server += server;
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permits = self.per_s.iter().sum::<f64>() * ROUND.as_secs_f64();
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / permits;
        write!(
            f,
            "{:.0} ({:.0?}) | {:.1} + {:.1}",
            median(&self.per_s),
            self.per_s,
            each(self.callers),
            each(self.server)
        )
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Limiters whose callers request `slots` permits at a time, report each at once, and then pause.
struct Ours {
    name: &'static str,
    slots: u16,
    tasks: usize,
    pause: Duration,
    limiters: Vec<Limiter>,
    permits: Arc<AtomicU64>,
}

impl Ours {
    async fn new(
        server: &RedisServer,
        name: &'static str,
        slots: u16,
        tasks: usize,
        pause: Duration,
    ) -> Self {
        let limiters: Vec<_> = (0..COORDINATORS)
            .map(|_| coordinator(server, &unlimited()))
            .collect();
        settle(&limiters).await;
        Self {
            name,
            slots,
            tasks,
            pause,
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
            let (pause, key) = (
                self.pause,
                format!("{}-{}.example.com", self.slots, self.tasks),
            );
            let key = Key::host(&key).expect("a host");
            let ask = Ask {
                slots: self.slots,
                ..Ask::default()
            };
            tasks.spawn(async move {
                while began.elapsed() < ROUND {
                    let turn = limiter.turn();
                    if let Ok(permit) = limiter.acquire_in_turn(&key, ask.clone(), turn).await {
                        permits.fetch_add(u64::from(permit.slots()), Ordering::Relaxed);
                        for permit in permit.split() {
                            permit.report(&Report::of(Signal::Ok));
                        }
                    }
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
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
