//! The client's guard of a permit that the coordinator granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::SET_COOKIE;
use politely_api::wire::{Item, SendBodies, Told};
use politely_core::Timestamp;
use politely_core::budget::UnitCosts;
use politely_core::host::{AcquireRequest, Directions};
use politely_core::key::Key;
use politely_core::retry::Attempt;
use politely_core::signal::{BODY_SCANNED, Outcome, Report, is_error_page};
use politely_store::{HeldLease, safe_length};
use tokio::sync::oneshot;

use super::Shared;
use super::outcome::{amounts, outcome_of};
use crate::backend::operations::Later;
use crate::backend::prefetch::Prefetched;
use crate::leases::{Decision, PermitGuard};
use crate::permit::{Departure, Permit};

/// The maximum time to wait for the coordinator's decision about a request.
const JUDGED_WITHIN: Duration = Duration::from_secs(2);

/// A permit as the coordinator granted it, with times of this limiter's clock.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) permit: String,
    pub(super) key: Key,
    pub(super) start: Timestamp,
    /// The latest time at which the request may leave.
    pub(super) valid_until: Timestamp,
    /// The length of its lease.
    pub(super) lasts: Duration,
    /// The answers that rules of the coordinator read.
    pub(super) send_bodies: Option<SendBodies>,
    /// The request, if it leaves on this worker's share. Its report names it.
    pub(super) sent: Option<Box<Item>>,
    /// Counts the permit, if this worker may go on with a share.
    #[expect(dead_code, reason = "the session counts the references")]
    pub(super) slot: Option<Arc<()>>,
}

impl Granted {
    pub(super) fn lease(&self) -> Lease {
        let until = self.start + safe_length(self.lasts);
        Lease::new(self.permit.clone(), until)
    }
}

impl Prefetched for Granted {
    fn start(&self) -> Timestamp {
        self.start
    }

    fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

/// The lease of a permit, by the permit's id. The session renews it as long as the permit's guard
/// exists.
pub(super) type Lease = HeldLease<String>;

/// An attempt, in the fields of the coordinator's API.
#[derive(Clone, Debug)]
struct Counted {
    /// The method. It is absent if the request may be sent again.
    method: Option<String>,
    number: u16,
    free: u16,
}

/// An answer, in the fields of the coordinator's API.
#[derive(Clone, Debug)]
struct Shown {
    headers: BTreeMap<String, String>,
    start: Option<String>,
}

impl Shown {
    /// Returns the headers that are texts, without cookies, and the beginning of the body.
    fn of(headers: &HeaderMap, body: Option<&[u8]>) -> Self {
        let texts = headers.iter().filter(|(name, _)| *name != SET_COOKIE);
        let texts = texts.filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        let start = body.map(|body| &body[..body.len().min(BODY_SCANNED)]);
        Self {
            headers: texts.collect(),
            start: start.map(|start| String::from_utf8_lossy(start).into_owned()),
        }
    }
}

/// The guard of a permit. Dropping it without a report cancels the permit.
pub(crate) struct CoordinatorGuard {
    shared: Arc<Shared>,
    granted: Granted,
    lease: Arc<Lease>,
    sent: bool,
    /// The attempt of the request, if attempts are counted.
    attempt: Option<Counted>,
    /// The parts of the answer that rules of the coordinator read.
    shown: Option<Shown>,
    /// The report of the head. It is sent again with the bytes when the body has come.
    head: Option<Box<Told>>,
    over: bool,
}

impl CoordinatorGuard {
    /// Creates the guard of `granted`. Its lease is renewed from now on.
    pub(super) fn new(shared: &Arc<Shared>, granted: Granted) -> Self {
        let lease = Arc::new(granted.lease());
        shared.session.lock().hold(&granted, &lease);
        Self {
            shared: Arc::clone(shared),
            granted,
            lease,
            sent: false,
            attempt: None,
            shown: None,
            head: None,
            over: false,
        }
    }

    pub(super) const fn start(&self) -> Timestamp {
        self.granted.start
    }

    pub(super) fn into_permit(self) -> Permit {
        // The coordinator knows what the permit gives back.
        let unused = AcquireRequest::default().unused();
        let departure = Departure::new(self.granted.start, f64::INFINITY, 1, unused);
        Permit::guarded(Box::new(self), departure)
    }

    /// Returns whether the request may still leave.
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        now <= self.granted.valid_until
    }

