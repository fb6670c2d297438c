//! The retries of one client: the outages of its hosts, and the retry budgets, one per key and one
//! for all keys.
//!
//! A key without an entry is in no trouble and has a full budget. So a client that meets a million
//! hosts keeps a handful of entries.

use std::hash::BuildHasher;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely_core::fault::{Company, Outage, Verdict};
use politely_core::host::Directions;
use politely_core::key::Key;
use politely_core::retry::{Account, Attempt, Budget, BudgetRule, Next, Policy};
use politely_core::signal::Report;
use politely_core::{Rng, Timestamp};

/// The maximum number of keys in trouble. Beyond it all of them begin anew, and the global budget
/// still applies.
const KEYS_MAX: usize = 1 << 16;

/// The retries of one client.
pub struct Retries {
    per_key: BudgetRule,
    global: BudgetRule,
    state: Mutex<State>,
}

struct State {
    global: Budget,
    keys: HashMap<Key, InTrouble, foldhash::fast::RandomState>,
    /// Larger than the count of each outage that was forgotten.
    forgotten: u64,
    rng: Rng,
}

/// A key with recent failures.
struct InTrouble {
    budget: Budget,
    outage: Outage,
}

impl Retries {
    /// Creates retries with budgets that are all full.
    pub fn new(per_key: BudgetRule, global: BudgetRule, now: Timestamp) -> Self {
        let hasher = foldhash::fast::RandomState::default();
        let rng = Rng::new(hasher.hash_one(0_u8));
        Self {
            per_key,
            global,
            state: Mutex::new(State {
                global: Budget::full(&global, now),
                keys: HashMap::with_hasher(hasher),
                forgotten: 0,
                rng,
            }),
        }
    }

