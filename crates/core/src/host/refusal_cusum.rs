//! Tells the beginning of a limit from bad pages: refusals of new URLs suddenly become more
//! frequent than this host's URLs usually fail.
//!
//! A cumulative sum (Page 1954) of log-likelihood ratios over the requests. It grows with each
//! refused URL and falls with each served one, but not below zero.

use serde::{Deserialize, Serialize};

/// The sum at which refusals have become more frequent. If URLs fail independently at their usual
/// share, the mean distance of two such findings is at least `e^14` requests, a million (Lorden
/// 1971).
const THRESHOLD: f32 = 14.0;
/// The sum from which refusals may have become more frequent: a second new URL is refused soon
/// after the first one, at a host that refuses few.
const RISING: f32 = 4.0;
/// The least share of refused URLs that a limit is assumed to cause.
const REFUSED_SHARE: f32 = 0.5;

/// The sum for one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RefusalCusum {
    sum: f32,
    /// URLs at fault that are not remembered elsewhere, by hash: one bit for each 64th of all URLs.
    /// Their refusals are no sign of a limit.
    at_fault: u64,
}

impl RefusalCusum {
    /// Notes a served URL. `usual` is the share of URLs that fail at this host by themselves, in
    /// (0, 1).
    pub(super) fn served(&mut self, usual: f64) {
        let (refused, usual) = shares(usual);
        let ratio = libm::logf((1.0 - refused) / (1.0 - usual));
        self.sum = (self.sum + ratio).max(0.0);
    }

    /// Notes the refusal of a URL that is not known to have failed before. Returns whether refusals
    /// have become more frequent, and then begins anew.
    pub(super) fn refused(&mut self, url: u32, usual: f64) -> bool {
        if self.at_fault & bit(url) != 0 {
            return false;
        }
        let (refused, usual) = shares(usual);
        self.sum += libm::logf(refused / usual);
        let is_found = self.sum >= THRESHOLD;
        if is_found {
            *self = Self::default();
        }
        is_found
    }

    /// Returns whether refusals may have become more frequent. The second refusal of a URL is then
    /// no proof that the URL is at fault.
    pub(super) fn are_rising(&self) -> bool {
        self.sum >= RISING
    }

    /// Notes a URL at fault that will not be remembered elsewhere.
    pub(super) const fn note_at_fault(&mut self, url: u32) {
        self.at_fault |= bit(url);
    }

    /// Returns whether requests could have led to this state. Restored bytes may be anything.
    pub(super) fn is_plausible(&self) -> bool {
        (0.0..THRESHOLD).contains(&self.sum)
    }

    /// Merges `other`.
    pub(super) const fn join(&mut self, other: &Self) {
        self.sum = self.sum.max(other.sum);
        self.at_fault |= other.at_fault;
    }
}

const fn bit(url: u32) -> u64 {
    1 << (url % u64::BITS)
}

/// Returns the share of failing URLs where a limit refuses them, and the usual share.
const fn shares(usual: f64) -> (f32, f32) {
    let usual = usual as f32;
    (REFUSED_SHARE.max(f32::midpoint(1.0, usual)), usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// Returns the request at which refusals are found to be more frequent.
    fn found(share: f64, usual: f64, requests: u32) -> Option<u32> {
        let (mut cusum, mut rng) = (RefusalCusum::default(), Rng::new(1));
        (0..requests).find(|&url| {
            let is_refused = rng.unit() < share;
            if !is_refused {
                cusum.served(usual);
            }
            is_refused && cusum.refused(url, usual)
        })
    }

    #[test]
    fn a_limit_is_found_within_some_dozen_requests() {
        for usual in [0.02, 0.1, 0.3] {
            assert!(found(0.9, usual, 60).is_some(), "{usual}");
        }
        assert!(found(0.4, 0.02, 60).is_some());
    }

    #[test]
    fn the_usual_share_is_no_limit() {
        for usual in [0.02, 0.1, 0.3, 0.5] {
            assert_eq!(found(usual, usual, 100_000), None, "{usual}");
        }
    }

    #[test]
    fn a_url_at_fault_is_no_sign_of_a_limit() {
        let mut cusum = RefusalCusum::default();
        cusum.note_at_fault(7);
        assert!((0..100).all(|_| !cusum.refused(7, 0.02)));
        assert!((0..100).any(|url| cusum.refused(url, 0.02)));
    }
}
