//! Tells errors of an overloaded host from pages that are broken: by fewer requests. An error is a
//! plain 500, what a gateway answers, or no answer.
//!
//! If many answers are errors, the host gets requests a little slower than it served pages. An
//! overloaded host then serves nearly all of them. Broken pages fail at any rate. Wald's sequential
//! test (1945) of the share of errors against a quarter of it decides which it is, after some
//! twenty answers. From then on, errors of an overloaded host are refusals where they come more
//! often than in the trial, by a cumulative sum (Page 1954). The others are those of broken pages.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The number of answers after which their errors are looked at.
const WINDOW: u8 = 48;
/// The fewest errors in a window that begin a trial: a quarter.
const ERRORS_MIN: f32 = 12.0;
/// The number of errors in a row that count, so that one outage begins no trial.
const OUTAGE: u8 = 8;
/// How many more errors than usual begin a trial although the last one showed broken pages, or show
/// that fewer requests do not help.
const MORE_ERRORS: f32 = 12.0;
/// By how many errors a share is lowered, because a window with few begins no trial.
const SELECTED: f32 = 2.0;
/// The rate of a trial, by the rate of pages before it, and the lowest one by the rate of answers.
const SLOWER: f64 = 0.75;
const SLOWEST: f64 = 0.1;
/// The share of errors of an overloaded host during a trial, by the share before.
const FEWER: f32 = 0.25;
/// The logarithm of the likelihood ratio that decides a trial.
const SURE: f32 = 6.0;
/// The number of answers after which a trial ends without being sure. The pages are broken then.
const ANSWERS_MAX: u8 = 60;
/// The time to the next trial, by the time of one that showed broken pages. It doubles with each.
const WAIT: f64 = 8.0;
const DOUBLINGS_MAX: u8 = 8;
/// The share of errors that refusals have at least, above that of broken pages.
const OF_REFUSALS: f32 = 0.2;
/// The sum at which an error is a refusal.
const REFUSAL: f32 = 4.5;
/// The part of a window in the share of broken pages.
const FOLLOWS: f32 = 0.25;

/// The knowledge about the errors of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ErrorTrial {
    stage: Stage,
    /// The answers of the present window or trial, and how many of them were errors.
    answers: u8,
    errors: u8,
    since: Timestamp,
    /// The errors since the last page.
    run: u8,
    /// The mean errors of a window at full pace, or zero before the first one.
    usual: f32,
    /// The trials that showed broken pages, and the windows before the next.
    refuted: u8,
    wait: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Stage {
    /// Errors are those of their pages.
    #[default]
    Pages,
    /// Fewer requests are sent, to find out.
    Trial {
        /// The first lease that was granted in the trial.
        first: u64,
        /// Requests per second.
        rate: f64,
        /// The same before the trial.
        rate_before: f64,
        /// The share of errors before.
        share: f32,
        /// The logarithm of the likelihood ratio of overload to broken pages.
        evidence: f32,
    },
    /// The host has an overload at high rates.
    Overload {
        /// The first lease that was granted after the last refusal.
        first: u64,
        /// The rate that it served, requests per second.
        rate: f64,
        /// The share of broken pages.
        broken: f32,
        /// The cumulative sum.
        sum: f32,
    },
}

impl ErrorTrial {
    /// Notes an answer for `lease`, and returns whether it is a refusal. The lease `next` will be
    /// the next one, and requests may leave at `rate` per second.
    pub(super) fn is_refusal(
        &mut self,
        now: Timestamp,
        is_error: bool,
        lease: u64,
        next: u64,
        rate: f64,
    ) -> bool {
        let mut is_refusal = false;
        self.run = if is_error {
            self.run.saturating_add(1)
        } else {
            0
        };
        if self.run > OUTAGE {
            match self.stage {
                Stage::Pages => return false,
                Stage::Trial { .. } => {}
                Stage::Overload { .. } => {
                    (self.answers, self.errors) = (0, 0);
                    return false;
                }
            }
        }
        match &mut self.stage {
            Stage::Trial { first, .. } | Stage::Overload { first, .. } if lease < *first => {
                return false;
            }
            Stage::Trial {
                share, evidence, ..
            } => *evidence += ratio(is_error, FEWER * *share, *share),
            Stage::Overload {
                first, broken, sum, ..
            } => {
                let more = ratio(is_error, *broken + OF_REFUSALS, *broken);
                *sum = (*sum + more).max(0.0);
                is_refusal = *sum >= REFUSAL;
                if is_refusal {
                    (*sum, *first) = (0.0, next);
                }
            }
            Stage::Pages => {}
        }
        if self.answers == 0 {
            self.since = now;
        }
        self.answers += 1;
        self.errors += u8::from(is_error);
        match self.stage {
            Stage::Trial { evidence, .. } => {
                if evidence.abs() >= SURE || self.answers >= ANSWERS_MAX {
                    self.end_trial();
                }
            }
            _ if self.answers < WINDOW => {}
            Stage::Pages => self.end_window(now, next, rate),
            Stage::Overload { .. } => self.end_overload_window(now),
        }
        is_refusal
    }

