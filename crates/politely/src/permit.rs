//! Leave to send one request.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::{LeaseId, Rate};
use politely_core::host::{Directions, Unused};
use politely_core::key::Key;
use politely_core::retry::Attempt;
use politely_core::signal::Report;

use crate::birth::Birth;
use crate::elsewhere::Later;
use crate::registry::{Entry, SharedShard};
use crate::sync::sleep;

/// A body's chunks renew its lease this often: far below any sensible lease, far above a chunk's time.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Renewals per lease: should one be late, the next is not.
const RENEWALS: u32 = 3;
/// … with at least so much time between.
const RENEW_PAUSE_MIN: Duration = Duration::from_millis(10);

/// Leave to send one request now, and the claim on its in-flight slots until it is reported.
///
/// Dropped unreported, it gives its slots back; and its tokens too, unless [`Permit::sent`] was called.
#[must_use = "a permit that is dropped gives its slot back"]
#[derive(Debug)]
pub struct Permit {
    claim: Claim,
    departure: Departure,
}

/// What returns when a request is over. Nearly all permits are of one key, and small: they are moved about.
#[derive(Debug)]
enum Claim {
    One(Part),
    /// Of several keys, or of none any more.
    Parts(Vec<Part>),
    Elsewhere(Box<dyn Held>),
}

impl Claim {
    fn parts(&self) -> &[Part] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Parts(parts) => parts,
            Self::Elsewhere(_) => &[],
        }
    }

    fn into_parts(self) -> Vec<Part> {
        match self {
            Self::One(part) => vec![part],
            Self::Parts(parts) => parts,
            Self::Elsewhere(_) => Vec::new(),
        }
    }

    /// Nothing is left to be given back.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Parts(Vec::new()))
    }

    fn elsewhere(&self) -> Option<&dyn Held> {
        match self {
            Self::Elsewhere(held) => Some(&**held),
            _ => None,
        }
    }

    fn elsewhere_mut(&mut self) -> Option<&mut Box<dyn Held>> {
        match self {
            Self::Elsewhere(held) => Some(held),
            _ => None,
        }
    }

    /// One departure's of a run.
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

    /// Nobody will end it: its leases run out by themselves.
    fn abandon(self) {
        if let Self::Elsewhere(held) = self {
            held.abandon();
        }
    }

    /// How long its leases last from now, if none has expired.
    fn renew(&self) -> Option<Duration> {
        match self {
            Self::Elsewhere(held) => held.renew(),
            _ => renew(self.parts()),
        }
    }
}

/// What holds a permit's place where its keys' states are not in this process. Dropped, it gives the permit back.
pub(crate) trait Held: std::fmt::Debug + Send + Sync {
    /// The slot returns by itself this long after the start.
    fn lease(&self) -> Duration;
    fn sent(&mut self);
    /// How much of the lease is left; nothing once it is over.
    fn renew(&self) -> Option<Duration>;
    fn abandon(self: Box<Self>);
    fn report(self: Box<Self>, report: &Report) -> Directions;
    /// The slot stays taken until it is dropped.
    fn heard(&mut self, report: &Report) -> Directions;
    /// So many bytes of the body came.
    fn received(&mut self, bytes: u64);
    /// One for each departure.
    fn split(self: Box<Self>) -> Vec<Box<dyn Held>>;
    /// From now on its report says which attempt it was, and whoever hears it says what becomes of the request; nothing if nobody
    /// does, or not soon enough. `repeatable`: it can and may be sent again.
    fn judge(
        &mut self,
        _attempt: &Attempt,
        _repeatable: bool,
    ) -> Option<Later<'static, Option<Judged>>> {
        None
    }
    /// What another process would know it by.
    fn leases(&self) -> Vec<(Key, LeaseId)> {
        Vec::new()
    }
}

