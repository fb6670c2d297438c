//! Checks a restored state, and adapts it to the present constants and clock.

use std::sync::Arc;
use std::time::Duration;

use super::learning::{Learning, Stage};
use super::trial::Bracket;
use super::{DiscoverConfig, RATE_MIN, ROUND_TRIP_MAX};

/// Lowest plausible ceiling, in requests per second. One request in the longest window is more.
const CEILING_MIN: f64 = 1e-8;

impl Learning {
    /// Adapts a restored state to `config`. All its times move back by `back`, the time by which
    /// the clock was set back.
    pub(super) fn adopt(&mut self, config: &Arc<DiscoverConfig>, back: Duration) {
        self.config = Arc::clone(config);
        for time in [
            &mut self.stage_began,
            &mut self.anchor,
            &mut self.last_soft,
            &mut self.next_canary,
        ] {
            *time = *time - back;
        }
        if let Some(block) = &mut self.block {
            block.rebase(back);
        }
        self.trouble.rebase(back);
        self.window.rebase(back);
        self.probing.rebase(back);
        self.noise.rebase(back);
        self.ledger.rebase(back);
        self.announced.rebase(back);
    }

    /// Returns whether the law could have reached this state. Restored bytes may be anything.
    pub(super) fn plausible(&self) -> bool {
        let rates = [self.ceiling, self.bank];
        let bracket = match &self.stage {
            Stage::Trial(bracket) => Some(bracket),
            _ => None,
        };
        let no_ceiling = self.ceiling <= 0.0;
        let needs_none = matches!(self.stage, Stage::Start | Stage::Trial(_));
        ((no_ceiling && needs_none) || self.ceiling >= CEILING_MIN)
            && self.rate >= RATE_MIN
            && self.rate.is_finite()
            && bracket.is_none_or(Bracket::plausible)
            && rates.iter().all(|rate| *rate >= 0.0 && rate.is_finite())
            && self.trouble.plausible()
            && self.round_trip <= ROUND_TRIP_MAX
            && self.block.is_none_or(|block| block.plausible())
            && self.window.plausible()
            && self.probing.plausible()
            && self.queue.plausible()
            && self.slots.plausible()
            && self.noise.plausible()
            && self.announced.plausible()
            && self.ledger.plausible()
    }
}

#[cfg(test)]
mod tests {
    use super::super::learning::tests::cruising;
    use super::*;
    use crate::Timestamp;

    /// A window without a ceiling made the way back infinitely slow, which no duration can tell.
    #[test]
    fn a_stage_that_follows_a_ceiling_is_not_restored_without_one() {
        let now = Timestamp::from_secs_f64(1e6);
        for stage in [Stage::Cruise, Stage::Probe, Stage::Recover] {
            let mut law = cruising();
            law.enter(stage, 1.0, now);
            assert!(law.plausible(), "{stage:?}");
            law.ceiling = 0.0;
            assert!(!law.plausible(), "{stage:?}");
        }
        for stage in [Stage::Start, Stage::Trial(Bracket::new(0.0, 1.0))] {
            let mut law = cruising();
            law.enter(stage, 1.0, now);
            law.ceiling = 0.0;
            assert!(law.plausible(), "{stage:?}");
        }
    }
}
