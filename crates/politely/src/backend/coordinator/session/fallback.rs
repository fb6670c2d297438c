//! A worker without a coordinator: it waits, stops, or goes on with its share.
//!
//! The share is that of the last answer: a place among the live workers, and the limit of each key
//! at its last grant. `politely_core::share` has the turns. A key without a limit waits: it was
//! never granted, or its requests have further limits (several keys, declared limits, a
//! Crawl-delay). What left on the share is reported with its request once a coordinator answers.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use politely_api::wire::{KeyLimit, SharePlace, WorkerShare};
use politely_core::Timestamp;
use politely_core::gate::grace;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use politely_core::share::{BEGINS_AFTER, Place};
use politely_core::signal::Report;

use super::super::lines::Receiver;
use super::super::permit_guard::Granted;
use super::{Delivery, KNOWN_MAX, Session};
use crate::backend::prefetch::AGAIN;
use crate::error::{AcquireError, RefusalReason};

/// The interval of calls with which a worker keeps its place.
const BEAT: Duration = Duration::from_secs(1);
/// A turn is used at most this late, since timers are late. Later it is lost.
const LATE_MAX: Duration = Duration::from_millis(20);
/// The lease of a permit on a share. Only this process knows of it.
const LEASE: Duration = Duration::from_hours(1);

/// The behavior of a worker while no coordinator answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Requests wait until a coordinator answers.
    #[default]
    Wait,
    /// Each of the N live workers goes on with 1/N of the rate and cap of each key, if the
    /// coordinator allows it (`politely serve --allow-shares`) and for at most the time that it
    /// allows. A key waits if it was not granted lately, or has declared limits.
    Share,
    /// Requests fail at once with [`AcquireError::Unavailable`].
    Stop,
}

#[derive(Default)]
pub(super) struct Fallback {
    pub(super) on_unavailable: OnUnavailable,
    /// The first call without an answer since the last answer.
    away_since: Option<Timestamp>,
    told: Option<ToldShare>,
    limits: HashMap<Key, Limited, foldhash::fast::RandomState>,
    /// One reference for each permit of a key, and one more.
    slots: HashMap<Key, Arc<()>, foldhash::fast::RandomState>,
    /// The next turn of a waiting request.
    pub(super) next_turn: Option<Timestamp>,
    last_beat: Timestamp,
}

#[derive(Clone, Copy)]
struct ToldShare {
    place: Place,
    /// The coordinator's clock at `at`.
    clock: Timestamp,
    at: Timestamp,
    until: Timestamp,
    lasts: Duration,
}

struct Limited {
    limit: KeyLimit,
    told_at: Timestamp,
    /// The time before which there is no further turn.
    not_before: Timestamp,
}

impl ToldShare {
    /// Returns the first turn of a key at or after `at`, for a request that costs `cost` turns.
    fn next_turn(&self, rate: f64, at: Timestamp, cost: u16) -> Timestamp {
        let there = self.clock + at.since(self.at);
        let turn = self.place.next_turn(rate, there);
        let cycle_s = f64::from(self.place.of) / rate;
        let rest_s = cycle_s * f64::from(cost.max(1) - 1);
        let rest = Duration::try_from_secs_f64(rest_s).unwrap_or(Duration::MAX);
        self.at + turn.since(self.clock) + rest
    }
}

impl Fallback {
    /// Returns the place to repeat to the coordinator.
    pub(super) fn place(&self) -> Option<SharePlace> {
        let place = self
            .told
            .map_or_else(SharePlace::default, |told| SharePlace {
                workers: told.place.of,
                place: told.place.index,
            });
        (self.on_unavailable == OnUnavailable::Share).then_some(place)
    }

    /// Notes the share in the answer to a call that was sent at `sent_at`.
    pub(super) fn tell(&mut self, share: Option<WorkerShare>, sent_at: Timestamp, now: Timestamp) {
        self.told = share
            .filter(|share| share.place < share.workers)
            .map(|share| {
                let lasts = Duration::from_millis(share.lasts_ms);
                ToldShare {
                    place: Place {
                        index: share.place,
                        of: share.workers,
                    },
                    clock: Timestamp::from_micros(share.clock_us),
                    at: now,
                    until: sent_at + lasts,
                    lasts,
                }
            });
    }

    /// Notes the limit of `key` in a grant. Without one, its requests have further limits.
    pub(super) fn limit(&mut self, key: &Key, limit: Option<KeyLimit>, now: Timestamp) {
        if self.on_unavailable != OnUnavailable::Share {
            return;
        }
        let Some(limit) = limit.filter(|limit| limit.rate.is_finite() && limit.rate > 0.0) else {
            self.limits.remove(key);
            return;
        };
        if self.limits.len() >= KNOWN_MAX {
            self.limits.clear();
        }
        let limited = Limited {
            limit,
            told_at: now,
            not_before: Timestamp::ZERO,
        };
        self.limits.insert(key.clone(), limited);
    }

    /// Notes the rate of `key` in the answer to a report.
    pub(super) fn rate(&mut self, key: &Key, rate: f64) {
        if let Some(limited) = self.limits.get_mut(key)
            && rate > 0.0
        {
            limited.limit.rate = rate;
        }
    }

    /// Returns a reference that counts a permit of `key` as long as it exists.
    pub(super) fn slot(&mut self, key: &Key) -> Option<Arc<()>> {
        (self.on_unavailable == OnUnavailable::Share).then(|| {
            if self.slots.len() >= KNOWN_MAX {
                self.slots.retain(|_, slot| Arc::strong_count(slot) > 1);
            }
            Arc::clone(self.slots.entry(key.clone()).or_default())
        })
    }