/// What becomes of a request, as a coordinator says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "coordinator"),
    expect(dead_code, reason = "said by one")
)]
pub(crate) enum Judged {
    /// It waits so long, and asks for a permit again.
    Retry(Duration),
    /// Why it would be answered alike.
    GiveUp(String),
}

/// When a permit's requests may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) start: Timestamp,
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) slots: u16,
    // Not an `Unused`, which has room for three numbers of this size.
    cost: u16,
    bytes: u64,
    /// It may have left: its token stays spent.
    pub(crate) sent: bool,
    /// By all keys asked for: it is counted, by its first key.
    pub(crate) given: bool,
}

impl Departure {
    #[inline(always)]
    pub(crate) const fn new(start: Timestamp, rate: f64, slots: u16, unused: Unused) -> Self {
        Self {
            start,
            rate,
            slots,
            cost: unused.cost,
            bytes: unused.bytes,
            sent: false,
            given: true,
        }
    }

    /// What the first gives back if it does not leave.
    pub(crate) const fn unused(&self) -> Unused {
        Unused {
            cost: self.cost,
            bytes: self.bytes,
        }
    }

    /// One of its run: only the first gives bytes back.
    pub(crate) fn nth(&self, i: u16) -> Self {
        Self {
            start: self.start + Rate::per_second(self.rate).interval() * u32::from(i),
            slots: 1,
            bytes: if i == 0 { self.bytes } else { 0 },
            ..*self
        }
    }
}

/// The claim on one key.
pub(crate) struct Part {
    pub(crate) shard: Arc<SharedShard>,
    pub(crate) slot: u32,
    pub(crate) born: Birth,
    pub(crate) lease: LeaseId,
}

impl Permit {
    /// What a key gave.
    #[inline(always)]
    pub(crate) const fn of(part: Part, departure: Departure) -> Self {
        Self {
            claim: Claim::One(part),
            departure,
        }
    }

    /// All keys asked for have given it.
    pub(crate) const fn given(&mut self) {
        self.departure.given = true;
    }

    /// What another key gave for the same request.
    pub(crate) fn add(&mut self, mut other: Self) {
        let mut parts = self.claim.take().into_parts();
        parts.append(&mut other.claim.take().into_parts());
        self.claim = Claim::Parts(parts);
    }

    /// What it has here.
    pub(crate) fn parts(&self) -> &[Part] {
        self.claim.parts()
    }

    /// The last of those asked for so far was the one named after `before` others.
    pub(crate) fn put_in_order(&mut self, before: usize) {
        if let Claim::Parts(parts) = &mut self.claim {
            parts[..=before].rotate_left(1);
        }
    }

    /// A coordinator's, or an engine's.
    pub(crate) fn claimed(claim: Box<dyn Held>, departure: Departure) -> Self {
        Self {
            claim: Claim::Elsewhere(claim),
            departure,
        }
    }

    /// When its request may leave: now, unless a reservation ahead was asked for.
    pub const fn start(&self) -> Timestamp {
        self.departure.start
    }

    /// Departures it was granted, [`Permit::interval`] apart: 1 unless more were asked for.
    pub const fn slots(&self) -> u16 {
        self.departure.slots
    }

    /// Requests per second of its first key.
    pub(crate) const fn rate(&self) -> f64 {
        self.departure.rate
    }

    /// From one departure to the next, at the rate of when it was granted.
    pub fn interval(&self) -> Duration {
        Rate::per_second(self.departure.rate).interval()
    }

    /// Its slot returns by itself this long after its start.
    pub fn lease(&self) -> Duration {
        if let Some(held) = self.claim.elsewhere() {
            return held.lease();
        }
        let lease = |part: &Part| part.with(|entry| entry.config.lease);
        self.parts()
            .iter()
            .filter_map(lease)
            .min()
            .unwrap_or_default()
    }

