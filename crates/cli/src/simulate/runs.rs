//! Independent runs over all cores, their results in order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use politely_sim::{Scenario, Score, Trace, run, score};

use super::laws::Contender;

/// What is to be run: every law, scenario and seed, scenario by scenario.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) scenarios: &'a [Scenario],
    pub(super) laws: &'a [Contender],
    pub(super) seeds: u64,
    /// Keep the first seed's trace.
    pub(super) traces: bool,
}

/// What one run brought.
pub(super) struct Done {
    pub(super) score: Score,
    /// For drawing, if it was asked for.
    pub(super) trace: Option<Trace>,
    /// What it took, scoring apart.
    pub(super) took: Duration,
    /// Requests simulated.
    pub(super) requests: u64,
}

impl Plan<'_> {
    /// How many runs that is.
    pub(super) fn len(&self) -> usize {
        self.scenarios.len() * self.laws.len() * self.seeds as usize
    }

    /// Where run `index` stands.
    fn at(&self, index: usize) -> (&Scenario, &Contender, u64) {
        let (index, seed) = (index / self.seeds as usize, index % self.seeds as usize);
        let (scenario, law) = (index / self.laws.len(), index % self.laws.len());
        (&self.scenarios[scenario], &self.laws[law], seed as u64 + 1)
    }

    fn run(&self, index: usize) -> Done {
        let (scenario, law, seed) = self.at(index);
        let plot = self.traces && seed == 1;
        let begun = Instant::now();
        let trace = run(scenario, seed, plot, |worker| {
            law.client(scenario, seed, worker)
        });
        let took = begun.elapsed();
        Done {
            score: score(scenario, &law.name, seed, &trace),
            took,
            requests: trace.requests.len() as u64,
            trace: plot.then_some(trace),
        }
    }

    /// Runs all, handing each result over in order, as soon as its turn comes. The receiver may end it.
    pub(super) fn each(&self, mut receive: impl FnMut(usize, Done) -> ControlFlow<()>) {
        let next = AtomicUsize::new(0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let (send, results) = mpsc::channel();
            for _ in 0..cores.min(self.len()) {
                let (send, next) = (send.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= self.len() || send.send((index, self.run(index))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            let (mut turn, mut early) = (0, BTreeMap::new());
            for (index, done) in results {
                early.insert(index, done);
                while let Some(done) = early.remove(&turn) {
                    if receive(turn, done).is_break() {
                        // The channel closes with this loop, and the threads with the channel.
                        return;
                    }
                    turn += 1;
                }
            }
        });
    }
}
