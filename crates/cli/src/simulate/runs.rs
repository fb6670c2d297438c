//! Independent runs over all cores, with their results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use politely_sim::{Scenario, Score, plot, run, score};

use super::laws::Contender;

/// The runs: every law, scenario and seed, scenario by scenario.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) scenarios: &'a [Scenario],
    pub(super) laws: &'a [Contender],
    pub(super) seeds: u64,
    /// Whether the runs of the first seed are drawn.
    pub(super) draw: bool,
}

/// The result of one run.
pub(super) struct Done {
    pub(super) score: Score,
    /// Its picture, if `draw` is set.
    pub(super) picture: Option<String>,
    /// The time of the simulation, with scoring and drawing apart.
    pub(super) took: Duration,
    /// The number of simulated requests.
    pub(super) requests: u64,
}

impl Plan<'_> {
    /// Returns the number of runs.
    pub(super) fn len(&self) -> usize {
        self.scenarios.len() * self.laws.len() * self.seeds as usize
    }

    /// Returns the scenario, law and seed of run `index`.
    fn at(&self, index: usize) -> (&Scenario, &Contender, u64) {
        let (index, seed) = (index / self.seeds as usize, index % self.seeds as usize);
        let (scenario, law) = (index / self.laws.len(), index % self.laws.len());
        (&self.scenarios[scenario], &self.laws[law], seed as u64 + 1)
    }

    fn run(&self, index: usize) -> Done {
        let (scenario, law, seed) = self.at(index);
        let draw = self.draw && seed == 1;
        let begun = Instant::now();
        let trace = run(scenario, seed, draw, |worker| {
            law.client(scenario, seed, worker)
        });
        let took = begun.elapsed();
        let score = score(scenario, &law.name, seed, &trace);
        Done {
            picture: draw.then(|| plot::timeline(scenario, &score, &trace)),
            score,
            took,
            requests: trace.requests.len() as u64,
        }
    }

    /// Executes all runs and hands over each result in order, as soon as possible. Ends with the
    /// first error.
    pub(super) fn each<E>(&self, mut receive: impl FnMut(Done) -> Result<(), E>) -> Result<(), E> {
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
            // An error closes the channel, which ends the threads.
            for (index, done) in results {
                early.insert(index, done);
                while let Some(done) = early.remove(&turn) {
                    receive(done)?;
                    turn += 1;
                }
            }
            Ok(())
        })
    }
}
