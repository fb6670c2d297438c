//! What was heard of a request: its report, from the head of its answer or from its failure.

use std::time::Duration;

use http::Response;
use http_body::Body;
use politely_core::gate::HoldReason;
use politely_core::host::Directions;
use politely_core::signal::{Failure, Outcome, Report, Resource, is_error_page};

use super::Attempts;
use super::body::{PacedBody, Peeked};
use crate::clock::wall_clock;
use crate::limiter::Plan;
use crate::permit::Permit;
use crate::slot::Slot;

impl Attempts {
    /// Returns the report of a request without a response.
    pub(super) fn report_of(
        &self,
        failure: Failure,
        latency: Duration,
        resource: Option<Resource>,
    ) -> Report {
        let outcome = Outcome::Failed(failure);
        let report = self.classifier.classify(&outcome, wall_clock(), latency, 0);
        Report { resource, ..report }
    }

    /// Reports a response and moves the slots into its body. Also returns whether rules of a
    /// coordinator read the body.
    pub(super) async fn read_head<B: Body>(
        &self,
        response: Response<B>,
        mut permit: Permit,
        latency: Duration,
        plan: &Plan,
        resource: Option<Resource>,
    ) -> (Report, Directions, Response<PacedBody<B>>, bool) {
        let key = plan.key();
        let (head, body) = response.into_parts();
        let mut body = Peeked::new(body);
        let needs_body = plan.needs_bodies() || permit.needs_body();
        if needs_body || self.classifier.reads_bodies() || is_error_page(head.status.as_u16()) {
            body.read_start().await;
        }
        let outcome = Outcome::Answered {
            status: head.status,
            headers: &head.headers,
            body_start: body.start(),
        };
        let is_shown = permit.add_answer(&outcome);
        let clock = wall_clock();
        let mut report = self.classifier.classify(&outcome, clock, latency, 0);
        report.resource = resource;
        let held = plan.judge_and_warn(&outcome, clock, &mut report);
        self.limiter.hear_scope(plan, &mut report);
        let (directions, slot): (_, Slot) = permit.report_head(&report);
        if let Some(length) = held {
            // If there is no room for the key, it has no request to hold.
            let _ = self.limiter.hold(key, length, HoldReason::Operator);
        }
        let (others, length) = plan.held(&report);
        for other in others {
            // The keys of a granted request are known, so there is room for them.
            let _ = self.limiter.hold(other, length, HoldReason::RetryAfter);
        }
        let hold = directions.hold_until.since(self.limiter.now());
        if !hold.is_zero() {
            tracing::debug!(%key, signal = ?report.signal, hold_ms = hold.as_millis() as u64, "hold");
        }
        let response = Response::from_parts(head, body.holding(slot));
        (report, directions, response, is_shown)
    }
}
