//! Tests of `classify.rs`.

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
fn row_statuses_of_limits() {
    for status in [420, 429, 430, 508, 509, 999] {
        for fields in [&[][..], &[WAIT], &WELL, &EXHAUSTED] {
            assert_eq!(signal(status, fields), Signal::RateLimited, "{status}");
        }
    }
}

/// GitHub's secondary limit: KnpLabs/php-github-api#1072.
#[test]
fn row_retry_after_beside_a_quota_that_has_some_left() {
    for status in [400, 403, 500, 503] {
        let report = answered(status, &[WAIT, WELL[0], WELL[1]], "");
        assert_eq!(report.signal, Signal::RateLimited, "{status}");
        assert_eq!(report.retry_after, Some(Duration::from_secs(30)));
    }
}

#[test]
fn row_limits_in_words() {
    let words = r#"{"message": "You have exceeded a secondary rate limit."}"#;
    for status in [400, 403, 500, 503] {
        for fields in [&[][..], &WELL] {
            let report = answered(status, fields, words);
            assert_eq!(report.signal, Signal::RateLimited, "{status}");
            assert_eq!(report.retry_after, None);
        }
    }
    // In a refusal, the end of the window may well be meant as a wait.
    let report = answered(403, &[("retry-after", "60"), WELL[0], WELL[1]], words);
    assert_eq!(report.signal, Signal::RateLimited);
    assert_eq!(report.retry_after, Some(Duration::from_mins(1)));
    for status in [200, 404, 410] {
        assert_eq!(answered(status, &[], words).signal, Signal::Ok, "{status}");
    }
    let page = "<h1>403 Forbidden</h1>";
    assert_eq!(answered(403, &[], page).signal, Signal::UrlError);
}

#[test]
fn a_redirects_wait_is_for_its_target() {
    for status in [301, 302, 303, 307, 308] {
        let report = answered(status, &[WAIT], "");
        assert_eq!(report.signal, Signal::Ok, "{status}");
        assert_eq!(report.retry_after, None, "{status}");
        assert_eq!(
            report.target_after,
            Some(Duration::from_secs(30)),
            "{status}"
        );
    }
    assert_eq!(answered(404, &[WAIT], "").target_after, None);
}

#[test]
fn row_other_refusals_with_retry_after() {
    for status in [400, 401, 403, 413, 500, 502, 503, 504, 509, 529] {
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
        400, 401, 402, 403, 405, 406, 408, 418, 451, 500, 501, 505, 519, 525, 530, 599,
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
fn waits_are_told_from_400_on() {
    let wait = Some(Duration::from_secs(30));
    assert_eq!(answered(200, &[WAIT], "").retry_after, None);
    for status in [404, 403, 429, 503] {
        assert_eq!(answered(status, &[WAIT], "").retry_after, wait, "{status}");
    }
}

/// Flask-Limiter answers like this. Regression: a missing page held its host for a whole
/// window.
#[test]
fn beside_a_quota_that_has_some_left_a_wait_is_the_windows_end() {
    let flask = [("retry-after", "59"), WELL[0], WELL[1]];
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
            Some(Duration::from_secs(59)),
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
fn a_refusal_waits_as_long_as_odd_headers_say() {
    let cases: [(&[(&'static str, &str)], u64); 10] = [
        (
            &[
                ("x-hubspot-ratelimit-max", "100"),
                ("x-hubspot-ratelimit-remaining", "0"),
                ("x-hubspot-ratelimit-interval-milliseconds", "10000"),
            ],
            10,
        ),
        (
            &[
                ("x-ratelimit-used", "603"),
                ("x-ratelimit-remaining", "-3.0"),
                ("x-ratelimit-reset", "40"),
            ],
            40,
        ),
        (&[("x-ratelimit-reset", "40")], 40),
        (&[("x-ratelimit-reset-requests", "40s")], 40),
        (
            &[
                ("x-ratelimit-remaining", "0, 5"),
                ("x-ratelimit-limit", "10, 50"),
                ("x-ratelimit-reset", "40, 2"),
            ],
            40,
        ),
        (&[("ratelimit", r#""d";t=40"#)], 40),
        (
            &[
                ("ratelimit", r#""d";t=40"#),
                ("ratelimit-policy", r#""d";q=10;w=60"#),
            ],
            40,
        ),
        (
            &[
                ("ratelimit-limit", "100;w=21600"),
                ("ratelimit-remaining", "0;w=21600"),
            ],
            0,
        ),
        // The rest was stated, so the reset ends a window and no wait.
        (
            &[
                ("x-ratelimit-remaining", "7"),
                ("x-ratelimit-reset-tokens", "40"),
            ],
            0,
        ),
        (
            &[("x-ratelimit-reset", "Fri, 20 Nov 2026 10:45:37 GMT")],
            60,
        ),
    ];
    for (headers, secs) in cases {
        let wait = (secs > 0).then(|| Duration::from_secs(secs));
        assert_eq!(answered(429, headers, "").retry_after, wait, "{headers:?}");
        assert_eq!(answered(200, headers, "").retry_after, None, "{headers:?}");
    }
}

#[test]
fn quotas_are_told_with_every_answer() {
    assert_eq!(
        answered(200, &WELL, "")
            .quotas
            .of_requests()
            .and_then(|quota| quota.remaining),
        Some(4999)
    );
    assert_eq!(
        answered(404, &EXHAUSTED, "")
            .quotas
            .of_requests()
            .and_then(|quota| quota.remaining),
        Some(0)
    );
    assert_eq!(answered(200, &[], "").quotas, Quotas::NONE);
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
        prop_assert!(report.target_after.is_none_or(|wait| !wait.is_zero() && wait <= WAIT_MAX));
        prop_assert!(status != StatusCode::OK || matches!(report.signal, Signal::Ok | Signal::Blocked));
    }
}

#[test]
fn a_server_may_say_whether_to_try_again() {
    let may = |status, value| answered(status, &[("x-should-retry", value)], "").may_retry;
    assert_eq!(
        (may(429, "false"), may(409, "true")),
        (Some(false), Some(true))
    );
    assert_eq!((may(429, "maybe"), may(200, "false")), (None, None));
}

#[test]
fn an_account_without_credit_is_no_limit_and_is_not_tried_again() {
    let body = r#"{"error":{"code":"insufficient_quota"}}"#;
    for status in [400, 402, 403, 429, 500, 503] {
        let report = answered(status, &[WAIT], body);
        let said = (report.signal, report.may_retry, report.retry_after);
        assert_eq!(said, (Signal::UrlError, Some(false), None), "{status}");
        let told = answered(status, &[("x-should-retry", "true")], body);
        assert_eq!(told.may_retry, Some(true), "the server's word comes first");
    }
    for status in [200, 404] {
        assert_eq!(answered(status, &[], body).may_retry, None, "{status}");
    }
}
