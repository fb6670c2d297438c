//! The bars, on the set the law may be tuned on; the held-out set is judged by hand and never here.

use politely_sim::generate::{TRAIN_SEED, generate};
use politely_sim::summarise;

use super::play;

/// Enough for a tail, few enough to be played before each commit.
const COUNT: usize = 100;

#[test]
fn random_limits_are_found_and_hardly_ever_crossed() {
    let scores: Vec<_> = generate(TRAIN_SEED, COUNT)
        .iter()
        .map(|scenario| play("discover", scenario, 1))
        .collect();
    for run in &scores {
        assert_eq!(run.into_hold, 0, "{}", run.scenario);
    }
    let summary = &summarise(&scores)[0];
    let (used, refused) = (summary.utilisation, summary.refused_share);
    assert!(used.median >= 0.97, "{summary:?}");
    assert!(used.bad_tail >= 0.88, "{summary:?}");
    assert!(refused.median <= 0.004, "{summary:?}");
    assert!(refused.bad_tail <= 0.008, "{summary:?}");
    assert!(summary.good_share >= Some(0.80), "{summary:?}");
}
