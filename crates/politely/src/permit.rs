//! Permits.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::{LeaseId, Rate};
use politely_core::host::Directions;
use politely_core::key::Key;
use politely_core::retry::Attempt;
use politely_core::signal::{Outcome, Report, Signal};

use crate::backend::local::part::{Part, release, teach};
use crate::backend::operations::Later;
pub(crate) use crate::departure::Departure;
use crate::leases::{Decision, Leases, PermitGuard};
use crate::slot::Slot;
use crate::sync::sleep;

/// The number of renewals per lease. If one is late, the next is still in time.
pub(crate) const RENEWALS: u32 = 3;
/// The minimum time between two renewals.
pub(crate) const RENEW_PAUSE_MIN: Duration = Duration::from_millis(10);

/// A permit to send one request now. It holds its in-flight slots until it is reported.
///
/// Dropping it without a report gives its slots back. It gives its tokens back too, unless
/// [`Permit::sent`] was called.
#[must_use = "a permit that is dropped gives its slot back"]
#[derive(Debug)]
pub struct Permit {
    leases: Leases,
    departure: Departure,
}

impl Permit {
    /// Creates a permit from the grant of one key.
    #[inline(always)]
    pub(crate) const fn of(part: Part, departure: Departure) -> Self {
        Self {
            leases: Leases::One(part),
            departure,
        }
    }

    /// Marks the permit as granted by all keys.
    pub(crate) const fn given(&mut self) {
        self.departure.given = true;
    }

    /// Adds the grant of another key to the same request.
    pub(crate) fn add(&mut self, mut other: Self) {
        let mut parts = self.leases.take().into_parts();
        parts.append(&mut other.leases.take().into_parts());
        self.leases = Leases::Parts(parts);
    }

    /// Returns the leases of keys in this process.
    pub(crate) fn parts(&self) -> &[Part] {
        self.leases.parts()
    }

    /// Moves the first part behind the next `before` parts. The parts then have the order of the
    /// requested keys.
    pub(crate) fn put_in_order(&mut self, before: usize) {
        if let Leases::Parts(parts) = &mut self.leases {
            parts[..=before].rotate_left(1);
        }
    }

    /// Creates a permit of a coordinator or an engine.
    pub(crate) fn guarded(leases: Box<dyn PermitGuard>, departure: Departure) -> Self {
        Self {
            leases: Leases::Shared(leases),
            departure,
        }
    }

    /// Adds the permit of keys that this process limits alone to one of shared keys.
    pub(crate) fn with_own(mut self, mut own: Self) -> Self {
        let parts = own.leases.take().into_parts();
        self.leases = match self.leases.take() {
            Leases::Shared(guard) => Leases::Both(Box::new((guard, parts))),
            Leases::Both(mut both) => {
                both.1.extend(parts);
                Leases::Both(both)
            }
            local => Leases::Parts([local.into_parts(), parts].into_iter().flatten().collect()),
        };
        self
    }

    /// Returns when the request may leave: now, unless a reservation ahead was requested.
    pub const fn start(&self) -> Timestamp {
        self.departure.start
    }

    /// Returns the number of granted departures, [`Permit::interval`] apart: 1 unless more were
    /// requested.
    pub const fn slots(&self) -> u16 {
        self.departure.slots
    }

    /// Returns whether a key could not grant it at once. A wait for the answer of an engine does
    /// not count. It is always `false` with a coordinator.
    pub const fn has_waited(&self) -> bool {
        self.departure.has_waited
    }

    /// Notes that a key could not grant it at once.
    pub(crate) const fn waited(&mut self) {
        self.departure.has_waited = true;
    }

    /// Returns the rate of the first key, in requests per second.
    pub(crate) const fn rate(&self) -> f64 {
        self.departure.rate
    }

    /// Returns the time from one departure to the next, at the rate at the time of the grant.
    pub fn interval(&self) -> Duration {
        Rate::per_second(self.departure.rate).interval()
    }

