//! Permits, and the in-flight slots that they hold.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::gate::{LeaseId, Rate};
use politely_core::host::Directions;
use politely_core::key::Key;
use politely_core::retry::Attempt;
use politely_core::signal::Report;

use crate::backend::local::part::{Part, release, renew, teach};
use crate::backend::operations::Later;
pub(crate) use crate::departure::Departure;
use crate::sync::sleep;

/// The chunks of a body renew its lease this often. It is far below any sensible lease, and far
/// above the time between two chunks.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The number of renewals per lease. If one is late, the next is still in time.
const RENEWALS: u32 = 3;
/// The minimum time between two renewals.
const RENEW_PAUSE_MIN: Duration = Duration::from_millis(10);

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

/// The leases that a permit gives back when the request is over. Nearly all permits have one key.
/// They are small, since they are moved often.
#[derive(Debug)]
enum Leases {
    One(Part),
    /// The parts of several keys, or none after they were taken.
    Parts(Vec<Part>),
    /// The guard of a permit from a coordinator or an engine.
    Shared(Box<dyn PermitGuard>),
    /// The guard, and the parts of keys that this process limits alone.
    Both(Box<(Box<dyn PermitGuard>, Vec<Part>)>),
}

impl Leases {
    fn parts(&self) -> &[Part] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Parts(parts) => parts,
            Self::Shared(_) => &[],
            Self::Both(both) => &both.1,
        }
    }

    fn into_parts(self) -> Vec<Part> {
        match self {
            Self::One(part) => vec![part],
            Self::Parts(parts) => parts,
            Self::Shared(_) => Vec::new(),
            Self::Both(both) => both.1,
        }
    }

    /// Takes the parts out, so that nothing is given back on drop.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Parts(Vec::new()))
    }

    fn shared(&self) -> Option<&dyn PermitGuard> {
        match self {
            Self::Shared(guard) => Some(&**guard),
            Self::Both(both) => Some(&*both.0),
            Self::One(_) | Self::Parts(_) => None,
        }
    }

    fn shared_mut(&mut self) -> Option<&mut Box<dyn PermitGuard>> {
        match self {
            Self::Shared(guard) => Some(guard),
            Self::Both(both) => Some(&mut both.0),
            Self::One(_) | Self::Parts(_) => None,
        }
    }

    /// Returns the leases of the `i`th departure of a run.
    fn nth(&self, i: u16) -> Self {
        let part = |part: &Part| Part {
            shard: Arc::clone(&part.shard),
            lease: LeaseId(part.lease.0 + u64::from(i)),
            ..*part
        };
        match self.parts() {
            [one] => Self::One(part(one)),
            parts => Self::Parts(parts.iter().map(part).collect()),
        }
    }

    /// Gives nothing back: the leases expire by themselves.
    fn abandon(self) {
        match self {
            Self::Shared(guard) => guard.abandon(),
            Self::Both(both) => both.0.abandon(),
            Self::One(_) | Self::Parts(_) => {}
        }
    }

    /// Renews the leases, and returns how long they last from now. Returns `None` if one has
    /// expired.
    fn renew(&self) -> Option<Duration> {
        match self {
            Self::Shared(guard) => guard.renew(),
            Self::Both(both) => Some(both.0.renew()?.min(renew(&both.1)?)),
            Self::One(_) | Self::Parts(_) => renew(self.parts()),
        }
    }
}

