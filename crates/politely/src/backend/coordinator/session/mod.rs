//! The session with the coordinator, without a clock or a socket.
//!
//! It keeps what is to be sent, chooses the next call, and applies each answer.
//!
//! Reports and acquire requests share calls. An exchange that is not held open carries the reports
//! and the new acquire requests. Requests that cannot be served at once are sent in a call that is
//! held open until one of them is served. One call of the first kind is in flight at a time, and a
//! few of the second kind.
//!
//! After a call without an answer, its content returns to its queues. It is sent again with the
//! same ids, after a pause with full jitter. One call at a time then probes whether the coordinator
//! is back.

mod answers;
mod compose;
mod fallback;
#[cfg(test)]
mod fallback_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use politely_api::wire::{KeyPatch, Told};
use politely_core::host::{AcquireRequest, CrawlDelay, Directions};
use politely_core::key::Key;
use politely_core::signal::Report;
use politely_core::{Rng, Timestamp};
use politely_store::renewed_after;
use tokio::sync::oneshot;

use self::fallback::Fallback;
pub use self::fallback::OnUnavailable;
use super::call::{Kind, Sent};
use super::delays::Delays;
use super::lines::{Lines, Receiver, ReplySender};
use super::permit_guard::{Granted, Lease};
use crate::backend::operations::Head;
use crate::backend::prefetch::{AGAIN, Found, KeySet, Prefetches};
use crate::error::{AcquireError, RefusalReason};
use crate::leases::Decision;
use crate::stats::Stats;

/// The maximum number of waiting callers, about 200 bytes each.
const WAITING_MAX: usize = 1 << 18;
/// The maximum number of reports that are kept while the coordinator is unavailable, about 300
/// bytes each. Beyond it the oldest is dropped.
const REPORTS_MAX: usize = 1 << 16;
/// The maximum number of keys whose rate and hold are kept.
const KNOWN_MAX: usize = 1 << 16;

/// A caller's channel and its result, to be delivered after the lock is released.
pub(super) type Delivery = (ReplySender, Result<Granted, AcquireError>);

pub(super) struct Session {
    client: String,
    /// The labels of each item.
    labels: BTreeMap<String, String>,
    /// The prefix of idempotency keys. It differs from that of an earlier process of the same name.
    prefix: String,
    rng: Rng,
    lines: Lines,
    /// The prefetches, each with the number of its acquire request.
    prefetches: Prefetches<Granted, u64>,
    patches: VecDeque<(Key, KeyPatch)>,
    reports: VecDeque<(Key, Told)>,
    /// Permits to cancel. The index tells whether the request had left.
    cancels: [Vec<String>; 2],
    leases: BTreeMap<(Timestamp, u64), Weak<Lease>>,
    known: HashMap<Key, Known, foldhash::fast::RandomState>,
    delays: Delays,
    fallback: Fallback,
    /// The channels for decisions about requests, by permit.
    judges: HashMap<String, oneshot::Sender<Decision>, foldhash::fast::RandomState>,
    stats: Stats,
    counter: u64,
    guards: usize,
    under_way: UnderWay,
    last: Timestamp,
    failures: u32,
    not_before: Timestamp,
    last_error: Option<String>,
    /// The coordinator is called even if there is nothing to send.
    ping_due: bool,
    /// The number of ended calls, with or without an answer.
    answers: u64,
    /// The coordinator rejected something, which is not sent again.
    has_rejected: bool,
    closed: bool,
}

/// The calls in flight.
#[derive(Default)]
struct UnderWay {
    polls: usize,
    quick: bool,
    /// A patch, a cancellation or a renewal is in flight. There is one of these at a time.
    command: bool,
}

#[derive(Clone, Copy)]
struct Known {
    rate: f64,
    hold_until: Timestamp,
}

impl UnderWay {
    fn began(&mut self, kind: Kind) {
        match kind {
            Kind::Quick => self.quick = true,
            Kind::Poll => self.polls += 1,
            Kind::Command => self.command = true,
        }
    }

    fn ended(&mut self, kind: Kind) {
        match kind {
            Kind::Quick => self.quick = false,
            Kind::Poll => self.polls -= 1,
            Kind::Command => self.command = false,
        }
    }
}

/// The next step of the driver.
#[expect(
    clippy::large_enum_variant,
    reason = "a step is used where it is returned"
)]
pub(super) enum Step {
    Call(Sent),
    /// There is nothing to do before this time.
    Wait(Timestamp),
}