    /// Returns the time after the start at which the slot returns by itself.
    pub fn lease(&self) -> Duration {
        let lease = |part: &Part| part.with(|entry| entry.config.lease);
        let own = self.parts().iter().filter_map(lease);
        let shared = self.leases.shared().map(PermitGuard::lease);
        own.chain(shared).min().unwrap_or_default()
    }

    /// Returns the keys and leases of this permit, for [`Limiter::adopt`](crate::Limiter::adopt).
    ///
    /// The outcome is reported to the first key. With several departures, these are the leases of
    /// the first one, and each later departure has the next number. Without an engine the list is
    /// empty.
    pub fn leases(&self) -> Vec<(Key, LeaseId)> {
        self.leases
            .shared()
            .map_or_else(Vec::new, PermitGuard::leases)
    }

    /// Splits the permit into one permit per departure.
    pub fn split(mut self) -> impl Iterator<Item = Self> {
        let run = self.departure;
        // All parts are collected now: a permit that is never taken is dropped, and its slot
        // returns.
        let parts: Vec<Leases> = match self.leases.take() {
            Leases::Shared(guard) => guard.split().into_iter().map(Leases::Shared).collect(),
            // A request with several keys gets one departure.
            both @ Leases::Both(_) => vec![both],
            local => (0..run.slots).map(|i| local.nth(i)).collect(),
        };
        let each = (0..).zip(parts).map(move |(i, leases)| Self {
            leases,
            departure: run.nth(i),
        });
        each.collect::<Vec<_>>().into_iter()
    }

    /// Drops the permit without a report. Its leases expire by themselves.
    pub fn abandon(mut self) {
        self.leases.take().abandon();
    }

    /// Marks the request as leaving. If the permit is dropped from now on, its token stays spent.
    pub fn sent(&mut self) {
        self.departure.sent = true;
        if let Some(guard) = self.leases.shared_mut() {
            guard.sent();
        }
    }

    /// Returns whether a coordinator's rules read the bodies of good answers.
    pub fn needs_body(&self) -> bool {
        self.leases.shared().is_some_and(PermitGuard::needs_body)
    }

