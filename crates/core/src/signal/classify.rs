//! What does an outcome mean for its key?
//!
//! The first row that fits decides:
//!
//! | outcome | signal |
//! | --- | --- |
//! | challenge or block page (`block.rs`) | Blocked |
//! | 1xx, 2xx, 3xx | what the soft-block hook says, else Ok |
//! | 404, 410 | the same: the host answered well, the page is gone |
//! | 429 | `RateLimited` |
//! | any other 4xx or 5xx with a Retry-After that asks for a wait | `RateLimited` |
//! | 403, 503 with an exhausted quota (GitHub) | `RateLimited` |
//! | 502, 503, 504, 520 to 524 | Overloaded |
//! | any other | `UrlError` |
//! | no answer in time, connection broken | Overloaded |
//! | name, connection or TLS failed | Unreachable |
//! | not HTTP | `UrlError` |
//!
//! Plain 401, 403 and 406 say nothing about rates: a host full of private pages is not slow. Plain 500s neither; a
//! noisy host is not a loaded one. An exhausted quota counts only where a limit is the likely reason: the last request
//! a quota allows can well be answered 422. The codes some APIs put into bodies of 400s are no part of this.
//!
//! A wait is told for every status from 300 on (RFC 9110 lets redirects carry one) and for whatever is not Ok. Without a
//! Retry-After, an exhausted quota's reset is what a limited server asks for. With one, it wins. But Flask-Limiter sends its window's
//! end as Retry-After with every answer: beside a quota that has some left only 429 and 503 ask for a wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::block::block_page;
use super::clock::WallClock;
use super::limit_headers::quota;
use super::retry_after::{WAIT_MAX, retry_after};
use super::{Failure, Outcome, Quota, Report, Signal};

/// What one outcome means, by the table above.
///
/// `latency` is from sending to the response's head, `bytes` what was received. A plain 200 costs one pass over its
/// header names and no allocation.
pub fn classify(outcome: &Outcome<'_>, clock: WallClock, latency: Duration, bytes: u64) -> Report {
    Classifier::default().classify(outcome, clock, latency, bytes)
}

