//! What was heard of a request: its report, from the head of its answer or from its failure.

use std::time::Duration;

use http::Response;
use http_body::Body;
use politely_core::gate::HoldReason;
use politely_core::host::Directions;
use politely_core::signal::{Failure, Outcome, Report, Resource, UsageReader, is_error_page};
use url::Url;

use super::Attempts;
use super::body::{PacedBody, Peeked};
use super::exchange::{Ended, Exchange};
use super::partial::PartialContent;
use crate::clock::wall_clock;
use crate::limiter::Plan;
use crate::permit::Permit;
use crate::slot::Slot;

/// A request whose answer, or failure, has come.
pub(super) struct Sent<'a> {
    pub(super) permit: Permit,
    pub(super) latency: Duration,
    pub(super) plan: &'a Plan,
    pub(super) url: &'a Url,
    pub(super) wants_part: bool,
    /// Whether the usage in the answer corrects the costs.
    pub(super) reads_usage: bool,
}

/// What was heard of a request, and was reported.
pub(super) struct Heard<B: Body, E> {
    pub(super) report: Report,
    pub(super) directions: Directions,
    /// What the caller gets if there is no further attempt.
    pub(super) came: Result<Response<PacedBody<B>>, Ended<E>>,
    /// Whether rules of a coordinator read the body.
    pub(super) is_shown: bool,
}

/// A failure that was not reported.
pub(super) enum Unreported<E> {
    /// This machine's network is at fault.
    OwnFault(E),
    /// The request was never sent.
    NotSent(E),
}

impl Attempts {
    /// Reports the result of a request, unless this machine is at fault.
    pub(super) async fn hear<X: Exchange>(
        &self,
        result: Result<Response<X::Body>, X::Error>,
        sent: Sent<'_>,
    ) -> Result<Heard<X::Body, X::Error>, Unreported<X::Error>> {
        let (now, key) = (self.limiter.now(), sent.plan.key());
        let error = match result {
            Ok(response) => {
                self.own_machine.answered(now, key);
                return Ok(self.hear_answer::<X>(response, sent).await);
            }
            Err(error) => error,
        };
        let Some(failure) = X::failure(&error) else {
            return Err(Unreported::NotSent(error));
        };
        let trouble = X::trouble(&error, failure);
        if self.own_machine.failed(now, key, trouble) {
            return Err(Unreported::OwnFault(error));
        }
        let report = self.report_of(failure, &sent);
        Ok(Heard {
            directions: sent.permit.report(&report),
            report,
            came: Err(Ended::Failed(error)),
            is_shown: false,
        })
    }

    async fn hear_answer<X: Exchange>(
        &self,
        response: Response<X::Body>,
        sent: Sent<'_>,
    ) -> Heard<X::Body, X::Error> {
        let Sent {
            url, wants_part, ..
        } = sent;
        let (report, directions, response, is_shown) = self.read_head(response, sent).await;
        self.delay_target(&report, response.headers(), url);
        let part = PartialContent::of(response.status(), response.headers());
        let came = match part.filter(|_| !wants_part) {
            Some(part) => Err(Ended::Partial(part)),
            None => Ok(response),
        };
        Heard {
            report,
            directions,
            came,
            is_shown,
        }
    }

    /// Returns the report of a request without a response.
    fn report_of(&self, failure: Failure, sent: &Sent<'_>) -> Report {
        let outcome = Outcome::Failed(failure);
        let report = (self.classifier).classify(&outcome, wall_clock(), sent.latency, 0);
        Report {
            resource: Some(Resource::of(sent.url.as_str())),
            ..report
        }
    }

    /// Reports a response and moves the slots into its body. Also returns whether rules of a
    /// coordinator read the body.
    async fn read_head<B: Body>(
        &self,
        response: Response<B>,
        sent: Sent<'_>,
    ) -> (Report, Directions, Response<PacedBody<B>>, bool) {
        let Sent {
            mut permit,
            latency,
            plan,
            url,
            reads_usage,
            ..
        } = sent;
        let key = plan.key();
        let (head, body) = response.into_parts();
        let usage = reads_usage
            .then(|| UsageReader::of(&head.headers))
            .flatten();
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
        report.resource = Some(Resource::of(url.as_str()));
        let held = plan.judge_and_warn(&outcome, clock, &mut report);
        let about = self.limiter.hear_scope(plan, &mut report);
        let (directions, slot): (_, Slot) = permit.report_head(&report);
        report.signal = directions.meaning(&report);
        if let Some(length) = held {
            for key in plan.held_by(&about) {
                // If there is no room for the key, it has no request to hold.
                let _ = self.limiter.hold(key, length, HoldReason::Operator);
            }
        }
        let hold = directions.hold_until.since(self.limiter.now());
        if !hold.is_zero() {
            tracing::debug!(%key, signal = ?report.signal, hold_ms = hold.as_millis() as u64, "hold");
        }
        let response = Response::from_parts(head, body.holding(slot.reading(usage)));
        (report, directions, response, is_shown)
    }
}
