//! The terms of a request for its permits, and how long it waited under them.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::host::{AcquireRequest, Reason};
use politely_core::key::Key;

use super::NotSent;
use crate::backend::local::waiters::Arrival;
use crate::error::Refusal;
use crate::limiter::{Limiter, Plan};
use crate::sync::sleep;

/// The least time for the answer of a coordinator or an engine. That is no wait for a limit.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// The conditions of a request for its permits. Put them into the extensions of a request that a
/// layer or middleware sends. The extensions of the response then have [`Waited`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The longest wait for permits and between attempts, over all attempts. Beyond it the request
    /// ends with [`NotSent::Late`], or with the last response if there is one. A coordinator or an
    /// engine has a second at least. Default: no limit.
    pub wait_max: Option<Duration>,
    /// The tokens that the request costs. 0, the default, leaves it to the policy.
    pub cost: u16,
    /// The costs in named units. Those that are not stated are left to the policy.
    pub units: UnitCosts,
    /// The priority. Each step counts like ten seconds of waiting in the queue. Default 0.
    pub priority: u8,
}

/// How long a request waited, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {}", .reason.as_deref().unwrap_or("no wait"))]
pub struct Waited {
    /// The key that it waited for longest; if it came too late, the key that refuses now. Without a
    /// wait, its first key.
    pub key: Key,
    /// The time that it waited for permits and between attempts, over all attempts.
    pub length: Duration,
    /// Why it waited, in words. `None` if it did not wait.
    pub reason: Option<String>,
    /// The time until the key may grant again, if that is known.
    pub again: Option<Duration>,
}

/// The waiting of one request, over all its attempts.
pub(super) struct Waiting<'a> {
    limiter: &'a Limiter,
    terms: Option<&'a Terms>,
    waited: Waited,
    /// The longest of its waits, which `waited` names.
    longest: Duration,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(limiter: &'a Limiter, terms: Option<&'a Terms>, key: &Key) -> Self {
        Self {
            limiter,
            terms,
            waited: Waited {
                key: key.clone(),
                length: Duration::ZERO,
                reason: None,
                again: None,
            },
            longest: Duration::ZERO,
        }
    }

    pub(super) fn priority(&self) -> u8 {
        self.terms.map_or(0, |terms| terms.priority)
    }

    /// Returns the costs that the terms state, and those of the plan for the others.
    pub(super) fn ask(&self, plan: &Plan) -> AcquireRequest {
        let Some(terms) = self.terms else {
            return plan.ask().clone();
        };
        plan.costing(AcquireRequest {
            cost: terms.cost.max(1),
            units: terms.units.clone(),
            ..AcquireRequest::default()
        })
    }

    /// Returns what to tell with the response, if the request had terms.
    pub(super) fn into_waited(self) -> Option<Waited> {
        self.terms.is_some().then_some(self.waited)
    }

    /// Returns whether the request may wait until `at`.
    pub(super) fn reaches(&self, at: Timestamp) -> bool {
        self.rest()
            .is_none_or(|rest| at.since(self.limiter.now()) <= rest)
    }

    /// Returns how much longer the request may wait, or `None` if its terms do not say it. The time
    /// in which it was sent does not count.
    fn rest(&self) -> Option<Duration> {
        let wait_max = self.terms?.wait_max?;
        Some(wait_max.saturating_sub(self.waited.length))
    }

    /// Runs `wait`, which ends with a permit or after a pause, as long as the terms allow.
    pub(super) async fn during<T>(
        &mut self,
        plan: &Plan,
        wait: impl Future<Output = T>,
    ) -> Result<T, NotSent> {
        if self.terms.is_none() {
            return Ok(wait.await);
        }
        let mut wait = pin!(wait);
        tokio::select! {
            biased;
            done = &mut wait => return Ok(done),
            () = ready(()) => {}
        }
        let began = self.limiter.now();
        let before = self.waited.clone();
        // The reason is asked for now: afterwards the key is ready.
        self.look(plan);
        let answer = ANSWER_MIN * u32::from(self.limiter.is_shared());
        let rest = self.rest().map(|rest| rest.max(answer));
        let done = tokio::select! {
            biased;
            done = &mut wait => Some(done),
            () = sleep(rest.unwrap_or_default()), if rest.is_some() => None,
        };
        let length = self.limiter.now().since(began);
        if let Some(done) = done {
            if length < self.longest {
                self.waited = before;
            }
            self.longest = self.longest.max(length);
            self.waited.length += length;
            self.waited.again = None;
            return Ok(done);
        }
        self.waited.length += length;
        self.look(plan);
        Err(NotSent::Late(self.waited.clone()))
    }

    /// Notes which key refuses now, and why.
    fn look(&mut self, plan: &Plan) {
        let now = self.limiter.now();
        let keys = plan.keys().as_slice();
        let explained = keys.iter().find_map(|key| {
            let explained = self.limiter.explain(key)?;
            let wait = explained.wait?;
            // A slot returns with a report, long before its lease ends.
            let is_known = wait.reason != Reason::InFlight && wait.at != Timestamp::NEVER;
            Some((
                key.clone(),
                explained.line(now),
                is_known.then_some(wait.at),
            ))
        });
        let found = explained.or_else(|| {
            // Every key would grant a request that costs less.
            let is_shared = self.limiter.is_shared();
            let refused = (!is_shared).then(|| self.refused(plan)).flatten()?;
            let at = (refused.at != Timestamp::NEVER).then_some(refused.at);
            Some((refused.key, refused.reason.to_string(), at))
        });
        let waited = &mut self.waited;
        if let Some((key, reason, at)) = found {
            waited.key = key;
            waited.reason = Some(reason);
            waited.again = at.map(|at| at.since(now));
        } else if waited.reason.is_none() {
            let by = if self.limiter.is_shared() {
                "waits for the coordinator or the engine"
            } else {
                "waits before its next attempt"
            };
            let trouble = self.limiter.last_error();
            waited.reason = trouble.or_else(|| Some(by.to_owned()));
        }
    }

    fn refused(&self, plan: &Plan) -> Option<Refusal> {
        let (ask, before_all) = (self.ask(plan), Arrival::from_micros(0));
        let tried = self.limiter.try_in_turn(plan.keys(), ask, before_all);
        // A permit that is granted just now is given back: the request has its place in the queue.
        tried.err()
    }
}