    fn outcome(&mut self, report: &Report, body_coming: bool) -> Told {
        let mut outcome = outcome_of(&self.granted.permit, report, body_coming);
        outcome.sent.clone_from(&self.granted.sent);
        if let Some(Shown { headers, start }) = self.shown.take() {
            (outcome.headers, outcome.body_start) = (headers, start);
        }
        match self.attempt.clone() {
            None => outcome,
            Some(Counted {
                method,
                number,
                free,
            }) => Told {
                method,
                attempt: number,
                free,
                ..outcome
            },
        }
    }

    fn send(&self, outcome: Told, report: &Report) -> Directions {
        let now = self.shared.clock.now();
        let directions = self
            .shared
            .session
            .lock()
            .report(&self.granted.key, outcome, report, now);
        self.shared.wake.notify_one();
        directions
    }
}

impl PermitGuard for CoordinatorGuard {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn lease(&self) -> Duration {
        self.granted.lasts
    }

    fn sent(&mut self) {
        self.sent = true;
    }

    fn renew(&self) -> Option<Duration> {
        self.lease.left(self.shared.clock.now())
    }

    fn abandon(mut self: Box<Self>) {
        self.over = true;
    }

    fn report(mut self: Box<Self>, report: &Report) -> Directions {
        self.over = true;
        let outcome = self.outcome(report, false);
        self.send(outcome, report)
    }

    fn report_head(&mut self, report: &Report) -> Directions {
        let outcome = self.outcome(report, true);
        let later = Told {
            bytes: 0,
            headers: BTreeMap::new(),
            body_start: None,
            ..outcome.clone()
        };
        self.head = Some(Box::new(later));
        self.send(outcome, report)
    }

    fn needs_body(&self) -> bool {
        self.granted.send_bodies == Some(SendBodies::All)
    }

    fn is_ruled_elsewhere(&self) -> bool {
        true
    }

    fn show(&mut self, outcome: &Outcome<'_>) -> bool {
        let (
            Some(asked),
            &Outcome::Answered {
                status,
                headers,
                body_start,
            },
        ) = (self.granted.send_bodies, outcome)
        else {
            return false;
        };
        let is_read = asked == SendBodies::All || is_error_page(status.as_u16());
        self.shown = Some(Shown::of(headers, is_read.then_some(body_start)));
        is_read
    }

    fn settle(&mut self, used: &UnitCosts) {
        if let Some(head) = &mut self.head {
            head.used.extend(amounts(used));
        }
    }

    fn received(&mut self, bytes: u64) {
        if let Some(head) = &mut self.head {
            head.bytes = head.bytes.saturating_add(bytes);
        }
    }

    fn judge(
        &mut self,
        attempt: &Attempt,
        repeatable: bool,
    ) -> Option<Later<'static, Option<Decision>>> {
        if self.granted.sent.is_some() {
            // No coordinator answers.
            return None;
        }
        let most = u32::from(u16::MAX);
        self.attempt = Some(Counted {
            // The client knows whether the request may be repeated: by the user's policy, and by
            // whether it has a copy.
            method: (!repeatable).then(|| attempt.method.to_string()),
            number: attempt.number.min(most) as u16,
            free: attempt.free().min(most) as u16,
        });
        let (judge, judged) = oneshot::channel();
        let permit = self.granted.permit.clone();
        self.shared.session.lock().expect_decision(permit, judge);
        Some(Box::pin(async move {
            let judged = tokio::time::timeout(JUDGED_WITHIN, judged).await;
            judged.ok()?.ok()
        }))
    }

    /// Returns the guard alone, since a coordinator grants one departure at a time.
    fn split(self: Box<Self>) -> Vec<Box<dyn PermitGuard>> {
        vec![self]
    }
}

impl Drop for CoordinatorGuard {
    fn drop(&mut self) {
        let mut session = self.shared.session.lock();
        session.let_go();
        if !self.over {
            match self.head.take() {
                Some(mut outcome) => {
                    outcome.body_coming = false;
                    session.queue_report(&self.granted.key, *outcome);
                }
                None => session.let_lapse(&mut self.granted, self.sent),
            }
        }
        drop(session);
        self.shared.wake.notify_one();
    }
}

impl std::fmt::Debug for CoordinatorGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CoordinatorGuard")
            .field(&self.granted)
            .finish()
    }
}
