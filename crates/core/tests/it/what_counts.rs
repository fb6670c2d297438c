//! Tests that the reference page `docs/reference/what-counts-as-what.md` agrees with the program.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use politely_core::fault::{Company, Outage};
use politely_core::host::Directions;
use politely_core::retry::{Attempt, Next, Policy};
use politely_core::signal::{Failure, Outcome, Report, Signal, WallClock, classify, retry_after};
use politely_core::{Rng, Timestamp};

const PAGE: &str = include_str!("../../../../docs/reference/what-counts-as-what.md");

/// 2026-11-20T10:44:37Z, the time of the page's examples.
const NOW: WallClock = WallClock::from_unix_secs(1_795_171_477);

/// Returns the rows of the table below a heading, each as its cells.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, after) = PAGE
        .split_once(&format!("## {heading}\n"))
        .expect("the heading");
    let section = after.split("\n## ").next().unwrap_or(after);
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    lines
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Returns the parts of a cell that are marked as code.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn failure(name: &str) -> Option<Failure> {
    let all = [
        Failure::NoSuchHost,
        Failure::Resolver,
        Failure::Connect,
        Failure::Tls,
        Failure::Timeout,
        Failure::Reset,
        Failure::Malformed,
    ];
    all.into_iter()
        .find(|failure| format!("{failure:?}") == name)
}

/// Returns the program's report for a row's first cell, or `None` if that is not code.
fn classified(cell: &str) -> Option<Report> {
    let parts = code(cell);
    let (first, parts) = parts.split_first()?;
    if !cell.starts_with('`') {
        return None;
    }
    if let Some(failure) = failure(first) {
        return Some(classify(&Outcome::Failed(failure), NOW, Duration::ZERO, 0));
    }
    let status: StatusCode = first.parse().expect("a status or a failure");
    let (mut headers, mut body) = (HeaderMap::new(), "");
    for part in parts {
        let (name, value) = part.split_once(": ").expect("a name and a value");
        if name == "body" {
            body = value;
        } else {
            let name: HeaderName = name.parse().expect("a header's name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
    }
    let outcome = Outcome::Answered {
        status,
        headers: &headers,
        body_start: body.as_bytes(),
    };
    Some(classify(&outcome, NOW, Duration::ZERO, 0))
}

fn fault(report: &Report) -> &'static str {
    match report.signal {
        Signal::Ok => "nobody",
        Signal::UrlError => "URL",
        _ => "host",
    }
}

fn retried(report: &Report) -> &'static str {
    let (policy, mut outage) = (Policy::crawler(), Outage::default());
    let mut attempt = Attempt::first(Method::GET);
    let (company, now) = (Company::Alone, Timestamp::ZERO);
    let directions = Directions::unknown(now);
    let verdict = policy.judge(&mut outage, &mut attempt, report, &directions, company, now);
    match policy.decide(&attempt, report, verdict, &mut [], &mut Rng::new(1), now) {
        Next::Done => "done",
        Next::GiveUp(_) => "no",
        Next::Retry {
            is_charged: false, ..
        } => "yes, free",
        Next::Retry {
            is_charged: true, ..
        } => "yes, counted",
    }
}

/// Returns the wait that a cell names in seconds.
fn seconds(cell: &str) -> Option<Duration> {
    let last = cell.rsplit(", ").next()?;
    last.parse().ok().map(Duration::from_secs_f64)
}

#[test]
fn every_outcome_is_what_the_page_says() {
    let mut checked = 0;
    for row in [rows("Answers"), rows("No answer")].concat() {
        let [outcome, signal, at_fault, waits, again] = *row else {
            panic!("five cells: {row:?}")
        };
        let Some(report) = classified(outcome) else {
            continue;
        };
        assert_eq!(format!("{:?}", report.signal), signal, "{outcome}");
        assert_eq!(fault(&report), at_fault, "{outcome}");
        assert_eq!(retried(&report), again, "{outcome}");
        let next_hop = waits.starts_with("next hop");
        let told = if next_hop {
            report.target_after
        } else {
            report.retry_after
        };
        assert_eq!(told, seconds(waits), "{outcome}");
        let held_by_quota = report.quotas.spent_until().is_some() && told.is_none();
        assert_eq!(waits.contains("quota's reset"), held_by_quota, "{outcome}");
        let backs_off = match report.signal {
            Signal::RateLimited | Signal::Overloaded => told.is_none(),
            _ => again == "yes, counted",
        };
        assert_eq!(waits.contains("backoff"), backs_off, "{outcome}");
        let quarantined = report.signal == Signal::Blocked;
        assert_eq!(waits.contains("quarantine"), quarantined, "{outcome}");
        checked += 1;
    }
    assert!(checked > 50, "{checked} rows");
}

#[test]
fn every_wait_is_read_as_the_page_says() {
    let rows = rows("Retry-After");
    assert!(rows.len() > 15, "{} rows", rows.len());
    for row in rows {
        let [value, expected] = *row else {
            panic!("two cells: {row:?}")
        };
        let value = code(value)[0];
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(value).expect("a value"));
        assert_eq!(retry_after(&headers, NOW), seconds(expected), "{value}");
    }
}