    /// Which leases of which keys it is, where they are an engine's: what [`Limiter::adopt`](crate::Limiter::adopt) takes. The
    /// first hears the outcome; of several departures they are the first one's, and each has the next number. Elsewhere empty.
    pub fn leases(&self) -> Vec<(Key, LeaseId)> {
        self.claim.elsewhere().map_or_else(Vec::new, Held::leases)
    }

    /// One permit per departure.
    pub fn split(mut self) -> impl Iterator<Item = Self> {
        let run = self.departure;
        // All at once: one that is never taken is dropped, and its slot returns.
        let claims: Vec<Claim> = match self.claim.take() {
            Claim::Elsewhere(held) => held.split().into_iter().map(Claim::Elsewhere).collect(),
            here => (0..run.slots).map(|i| here.nth(i)).collect(),
        };
        let each = (0..).zip(claims).map(move |(i, claim)| Self {
            claim,
            departure: run.nth(i),
        });
        each.collect::<Vec<_>>().into_iter()
    }

    /// Nobody will report it: its leases run out by themselves.
    pub fn abandon(mut self) {
        self.claim.take().abandon();
    }

    /// The request is leaving: should the permit be dropped from now on, its token stays spent.
    pub fn sent(&mut self) {
        self.departure.sent = true;
        if let Some(held) = self.claim.elsewhere_mut() {
            held.sent();
        }
    }

    /// Who is to judge of this attempt, if not this process alone. To be asked for before the report.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "attempts ask")
    )]
    pub(crate) fn judge(
        &mut self,
        attempt: &Attempt,
        repeatable: bool,
    ) -> Option<Later<'static, Option<Judged>>> {
        self.claim.elsewhere_mut()?.judge(attempt, repeatable)
    }

    /// What became of the request; of several departures (see [`Permit::split`]) the first, and the others are given back. The first key named hears the signal and answers with its directions;
    /// the others were limits to be kept: their slots return and the bytes are charged.
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn report(mut self, report: &Report) -> Directions {
        if self.departure.slots > 1 {
            return self.first().report(report);
        }
        if self.claim.elsewhere().is_some()
            && let Claim::Elsewhere(held) = self.claim.take()
        {
            return held.report(report);
        }
        let (first, rest) = self.parts().split_first().expect("a permit has a key");
        let now = first.shard.clock.now();
        for part in rest {
            part.with(|entry| {
                entry
                    .host
                    .release(now, part.lease, report.bytes, entry.config);
            });
        }
        let directions = teach(first, now, report, |entry| {
            let mut rng = entry.rng(first.lease);
            entry
                .host
                .report(now, first.lease, report, entry.config, &mut rng)
        });
        drop(self.into_claim());
        directions
    }

    /// [`Permit::report`] as soon as the response's head is there: what it says is learned now, while the
    /// slots stay taken until the body has come, since that is how long the server counts the request.
    ///
    /// # Panics
    /// Never: a permit has at least one key.
    pub fn heard(self, report: &Report) -> (Directions, Slot) {
        let first = self.first();
        let start = first.departure.start;
        let mut claim = first.into_claim();
        if let Some(held) = claim.elsewhere_mut() {
            let directions = held.heard(report);
            return (directions, Slot::new(claim, start));
        }
        let first = claim.parts().first().expect("a permit has a key");
        let now = first.shard.clock.now();
        let directions = teach(first, now, report, |entry| {
            let mut rng = entry.rng(first.lease);
            entry
                .host
                .hear(now, first.lease, report, entry.config, &mut rng)
        });
        (directions, Slot::new(claim, now))
    }

    /// The first departure's; the others return.
    #[inline]
    fn first(self) -> Self {
        if self.departure.slots <= 1 {
            return self;
        }
        self.split().next().expect("a permit has a departure")
    }

    /// Nothing is left to be given back when it is dropped.
    #[inline]
    fn into_claim(mut self) -> Claim {
        let claim = self.claim.take();
        std::mem::forget(self);
        claim
    }

    /// Extends the leases of a request that takes long: how long they last from now, or nothing if one has
    /// expired.
    pub fn renew(&self) -> Option<Duration> {
        self.claim.renew()
    }

    /// Does `work` (sends the request, say) and renews the leases as long as it takes: they say how soon the slots of a process that
    /// was killed return, not how long a request may take.
    ///
    /// Cancel-safe if `work` is.
    ///
    /// # Panics
    /// Outside of a Tokio runtime whose time is enabled, if `work` is not done at once.
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

