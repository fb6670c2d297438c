//! Tests of the guarantees of the default law, in virtual time: the results are the same on every
//! machine.

mod named;
mod switches;
mod timers;
mod train;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_sim::polite::Polite;
use politely_sim::{Scenario, Score, Trace, run, score, suite};

/// Returns the trace of an API client under the law of this name.
fn trace(law: &str, scenario: &Scenario, seed: u64) -> Trace {
    let law: LawConfig = law.parse().expect("a law");
    let config = Config::api().with_law(law);
    run(scenario, seed, false, |_| {
        Box::new(Polite::new(config.clone(), Timestamp::ZERO))
    })
}

/// Returns the score of an API client under the law of this name.
fn play(law: &str, scenario: &Scenario, seed: u64) -> Score {
    score(scenario, law, seed, &trace(law, scenario, seed))
}

/// The scenario of this name from the suite.
fn named(name: &str) -> Scenario {
    let found = suite().into_iter().find(|one| one.name == name);
    found.expect(name)
}