/// The guard of a permit whose keys are not in this process. Dropping it gives the permit back.
pub(crate) trait PermitGuard: std::fmt::Debug + Send + Sync {
    /// Returns the time of the limiter's clock.
    fn now(&self) -> Timestamp;
    /// Returns the time after the start at which the slot returns by itself.
    fn lease(&self) -> Duration;
    fn sent(&mut self);
    /// Returns the time that is left of the lease, or `None` once it is over.
    fn renew(&self) -> Option<Duration>;
    fn abandon(self: Box<Self>);
    fn report(self: Box<Self>, report: &Report) -> Directions;
    /// Reports the head of a response. The slot stays taken until the guard is dropped.
    fn report_head(&mut self, report: &Report) -> Directions;
    /// Notes that `bytes` more of the body came.
    fn received(&mut self, bytes: u64);
    /// Corrects the estimated costs, after the head was reported.
    fn settle(&mut self, used: &UnitCosts);
    /// Splits the guard into one for each departure.
    fn split(self: Box<Self>) -> Vec<Box<dyn PermitGuard>>;
    /// Names the attempt in this permit's report, and returns the coordinator's decision about the
    /// request.
    ///
    /// Returns `None` if no coordinator decides. The future returns `None` if the decision does not
    /// come in time. `repeatable` tells whether the request can and may be sent again.
    fn judge(
        &mut self,
        _attempt: &Attempt,
        _repeatable: bool,
    ) -> Option<Later<'static, Option<Judged>>> {
        None
    }
    /// Returns the leases by which another process can adopt the permit.
    fn leases(&self) -> Vec<(Key, LeaseId)> {
        Vec::new()
    }
}

/// A coordinator's decision about a request that was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "coordinator"),
    expect(dead_code, reason = "a coordinator decides")
)]
pub(crate) enum Judged {
    /// The request waits this long and then acquires a permit again.
    Retry {
        /// How long it waits.
        after: Duration,
        /// Whether the attempt counts against it.
        is_charged: bool,
    },
    /// The request is given up, for this reason.
    GiveUp(String),
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
            other => other,
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
    ) -> Option<Later<'static, Option<Judged>>> {
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
        let (guard, own) = match self.leases.take() {
            Leases::Shared(guard) => (guard, Vec::new()),
            Leases::Both(both) => *both,
            Leases::One(_) | Leases::Parts(_) => unreachable!("the permit has no shared key"),
        };
        release(&own, report);
        guard.report(report)
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
        (directions, Slot::new(leases, now))
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

/// The in-flight slots of a request whose head has come and whose body has not. Dropping it gives
/// them back.
#[must_use = "dropping it says that the body has come"]
#[derive(Debug)]
pub struct Slot {
    leases: Leases,
    bytes: u64,
    renewed: Timestamp,
}

impl Slot {
    const fn new(leases: Leases, renewed: Timestamp) -> Self {
        Self {
            leases,
            bytes: 0,
            renewed,
        }
    }

    /// Renews the leases of a long body.
    ///
    /// Returns how long they last from now, or `None` if one has expired.
    pub fn renew(&mut self) -> Option<Duration> {
        self.leases.renew()
    }

    /// Drops the slot without a report of the body's end. Its leases expire by themselves.
    pub fn abandon(mut self) {
        self.leases.take().abandon();
    }

    /// Notes that `bytes` more of the body came.
    ///
    /// They are charged when the slot is dropped. A body that keeps coming keeps its lease.
    pub fn received(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(guard) = self.leases.shared_mut() {
            guard.received(bytes);
        }
        let Some(part) = self.leases.parts().first() else {
            return;
        };
        let now = part.shard.clock.now();
        if now.since(self.renewed) >= RENEW_EVERY {
            self.renewed = now;
            renew(self.leases.parts());
        }
    }
}

impl Slot {
    /// Corrects the costs in named units, such as tokens, that the permit was granted for.
    ///
    /// What was estimated too much returns, and what was estimated too little is owed. A second
    /// call corrects the first. Without a call, the estimates count.
    pub fn settle(&mut self, used: &UnitCosts) {
        if let Some(guard) = self.leases.shared_mut() {
            guard.settle(used);
        }
        for part in self.leases.parts() {
            let now = part.shard.clock.now();
            part.with(|entry| entry.host.settle(now, part.lease, used, entry.config));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        for part in self.leases.parts() {
            let now = part.shard.clock.now();
            part.with(|entry| {
                entry
                    .host
                    .release(now, part.lease, self.bytes, entry.config);
            });
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