    fn end_window(&mut self, now: Timestamp, next: u64, rate: f64) {
        let errors = f32::from(self.errors);
        let before = self.usual;
        self.usual = if before > 0.0 {
            before + (errors - before) / 4.0
        } else {
            errors
        };
        self.wait = self.wait.saturating_sub(1);
        let length = now.since(self.since).as_secs_f64();
        (self.answers, self.errors) = (0, 0);
        let is_new = self.wait == 0 || errors >= before + MORE_ERRORS;
        if errors < ERRORS_MIN || !is_new || length <= 0.0 {
            return;
        }
        let window = f32::from(WINDOW);
        let rate_before = rate.min(f64::from(WINDOW - 1) / length);
        let of_pages = f64::from(1.0 - errors / window);
        self.stage = Stage::Trial {
            first: next,
            rate: rate_before * (of_pages * SLOWER).max(SLOWEST),
            rate_before,
            share: ((errors.min(self.usual) - SELECTED) / window).clamp(0.05, 0.95),
            evidence: 0.0,
        };
    }

    fn end_trial(&mut self) {
        let Stage::Trial {
            rate,
            rate_before,
            evidence,
            ..
        } = self.stage
        else {
            return;
        };
        if evidence >= SURE {
            self.stage = Stage::Overload {
                first: 0,
                rate,
                broken: f32::from(self.errors + 1) / f32::from(self.answers + 8),
                sum: 0.0,
            };
        } else {
            let windows = f64::from(self.answers) / f64::from(WINDOW) * rate_before / rate;
            self.stage = Stage::Pages;
            self.wait = (windows * WAIT * f64::from(1 << self.refuted)) as u16;
            self.refuted = self.refuted.saturating_add(1).min(DOUBLINGS_MAX);
        }
        (self.answers, self.errors) = (0, 0);
    }

    fn end_overload_window(&mut self, now: Timestamp) {
        let share = f32::from(self.errors) / f32::from(WINDOW);
        let length = now.since(self.since).as_secs_f64();
        (self.answers, self.errors) = (0, 0);
        if let Stage::Overload { rate, broken, .. } = &mut self.stage {
            let is_slow = f64::from(WINDOW - 1) <= *rate * length;
            if is_slow || share < *broken {
                *broken += (share.max(0.02) - *broken) * FOLLOWS;
            }
        }
    }

    /// Returns whether errors may be refusals.
    pub(super) const fn is_overload(&self) -> bool {
        matches!(self.stage, Stage::Overload { .. })
    }

    /// Returns the rate of the trial under way, requests per second.
    #[inline]
    pub(super) fn rate(&self) -> Option<f64> {
        match self.stage {
            Stage::Trial { rate, .. } => Some(rate),
            Stage::Pages | Stage::Overload { .. } => None,
        }
    }

    /// Returns whether answers could have led to this state. Restored bytes may be anything.
    pub(super) fn is_plausible(&self) -> bool {
        let is_share = |share: f32| (0.0..=0.96).contains(&share);
        let (most, is_stage) = match self.stage {
            Stage::Pages => (WINDOW, true),
            Stage::Trial {
                rate,
                rate_before,
                share,
                evidence,
                ..
            } => {
                let is_rate = rate > 0.0 && rate <= rate_before && rate_before.is_finite();
                (
                    ANSWERS_MAX,
                    is_rate && is_share(share) && evidence.abs() < SURE,
                )
            }
            Stage::Overload {
                first: _,
                rate,
                broken,
                sum,
            } => {
                let is_rate = rate > 0.0 && rate.is_finite();
                let is_sum = (0.0..REFUSAL).contains(&sum);
                (WINDOW, is_rate && is_sum && is_share(broken))
            }
        };
        is_stage
            && self.answers < most
            && self.errors <= self.answers
            && self.refuted <= DOUBLINGS_MAX
            && (0.0..=f32::from(WINDOW)).contains(&self.usual)
    }

    /// Returns an order of states, for merging.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let stage = match self.stage {
            Stage::Pages => (0, 0, 0, 0, 0),
            Stage::Trial {
                first,
                rate,
                rate_before: _,
                share,
                evidence,
            } => (
                1,
                first,
                rate.to_bits(),
                share.to_bits(),
                evidence.to_bits(),
            ),
            Stage::Overload {
                first: _,
                rate,
                broken,
                sum,
            } => (2, 0, rate.to_bits(), broken.to_bits(), sum.to_bits()),
        };
        let window = (self.answers, self.errors, self.since, self.usual.to_bits());
        (stage, window, self.run, self.refuted, self.wait)
    }
}