    /// Returns whether a coordinator has the rules, and so the costs of the request.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "attempts ask")
    )]
    pub(crate) fn is_ruled_elsewhere(&self) -> bool {
        let guard = self.leases.shared();
        guard.is_some_and(PermitGuard::is_ruled_elsewhere)
    }

    /// Adds the answer to the report, for rules of a coordinator. Returns the meaning that a rule
    /// gives it, if the rules read its body: await it after the report.
    pub fn show(
        &mut self,
        outcome: &Outcome<'_>,
        attempt: &Attempt,
    ) -> Option<impl Future<Output = Option<Signal>> + Send + use<>> {
        let guard = self.leases.shared_mut()?;
        let is_read = guard.show(outcome);
        let judge = is_read.then(|| guard.judge(attempt, true)).flatten()?;
        Some(async move { judge.await?.signal })
    }

    /// Adds the answer to the report, for rules of a coordinator. Returns whether they read its
    /// body.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "attempts show answers")
    )]
    pub(crate) fn add_answer(&mut self, outcome: &Outcome<'_>) -> bool {
        let guard = self.leases.shared_mut();
        guard.is_some_and(|guard| guard.show(outcome))
    }

    /// Returns the coordinator's decision about this attempt, if a coordinator decides. Call this
    /// before the report.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "attempts ask")
    )]
    pub(crate) fn judge(
        &mut self,
        attempt: &Attempt,
        repeatable: bool,
    ) -> Option<Later<'static, Option<Decision>>> {
        self.leases.shared_mut()?.judge(attempt, repeatable)
    }

    /// Reports the outcome of the request, and returns the directions of the first key.
    ///
    /// The first key learns from the signal. The other keys only limit: their slots return and the
    /// bytes are charged. Of several departures (see [`Permit::split`]) this reports the first, and
    /// the others are given back.
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn report(self, report: &Report) -> Directions {
        if self.departure.slots > 1 {
            return self.first().report(report);
        }
        if matches!(self.leases, Leases::Shared(_) | Leases::Both(_)) {
            return self.report_shared(report);
        }
        let (first, rest) = self.parts().split_first().expect("a permit has a key");
        let now = first.shard.clock.now();
        if !rest.is_empty() {
            release(rest, report);
        }
        let directions = teach(first, now, report, |entry| {
            let mut rng = entry.rng(first.lease);
            entry
                .host
                .report(now, first.lease, report, entry.config, &mut rng)
        });
        drop(self.into_leases());
        directions
    }

    /// Reports the outcome to the shared keys. Those of this process learn nothing.
    #[inline(never)]
    fn report_shared(mut self, report: &Report) -> Directions {
        release(self.parts(), report);
        let guard = self.leases.take().into_guard();
        guard.expect("the permit has a shared key").report(report)
    }

    /// Reports the outcome as soon as the head of the response is there.
    ///
    /// The key learns from the head now. The slots stay taken until the body has come, since the
    /// server counts the request until then.
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn report_head(self, report: &Report) -> (Directions, Slot) {
        let first = self.first();
        let start = first.departure.start;
        let mut leases = first.into_leases();
        if let Some(guard) = leases.shared_mut() {
            let directions = guard.report_head(report);
            return (directions, Slot::new(leases, start));
        }
        let first = leases.parts().first().expect("a permit has a key");
        let now = first.shard.clock.now();
        let directions = teach(first, now, report, |entry| {
            let mut rng = entry.rng(first.lease);
            entry
                .host
                .on_head(now, first.lease, report, entry.config, &mut rng)
        });
        let mut slot = Slot::new(leases, now);
        if !report.used.is_empty() {
            // The further keys learn nothing, but they have limits too.
            slot.settle(&report.used);
        }
        (directions, slot)
    }

    /// Returns the time since [`Permit::start`].
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub(crate) fn age(&self) -> Duration {
        let now = if let Some(guard) = self.leases.shared() {
            guard.now()
        } else {
            let part = self.parts().first().expect("a permit has a key");
            part.shard.clock.now()
        };
        now.since(self.departure.start)
    }

    /// Returns the permit of the first departure. The others are given back.
    #[inline]
    fn first(self) -> Self {
        if self.departure.slots <= 1 {
            return self;
        }
        self.split().next().expect("a permit has a departure")
    }

    /// Takes the leases out, so that dropping the permit gives nothing back.
    #[inline]
    fn into_leases(mut self) -> Leases {
        let leases = self.leases.take();
        std::mem::forget(self);
        leases
    }

    /// Renews the leases of a long request.
    ///
    /// Returns how long they last from now, or `None` if one has expired.
    pub fn renew(&self) -> Option<Duration> {
        self.leases.renew()
    }

    /// Runs `work`, such as sending the request, and renews the leases until it ends.
    ///
    /// A lease limits how long the slots of a killed process stay taken. It does not limit how long
    /// a request may take.
    ///
    /// Cancel-safe if `work` is.
    ///
    /// # Panics
    /// Outside of a Tokio runtime whose time is enabled, if `work` is not ready at once.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let pause = (self.lease() / RENEWALS).max(RENEW_PAUSE_MIN);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep(pause) => drop(self.renew()),
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for (i, part) in self.leases.parts().iter().enumerate() {
            let now = part.shard.clock.now();
            let Departure {
                slots, sent, given, ..
            } = self.departure;
            part.with(|entry| {
                entry.stats.cancelled += u64::from(given && i == 0) * u64::from(slots);
                for (lease, unused) in self.departure.unused().of_run(part.lease, slots) {
                    let unused = (!sent).then_some(unused);
                    entry.host.cancel(now, lease, unused, entry.config);
                }
            });
        }
    }
}