impl Session {
    pub(super) fn new(client: String, seed: u64) -> Self {
        Self {
            client,
            labels: BTreeMap::new(),
            prefix: format!("{seed:x}-"),
            rng: Rng::new(seed),
            lines: Lines::default(),
            prefetches: Prefetches::default(),
            patches: VecDeque::new(),
            reports: VecDeque::new(),
            cancels: [Vec::new(), Vec::new()],
            leases: BTreeMap::new(),
            known: HashMap::default(),
            delays: Delays::default(),
            fallback: Fallback::default(),
            judges: HashMap::default(),
            stats: Stats::default(),
            counter: 0,
            guards: 0,
            under_way: UnderWay::default(),
            last: Timestamp::ZERO,
            failures: 0,
            not_before: Timestamp::ZERO,
            last_error: None,
            ping_due: false,
            answers: 0,
            has_rejected: false,
            closed: false,
        }
    }

    /// Sends `labels` with each item.
    pub(super) fn labelled(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels = labels;
        self
    }

    /// Sets what to do while no coordinator answers.
    pub(super) const fn going_on(mut self, on_unavailable: OnUnavailable) -> Self {
        self.fallback.on_unavailable = on_unavailable;
        self
    }

    /// Adds a caller to the queue of `keys`. The rule of the coordinator's policy may depend on
    /// `head`.
    pub(super) fn acquire(
        &mut self,
        keys: &[Key],
        ask: AcquireRequest,
        head: Option<Head<'_>>,
        sender: ReplySender,
    ) -> Result<(), AcquireError> {
        if self.closed {
            return Err(AcquireError::Closed);
        }
        if self.fallback.is_away() && self.fallback.on_unavailable == OnUnavailable::Stop {
            let why = self.last_error.clone().unwrap_or_default();
            return Err(AcquireError::Unavailable(why));
        }
        if self.lines.len() >= WAITING_MAX {
            return Err(AcquireError::QueueFull(keys[0].clone()));
        }
        self.lines
            .join(KeySet::from(keys), ask, head, Receiver::Caller(sender));
        Ok(())
    }

    /// Returns the prefetched permit of `keys`, or starts a prefetch.
    pub(super) fn try_acquire(
        &mut self,
        keys: &[Key],
        ask: AcquireRequest,
        now: Timestamp,
    ) -> Result<Granted, (RefusalReason, Timestamp)> {
        if self.closed {
            return Err((RefusalReason::Closed, Timestamp::NEVER));
        }
        let refused = match self.prefetches.take(keys, now) {
            Found::Permit(granted) => return Ok(granted),
            Found::No(reason, at) => (reason, at),
            Found::Missing => {
                let keys = KeySet::from(keys);
                let number = self
                    .lines
                    .join(Arc::clone(&keys), ask, None, Receiver::Prefetch);
                self.prefetches.start(keys, number, now);
                (RefusalReason::Asked, now + AGAIN)
            }
        };
        self.stats.turned_away += 1;
        Err(refused)
    }

    /// Adds a report, and returns the last known rate and hold of its key.
    pub(super) fn report(
        &mut self,
        key: &Key,
        outcome: Told,
        report: &Report,
        now: Timestamp,
    ) -> Directions {
        self.stats.reported += 1;
        self.stats.refused += u64::from(report.signal.is_refusal());
        self.queue_report(key, outcome);
        self.fallback.follow(key, report, now);
        let known = self.known.get(key).copied();
        let given = now + report.retry_after.unwrap_or_default();
        Directions {
            rate: known.map_or(0.0, |known| known.rate),
            ..Directions::unknown(known.map_or(given, |known| known.hold_until.max(given)))
        }
    }

    /// Registers `judge` for the decision about the request of `permit`. The decision comes after
    /// the report.
    pub(super) fn expect_decision(&mut self, permit: String, judge: oneshot::Sender<Decision>) {
        self.judges.insert(permit, judge);
    }

    pub(super) fn queue_report(&mut self, key: &Key, outcome: Told) {
        if self.reports.len() >= REPORTS_MAX {
            if let Some((_, dropped)) = self.reports.pop_front() {
                self.judges.remove(&dropped.permit);
            }
            self.stats.late += 1;
        }
        self.reports.push_back((key.clone(), outcome));
    }

    /// Cancels a permit that will not be used.
    pub(super) fn cancel(&mut self, permit: String, sent: bool) {
        self.stats.cancelled += 1;
        self.judges.remove(&permit);
        let cancels = &mut self.cancels[usize::from(sent)];
        // A permit beyond the maximum expires by itself.
        if cancels.len() < REPORTS_MAX {
            cancels.push(permit);
        }
    }

