//! Retry budgets: they bound the share of retries in all requests.
//!
//! Backoff spreads retries in time but does not bound them. If every request fails three times, an
//! overloaded server gets four times its load. A budget bounds the share. Every served request pays
//! in a part of a retry ([`BudgetRule`]'s ratio). Time pays in a small reserve, so that a quiet key
//! may retry at all. Every retry takes out a whole one. While most requests succeed, the budget
//! does not bind. When most fail, retries fall to the ratio (Finagle and Linkerd: 20 % and 10/s, 10
//! s deep; AWS and gRPC A6: 0.1 per success).
//!
//! In any time in which `s` requests were served and `t` seconds passed, at most
//! `depth + ratio x s + reserve x t` retries leave. A retry that is delayed (see [`withdraw`])
//! leaves up to `patience` after it was granted. For such retries, `s` and `t` count from
//! `patience` before. The reserve is paid in by the clock, not by a timer. However long a key was
//! idle, one multiplication brings its budget up to date, and never above the depth.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// One retry, in the unit of budgets. The unit is an integer, so that no sum depends on the order
/// of its parts.
const RETRY: i64 = 1_000_000_000;

/// How much a budget earns and holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRule {
    /// Income per served request, in billionths of a retry.
    per_served: i64,
    /// Income per microsecond, in billionths of a retry. This equals thousandths of a retry per
    /// second.
    per_micro: i64,
    /// The most that a budget holds, in billionths of a retry.
    depth: i64,
}

/// Why a budget rule is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBudget {
    /// The ratio is outside `0..=1000`.
    #[error("a retry budget's ratio must be between 0 and 1000 retries per served request")]
    Ratio,
    /// The reserve is outside `0..=1e6`.
    #[error("a retry budget's reserve must be between 0 and 1,000,000 retries per second")]
    Reserve,
    /// The depth is outside `1..=1e9`.
    #[error("a retry budget must hold between 1 and 1,000,000,000 retries")]
    Depth,
}

impl BudgetRule {
    /// The rule for one key: a fifth of its requests plus one retry per second, at most ten at
    /// once. Finagle's reserve of 10/s would never bind below a crawler's usual 1 to 10 requests
    /// per second.
    pub const PER_KEY: Self = Self {
        per_served: RETRY / 5,
        per_micro: 1000,
        depth: 10 * RETRY,
    };
    /// The rule for all keys of a process together, with Finagle's numbers: 20 %, 10 per second,
    /// ten seconds deep.
    pub const GLOBAL: Self = Self {
        per_served: RETRY / 5,
        per_micro: 10_000,
        depth: 100 * RETRY,
    };

    /// Returns a rule that earns `ratio` retries per served request and `reserve_per_s` retries per
    /// second, and saves up to `depth` retries.
    ///
    /// Usual ratios are 0.1 and 0.2. The reserve counts in steps of 0.001 per second, rounded down.
    pub fn new(ratio: f64, reserve_per_s: f64, depth: f64) -> Result<Self, InvalidBudget> {
        if !(0.0..=1000.0).contains(&ratio) {
            return Err(InvalidBudget::Ratio);
        }
        if !(0.0..=1e6).contains(&reserve_per_s) {
            return Err(InvalidBudget::Reserve);
        }
        if !(1.0..=1e9).contains(&depth) {
            return Err(InvalidBudget::Depth);
        }
        let retry = RETRY as f64;
        Ok(Self {
            per_served: (ratio * retry) as i64,
            per_micro: (reserve_per_s * 1e3) as i64,
            depth: (depth * retry) as i64,
        })
    }

    /// Returns a rule that earns and saves as much as this one and `other` do.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        Self {
            per_served: self.per_served.max(other.per_served),
            per_micro: self.per_micro.max(other.per_micro),
            depth: self.depth.max(other.depth),
        }
    }
}

/// The retries that a key, or the whole process, may still spend. It has 16 bytes; its rule is
/// stored once elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Billionths of a retry. Below zero if retries were granted from income that time has yet to
    /// pay in.
    saved: i64,
    /// The time until which the reserve is paid in.
    at: Timestamp,
}

/// A budget with its rule.
#[derive(Debug)]
pub struct Account<'a> {
    /// The retries to spend.
    pub budget: &'a mut Budget,
    /// The income of the budget.
    pub rule: &'a BudgetRule,
}

impl Budget {
    /// A budget that is full under every rule.
    pub const UNTOUCHED: Self = Self {
        saved: i64::MAX,
        at: Timestamp::ZERO,
    };