/// Returns the logarithm of the ratio of an answer's likelihoods, if errors have the one or the
/// other share.
fn ratio(is_error: bool, one: f32, other: f32) -> f32 {
    let one = one.min(0.98);
    if is_error {
        libm::logf(one / other)
    } else {
        libm::logf((1.0 - one) / (1.0 - other))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Rng;

    #[derive(Debug, Default)]
    struct Seen {
        /// How often the host became an overloaded one.
        overloads: u32,
        refusals: u32,
        slower: u32,
        last: ErrorTrial,
    }

    /// Sends requests at the rate that the trial allows, at most `rate`. Each fails with the share
    /// that `fails` returns for the rate.
    fn run(rate: f64, requests: u64, seed: u64, fails: impl Fn(f64) -> f64) -> Seen {
        let (mut now, mut rng) = (Timestamp::from_micros(1), Rng::new(seed));
        let (mut seen, mut trial) = (Seen::default(), ErrorTrial::default());
        for lease in 0..requests {
            let sent = trial.rate().unwrap_or(rate);
            seen.slower += u32::from(sent < rate);
            now = now + Duration::from_secs_f64(1.0 / sent);
            let is_error = rng.unit() < fails(sent);
            let was_overload = trial.is_overload();
            let is_refusal = trial.is_refusal(now, is_error, lease, lease + 1, rate);
            seen.refusals += u32::from(is_refusal);
            seen.overloads += u32::from(trial.is_overload() && !was_overload);
            assert!(trial.is_plausible(), "{trial:?}");
        }
        seen.last = trial;
        seen
    }

    /// Sends 1,000 requests, of which some fail.
    fn run_at_times(fails: impl Fn(u64) -> bool) -> Seen {
        let at = std::cell::Cell::new(0);
        run(10.0, 1_000, 1, |_| {
            let lease = at.replace(at.get() + 1);
            f64::from(fails(lease))
        })
    }

    #[test]
    fn errors_that_fewer_requests_avoid_are_refusals() {
        let mut missed = 0;
        for (seed, over) in (0..400).zip([1.5, 2.0, 3.0, 4.0].into_iter().cycle()) {
            let fails = |rate: f64| (1.0 - 10.0 / rate).max(0.0);
            let seen = run(10.0 * over, 180, seed, fails);
            missed += u32::from(seen.refusals == 0);
            assert!(seen.slower <= 120, "{over}, seed {seed}: {seen:?}");
        }
        assert!(missed <= 8, "{missed} of 400 overloaded hosts");
    }

    #[test]
    fn errors_at_any_rate_are_those_of_pages() {
        for share in [0.2, 0.3, 0.35, 0.5, 0.9] {
            let (mut wrong, mut slower) = (0, 0);
            for seed in 0..100 {
                let seen = run(10.0, 2_000, seed, |_| share);
                wrong += u32::from(seen.refusals > 0);
                slower += seen.slower;
            }
            assert!(wrong <= 4, "{wrong} of 100 hosts with {share} of bad pages");
            assert!(slower <= 100 * 120, "{slower} of 200,000 requests, {share}");
        }
    }

    #[test]
    fn an_outage_begins_no_trial() {
        let seen = run_at_times(|lease| (100..130).contains(&(lease % 200)));
        assert_eq!((seen.slower, seen.overloads), (0, 0));
    }

    #[test]
    fn few_errors_begin_no_trial() {
        let seen = run(10.0, 5_000, 1, |_| 0.05);
        assert_eq!((seen.slower, seen.refusals), (0, 0));
    }

    /// The host has some broken pages, which are no refusals once it has no more than it can serve.
    #[test]
    fn broken_pages_of_an_overloaded_host_stay_broken_pages() {
        for seed in 0..20 {
            let fails = |rate: f64| (1.0 - 9.5 / rate).max(0.05);
            let found = run(20.0, 180, seed, fails);
            assert!(found.last.is_overload(), "seed {seed}: {found:?}");
            let (mut trial, mut rng) = (found.last, Rng::new(seed));
            let refusals = (0..2_000).filter(|&lease| {
                let is_error = rng.unit() < 0.05;
                trial.is_refusal(Timestamp::from_micros(1), is_error, lease, lease, 9.0)
            });
            let refusals = refusals.count();
            assert!(refusals <= 30, "{refusals} of some 100 broken pages");
        }
    }

    #[test]
    fn refusals_that_fewer_requests_do_not_end_are_broken_pages() {
        let mut trial = ErrorTrial {
            stage: Stage::Overload {
                first: 0,
                rate: 10.0,
                broken: 0.05,
                sum: 0.0,
            },
            ..ErrorTrial::default()
        };
        let mut rng = Rng::new(1);
        let refusals = (0..2_000).filter(|&lease| {
            let is_error = rng.unit() < 0.5;
            let now = Timestamp::from_micros(lease * 101_000);
            trial.is_refusal(now, is_error, lease, lease, 10.0)
        });
        let (early, late): (Vec<_>, Vec<_>) = refusals.partition(|lease| *lease < 500);
        assert!(!early.is_empty());
        assert!(late.len() <= 15, "{late:?}");
    }
}