    /// Cancels a permit that was dropped without a report. A request that left on this worker's
    /// share still counts.
    pub(super) fn let_lapse(&mut self, granted: &mut Granted, sent: bool) {
        let permit = std::mem::take(&mut granted.permit);
        match granted.sent.take() {
            None => self.cancel(permit, sent),
            Some(item) if sent => {
                let outcome = Told {
                    permit,
                    sent: Some(item),
                    attempt: 1,
                    ..Told::default()
                };
                self.queue_report(&granted.key, outcome);
            }
            Some(_) => self.stats.cancelled += 1,
        }
    }

    /// Adds an operator's change to `key`.
    pub(super) fn patch(&mut self, key: &Key, patch: KeyPatch) {
        if self.patches.len() < REPORTS_MAX {
            self.patches.push_back((key.clone(), patch));
        }
    }

    /// Sets the Crawl-delay of `key` from its host's robots.txt.
    pub(super) fn crawl_delay(&mut self, key: &Key, delay: CrawlDelay, now: Timestamp) {
        self.delays.set(key, delay, now);
    }

    /// Notes the guard of `granted`, whose lease is renewed from now on.
    pub(super) fn hold(&mut self, granted: &Granted, lease: &Arc<Lease>) {
        self.stats.granted += 1;
        self.guards += 1;
        if granted.sent.is_none() {
            self.renew_at(granted.start + renewed_after(granted.lasts), lease);
        }
    }

    /// Notes that a guard was dropped.
    pub(super) fn let_go(&mut self) {
        self.guards -= 1;
    }

    fn renew_at(&mut self, at: Timestamp, lease: &Arc<Lease>) {
        self.counter += 1;
        self.leases
            .insert((at, self.counter), Arc::downgrade(lease));
    }

    /// Returns the keys whose prefetch ended since the last call.
    pub(super) fn take_ready(&mut self) -> Vec<Key> {
        self.prefetches.take_ready()
    }

    /// Returns the rate of `key` in the coordinator's last answer.
    pub(super) fn rate(&self, key: &Key) -> Option<f64> {
        self.known.get(key).map(|known| known.rate)
    }

    /// Returns why the last call was not answered or was rejected.
    pub(super) fn last_error(&self) -> Option<String> {
        let why = self.last_error.clone()?;
        Some(if self.fallback.is_active() {
            format!("{why}; this worker goes on with its share")
        } else {
            why
        })
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            waiting: self.lines.len() as u64,
            ..self.stats
        }
    }

    pub(super) fn waited(&mut self, waited: Duration) {
        self.stats.waits += 1;
        self.stats.waited += waited;
    }

    /// Requests a call even if there is nothing to send, and returns the number of calls ended so
    /// far.
    pub(super) const fn ping(&mut self) -> u64 {
        self.ping_due = true;
        self.answers
    }

    /// Returns the result of a call that ended after the first `before` ones: an error if the last
    /// call was rejected.
    pub(super) fn ping_result(&self, before: u64) -> Option<Result<(), String>> {
        (self.answers > before).then(|| match &self.last_error {
            Some(why) if self.failures == 0 => Err(why.clone()),
            _ => Ok(()),
        })
    }

    /// Refuses all callers and cancels the kept permits. What is pending is still sent.
    pub(super) fn close(&mut self) -> Vec<Delivery> {
        self.closed = true;
        for kept in self.prefetches.drain(|_| {}) {
            self.cancel(kept.permit, false);
        }
        let open = self.lines.drain().into_iter();
        let callers = open.filter_map(|open| match open.receiver {
            Receiver::Caller(sender) => Some((sender, Err(AcquireError::Closed))),
            Receiver::Prefetch => None,
        });
        callers.collect()
    }

    /// Returns whether nothing is left to send.
    pub(super) fn is_idle(&self) -> bool {
        self.patches.is_empty()
            && self.reports.is_empty()
            && self.cancels.iter().all(Vec::is_empty)
            && !self.under_way.quick
            && !self.under_way.command
    }

    /// Returns whether nothing was rejected, once nothing is left to send.
    pub(super) fn is_accepted(&self) -> Option<bool> {
        self.is_idle().then_some(!self.has_rejected)
    }

    /// Returns whether the session is closed and has nothing to send now or later.
    pub(super) fn is_over(&self) -> bool {
        self.closed && self.is_idle() && self.guards == 0
    }

    /// Returns whether the session is closed and the coordinator is unavailable.
    pub(super) fn is_hopeless(&self) -> bool {
        self.closed && self.failures > 0
    }
}
