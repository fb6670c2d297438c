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
