//! Tests of each dialect and each rule in the module's documentation.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::super::{QUOTAS_MAX, Unit};
use super::*;

mod properties;
mod providers;

/// 2026-11-20T10:44:37Z
const NOW: WallClock = WallClock::from_unix_secs(1_795_171_477);

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

fn named(fields: &[(&'static str, &str)]) -> Option<Quota> {
    quotas(&headers(fields), NOW).first().copied()
}

#[expect(clippy::unnecessary_wraps, reason = "compared with options")]
fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

fn all(limit: u64, window: u64, remaining: u64, reset: u64) -> Quota {
    Quota {
        limit: Some(limit),
        window: secs(window),
        remaining: Some(remaining),
        reset: secs(reset),
        ..Quota::default()
    }
}

#[test]
fn dialect_draft_10() {
    let fields = [
        ("ratelimit", r#""default";r=50;t=30"#),
        ("ratelimit-policy", r#""default";q=100;w=60"#),
    ];
    assert_eq!(named(&fields), Some(all(100, 60, 50, 30)));
}

#[test]
fn dialect_draft_10_partitioned_as_express_rate_limit_sends_it() {
    let fields = [
        (
            "ratelimit-policy",
            r#""100-in-1min"; q=100; w=60; pk=:MTJjYTE3YjQ5YWYy:"#,
        ),
        (
            "ratelimit",
            r#""100-in-1min"; r=99; t=60; pk=:MTJjYTE3YjQ5YWYy:"#,
        ),
    ];
    assert_eq!(named(&fields), Some(all(100, 60, 99, 60)));
}

#[test]
fn dialect_draft_10_without_times() {
    let bare = Quota {
        remaining: Some(7),
        ..Quota::default()
    };
    assert_eq!(named(&[("ratelimit", r#""d";r=7"#)]), Some(bare));
    let policy = Quota {
        limit: Some(5),
        window: secs(1),
        ..Quota::default()
    };
    assert_eq!(
        named(&[("ratelimit-policy", r#""d";q=5;w=1"#)]),
        Some(policy)
    );
}

#[test]
fn dialect_draft_07() {
    let fields = [
        ("ratelimit", "limit=100, remaining=50, reset=30"),
        ("ratelimit-policy", "10;w=1, 100;w=60"),
    ];
    assert_eq!(named(&fields), Some(all(100, 60, 50, 30)));
}

#[test]
fn dialect_draft_06() {
    let fields = [
        ("ratelimit-limit", "100, 10;w=1, 100;w=60;burst=5"),
        ("ratelimit-remaining", "50"),
        ("ratelimit-reset", "30"),
    ];
    assert_eq!(named(&fields), Some(all(100, 60, 50, 30)));
}

#[test]
fn dialect_gitlab() {
    let fields = [
        ("ratelimit-limit", "60"),
        ("ratelimit-observed", "67"),
        ("ratelimit-reset", "1795171537"),
        ("ratelimit-name", "throttle_authenticated_web"),
    ];
    let expected = Quota {
        limit: Some(60),
        window: None,
        remaining: Some(0),
        reset: secs(60),
        ..Quota::default()
    };
    assert_eq!(named(&fields), Some(expected));
}

#[test]
fn dialect_github() {
    let fields = [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4999"),
        ("x-ratelimit-used", "1"),
        ("x-ratelimit-reset", "1795175077"),
        ("x-ratelimit-resource", "core"),
    ];
    let expected = Quota {
        limit: Some(5000),
        window: None,
        remaining: Some(4999),
        reset: secs(3600),
        ..Quota::default()
    };
    assert_eq!(named(&fields), Some(expected));
}

#[test]
fn dialect_x() {
    let fields = [
        ("x-rate-limit-limit", "900"),
        ("x-rate-limit-remaining", "899"),
        ("x-rate-limit-reset", "1795172377"),
    ];
    let expected = Quota {
        limit: Some(900),
        window: None,
        remaining: Some(899),
        reset: secs(900),
        ..Quota::default()
    };
    assert_eq!(named(&fields), Some(expected));
}

#[test]
fn dialect_reddit_names_no_limit_and_counts_in_fractions() {
    let fields = [
        ("x-ratelimit-used", "3.5"),
        ("x-ratelimit-remaining", "96.5"),
        ("x-ratelimit-reset", "338"),
    ];
    let expected = Quota {
        limit: Some(100),
        window: None,
        remaining: Some(96),
        reset: secs(338),
        ..Quota::default()
    };
    assert_eq!(named(&fields), Some(expected));
}

#[test]
fn dialect_envoy() {
    let fields = [
        (
            "x-ratelimit-limit",
            "10, 10;w=1;name=\"default-route\", 1000;w=3600",
        ),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset", "1"),
    ];
    assert_eq!(named(&fields), Some(all(10, 1, 9, 1)));
}

#[test]
fn rule_the_tightest_quota_is_reported() {
    let daily_is_short = [
        ("ratelimit", r#""burst";r=90;t=30, "daily";r=100;t=40000"#),
        (
            "ratelimit-policy",
            r#""burst";q=100;w=60, "daily";q=1000;w=86400"#,
        ),
    ];
    assert_eq!(named(&daily_is_short), Some(all(1000, 86_400, 100, 40_000)));
    let both_exhausted = [("ratelimit", r#""burst";r=0;t=3, "daily";r=0;t=40000"#)];
    assert_eq!(
        named(&both_exhausted).and_then(|quota| quota.reset),
        secs(40_000)
    );
    let one_exhausted = [("ratelimit", r#""a";r=1;t=86400, "b";r=0;t=1"#)];
    assert_eq!(named(&one_exhausted).and_then(|quota| quota.reset), secs(1));
}

#[test]
fn rule_the_tightest_of_two_dialects() {
    let fields = [
        ("ratelimit", r#""d";r=50;t=1"#),
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "1"),
        ("x-ratelimit-reset", "60"),
    ];
    assert_eq!(named(&fields).and_then(|quota| quota.limit), Some(100));
}

#[test]
fn rule_what_is_left_until_reset_is_no_rate_above_the_policy() {
    let fields = [
        ("ratelimit", r#""big";r=10000;t=10, "small";r=81;t=9"#),
        (
            "ratelimit-policy",
            r#""big";q=10000;w=1000, "small";q=100;w=1"#,
        ),
    ];
    assert_eq!(
        named(&fields).and_then(|quota| quota.limit),
        Some(100),
        "9/s by r/t"
    );
    let fields = [
        ("ratelimit", r#""big";r=10000;t=10, "small";r=110;t=10"#),
        (
            "ratelimit-policy",
            r#""big";q=10000;w=1000, "small";q=100;w=1"#,
        ),
    ];
    assert_eq!(
        named(&fields).and_then(|quota| quota.limit),
        Some(10_000),
        "10/s by q/w, not 1000/s"
    );
}

#[test]
fn rule_cached_responses_say_nothing() {
    let field = ("ratelimit", r#""d";r=5;t=1"#);
    assert_eq!(named(&[field, ("age", "3")]), None);
    assert!(named(&[field, ("age", "0")]).is_some());
    assert!(named(&[field, ("age", "old")]).is_some());
}

#[test]
fn rule_each_quota_has_its_unit() {
    let fields = [
        ("ratelimit", r#""bytes";r=0;t=9, "slots";r=0, "d";r=5;t=2"#),
        (
            "ratelimit-policy",
            r#""bytes";q=9;qu="content-bytes", "slots";q=4;qu="concurrent-requests", "d";q=9;w=3"#,
        ),
    ];
    let found = quotas(&headers(&fields), NOW);
    let units: Vec<_> = found.iter().map(|quota| quota.unit).collect();
    assert_eq!(units, [Unit::Bytes, Unit::Requests, Unit::Concurrency]);
    assert_eq!(found.of_requests(), Some(all(9, 3, 5, 2)));
    assert_eq!(found.spent_until(), secs(9), "slots are no matter of time");
}

#[test]
fn rule_a_limit_of_zero_says_nothing() {
    let fields = [
        ("x-ratelimit-limit", "0"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "60"),
    ];
    assert_eq!(named(&fields), None);
}

#[test]
fn rule_lines_of_one_field_the_least_left_and_the_longest_reset() {
    let fields = [
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "30"),
        ("x-ratelimit-remaining", "3"),
        ("x-ratelimit-reset", "9"),
        ("x-ratelimit-reset", "90"),
    ];
    let found = named(&fields).expect("a quota");
    assert_eq!((found.remaining, found.reset), (Some(3), secs(90)));
}

#[test]
fn rule_malformed_is_ignored() {
    for text in [
        "",
        "   ",
        "garbage here",
        r#""d""#,
        r#""d";r"#,
        r#""d";r=-1"#,
        r#""d";r=1.5"#,
        r#""d";r="5""#,
        "d;r=5",
        r#""d";r=5;t=-1"#,
        r#""d";r=5;t=soon"#,
        r#"("d";r=5)"#,
        r#""d";r=5,"#,
        r#""d;r=5"#,
        "limit=x",
        "reset=5",
    ] {
        assert_eq!(named(&[("ratelimit", text)]), None, "{text}");
    }
    for text in [
        r#""d";w=5"#,
        r#""d";q=5;w=0"#,
        r#""d";q=5;w=-1"#,
        r#""d";q=5;qu=requests"#,
        "x;w=1",
    ] {
        assert_eq!(named(&[("ratelimit-policy", text)]), None, "{text}");
    }
    for text in ["", "-1", "unlimited", "1e3", "NaN", "0x10", "5 6", "½", "."] {
        assert_eq!(named(&[("x-ratelimit-remaining", text)]), None, "{text}");
    }
    assert_eq!(
        named(&[("x-ratelimit-reset", "5"), ("x-ratelimit-resource", "core")]),
        None
    );
}

#[test]
fn rule_one_malformed_item_spoils_no_other() {
    let fields = [
        ("ratelimit", r#""bad";r=-1, "good";r=5;t=2"#),
        ("x-ratelimit-limit", "?"),
    ];
    assert_eq!(named(&fields).and_then(|quota| quota.remaining), Some(5));
}

#[test]
fn rule_absurd_numbers_are_bounded() {
    let max = Some(COUNT_MAX);
    let digits = "9".repeat(80);
    let fields = [
        ("x-ratelimit-limit", digits.as_str()),
        ("x-ratelimit-remaining", &digits),
    ];
    let expected = Quota {
        limit: max,
        remaining: max,
        ..Quota::default()
    };
    assert_eq!(named(&fields), Some(expected));
    let fields = [
        ("x-ratelimit-used", digits.as_str()),
        ("x-ratelimit-remaining", &digits),
    ];
    assert_eq!(named(&fields), Some(expected));
    let fields = [
        ("ratelimit", r#""d";r=999999999999999;t=999999999999999"#),
        (
            "ratelimit-policy",
            r#""d";q=999999999999999;w=999999999999999"#,
        ),
    ];
    assert_eq!(named(&fields), Some(expected));
}

#[test]
fn rule_never_more_left_than_the_limit() {
    let fields = [("x-ratelimit-limit", "10"), ("x-ratelimit-remaining", "50")];
    assert_eq!(named(&fields).and_then(|quota| quota.remaining), Some(10));
}

#[test]
fn long_fields_are_not_read() {
    let long = format!(r#""{}";r=5"#, "d".repeat(5_000));
    assert_eq!(named(&[("ratelimit", &long)]), None);
}

#[test]
fn lines_of_one_field_are_one_list() {
    let fields = [
        ("ratelimit", r#""a";r=50;t=1"#),
        ("ratelimit", r#""b";r=1;t=60"#),
    ];
    assert_eq!(named(&fields).and_then(|quota| quota.remaining), Some(1));
}

#[test]
fn trap_clock_skew_the_servers_date_decides() {
    // This machine is a day ahead of the server.
    let headers = headers(&[
        ("date", "Fri, 20 Nov 2026 10:44:37 GMT"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1795171537"),
    ]);
    let found = quotas(
        &headers,
        WallClock::from_unix_secs(NOW.as_unix_secs() + 86_400),
    );
    assert_eq!(found[0].reset, secs(60));
}

/// Regression with Flask-Limiter and a window of one second. The Date was of the second before the
/// reset was computed, and the reset was read as three seconds. The window was then learned as
/// twice its length, and no later response corrected it.
#[test]
fn a_date_that_has_just_passed_makes_no_rest_longer() {
    let headers = headers(&[
        ("date", "Fri, 20 Nov 2026 10:44:37 GMT"),
        ("x-ratelimit-remaining", "4"),
        ("x-ratelimit-reset", "1795171480"),
    ]);
    let date = 1_795_171_477;
    let rest = |clock| quotas(&headers, WallClock::from_unix_secs(clock))[0].reset;
    assert_eq!(rest(date), secs(3));
    assert_eq!(rest(date + 1), secs(2));
    assert_eq!(rest(date + 2), secs(3), "a clock that is wrong");
    assert_eq!(rest(date - 1), secs(3));
}

#[test]
fn no_limit_headers_no_quota() {
    let fields = [
        ("x-rate", "1"),
        ("x-request-id", "7"),
        ("x-ratings", "5"),
        ("rate", "1"),
        ("age", "0"),
    ];
    assert_eq!(named(&fields), None);
}