    /// Returns a full budget, so that a key's first failures may all be retried.
    pub const fn full(rule: &BudgetRule, now: Timestamp) -> Self {
        Self {
            saved: rule.depth,
            at: now,
        }
    }

    /// Pays in for one served request.
    pub fn deposit(&mut self, rule: &BudgetRule, now: Timestamp) {
        self.bring_up_to(rule, now);
        self.saved = self.saved.saturating_add(rule.per_served).min(rule.depth);
    }

    /// Returns the whole retries that could leave at `now`.
    pub fn available(&self, rule: &BudgetRule, now: Timestamp) -> u64 {
        let mut then = *self;
        then.bring_up_to(rule, now);
        u64::try_from(then.saved / RETRY).unwrap_or(0)
    }

    /// Pays in the reserve until `now`.
    ///
    /// A clock that steps back pays nothing, and pays no time twice when it moves forward again. A
    /// smaller depth, set while running, counts from now on.
    fn bring_up_to(&mut self, rule: &BudgetRule, now: Timestamp) {
        let elapsed = i64::try_from(now.micros_since(self.at)).unwrap_or(i64::MAX);
        self.saved = self
            .saved
            .saturating_add(elapsed.saturating_mul(rule.per_micro))
            .min(rule.depth);
        self.at = self.at.max(now);
    }

    /// Returns how long until time alone has paid in a whole retry, or `None` if it never will.
    fn wait(&self, rule: &BudgetRule) -> Option<Duration> {
        let missing = RETRY.saturating_sub(self.saved).max(0);
        match (missing, rule.per_micro) {
            (0, _) => Some(Duration::ZERO),
            (_, 0) => None,
            (missing, per_micro) => Some(Duration::from_micros(
                (missing as u64).div_ceil(per_micro as u64),
            )),
        }
    }
}