    pub(super) const fn is_away(&self) -> bool {
        self.away_since.is_some()
    }

    /// Returns whether this worker has a share and no coordinator answers.
    pub(super) const fn is_active(&self) -> bool {
        self.is_away() && self.told.is_some()
    }

    pub(super) fn note_away(&mut self, now: Timestamp) {
        self.away_since.get_or_insert(now);
    }

    pub(super) fn note_answer(&mut self) {
        self.away_since = None;
        self.next_turn = None;
    }

    /// Follows an outcome, since no coordinator does. A refusal without a wait ends the share of
    /// its key.
    pub(super) fn follow(&mut self, key: &Key, report: &Report, now: Timestamp) {
        if let Some(limited) = self
            .limits
            .get_mut(key)
            .filter(|_| self.away_since.is_some())
        {
            let end = match report.retry_after {
                Some(wait) => now + wait,
                None if report.signal.is_refusal() => Timestamp::NEVER,
                None => Timestamp::ZERO,
            };
            limited.not_before = limited.not_before.max(end);
        }
    }

    /// Returns when the next call is due that keeps the place, or finds out whether a coordinator
    /// answers.
    pub(super) fn next_beat(&self) -> Timestamp {
        match self.on_unavailable {
            OnUnavailable::Share => self.last_beat + BEAT,
            OnUnavailable::Stop if self.is_away() => self.last_beat + BEAT,
            OnUnavailable::Wait | OnUnavailable::Stop => Timestamp::NEVER,
        }
    }

    pub(super) const fn note_beat(&mut self, now: Timestamp) {
        self.last_beat = now;
    }

    /// Takes a turn of `key` if one is due, or notes when the next one is.
    fn take_turn(
        &mut self,
        key: &Key,
        ask: &AcquireRequest,
        held: Timestamp,
        now: Timestamp,
    ) -> bool {
        let (Some(since), Some(told)) = (self.away_since, &self.told) else {
            return false;
        };
        let is_plain = ask.units.is_empty() && ask.bytes == 0;
        let Some(limited) = self.limits.get_mut(key).filter(|_| is_plain) else {
            return false;
        };
        let KeyLimit { rate, in_flight } = limited.limit;
        let taken = self
            .slots
            .get(key)
            .map_or(0, |slot| Arc::strong_count(slot) - 1);
        if taken >= told.place.slots(in_flight) as usize {
            return false;
        }
        let from = limited.not_before.max(held).max(since + BEGINS_AFTER);
        let turn = told.next_turn(rate, from.max(now - LATE_MAX), ask.cost);
        let until = told.until.min(limited.told_at + told.lasts);
        if from == Timestamp::NEVER || turn >= until {
            return false;
        }
        if turn > now {
            self.next_turn = Some(self.next_turn.map_or(turn, |next| next.min(turn)));
            return false;
        }
        limited.not_before = turn + Duration::from_micros(1);
        true
    }
}

impl Session {
    /// Serves the queues from this worker's share, if no coordinator answers.
    pub(in super::super) fn go_on(&mut self, now: Timestamp) -> Vec<Delivery> {
        let fallback = &mut self.fallback;
        fallback.next_turn = None;
        if !fallback.is_active() {
            return Vec::new();
        }
        if fallback.told.is_some_and(|told| told.until <= now) {
            fallback.told = None;
        }
        let (known, delays) = (&self.known, &self.delays);
        let mut starts = Vec::new();
        let taken = self.lines.take_due(|key, ask| {
            let held = known
                .get(key)
                .map_or(Timestamp::ZERO, |known| known.hold_until);
            let rests = delays.of(key, now).is_some();
            let is_due = !rests && fallback.take_turn(key, ask, held, now);
            if is_due {
                starts.push(fallback.slot(key));
            }
            is_due
        });
        let mut deliveries = Vec::new();
        for (open, slot) in taken.into_iter().zip(starts) {
            let key = open.keys[0].clone();
            let mut item = open.item(&self.prefix, None);
            self.label(&mut item);
            // An answer that was lost may have granted it.
            self.cancels[0].extend(item.id.take());
            self.counter += 1;
            let rate = self
                .fallback
                .limits
                .get(&key)
                .map_or(1.0, |limited| limited.limit.rate);
            let valid = grace(Duration::try_from_secs_f64(1.0 / rate).unwrap_or(LEASE));
            let granted = Granted {
                permit: format!("{}share-{:x}", self.prefix, self.counter),
                key,
                start: now,
                valid_until: now + valid,
                lasts: LEASE,
                send_bodies: None,
                sent: Some(Box::new(item)),
                slot,
            };
            deliveries.extend(self.deliver(open, Ok(granted), now));
        }
        deliveries
    }

    /// Returns whether the queues are served from this worker's share.
    pub(in super::super) const fn is_going_on(&self) -> bool {
        self.fallback.is_active()
    }

    /// Refuses all callers if they do not wait for a coordinator.
    pub(super) fn stop_if_unavailable(&mut self, why: &str, now: Timestamp) -> Vec<Delivery> {
        if self.fallback.on_unavailable != OnUnavailable::Stop {
            return Vec::new();
        }
        let (mut deliveries, until) = (Vec::new(), now + AGAIN);
        for open in self.lines.drain() {
            match open.receiver {
                Receiver::Caller(sender) => {
                    deliveries.push((sender, Err(AcquireError::Unavailable(why.to_owned()))));
                }
                Receiver::Prefetch => {
                    let reason = RefusalReason::Unavailable;
                    self.prefetches.refused(&open.keys, reason, until);
                }
            }
        }
        deliveries
    }
}
