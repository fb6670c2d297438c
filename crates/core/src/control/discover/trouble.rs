//! A host in trouble is none with a lower limit: the ceiling stays where it was.
//!
//! In an *outage* nothing passes. In a *brown-out* some fail, however few are sent; what tells it
//! from a limit is that the very next request is served, far below what was served well a short
//! while ago.

use std::time::Duration;

use super::canary::Block;
use super::learning::Learning;
use super::stages::COMEBACK_SERVED;
use super::window::Window;
use super::{Mechanism, Sample};
use crate::Timestamp;

/// So many refused canaries of a host in trouble are an outage.
const OUTAGE_CANARIES: u16 = 3;
/// Below this share of what was served well no limit refuses one and serves the next.
const FAR_BELOW: f64 = 0.25;
/// The least in a brown-out, of the ceiling, and what each failure leaves of the rate.
const LEAST: f64 = 0.02;
const LESS: f64 = 0.7;
/// Served in a row, far below, it is over.
const CLEAR: u32 = 12;

impl Learning {
    /// A host in trouble that had not been in trouble just before: that would be its way to say no.
    pub(super) fn was_outage(&mut self, block: &Block, canary: &Sample<'_>) -> bool {
        if !block.overloaded || block.canaries < OUTAGE_CANARIES {
            return false;
        }
        let lasted = canary.sent.since(block.began);
        let soon = (lasted * 5).max(Duration::from_mins(1));
        let again = (self.outage_over).is_some_and(|over| canary.sent.since(over) < soon);
        self.outage_over = Some(canary.sent);
        self.ceiling > 0.0 && !again && self.has(Mechanism::Outage)
    }

    /// In a brown-out: goes on slowly, until what is sent passes again.
    pub(super) fn lies_low(&mut self, block: &Block, now: Timestamp) -> bool {
        let well = self.noise.once_proven(now);
        let lone = block.overloaded && block.canaries == 0;
        if !(lone && block.rate < well * FAR_BELOW && self.has(Mechanism::Outage)) {
            return false;
        }
        (self.ceiling, self.window) = (well, Window::default());
        let rate = (block.rate * LESS).max(well * LEAST);
        self.recover_at(rate, now);
        true
    }

    /// So many are to be served before the next step on the way back; from an outage it begins no
    /// lower than [`FAR_BELOW`].
    pub(super) fn recovery_served(&self) -> u32 {
        if self.rate < self.ceiling * FAR_BELOW {
            CLEAR
        } else {
            COMEBACK_SERVED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::learning::Stage;
    use super::super::learning::tests::{cruising, hear};
    use super::super::verdict::tests::{at, block, serve};
    use super::*;
    use crate::signal::Signal;

    #[test]
    fn an_outage_leaves_the_ceiling_where_it_was() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::Overloaded, &[1.0, 3.0, 9.0, 30.0]);
        assert_eq!(law.stage, Stage::Recover);
        assert!((law.ceiling - 10.0).abs() < 1e-9, "{law:?}");
    }

    #[test]
    fn trouble_again_soon_after_an_outage_is_the_hosts_way_to_say_no() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::Overloaded, &[1.0, 3.0, 9.0, 30.0]);
        serve(&mut law, 90.1, 130.0);
        block(&mut law, 130.0, Signal::Overloaded, &[1.0, 3.0, 9.0, 30.0]);
        assert!(law.ceiling < 10.0 || law.stage == Stage::Trial, "{law:?}");
    }

    #[test]
    fn trouble_over_at_the_first_canary_is_no_outage() {
        let mut law = cruising();
        serve(&mut law, 0.0, 60.0);
        block(&mut law, 60.0, Signal::Overloaded, &[0.2]);
        assert!(law.ceiling < 10.0, "{law:?}");
    }

    /// Half a minute at 10 a second, all served; then five minutes of trouble.
    fn browned_out() -> Learning {
        let mut law = cruising();
        serve(&mut law, 0.0, 30.0);
        one_in_five_fails(&mut law, 30.0, Signal::Overloaded);
        law
    }

    /// For five minutes, at the law's own pace and whatever that is.
    fn one_in_five_fails(law: &mut Learning, from: f64, fails: Signal) {
        let mut secs = from;
        for i in 1.. {
            if secs > from + 300.0 {
                break;
            }
            hear(law, secs, if i % 5 == 0 { fails } else { Signal::Ok });
            let canary = law.block.map(|_| law.next_canary);
            let after = 1.0 / law.wish(at(secs));
            secs = canary.map_or(secs + after, |at| {
                (at.as_secs_f64() - 1.8e9).max(secs + 0.2)
            });
        }
    }

    #[test]
    fn a_brown_out_is_sat_out_and_left_within_minutes() {
        let mut law = browned_out();
        assert_eq!((law.stage, law.ceiling), (Stage::Recover, 9.9));
        assert!(law.rate < 1.5, "{law:?}");
        let mut secs = 331.0;
        while law.stage == Stage::Recover && secs < 631.0 {
            hear(&mut law, secs, Signal::Ok);
            secs += 1.0 / law.wish(at(secs));
        }
        assert!(law.wish(at(secs)) > 9.0 && secs < 481.0, "{secs}, {law:?}");
    }

    #[test]
    fn a_host_that_says_that_it_is_a_limit_is_believed() {
        let mut law = browned_out();
        one_in_five_fails(&mut law, 331.0, Signal::RateLimited);
        assert!(law.rate < 9.9 * LEAST, "{law:?}");
    }
}