    /// Decides about a retry with [`Policy::judge`] and [`Policy::decide`], and charges the budget
    /// of `key` and the global budget. `directions` are the answer to `report`.
    pub fn decide(
        &self,
        policy: &Policy,
        attempt: &mut Attempt,
        report: &Report,
        directions: &Directions,
        key: &Key,
        now: Timestamp,
    ) -> Next {
        let State {
            global,
            keys,
            forgotten,
            rng,
        } = &mut *self.state.lock();
        let (per_key, of_all) = policy.budgets(self.per_key, self.global);
        let full = Budget::full(&per_key, now);
        let mut new = InTrouble {
            budget: full,
            outage: Outage::resumed(*forgotten, directions.has_served),
        };
        let known = keys.get_mut(key);
        let is_new = known.is_none();
        let InTrouble { budget, outage } = known.unwrap_or(&mut new);
        let verdict = if policy.is_served(report) && !directions.doubts(report) {
            outage.served();
            Verdict::Host
        } else {
            policy.judge(outage, attempt, report, directions, Company::Unknown, now)
        };
        let accounts = &mut [
            Account {
                budget,
                rule: &per_key,
            },
            Account {
                budget: global,
                rule: &of_all,
            },
        ];
        let next = policy.decide(attempt, report, verdict, accounts, rng, now);
        let whole = full.available(&per_key, now);
        let is_well = !outage.in_trouble() && budget.available(&per_key, now) == whole;
        match (is_well, is_new) {
            (true, true) | (false, false) => {}
            (true, false) => {
                *forgotten = (*forgotten).max(outage.count() + 1);
                keys.remove(key);
            }
            (false, true) => {
                if keys.len() >= KEYS_MAX {
                    let counts = keys.values().map(|known| known.outage.count() + 1);
                    *forgotten = counts.fold(*forgotten, u64::max);
                    keys.clear();
                }
                keys.insert(key.clone(), new);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use politely_core::retry::GiveUpReason;
    use politely_core::signal::{Resource, Signal};

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn failed(url: &str) -> Report {
        Report {
            status: Some(502),
            resource: Some(Resource::of(url)),
            ..Report::of(Signal::Overloaded)
        }
    }

    /// Decides about an attempt at `now`, on a host that served before.
    fn decide(retries: &Retries, attempt: &mut Attempt, report: &Report, now: Timestamp) -> Next {
        let (policy, key) = (Policy::crawler(), Key::host("a.example").unwrap());
        let directions = Directions::unknown(now);
        retries.decide(&policy, attempt, report, &directions, &key, now)
    }

    #[test]
    fn a_key_spends_its_own_budget_and_then_gets_no_more() {
        let rule = BudgetRule::new(0.0, 0.0, 2.0).unwrap();
        let retries = Retries::new(rule, BudgetRule::GLOBAL, at(0));
        let policy = Policy::crawler();
        let decide = |name: &str| {
            let (key, mut attempt) = (Key::host(name).unwrap(), Attempt::first(Method::GET));
            let directions = Directions::unknown(at(0));
            retries.decide(
                &policy,
                &mut attempt,
                &failed("a"),
                &directions,
                &key,
                at(0),
            )
        };
        for _ in 0..2 {
            assert!(matches!(decide("a.example"), Next::Retry { .. }));
        }
        let spent = Next::GiveUp(GiveUpReason::BudgetSpent);
        assert_eq!(decide("a.example"), spent);
        assert!(matches!(decide("b.example"), Next::Retry { .. }));
    }

    #[test]
    fn keys_without_trouble_are_not_kept() {
        let retries = Retries::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, at(0));
        let keys_after = |report: &Report, now| {
            let mut attempt = Attempt::first(Method::GET);
            decide(&retries, &mut attempt, report, now);
            retries.state.lock().keys.len()
        };
        assert_eq!(keys_after(&Report::of(Signal::Ok), at(0)), 0);
        assert_eq!(keys_after(&failed("a"), at(0)), 1);
        assert_eq!(keys_after(&Report::of(Signal::Ok), at(60)), 0);
    }

    #[test]
    fn an_outage_costs_no_attempts_and_a_bad_page_its_own() {
        let retries = Retries::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, at(0));
        let [mut a, mut b] = [(); 2].map(|()| Attempt::first(Method::GET));
        decide(&retries, &mut a, &failed("a"), at(0));
        for secs in 1..100 {
            for (attempt, url) in [(&mut a, "a"), (&mut b, "b")] {
                let next = decide(&retries, attempt, &failed(url), at(secs));
                let is_charged = secs == 1 && url == "a";
                assert!(
                    matches!(next, Next::Retry { is_charged: was, .. } if was == is_charged),
                    "{secs}: {next:?}"
                );
            }
        }
        let mut served = Attempt::first(Method::GET);
        decide(&retries, &mut served, &Report::of(Signal::Ok), at(100));
        // Others are served between its failures.
        let mut tries = 0;
        loop {
            tries += 1;
            let next = decide(&retries, &mut b, &failed("b"), at(200 + tries));
            decide(
                &retries,
                &mut served,
                &Report::of(Signal::Ok),
                at(200 + tries),
            );
            if matches!(next, Next::GiveUp(_)) {
                break;
            }
            assert!(tries < 10, "{b:?}");
        }
    }

    #[test]
    fn a_host_that_serves_nothing_is_given_up_and_tried_anew_later() {
        let retries = Retries::new(BudgetRule::PER_KEY, BudgetRule::GLOBAL, at(0));
        let [mut a, mut b] = [(); 2].map(|()| Attempt::first(Method::GET));
        let mut next = Next::Done;
        for secs in 0..=900 {
            next = decide(&retries, &mut a, &failed("a"), at(secs));
            assert!(secs == 900 || !matches!(next, Next::GiveUp(_)), "{secs}");
            decide(&retries, &mut b, &failed("b"), at(secs));
        }
        assert!(
            matches!(next, Next::GiveUp(GiveUpReason::Host(_))),
            "{next:?}"
        );
        let mut later = Attempt::first(Method::GET);
        let next = decide(&retries, &mut later, &failed("c"), at(2_000));
        assert!(matches!(next, Next::Retry { .. }), "{next:?}");
    }
}