type SoftBlock = dyn Fn(&Outcome<'_>) -> Option<Signal> + Send + Sync;

/// [`classify`] with what the user knows about a site's good-looking refusals.
#[derive(Clone, Default)]
pub struct Classifier {
    soft_block: Option<Arc<SoftBlock>>,
}

impl Classifier {
    /// Asks `hook` about every answer the table calls Ok: a 200 may say "try again later", in words only the site's user
    /// knows. `None` leaves it Ok. It runs on the worker's path for each page, so it should look at little.
    #[must_use]
    pub fn with_soft_block(
        hook: impl Fn(&Outcome<'_>) -> Option<Signal> + Send + Sync + 'static,
    ) -> Self {
        Self {
            soft_block: Some(Arc::new(hook)),
        }
    }

    /// Whether the beginnings of good-looking answers' bodies matter: there is a hook to read them.
    pub const fn reads_bodies(&self) -> bool {
        self.soft_block.is_some()
    }

    /// [`classify`], the hook asked.
    pub fn classify(
        &self,
        outcome: &Outcome<'_>,
        clock: WallClock,
        latency: Duration,
        bytes: u64,
    ) -> Report {
        match *outcome {
            Outcome::Failed(failure) => Report {
                signal: of_failure(failure),
                status: None,
                failure: Some(failure),
                latency,
                bytes,
                retry_after: None,
                quota: None,
                resource: None,
            },
            Outcome::Answered {
                status,
                headers,
                body_start,
            } => {
                let quota = quota(headers, clock);
                let told = || retry_after(headers, clock);
                let asked = asks_for_wait(status, quota).then(told).flatten();
                let mut signal = of_answer(status, headers, body_start, asked, quota);
                if signal == Signal::Ok
                    && let Some(hook) = &self.soft_block
                {
                    signal = hook(outcome).unwrap_or(Signal::Ok);
                }
                let retry_after = match signal {
                    Signal::Ok | Signal::UrlError => asked,
                    Signal::RateLimited => told().or_else(|| until_reset(quota)),
                    _ => told(),
                };
                Report {
                    signal,
                    status: Some(status.as_u16()),
                    failure: None,
                    latency,
                    bytes,
                    retry_after,
                    quota,
                    resource: None,
                }
            }
        }
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier")
            .field("soft_block", &self.soft_block.is_some())
            .finish()
    }
}

fn asks_for_wait(status: StatusCode, quota: Option<Quota>) -> bool {
    let some_left = quota.is_some_and(|quota| quota.remaining.is_some_and(|left| left > 0));
    match status.as_u16() {
        429 | 503 => true,
        status => status >= 300 && !some_left,
    }
}

fn of_answer(
    status: StatusCode,
    headers: &HeaderMap,
    body_start: &[u8],
    asked: Option<Duration>,
    quota: Option<Quota>,
) -> Signal {
    if block_page(status, headers, body_start).is_some() {
        return Signal::Blocked;
    }
    match status.as_u16() {
        ..400 | 404 | 410 => Signal::Ok,
        429 => Signal::RateLimited,
        _ if asked.is_some() => Signal::RateLimited,
        403 | 503 if quota.is_some_and(is_exhausted) => Signal::RateLimited,
        // 520 to 524: Cloudflare cannot get a sound answer out of the server behind it. 529: overloaded, in so many words.
        502..=504 | 520..=524 | 529 => Signal::Overloaded,
        _ => Signal::UrlError,
    }
}

const fn of_failure(failure: Failure) -> Signal {
    match failure {
        Failure::NoSuchHost | Failure::Resolver | Failure::Connect | Failure::Tls => {
            Signal::Unreachable
        }
        // A server that breaks connections is as often short of something as one that does not answer.
        Failure::Timeout | Failure::Reset => Signal::Overloaded,
        Failure::Malformed => Signal::UrlError,
    }
}

fn is_exhausted(quota: Quota) -> bool {
    quota.remaining == Some(0)
}

/// The wait that a refusal's quota stands for, if it is exhausted or only says when it resets; bounded as Retry-After's is.
fn until_reset(quota: Option<Quota>) -> Option<Duration> {
    let reset = quota
        .filter(|quota| quota.remaining.is_none_or(|left| left == 0))?
        .reset?;
    (!reset.is_zero()).then(|| reset.min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    const NOW: WallClock = WallClock::from_unix_secs(1_795_171_477);

    fn answered(status: u16, fields: &[(&'static str, &str)], body: &str) -> Report {
        with(&Classifier::default(), status, fields, body)
    }

    fn with(by: &Classifier, status: u16, fields: &[(&'static str, &str)], body: &str) -> Report {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let value = HeaderValue::from_str(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        let status = StatusCode::from_u16(status).expect("a status");
        let outcome = Outcome::Answered {
            status,
            headers: &headers,
            body_start: body.as_bytes(),
        };
        by.classify(&outcome, NOW, Duration::from_millis(20), 7)
    }

    fn signal(status: u16, fields: &[(&'static str, &str)]) -> Signal {
        answered(status, fields, "").signal
    }

    const WAIT: (&str, &str) = ("retry-after", "30");
    const EXHAUSTED: [(&str, &str); 2] = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1795171537"),
    ];
    const WELL: [(&str, &str); 2] = [
        ("x-ratelimit-remaining", "4999"),
        ("x-ratelimit-reset", "1795171537"),
    ];

    #[test]
    fn row_blocked_comes_first() {
        let challenge = [WAIT, ("cf-mitigated", "challenge")];
        for status in [403, 429, 503] {
            let report = answered(status, &challenge, "");
            assert_eq!(report.signal, Signal::Blocked);
            assert_eq!(
                report.retry_after,
                Some(Duration::from_secs(30)),
                "a floor all the same"
            );
        }
        assert_eq!(
            answered(202, &[("x-amzn-waf-action", "challenge")], "").signal,
            Signal::Blocked
        );
    }

    #[test]
    fn row_ok() {
        for status in [100, 200, 204, 206, 301, 302, 304, 404, 410] {
            assert_eq!(signal(status, &[]), Signal::Ok, "{status}");
            assert_eq!(signal(status, &[WAIT]), Signal::Ok, "{status}");
            assert_eq!(signal(status, &EXHAUSTED), Signal::Ok, "{status}");
        }
    }

    #[test]
    fn row_429() {
        for fields in [&[][..], &[WAIT], &WELL, &EXHAUSTED] {
            assert_eq!(signal(429, fields), Signal::RateLimited);
        }
    }

    #[test]
    fn row_other_refusals_with_retry_after() {
        for status in [400, 401, 403, 413, 420, 500, 502, 503, 504, 509, 529] {
            assert_eq!(signal(status, &[WAIT]), Signal::RateLimited, "{status}");
        }
        assert_eq!(
            signal(403, &[("retry-after", "0")]),
            Signal::UrlError,
            "no wait is asked for"
        );
        assert_eq!(signal(503, &[("retry-after", "-1")]), Signal::Overloaded);
    }

    #[test]
    fn row_exhausted_quota_where_a_limit_is_likely() {
        assert_eq!(signal(403, &EXHAUSTED), Signal::RateLimited);
        assert_eq!(signal(503, &EXHAUSTED), Signal::RateLimited);
        assert_eq!(signal(403, &WELL), Signal::UrlError);
        assert_eq!(signal(503, &WELL), Signal::Overloaded);
        for status in [400, 401, 422, 500] {
            assert_eq!(
                signal(status, &EXHAUSTED),
                Signal::UrlError,
                "the quota's last answer: {status}"
            );
        }
    }

    #[test]
    fn row_overloaded() {
        for status in [502, 503, 504, 520, 521, 522, 523, 524, 529] {
            assert_eq!(signal(status, &[]), Signal::Overloaded, "{status}");
        }
    }

    #[test]
    fn row_url_error() {
        for status in [
            400, 401, 402, 403, 405, 406, 408, 418, 451, 500, 501, 505, 519, 525, 530, 599, 999,
        ] {
            assert_eq!(signal(status, &[]), Signal::UrlError, "{status}");
        }
    }

    #[test]
    fn row_failures() {
        for (failure, signal) in [
            (Failure::NoSuchHost, Signal::Unreachable),
            (Failure::Resolver, Signal::Unreachable),
            (Failure::Connect, Signal::Unreachable),
            (Failure::Tls, Signal::Unreachable),
            (Failure::Timeout, Signal::Overloaded),
            (Failure::Reset, Signal::Overloaded),
            (Failure::Malformed, Signal::UrlError),
        ] {
            let report = classify(&Outcome::Failed(failure), NOW, Duration::from_secs(9), 3);
            assert_eq!(
                (report.signal, report.failure, report.status),
                (signal, Some(failure), None)
            );
            assert_eq!((report.latency, report.bytes), (Duration::from_secs(9), 3));
        }
    }

    #[test]
    fn waits_are_told_from_300_on() {
        let wait = Some(Duration::from_secs(30));
        assert_eq!(answered(200, &[WAIT], "").retry_after, None);
        for status in [301, 404, 403, 429, 503] {
            assert_eq!(answered(status, &[WAIT], "").retry_after, wait, "{status}");
        }
    }

    /// As Flask-Limiter answers: a missing page held its host for a whole window.
    #[test]
    fn beside_a_quota_that_has_some_left_a_wait_is_the_windows_end() {
        let flask = [WAIT, WELL[0], WELL[1]];
        for (status, means) in [
            (301, Signal::Ok),
            (404, Signal::Ok),
            (403, Signal::UrlError),
            (500, Signal::UrlError),
            (502, Signal::Overloaded),
        ] {
            let report = answered(status, &flask, "");
            assert_eq!(report.signal, means, "{status}");
        }
        for status in [301, 404, 403, 500] {
            assert_eq!(answered(status, &flask, "").retry_after, None, "{status}");
        }
        for status in [429, 503] {
            let report = answered(status, &flask, "");
            assert_eq!(report.signal, Signal::RateLimited, "{status}");
            assert_eq!(
                report.retry_after,
                Some(Duration::from_secs(30)),
                "{status}"
            );
        }
    }

    #[test]
    fn retry_after_wins_over_a_reset_and_a_reset_over_nothing() {
        let both = [WAIT, EXHAUSTED[0], EXHAUSTED[1]];
        assert_eq!(
            answered(429, &both, "").retry_after,
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            answered(429, &EXHAUSTED, "").retry_after,
            Some(Duration::from_mins(1))
        );
        assert_eq!(
            answered(403, &EXHAUSTED, "").retry_after,
            Some(Duration::from_mins(1))
        );
        assert_eq!(answered(429, &WELL, "").retry_after, None);
        assert_eq!(answered(200, &EXHAUSTED, "").retry_after, None);
        let month = [("ratelimit", "\"m\";r=0;t=2592000")];
        assert_eq!(answered(429, &month, "").retry_after, Some(WAIT_MAX));
        let passed = [EXHAUSTED[0], ("x-ratelimit-reset", "1795171400")];
        assert_eq!(answered(429, &passed, "").retry_after, None);
    }

    #[test]
    fn quotas_are_told_with_every_answer() {
        assert_eq!(
            answered(200, &WELL, "")
                .quota
                .and_then(|quota| quota.remaining),
            Some(4999)
        );
        assert_eq!(
            answered(404, &EXHAUSTED, "")
                .quota
                .and_then(|quota| quota.remaining),
            Some(0)
        );
        assert_eq!(answered(200, &[], "").quota, None);
    }

    #[test]
    fn the_hook_is_asked_about_what_looks_ok_and_nothing_else() {
        let hook = Classifier::with_soft_block(|outcome| match outcome {
            Outcome::Answered { body_start, .. } if body_start.starts_with(b"slow down") => {
                Some(Signal::RateLimited)
            }
            Outcome::Answered { body_start, .. } if body_start.starts_with(b"robot?") => {
                Some(Signal::Blocked)
            }
            _ => None,
        });
        assert_eq!(with(&hook, 200, &[], "hello").signal, Signal::Ok);
        assert_eq!(with(&hook, 200, &[], "robot?").signal, Signal::Blocked);
        let limited = with(&hook, 200, &[WAIT], "slow down");
        assert_eq!(
            (limited.signal, limited.retry_after),
            (Signal::RateLimited, Some(Duration::from_secs(30)))
        );
        assert_eq!(with(&hook, 500, &[], "slow down").signal, Signal::UrlError);
        assert_eq!(with(&hook, 503, &[], "robot?").signal, Signal::Overloaded);
    }

    proptest! {
        #[test]
        fn any_answer_gets_a_report(
            status in 100_u16..1000,
            fields in proptest::collection::vec((0..5_usize, "\\PC{0,20}|[0-9]{0,25}"), 0..6),
            body in any::<Vec<u8>>(),
        ) {
            const NAMES: [&str; 5] = ["retry-after", "date", "x-ratelimit-remaining", "ratelimit-reset", "cf-mitigated"];
            let mut headers = HeaderMap::new();
            for (name, value) in &fields {
                if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                    headers.append(HeaderName::from_static(NAMES[*name]), value);
                }
            }
            let status = StatusCode::from_u16(status).expect("a status");
            let outcome = Outcome::Answered { status, headers: &headers, body_start: &body };
            let report = classify(&outcome, NOW, Duration::ZERO, 0);
            prop_assert_eq!(report.status, Some(status.as_u16()));
            prop_assert!(report.retry_after.is_none_or(|wait| !wait.is_zero() && wait <= WAIT_MAX));
            prop_assert!(status != StatusCode::OK || report.signal == Signal::Ok);
        }
    }
}
