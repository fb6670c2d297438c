//! Faults between nodes and their engine, in virtual time, around the real
//! [`politely_store::Node`].
//!
//! A seed stands for a schedule: the nodes, the network, and the faults with their times. The same
//! seed runs the same way to the byte. A seed that breaks a promise prints how to run it again.
//!
//! | file | what |
//! | --- | --- |
//! | `plan.rs`, `dice.rs` | what a seed stands for |
//! | `engine.rs` | an engine, its replica and its clock |
//! | `wire.rs` | calls, their latency, and how they are lost |
//! | `seat.rs` | a coordinator's place: node, clock, timer |
//! | `caller.rs`, `flight.rs` | workers: they ask, leave and report |
//! | `operator.rs` | operators: they hold keys and wait for the engine |
//! | `locker.rs` | sessions: they lock keys |
//! | `fault.rs`, `zombie.rs` | what goes wrong |
//! | `world.rs` | what happens next |
//! | `log.rs` | what happened |
//! | `books.rs`, `check.rs`, `apart.rs` | the promises |

mod apart;
mod books;
mod caller;
mod check;
mod dice;
mod engine;
mod fault;
mod flight;
mod locker;
mod log;
mod operator;
mod plan;
mod seat;
mod wire;
mod world;
mod zombie;

use std::sync::atomic::{AtomicUsize, Ordering};

use politely_core::Timestamp;

use politely_store::testing::Record;

use plan::{LOCKED, OPERATED, Plan, WIDER};
use world::World;

/// The number of schedules in one run, unless `FAULT_SCHEDULES` is set. A tenth as many run from
/// [`WIDER`], [`OPERATED`] and [`LOCKED`] on.
const SCHEDULES: u64 = 10_000;
/// The seeds that broke a promise once. The commit that added a seed (`git log -S`) describes the
/// defect.
const ONCE_WRONG: [u64; 34] = [
    100_051, 100_684, 101_595, 113_692, 113_837, 115_435, 117_184, 124_081, 124_610, 127_785,
    132_843, 137_182, 139_036, 144_291, 145_870, 148_767, 150_867, 156_895, 157_111, 411_630,
    440_176, 600_281, 615_294, 1_000_342, 1_001_873, 1_004_000, 1_006_621, 1_006_665, 1_013_301,
    1_018_309, 1_036_109, 1_048_565, 1_510_465, 3_002_839,
];
/// The number of threads.
const THREADS: u64 = 2;

/// The result of a schedule.
struct Outcome {
    digest: u64,
    granted: u64,
    acknowledged: u64,
    /// The number of locks that sessions got.
    locked: u64,
    lines: u64,
    wrongs: Vec<String>,
    tail: String,
}

fn play(seed: u64, keep_all: bool) -> Outcome {
    let plan = Plan::draw(seed);
    let end = check::deadline(&plan);
    let mut world = World::new(plan);
    world.log.keep_all = keep_all;
    world.run(end);
    let tallies: Vec<_> = world
        .keys
        .iter()
        .map(|(_, cell)| {
            let value = world.engine.cell(cell)?;
            let read = Record::decode(value, Timestamp::ZERO, &world.config).ok()?;
            Some(read.0.host.tally())
        })
        .collect();
    let mut wrongs = world.books.check(&world.plan, &tallies);
    wrongs.extend(world.starved(end));
    Outcome {
        digest: world.log.digest(),
        granted: world.books.granted,
        acknowledged: world.books.acknowledged,
        locked: world.books.fencing.len() as u64,
        lines: world.log.count,
        wrongs,
        tail: world.log.tail(),
    }
}

fn complain(seed: u64, outcome: &Outcome) -> String {
    let plan = Plan::draw(seed);
    format!(
        "seed {seed}: {}\n{}\n{plan:?}\nagain: FAULT_SEED={seed} cargo test -p politely-store --test faults schedules -- --nocapture",
        outcome.wrongs.join("\n"),
        outcome.tail
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn schedules() {
    if let Some(seed) = number("FAULT_SEED") {
        let outcome = play(seed, std::env::var("FAULT_ALL").is_ok());
        println!("{}", complain(seed, &outcome));
        println!("digest {:016x}, {} lines", outcome.digest, outcome.lines);
        assert!(outcome.wrongs.is_empty());
        return;
    }
    let count = number("FAULT_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("FAULT_FIRST").unwrap_or(0);
    let once_wrong = ONCE_WRONG.iter().filter(|_| first == 0);
    let wider = if first == 0 { count / 10 } else { 0 };
    let seeds: Vec<u64> = once_wrong
        .copied()
        .chain(first..first + count)
        .chain(WIDER..WIDER + wider)
        .chain(OPERATED..OPERATED + wider)
        .chain(LOCKED..LOCKED + wider)
        .collect();
    let most = number("FAULT_SHOW").unwrap_or(3) as usize;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        let (mut granted, mut lines, mut digest) = (0, 0, 0_u64);
        loop {
            let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return (wrong, granted, lines, digest);
            };
            let outcome = std::panic::catch_unwind(|| play(seed, false));
            match outcome {
                Ok(outcome) => {
                    granted += outcome.granted;
                    lines += outcome.lines;
                    digest = digest.wrapping_add(outcome.digest);
                    if !outcome.wrongs.is_empty() {
                        wrong.push((seed, outcome));
                    }
                }
                Err(_) => wrong.push((
                    seed,
                    Outcome {
                        digest: 0,
                        granted: 0,
                        acknowledged: 0,
                        locked: 0,
                        lines: 0,
                        wrongs: vec!["it panicked".to_owned()],
                        tail: String::new(),
                    },
                )),
            }
        }
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.expect("panics are caught"))
            .collect()
    });
    let granted: u64 = results.iter().map(|(_, granted, ..)| granted).sum();
    let lines: u64 = results.iter().map(|(_, _, lines, _)| lines).sum();
    let digests = results.iter().map(|(.., digest)| *digest);
    let digest = digests.fold(0, u64::wrapping_add);
    println!(
        "{} schedules, {granted} permits, {lines} lines, digest {digest:016x}",
        seeds.len()
    );
    let mut wrong: Vec<_> = results.into_iter().flat_map(|(wrong, ..)| wrong).collect();
    wrong.sort_by_key(|(seed, _)| *seed);
    for (seed, outcome) in &wrong {
        println!("seed {seed}: {}", outcome.wrongs[0]);
    }
    for (seed, outcome) in wrong.iter().take(most) {
        println!("{}", complain(*seed, outcome));
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} schedules broke a promise",
        wrong.len()
    );
    assert!(granted > count, "no work was done");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let [one, other] = [(); 2].map(|()| play(seed, false));
        assert_eq!(
            (one.digest, one.lines),
            (other.digest, other.lines),
            "seed {seed}"
        );
    }
}

#[test]
fn operators_are_answered_and_killed_in_between() {
    let mut acknowledged = 0;
    for seed in OPERATED..OPERATED + 40 {
        let outcome = play(seed, false);
        assert!(outcome.wrongs.is_empty(), "{}", complain(seed, &outcome));
        acknowledged += outcome.acknowledged;
    }
    assert!(acknowledged > 100, "{acknowledged}");
}

/// P12: no two sessions have the same fencing number, and no more hold a key than may.
#[test]
fn sessions_lock_keys_through_faults() {
    let mut locked = 0;
    for seed in LOCKED..LOCKED + 200 {
        let outcome = play(seed, false);
        assert!(outcome.wrongs.is_empty(), "{}", complain(seed, &outcome));
        locked += outcome.locked;
    }
    assert!(locked > 1_000, "{locked}");
}
