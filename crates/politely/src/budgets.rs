//! The retry budgets of one client: one per key, and one for all keys.
//!
//! A missing budget counts as full, so only keys with recent retries have an entry. A client that
//! meets a million hosts keeps a handful of budgets.

use std::hash::BuildHasher;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely_core::key::Key;
use politely_core::retry::{Account, Attempt, Budget, BudgetRule, Next, Policy};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};

/// The maximum number of budgets that are not full. Beyond it all of them begin anew, and the
/// global budget still applies.
const KEYS_MAX: usize = 1 << 16;

/// The retry budgets of one client.
pub struct Budgets {
    per_key: BudgetRule,
    global: BudgetRule,
    state: Mutex<State>,
}

struct State {
    global: Budget,
    keys: HashMap<Key, Budget, foldhash::fast::RandomState>,
    rng: Rng,
}

impl Budgets {
    /// Creates budgets that are all full.
    pub fn new(per_key: BudgetRule, global: BudgetRule, now: Timestamp) -> Self {
        let hasher = foldhash::fast::RandomState::default();
        let rng = Rng::new(hasher.hash_one(0_u8));
        Self {
            per_key,
            global,
            state: Mutex::new(State {
                global: Budget::full(&global, now),
                keys: HashMap::with_hasher(hasher),
                rng,
            }),
        }
    }

    /// Decides about a retry with [`Policy::decide`], and charges the budget of `key` and the
    /// global budget.
    ///
    /// Returns `None` if the request failed and cannot be sent again. Nothing is charged then.
    pub fn decide(
        &self,
        policy: &Policy,
        attempt: &Attempt,
        report: &Report,
        key: &Key,
        now: Timestamp,
        repeatable: bool,
    ) -> Option<Next> {
        if report.signal != Signal::Ok && !repeatable {
            return None;
        }
        let State { global, keys, rng } = &mut *self.state.lock();
        let full = Budget::full(&self.per_key, now);
        let mut own = keys.get(key).copied().unwrap_or(full);
        let accounts = &mut [
            Account {
                budget: &mut own,
                rule: &self.per_key,
            },
            Account {
                budget: global,
                rule: &self.global,
            },
        ];
        let next = policy.decide(attempt, report, accounts, rng, now);
        let whole = full.available(&self.per_key, now);
        if own.available(&self.per_key, now) == whole {
            keys.remove(key);
        } else if let Some(kept) = keys.get_mut(key) {
            *kept = own;
        } else {
            if keys.len() >= KEYS_MAX {
                keys.clear();
            }
            keys.insert(key.clone(), own);
        }
        Some(next)
    }

    /// Puts off one request whose failure counts against its URL only, with [`Policy::put_off`].
    #[must_use]
    pub fn put_off(&self, policy: &Policy, next: Next, attempt: &Attempt, report: &Report) -> Next {
        policy.put_off(next, attempt, report, &mut self.state.lock().rng)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use politely_core::retry::GiveUpReason;

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_key_spends_its_own_budget_and_then_gets_no_more() {
        let rule = BudgetRule::new(0.0, 0.0, 2.0).unwrap();
        let budgets = Budgets::new(rule, BudgetRule::GLOBAL, at(0));
        let policy = Policy::crawler();
        let attempt = Attempt::first(Method::GET);
        let failed = Report::of(Signal::Overloaded);
        let decide = |name: &str| {
            let key = Key::host(name).unwrap();
            budgets.decide(&policy, &attempt, &failed, &key, at(0), true)
        };
        for _ in 0..2 {
            assert!(matches!(decide("a.example"), Some(Next::Retry { .. })));
        }
        let spent = Some(Next::GiveUp(GiveUpReason::BudgetSpent));
        assert_eq!(decide("a.example"), spent);
        assert!(matches!(decide("b.example"), Some(Next::Retry { .. })));
    }

    #[test]
    fn full_budgets_are_not_kept() {
        let budgets = Budgets::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, at(0));
        let (policy, key) = (Policy::crawler(), Key::host("a.example").unwrap());
        let attempt = Attempt::first(Method::GET);
        let decide = |signal, now| {
            budgets.decide(&policy, &attempt, &Report::of(signal), &key, now, true);
            budgets.state.lock().keys.len()
        };
        assert_eq!(decide(Signal::Ok, at(0)), 0);
        assert_eq!(decide(Signal::Overloaded, at(0)), 1);
        assert_eq!(decide(Signal::Ok, at(60)), 0);
    }

    #[test]
    fn what_cannot_be_repeated_pays_nothing() {
        let budgets = Budgets::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, at(0));
        let key = Key::host("a.example").unwrap();
        let attempt = Attempt::first(Method::GET);
        let report = Report::of(Signal::Overloaded);
        let next = budgets.decide(&Policy::crawler(), &attempt, &report, &key, at(0), false);
        assert_eq!(next, None);
        assert!(budgets.state.lock().keys.is_empty());
    }
}
