//! Brooker's study of backoff, repeated with the backoff of politely.
//!
//! "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015; aws-arch-backoff-simulator at
//! 66cb169): N clients contend for one row with optimistic concurrency. Each reads the row and
//! writes it back. The write succeeds if no other write came in between; otherwise the client backs
//! off and reads again. Every hop takes
//! |N(10, 2)| ms, delays begin at 5 ms and end at 2 s. At most one client can win per round, so the
//! least work is N calls, and contention decides the rest.
//!
//! The study shows the purpose of backoff: clients that each want *one* thing. Backoff does not
//! relieve a host of first tries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::Rng;
use politely_core::retry::{Backoff, Jitter};
use serde::Serialize;

/// The mean and standard deviation of a hop in milliseconds.
const HOP_MS: (f64, f64) = (10.0, 2.0);
const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(2);
const CLIENTS: [u32; 10] = [20, 40, 60, 80, 100, 120, 140, 160, 180, 200];
/// Runs per row.
const RUNS: u64 = 20;

/// The kinds of backoff with their names in tables.
const BACKOFFS: [(&str, Option<Jitter>); 5] = [
    ("none", None),
    ("exponential", Some(Jitter::None)),
    ("equal", Some(Jitter::Equal)),
    ("full", Some(Jitter::Full)),
    ("decorrelated", Some(Jitter::Decorrelated)),
];

/// One line of the study: means over 20 runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kind of backoff.
    pub backoff: &'static str,
    /// Clients that contend.
    pub clients: u32,
    /// Writes until all have succeeded.
    pub calls: f64,
    /// The time until then, in seconds.
    pub time_s: f64,
}

/// Runs the whole study: none, exponential, equal, full and decorrelated; 20 to 200 clients.
pub fn study(seed: u64) -> Vec<Row> {
    BACKOFFS
        .into_iter()
        .flat_map(|backoff| CLIENTS.map(|clients| row(backoff, clients, seed)))
        .collect()
}

fn row((name, jitter): (&'static str, Option<Jitter>), clients: u32, seed: u64) -> Row {
    let backoff =
        jitter.map(|jitter| Backoff::new(BASE, 2.0, CAP, jitter).expect("constants in range"));
    let mut seeds = Rng::new(seed);
    let (mut calls, mut time_s) = (0.0, 0.0);
    for _ in 0..RUNS {
        let mut contest = Contest {
            backoff,
            rng: Rng::new(seeds.next_u64()),
            now: 0,
            seq: 0,
            events: BinaryHeap::new(),
            clients: vec![Contender::default(); clients as usize],
            version: 0,
            calls: 0,
        };
        contest.run();
        calls += f64::from(contest.calls) / RUNS as f64;
        time_s += contest.now as f64 / 1e6 / RUNS as f64;
    }
    Row {
        backoff: name,
        clients,
        calls,
        time_s,
    }
}

/// Where a client's message has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Hop {
    /// At the row, to read it.
    #[default]
    Read,
    /// At the client, with the version read.
    Got,
    /// At the row, to write it.
    Write,
    /// At the client, with the result of the write.
    Wrote,
}

#[derive(Clone, Copy, Debug, Default)]
struct Contender {
    /// The version read.
    version: u32,
    failures: u32,
    delay: Option<Duration>,
    won: bool,
}

struct Contest {
    backoff: Option<Backoff>,
    rng: Rng,
    /// Microseconds.
    now: u64,
    seq: u64,
    events: BinaryHeap<Reverse<(u64, u64, Hop, usize)>>,
    clients: Vec<Contender>,
    version: u32,
    calls: u32,
}

impl Contest {
    fn run(&mut self) {
        for client in 0..self.clients.len() {
            self.send(Duration::ZERO, Hop::Read, client);
        }
        while let Some(Reverse((at, _, hop, client))) = self.events.pop() {
            self.now = at;
            self.arrive(hop, client);
        }
    }

    fn send(&mut self, after: Duration, hop: Hop, client: usize) {
        // Box and Muller: 1 - unit() is never 0, so the logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.rng.unit()));
        let normal = radius * libm::cos(2.0 * std::f64::consts::PI * self.rng.unit());
        let hop_us = ((HOP_MS.0 + HOP_MS.1 * normal).abs() * 1e3) as u64;
        self.seq += 1;
        let at = self.now + after.as_micros() as u64 + hop_us;
        self.events.push(Reverse((at, self.seq, hop, client)));
    }

    fn arrive(&mut self, hop: Hop, client: usize) {
        let contender = &mut self.clients[client];
        match hop {
            Hop::Read => {
                contender.version = self.version;
                self.send(Duration::ZERO, Hop::Got, client);
            }
            Hop::Got => self.send(Duration::ZERO, Hop::Write, client),
            Hop::Write => {
                self.calls += 1;
                contender.won = contender.version == self.version;
                self.version += u32::from(contender.won);
                self.send(Duration::ZERO, Hop::Wrote, client);
            }
            Hop::Wrote if contender.won => {}
            Hop::Wrote => {
                // The published code counts a failure before it computes, so the first delay is
                // drawn from twice the base.
                contender.failures += 1;
                let delay = self.backoff.map_or(Duration::ZERO, |backoff| {
                    backoff.delay(contender.failures, contender.delay, &mut self.rng)
                });
                contender.delay = Some(delay);
                self.send(delay, Hop::Read, client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls and seconds of the published code, run on 2026-11-20.
    #[test]
    fn the_published_figures() {
        for (clients, name, calls, time_s) in [
            (100, "none", 2430.0, Some(2.0)),
            (100, "exponential", 1866.0, Some(63.0)),
            (100, "equal", 813.0, Some(6.8)),
            (100, "full", 796.0, Some(4.9)),
            (100, "decorrelated", 1003.0, Some(4.5)),
            (190, "none", 8015.0, None),
            (190, "exponential", 5177.0, None),
            (190, "equal", 1766.0, None),
            (190, "full", 1773.0, None),
            (190, "decorrelated", 2440.0, None),
        ] {
            let backoff = BACKOFFS.into_iter().find(|b| b.0 == name).unwrap();
            let row = row(backoff, clients, 1);
            assert!((row.calls / calls - 1.0).abs() < 0.05, "{row:?}");
            // The last client's delays decide the time, which is therefore much noisier than the
            // calls.
            if let Some(time_s) = time_s {
                assert!((row.time_s / time_s - 1.0).abs() < 0.15, "{row:?}");
            }
        }
    }

    #[test]
    fn fifty_rows_of_at_least_a_call_per_client() {
        let rows = study(1);
        assert_eq!(rows.len(), 50);
        assert!(rows.iter().all(|row| row.calls >= f64::from(row.clients)));
    }

    #[test]
    fn same_seed_same_rows() {
        let full = BACKOFFS[3];
        assert_eq!(row(full, 20, 7), row(full, 20, 7));
        assert_ne!(row(full, 20, 7), row(full, 20, 8));
    }
}
