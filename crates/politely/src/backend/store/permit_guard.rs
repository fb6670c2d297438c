//! The caller's handle of a shared permit.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::gate::LeaseId;
use politely_core::host::{AcquireRequest, Directions};
use politely_core::key::Key;
use politely_core::signal::Report;
use politely_store::{Event, Grant, HeldLease, renewed_after};
use smallvec::SmallVec;

use super::Inner;
use crate::leases::PermitGuard;
use crate::permit::{Departure, Permit};

/// A permit of one or more shared keys. Dropping it without a report cancels the permit, or gives
/// it to the next caller if no caller has seen it.
pub(super) struct StoreGuard {
    inner: Arc<Inner>,
    /// One lease per key. The outcome is reported to the first key.
    parts: SmallVec<[Part; 1]>,
    departure: Departure,
    lasts: Duration,
    pub(super) valid_until: Timestamp,
    /// The grant of the only key, until the caller has seen the permit.
    unseen: Option<Grant>,
    /// The number of body bytes so far, if the head was reported.
    body: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    pub(super) lease: Arc<HeldLease>,
}

impl StoreGuard {
    pub(super) fn new(inner: &Arc<Inner>, key: &Key, grant: &Grant) -> Self {
        let mut guard = Self {
            inner: Arc::clone(inner),
            parts: SmallVec::new(),
            departure: Departure::new(grant.start, grant.rate, grant.slots, grant.unused),
            lasts: grant.lasts,
            valid_until: grant.valid_until,
            unseen: None,
            body: None,
        };
        guard.add(key, grant);
        guard.unseen = Some(grant.clone());
        guard
    }

    /// Creates a guard for leases that another process was granted.
    pub(super) fn adopted(inner: &Arc<Inner>, parts: Vec<Part>, lasts: Duration) -> Self {
        Self {
            inner: Arc::clone(inner),
            parts: parts.into(),
            departure: Departure::new(
                inner.clock.now(),
                f64::INFINITY,
                1,
                AcquireRequest::default().unused(),
            ),
            lasts,
            valid_until: Timestamp::NEVER,
            unseen: None,
            body: None,
        }
    }

    /// Adds the grant of another key to the same request.
    pub(super) fn add(&mut self, key: &Key, grant: &Grant) {
        let until = grant.start + grant.lasts;
        self.unseen = None;
        self.departure.start = self.departure.start.max(grant.start);
        self.departure.has_waited |= grant.has_waited;
        self.lasts = self.lasts.min(grant.lasts);
        self.valid_until = self.valid_until.min(grant.valid_until);
        self.parts.push(Part {
            key: key.clone(),
            lease: Arc::new(HeldLease::new(grant.lease, until)),
        });
    }

    /// Makes `first` the key that the outcome is reported to.
    pub(super) fn put_first(&mut self, first: &Key) {
        if let Some(at) = self.parts.iter().position(|part| part.key == *first) {
            self.parts.swap(0, at);
        }
    }

    /// Returns whether a key could not grant it at once.
    pub(super) const fn has_waited(&self) -> bool {
        self.departure.has_waited
    }

    pub(super) const fn start(&self) -> Timestamp {
        self.departure.start
    }

    pub(super) fn into_permit(mut self) -> Permit {
        self.unseen = None;
        let departure = self.departure;
        Permit::guarded(Box::new(self), departure)
    }
}

impl PermitGuard for StoreGuard {
    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn leases(&self) -> Vec<(Key, LeaseId)> {
        let lease = |part: &Part| (part.key.clone(), *part.lease.id());
        self.parts.iter().map(lease).collect()
    }

    fn lease(&self) -> Duration {
        self.lasts
    }

    fn sent(&mut self) {
        self.departure.sent = true;
    }

    fn renew(&self) -> Option<Duration> {
        let now = self.inner.clock.now();
        let left = |part: &Part| part.lease.left(now);
        let left = self.parts.iter().map(left).min()??;
        if left < self.lasts.saturating_sub(renewed_after(self.lasts)) {
            for part in &self.parts {
                if part.lease.begin_renewal() {
                    self.inner
                        .apply(&part.key, Event::Renew(Arc::clone(&part.lease)));
                }
            }
        }
        Some(left)
    }

    fn abandon(mut self: Box<Self>) {
        self.parts.clear();
    }

    fn report(mut self: Box<Self>, report: &Report) -> Directions {
        let directions = self.teach(report, false);
        let parts = std::mem::take(&mut self.parts);
        for part in &parts[1..] {
            let (lease, bytes) = (*part.lease.id(), report.bytes);
            if !report.used.is_empty() {
                let used = report.used.clone();
                self.inner.apply(&part.key, Event::Settle { lease, used });
            }
            self.inner.apply(&part.key, Event::Release { lease, bytes });
        }
        directions
    }

    fn report_head(&mut self, report: &Report) -> Directions {
        self.body = Some(0);
        self.teach(report, true)
    }

    fn received(&mut self, bytes: u64) {
        if let Some(body) = &mut self.body {
            *body = body.saturating_add(bytes);
        }
        self.renew();
    }

    fn settle(&mut self, used: &UnitCosts) {
        for part in &self.parts {
            let (lease, used) = (*part.lease.id(), used.clone());
            self.inner.apply(&part.key, Event::Settle { lease, used });
        }
    }

    fn split(mut self: Box<Self>) -> Vec<Box<dyn PermitGuard>> {
        if self.departure.slots <= 1 {
            return vec![self];
        }
        let parts = std::mem::take(&mut self.parts);
        let one = |i: u16| -> Box<dyn PermitGuard> {
            let departure = self.departure.nth(i);
            let until = departure.start + self.lasts;
            let parts = parts.iter().map(|part| Part {
                key: part.key.clone(),
                lease: Arc::new(HeldLease::new(
                    LeaseId(part.lease.id().0 + u64::from(i)),
                    until,
                )),
            });
            let later = departure.start.since(self.departure.start);
            Box::new(Self {
                inner: Arc::clone(&self.inner),
                parts: parts.collect(),
                departure,
                lasts: self.lasts,
                valid_until: self.valid_until + later,
                unseen: None,
                body: None,
            })
        };
        (0..self.departure.slots).map(one).collect()
    }
}

impl StoreGuard {
    fn teach(&self, report: &Report, body_coming: bool) -> Directions {
        let first = &self.parts[0];
        self.inner.apply(
            &first.key,
            Event::Report {
                lease: *first.lease.id(),
                report: report.clone(),
                body_coming,
            },
        )
    }
}

impl Drop for StoreGuard {
    fn drop(&mut self) {
        if let (Some(grant), [part]) = (self.unseen.take(), &self.parts[..]) {
            return self.inner.give_back(&part.key, grant);
        }
        for part in &self.parts {
            let Departure { slots, sent, .. } = self.departure;
            for (lease, unused) in self.departure.unused().of_run(*part.lease.id(), slots) {
                let event = match self.body {
                    Some(bytes) => Event::Release { lease, bytes },
                    None => Event::Cancel {
                        lease,
                        unused: (!sent).then_some(unused),
                    },
                };
                self.inner.apply(&part.key, event);
            }
        }
    }
}

impl std::fmt::Debug for StoreGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StoreGuard").field(&self.parts).finish()
    }
}
