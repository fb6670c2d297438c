//! The attempts of one request, as far as its retries depend on them.

use std::time::Duration;

use http::Method;

use crate::fault::Failures;
use crate::signal::{Failure, Report, Signal};

/// The attempt that a report is about. Start with [`Attempt::first`], go on with
/// [`Attempt::following`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// How many times the request has been sent, this time included: 1, 2, … Proxies may rotate by
    /// it.
    pub number: u32,
    /// The request's method.
    pub method: Method,
    /// How many earlier attempts the host refused, whatever the page.
    pub refusals: u32,
    /// The failures of earlier attempts, and of this one after [`crate::retry::Policy::judge`].
    pub failures: Failures,
    /// How many attempts just before this one were answered 429.
    pub consecutive_429: u32,
    /// The delay before this attempt, if there was one. Decorrelated jitter grows from it.
    pub previous_delay: Option<Duration>,
}

impl Attempt {
    /// Returns the first attempt of a request.
    pub const fn first(method: Method) -> Self {
        Self {
            number: 1,
            method,
            refusals: 0,
            failures: Failures::counted(0),
            consecutive_429: 0,
            previous_delay: None,
        }
    }

    /// Returns this attempt as one of a safe method, if `resends` says that its method may be sent
    /// again after a refusal, and the server did not process the request: `report` is a refusal,
    /// or there was no connection.
    #[must_use]
    pub fn as_resent(&self, resends: bool, report: &Report) -> Self {
        let mut attempt = self.clone();
        let is_unprocessed = match report.failure {
            None => report.signal == Signal::RateLimited,
            Some(failure) => matches!(failure, Failure::Connect | Failure::Resolver),
        };
        if resends && is_unprocessed {
            attempt.method = Method::GET;
        }
        attempt
    }

    /// Returns how many earlier attempts did not count: the host refused them, or was down.
    pub const fn free(&self) -> u32 {
        self.number
            .saturating_sub(1)
            .saturating_sub(self.failures.own)
    }

    /// Returns the attempt after this one, which ended in `report` and is followed by a retry after
    /// `delay`.
    #[must_use]
    pub fn following(self, report: &Report, delay: Duration) -> Self {
        Self {
            number: self.number.saturating_add(1),
            refusals: self
                .refusals
                .saturating_add(u32::from(report.signal == Signal::RateLimited)),
            failures: self.failures,
            consecutive_429: self.in_a_row(report),
            // A requeued request has no delay of its own.
            previous_delay: if delay.is_zero() {
                self.previous_delay
            } else {
                Some(delay)
            },
            method: self.method,
        }
    }

    /// Returns the consecutive 429s up to and with this report.
    pub(super) const fn in_a_row(&self, report: &Report) -> u32 {
        if matches!(report.status, Some(429)) {
            self.consecutive_429.saturating_add(1)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_resent_only_if_the_server_did_not_process_it() {
        let report = |signal, failure| Report {
            failure,
            ..Report::of(signal)
        };
        for (report, is_resent) in [
            (report(Signal::RateLimited, None), true),
            (report(Signal::Unreachable, Some(Failure::Connect)), true),
            (report(Signal::Unreachable, Some(Failure::Resolver)), true),
            (report(Signal::Unreachable, Some(Failure::Timeout)), false),
            (report(Signal::Unreachable, Some(Failure::Reset)), false),
            (report(Signal::Overloaded, None), false),
        ] {
            let attempt = Attempt::first(Method::POST);
            let method = attempt.as_resent(true, &report).method;
            assert_eq!(method == Method::GET, is_resent, "{report:?}");
            assert_eq!(attempt.as_resent(false, &report).method, Method::POST);
        }
    }
}
