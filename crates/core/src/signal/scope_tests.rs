use http::{HeaderName, HeaderValue, StatusCode};

use super::super::{Outcome, Quota, WallClock, classify};
use super::*;

const SPENT: [(&str, &str); 3] = [
    ("x-ratelimit-limit", "30"),
    ("x-ratelimit-remaining", "0"),
    ("x-ratelimit-reset-after", "60"),
];
const RESOURCE: (&str, &str) = ("x-ratelimit-resource", "search");
const BUCKET: (&str, &str) = ("x-ratelimit-bucket", "80c17d2f203122d936070c88c8d10f33");
const MINUTE: Option<Duration> = Some(Duration::from_mins(1));

fn report(status: u16, fields: &[(&'static str, &str)]) -> Report {
    let fields = fields.iter().map(|(name, value)| {
        let value = HeaderValue::from_str(value).expect("a value");
        (HeaderName::from_static(name), value)
    });
    let headers = fields.collect();
    let outcome = Outcome::Answered {
        status: StatusCode::from_u16(status).expect("a status"),
        headers: &headers,
        body_start: b"",
    };
    let clock = WallClock::from_unix_secs(1_795_171_477);
    classify(&outcome, clock, Duration::from_millis(5), 0)
}

/// Returns the report of `SPENT` and `more`.
fn spent(status: u16, more: &[(&'static str, &str)]) -> Report {
    report(status, &[&SPENT, more].concat())
}

#[test]
fn a_resource_or_a_bucket_is_named() {
    let scope = |fields: &[_]| {
        let scope = spent(200, fields).scope;
        scope.map(|scope| scope.name().as_str().to_owned())
    };
    assert_eq!(scope(&[RESOURCE]).as_deref(), Some("search"));
    assert_eq!(scope(&[BUCKET]).as_deref(), Some(BUCKET.1));
    let user = ("x-ratelimit-scope", "user");
    assert_eq!(scope(&[user]).as_deref(), Some("user"));
    assert_eq!(scope(&[user, BUCKET]).as_deref(), Some(BUCKET.1));
    assert_eq!(scope(&[]), None);
    for whole in [
        ("x-ratelimit-scope", "global"),
        ("x-ratelimit-global", "true"),
    ] {
        assert_eq!(scope(&[whole, BUCKET]), None, "{whole:?}");
    }
    assert_eq!(scope(&[("x-ratelimit-scope", "ip")]), None);
}

#[test]
fn a_name_that_is_none_names_nothing() {
    for name in ["", " ", "a b", "é", "a/b", "../x", &"n".repeat(65)] {
        assert_eq!(ScopeName::read(name), None, "{name}");
    }
    assert!(ScopeName::read(&"n".repeat(64)).is_some());
    assert_eq!(report(200, &[RESOURCE]).scope, None, "no quota");
}

#[test]
fn a_spent_quota_is_about_its_scope_alone() {
    for named in [RESOURCE, BUCKET] {
        let mut report = spent(200, &[named]);
        assert_eq!(report.narrow(), MINUTE);
        assert!(report.quotas.is_empty() && report.scope.is_none() && !report.of_scope);
        assert_eq!(report.narrow(), None, "once");
    }
    let mut whole = spent(200, &[]);
    assert_eq!(whole.narrow(), None);
    assert_eq!(whole.quotas.spent_until(), MINUTE, "as it was");
}

#[test]
fn a_quota_with_some_left_holds_nothing() {
    let left = [
        ("x-ratelimit-remaining", "1"),
        ("x-ratelimit-reset-after", "60"),
        RESOURCE,
    ];
    let mut report = report(200, &left);
    assert_eq!(report.narrow(), None);
    assert_eq!(report.quotas.len(), 0);
}

#[test]
fn a_refusal_by_a_spent_resource_is_of_the_scope() {
    for status in [403, 429] {
        let mut report = spent(status, &[RESOURCE]);
        assert_eq!(report.signal, Signal::RateLimited);
        assert_eq!(report.narrow(), MINUTE);
        assert!(report.of_scope, "{status}");
        assert_eq!(report.retry_after, MINUTE, "for the request itself");
    }
}

/// GitHub's secondary limits count all calls, and their refusals name the resource of the call.
#[test]
fn a_refusal_beside_a_resource_that_is_not_spent_is_of_the_whole_key() {
    let secondary = [
        ("x-ratelimit-remaining", "4000"),
        ("retry-after", "60"),
        RESOURCE,
    ];
    let mut report = report(403, &secondary);
    assert_eq!(report.narrow(), None);
    assert!(!report.of_scope);
    assert_eq!(
        (report.signal, report.retry_after),
        (Signal::RateLimited, MINUTE)
    );
}

/// The examples of Discord's documentation.
#[test]
fn a_refusal_that_names_a_bucket_is_of_the_bucket() {
    let shared = [
        ("retry-after", "1337"),
        ("x-ratelimit-limit", "10"),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset-after", "64.57"),
        BUCKET,
        ("x-ratelimit-scope", "shared"),
    ];
    let mut bucket = report(429, &shared);
    assert_eq!(bucket.narrow(), Some(Duration::from_secs(1_337)));
    assert!(bucket.of_scope);
    let global = [
        ("retry-after", "65"),
        ("x-ratelimit-global", "true"),
        ("x-ratelimit-scope", "global"),
    ];
    let mut global = report(429, &global);
    assert_eq!(global.narrow(), None);
    assert!(!global.of_scope);
}

#[test]
fn a_refusal_without_a_time_stays_one_of_the_key() {
    let mut report = report(403, &[("x-ratelimit-remaining", "0"), RESOURCE]);
    assert_eq!(report.signal, Signal::RateLimited);
    assert_eq!(report.narrow(), None);
    assert!(!report.of_scope);
}

#[test]
fn quotas_beside_no_scope_are_not_touched() {
    let mut report = Report {
        quotas: Quota {
            remaining: Some(0),
            ..Quota::default()
        }
        .into(),
        ..Report::of(Signal::Ok)
    };
    let before = report.clone();
    assert_eq!(report.narrow(), None);
    assert_eq!(report, before);
}