/// Takes one retry out of every account, or out of none. Returns how long the retry must wait until
/// all accounts can pay for it.
///
/// Returns `None`, and takes nothing, if that is longer than `patience`.
///
/// With zero patience this is the usual token bucket. With some patience, an empty budget is
/// overdrawn, and the retries leave one after the other as time pays in. While no request is
/// served, each caller gets a later time than the one before, so that delayed retries do not all
/// leave at once. Requests that are served meanwhile bring later callers forward, but not the
/// callers that have their time already.
pub fn withdraw(
    accounts: &mut [Account<'_>],
    patience: Duration,
    now: Timestamp,
) -> Option<Duration> {
    let mut wait = Duration::ZERO;
    for account in accounts.iter_mut() {
        account.budget.bring_up_to(account.rule, now);
        wait = wait.max(account.budget.wait(account.rule)?);
    }
    if wait > patience {
        return None;
    }
    for account in accounts.iter_mut() {
        account.budget.saved = account.budget.saved.saturating_sub(RETRY);
    }
    Some(wait)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(ratio: f64, reserve_per_s: f64, depth: f64) -> BudgetRule {
        BudgetRule::new(ratio, reserve_per_s, depth).unwrap()
    }

    fn take(
        budget: &mut Budget,
        rule: &BudgetRule,
        patience_s: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        withdraw(
            &mut [Account { budget, rule }],
            Duration::from_secs(patience_s),
            now,
        )
    }

    const fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_budget_is_small() {
        assert_eq!(size_of::<Budget>(), 16);
    }

    #[test]
    fn ten_served_requests_pay_for_one_retry() {
        let rule = rule(0.1, 0.0, 2.0);
        let mut budget = Budget::full(&rule, at(0));
        assert_eq!(
            [(); 3].map(|()| take(&mut budget, &rule, 0, at(0)).is_some()),
            [true, true, false]
        );
        for _ in 0..9 {
            budget.deposit(&rule, at(1));
        }
        assert_eq!(take(&mut budget, &rule, 0, at(1)), None);
        budget.deposit(&rule, at(1));
        assert_eq!(take(&mut budget, &rule, 0, at(1)), Some(Duration::ZERO));
        assert_eq!(
            take(&mut budget, &rule, u64::MAX, at(1)),
            None,
            "without a reserve no patience helps"
        );
    }

    #[test]
    fn an_idle_year_saves_no_more_than_the_depth() {
        let rule = rule(0.2, 10.0, 5.0);
        let mut budget = Budget::full(&rule, at(0));
        assert_eq!(budget.available(&rule, at(365 * 86_400)), 5);
        assert_eq!(budget.available(&rule, Timestamp::NEVER), 5);
        budget.deposit(&rule, Timestamp::NEVER);
        assert_eq!(budget.available(&rule, Timestamp::NEVER), 5);
    }

    /// Regression: after the clock stepped back an hour and forward again, the budget was paid for
    /// that hour twice.
    #[test]
    fn a_clock_that_steps_back_pays_nothing_twice() {
        let rule = rule(0.0, 1.0, 100.0);
        let mut budget = Budget::full(&rule, at(1000));
        for _ in 0..100 {
            assert!(take(&mut budget, &rule, 0, at(1000)).is_some());
        }
        budget.deposit(&rule, at(0));
        assert_eq!(budget.available(&rule, at(1000)), 0);
        assert_eq!(budget.available(&rule, at(1001)), 1);
    }

    #[test]
    fn retries_put_off_come_one_after_the_other() {
        let rule = rule(0.1, 0.5, 1.0);
        let mut budget = Budget::full(&rule, at(0));
        let waits: Vec<_> = (0..5)
            .map(|_| take(&mut budget, &rule, 6, at(0)).map(|wait| wait.as_secs()))
            .collect();
        assert_eq!(waits, [Some(0), Some(2), Some(4), Some(6), None]);

        // A third of 10^9 µs is not a whole number. The wait is a microsecond too long, never too
        // short.
        let slow = self::rule(0.0, 0.003, 1.0);
        let mut budget = Budget::full(&slow, at(0));
        let wait = [(); 2].map(|()| take(&mut budget, &slow, 1000, at(0)))[1];
        assert_eq!(wait, Some(Duration::from_micros(333_333_334)));
    }

    #[test]
    fn both_pay_or_neither() {
        let (rich_rule, poor_rule) = (rule(0.1, 0.0, 5.0), rule(0.1, 0.0, 1.0));
        let (mut rich, mut poor) = (
            Budget::full(&rich_rule, at(0)),
            Budget::full(&poor_rule, at(0)),
        );
        let mut both = || {
            let accounts = &mut [
                Account {
                    budget: &mut rich,
                    rule: &rich_rule,
                },
                Account {
                    budget: &mut poor,
                    rule: &poor_rule,
                },
            ];
            withdraw(accounts, Duration::ZERO, at(0)).is_some()
        };
        assert_eq!([both(), both(), both()], [true, false, false]);
        assert_eq!(rich.available(&rich_rule, at(0)), 4);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for ratio in [-0.1, f64::NAN, 1e4] {
            assert_eq!(BudgetRule::new(ratio, 1.0, 1.0), Err(InvalidBudget::Ratio));
        }
        assert_eq!(
            BudgetRule::new(0.1, f64::INFINITY, 1.0),
            Err(InvalidBudget::Reserve)
        );
        assert_eq!(BudgetRule::new(0.1, 1.0, 0.5), Err(InvalidBudget::Depth));
        assert_eq!(BudgetRule::new(0.2, 1.0, 10.0), Ok(BudgetRule::PER_KEY));
        assert_eq!(BudgetRule::new(0.2, 10.0, 100.0), Ok(BudgetRule::GLOBAL));
    }

    proptest! {
        /// The bound of the module's third paragraph, over every window of a random history.
        #[test]
        fn retries_never_exceed_what_was_paid_in(
            ratio in 0.0_f64..1.0,
            reserve_per_s in 0.0_f64..20.0,
            depth in 1.0_f64..20.0,
            patience_s in prop_oneof![Just(0_u64), 1_u64..100],
            steps in prop::collection::vec((any::<bool>(), prop_oneof![Just(0_u64), 0_u64..3_000_000]), 1..120),
        ) {
            let rule = rule(ratio, reserve_per_s, depth);
            let mut budget = Budget::full(&rule, Timestamp::ZERO);
            let (mut now, mut served, mut left) = (0_u64, Vec::new(), Vec::new());
            for (serve, pass) in steps {
                now += pass;
                let at = Timestamp::from_micros(now);
                if serve {
                    budget.deposit(&rule, at);
                    served.push(now);
                } else if let Some(wait) = take(&mut budget, &rule, patience_s, at) {
                    left.push((at + wait).as_micros());
                }
            }
            left.sort_unstable();
            // The windows in which most retries left begin and end with a retry.
            let patience = Duration::from_secs(patience_s).as_micros() as u64;
            for (i, &first) in left.iter().enumerate() {
                let from = first.saturating_sub(patience);
                for (j, &to) in left.iter().enumerate().skip(i) {
                    let paid = served.iter().filter(|&&when| from <= when && when <= to).count() as f64;
                    let most = depth + ratio * paid + reserve_per_s * (to - from) as f64 / 1e6;
                    prop_assert!((j - i + 1) as f64 <= most + 1e-6, "{} > {most}", j - i + 1);
                }
            }
        }
    }
}