/// The in-flight slots of a request whose head has come and whose body has not. They return when it is dropped.
#[must_use = "dropping it says that the body has come"]
#[derive(Debug)]
pub struct Slot {
    claim: Claim,
    bytes: u64,
    renewed: Timestamp,
}

impl Slot {
    const fn new(claim: Claim, renewed: Timestamp) -> Self {
        Self {
            claim,
            bytes: 0,
            renewed,
        }
    }

    /// Extends the leases of a body that takes long: by how much, or nothing if one has expired.
    pub fn renew(&mut self) -> Option<Duration> {
        self.claim.renew()
    }

    /// Nobody will say when the body has come: its leases run out by themselves.
    pub fn abandon(mut self) {
        self.claim.take().abandon();
    }

    /// So many bytes of the body came: they are charged when the slot is dropped, and a body that keeps
    /// coming keeps its lease.
    pub fn received(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(held) = self.claim.elsewhere_mut() {
            held.received(bytes);
        }
        let Some(part) = self.claim.parts().first() else {
            return;
        };
        let now = part.shard.clock.now();
        if now.since(self.renewed) >= RENEW_EVERY {
            self.renewed = now;
            renew(self.claim.parts());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        for part in self.claim.parts() {
            let now = part.shard.clock.now();
            part.with(|entry| {
                entry
                    .host
                    .release(now, part.lease, self.bytes, entry.config);
            });
        }
    }
}

fn renew(parts: &[Part]) -> Option<Duration> {
    parts.iter().try_fold(Duration::MAX, |least, part| {
        let now = part.shard.clock.now();
        let lasts = part.with(|entry| {
            let renewed = entry.host.renew(now, part.lease, entry.config);
            renewed.then_some(entry.config.lease)
        })??;
        Some(least.min(lasts))
    })
}

impl Drop for Permit {
    fn drop(&mut self) {
        for (i, part) in self.claim.parts().iter().enumerate() {
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

impl Part {
    /// Calls `f` with the key's entry, if it is still there, and wakes who waits for the key.
    fn with<T>(&self, f: impl FnOnce(&mut Entry<'_>) -> T) -> Option<T> {
        let mut shard = self.shard.lock();
        let mut entry = shard.get_born(self.slot, self.born)?;
        let result = f(&mut entry);
        if let Some(waiters) = entry.waiters {
            waiters.wake_head();
        }
        Some(result)
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("slot", &self.slot)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// What the first key makes of `report`, entered in the books.
fn teach(
    part: &Part,
    now: Timestamp,
    report: &Report,
    tell: impl FnOnce(&mut Entry<'_>) -> Directions,
) -> Directions {
    // If the key is gone.
    let mut directions = Directions {
        hold_until: now,
        rate: 0.0,
        event: false,
        late: true,
        url_fault: false,
    };
    let mut key = None;
    part.with(|entry| {
        entry.learned();
        directions = tell(entry);
        entry.stats.reported += u64::from(!directions.late);
        entry.stats.late += u64::from(directions.late);
        let refused = report.signal.is_refusal() && !directions.late;
        entry.stats.refused += u64::from(refused);
        key = directions.event.then(|| entry.key.clone());
    });
    // Not while the shard is locked: whoever listens may be slow.
    if let Some(key) = key {
        let (key, rate) = (key.as_str(), directions.rate);
        tracing::debug!(key, signal = ?report.signal, status = report.status, rate, "event");
    }
    directions
}
