//! Tests of `usage.rs`.

use super::*;

fn at(hours: u64) -> Timestamp {
    Timestamp::ZERO + HOUR * 480_000 + HOUR * hours as u32
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn sums(usage: &Usage, by: UsageBy, hours: u32, now: Timestamp) -> Vec<(String, u64)> {
    let query = UsageQuery {
        by,
        step: format!("{hours}h").parse().unwrap(),
        ..UsageQuery::default()
    };
    let page = usage.page(&query, now);
    let row = |row: UsageRow| (row.name, row.counts.granted);
    page.rows.into_iter().map(row).collect()
}

fn work(usage: &Usage) {
    for (hour, worker, host, slots) in [
        (0, "ann\u{1f}w1", "a.example", 1),
        (0, "ann\u{1f}w2", "a.example", 2),
        (1, "bob\u{1f}w1", "b.example", 4),
        (2, "ann\u{1f}w1", "a.example", 8),
    ] {
        usage.granted(at(hour), worker, &key(host), slots, None);
    }
}

fn answered(usage: &Usage, hour: u64, worker: &str, status: Option<u16>, signal: Signal) {
    let report = Report {
        status,
        ..Report::of(signal)
    };
    usage.reported(at(hour), worker, &key("a.example"), &report);
}

#[test]
fn the_mix_of_answers_outlives_restarts_and_a_block_is_no_limit() {
    let folder = tempfile::tempdir().unwrap();
    let open = |hours| Usage::open(Some(folder.path()), at(hours));
    let usage = open(100);
    answered(&usage, 100, "w1", Some(200), Signal::Ok);
    answered(&usage, 101, "w1", Some(429), Signal::RateLimited);
    answered(&usage, 101, "w2", Some(403), Signal::Blocked);
    usage.granted(at(101), "w1", &key("b.example"), 1, None);
    usage.save(at(101));
    let usage = open(101);
    answered(&usage, 101, "w1", Some(403), Signal::UrlError);
    answered(&usage, 101, "w1", None, Signal::Unreachable);
    let counts = |name: Option<&str>, hours, hour| {
        let key = name.map(key);
        usage.answers(key.as_ref(), hours, at(hour))
    };
    let all = counts(Some("a.example"), 24, 101);
    let expected = serde_json::json!({
        "hours": 24,
        "answers": 5,
        "statuses": {"200": 1, "403": 2, "429": 1, "none": 1},
        "signals": {
            "blocked": 1, "ok": 1, "rate_limited": 1, "unreachable": 1, "url_error": 1,
        },
    });
    assert_eq!(serde_json::to_value(&all).unwrap(), expected);
    assert_eq!(counts(None, 24, 101), all);
    assert_eq!(counts(Some("b.example"), 24, 101).answers, 0);
    assert_eq!(counts(Some("a.example"), 1, 101).answers, 4);
    assert_eq!(counts(Some("a.example"), 24, 124).answers, 4);
    assert_eq!(counts(Some("a.example"), 24, 125).answers, 0);
}

#[test]
fn the_mix_of_all_answers_is_whole_however_many_accounts_there_are() {
    let usage = Usage::open(None, at(0));
    let accounts = PAGE_MAX as u64 + 1;
    for account in 0..accounts {
        let worker = format!("{account}\u{1f}w");
        answered(&usage, 0, &worker, Some(200), Signal::Ok);
    }
    assert_eq!(usage.answers(None, 1, at(0)).answers, accounts);
}

#[test]
fn names_that_are_escaped_in_a_file_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let usage = Usage::open(Some(folder.path()), at(0));
    let name = "a \"quoted\" \\ name";
    usage.granted(
        at(0),
        &format!("ann\u{1f}{name}"),
        &key("a.example"),
        1,
        None,
    );
    usage.save(at(1));
    let usage = Usage::open(Some(folder.path()), at(1));
    for (by, name) in [(UsageBy::Worker, name), (UsageBy::Account, "ann")] {
        let query = UsageQuery {
            by,
            name: Some(name.to_owned()),
            ..UsageQuery::default()
        };
        assert_eq!(usage.page(&query, at(1)).rows.len(), 1, "{name}");
    }
}

fn named(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    let rows = rows.iter();
    rows.map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn rows_are_summed_by_worker_key_or_account() {
    let usage = Usage::open(None, at(0));
    work(&usage);
    let by = |by| sums(&usage, by, 24, at(2));
    assert_eq!(by(UsageBy::Worker), named(&[("w1", 13), ("w2", 2)]));
    assert_eq!(
        by(UsageBy::Key),
        named(&[("a.example", 11), ("b.example", 4)])
    );
    assert_eq!(by(UsageBy::Account), named(&[("ann", 11), ("bob", 4)]));
    let hourly = sums(&usage, UsageBy::Account, 1, at(2));
    assert_eq!(hourly, named(&[("ann", 3), ("bob", 4), ("ann", 8)]));
}

#[test]
fn a_state_folder_keeps_them_for_thirty_days() {
    let folder = tempfile::tempdir().unwrap();
    let open = |hours| Usage::open(Some(folder.path()), at(hours));
    let usage = open(0);
    work(&usage);
    usage.save(at(2));
    // The current hour goes on after a restart, and nothing is counted twice.
    let usage = open(2);
    usage.granted(at(2), "ann\u{1f}w1", &key("a.example"), 1, None);
    usage.save(at(2));
    usage.save(at(2));
    let by_key = sums(&open(2), UsageBy::Key, 24, at(2));
    assert_eq!(by_key, named(&[("a.example", 12), ("b.example", 4)]));
    usage.save(at(721));
    assert_eq!(files(&folder.path().join(FOLDER)), [480_001, 480_002]);
    fs::write(folder.path().join(FOLDER).join("480001.gz"), "damage").unwrap();
    assert_eq!(
        sums(&open(3), UsageBy::Key, 24, at(3)),
        named(&[("a.example", 9)])
    );
}
