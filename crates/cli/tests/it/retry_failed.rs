//! Failed pages of a state folder are tried again, all of them or those of one reason, and the last
//! line of a run says how to go on.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::recorder::Recorder;
use crate::run::{fast, killed_at, lines_of, politely, rows_of, run};

const FIRST: [&str; 4] = ["fine", "missing", "odd", "gone"];

fn fetch(dir: &Path) -> Command {
    let mut command = fast();
    command.args(["--retries", "0"]);
    command.arg("--state").arg(dir.join("state"));
    command.arg("--output").arg(dir.join("results.jsonl"));
    command
}

/// Starts a server that serves two pages of four, and all of them once it is mended.
fn server() -> (Recorder, Arc<AtomicBool>) {
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let server = Recorder::start(move |came, _| match came.path.as_str() {
        _ if mended.load(Ordering::Relaxed) => Some(("200 OK", String::new())),
        "/missing" => Some(("404 Not Found", String::new())),
        "/gone" => Some(("410 Gone", String::new())),
        "/odd" => Some(("200 OK", "Content-Encoding: gzip\r\n".to_owned())),
        _ => Some(("200 OK", String::new())),
    });
    (server, is_mended)
}

fn paths(rows: &[Value]) -> Vec<String> {
    let path = |row: &Value| {
        row["url"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    };
    let mut paths: Vec<_> = rows.iter().map(path).collect();
    paths.sort();
    paths
}

#[test]
fn failed_pages_are_tried_again_by_status_by_words_and_all() {
    let (server, is_mended) = server();
    let dir = tempfile::tempdir().unwrap();
    let urls = FIRST.map(|page| server.url(page));
    let said = run(fetch(dir.path()).args(&urls));
    assert_eq!(said.code, 1, "{}", said.err);
    let last = said.err.lines().last();
    let how_on = "3 failed; --retry-failed tries the failed ones again";
    assert_eq!(last, Some(how_on), "{}", said.err);
    let said = run(fetch(dir.path()).arg("--retry-failed=5xx"));
    let nothing = "nothing to try again: no page has failed for this reason";
    assert_eq!((said.code, said.err.lines().last()), (0, Some(nothing)));
    assert_eq!(server.came().len(), 4);

    let mut tried = 4;
    for (flag, pages) in [
        ("--retry-failed=410", &["gone"][..]),
        ("--retry-failed=GZIP,410", &["gone", "odd"]),
        ("--retry-failed", &["gone", "missing", "odd"]),
    ] {
        let said = run(fetch(dir.path()).arg(flag));
        assert_eq!(said.code, 1, "{}", said.err);
        let rows = rows_of(&dir.path().join("results.jsonl"));
        assert_eq!(paths(&rows[tried..]), pages, "{flag}");
        tried += pages.len();
        assert_eq!(server.came().len(), tried, "{flag}");
    }
    is_mended.store(true, Ordering::Relaxed);
    let said = run(fetch(dir.path()).arg("--retry-failed").args(&urls[..2]));
    assert_eq!(said.code, 0, "of these pages none failed: {}", said.err);
    assert_eq!(said.lines("1 fetched, 0 failed").len(), 1, "{}", said.err);
    let said = run(fetch(dir.path()).arg("--retry-failed"));
    assert_eq!(said.lines("2 fetched, 0 failed").len(), 1, "{}", said.err);
    let said = run(&mut fetch(dir.path()));
    let all = "all 4 pages are done: 4 fetched and 0 failed before; --again fetches them again";
    assert_eq!(
        (said.code, said.err.lines().count()),
        (0, 2),
        "{}",
        said.err
    );
    assert_eq!(said.err.lines().last(), Some(all));
}

#[test]
fn a_killed_retry_goes_on_and_tries_each_page_once() {
    const PAGES: usize = 60;
    let server = Recorder::start(|_, _| {
        std::thread::sleep(std::time::Duration::from_millis(4));
        Some(("404 Not Found", String::new()))
    });
    let dir = tempfile::tempdir().unwrap();
    let urls: Vec<_> = (0..PAGES)
        .map(|page| server.url(&page.to_string()))
        .collect();
    let command = |flags: &[&str]| {
        let mut command = fetch(dir.path());
        command.args(["--concurrency", "2"]).args(flags).args(&urls);
        command
    };
    assert_eq!(run(&mut command(&[])).code, 1);
    let results = dir.path().join("results.jsonl");
    killed_at(PAGES + 20, &results, &mut command(&["--retry-failed"]));
    let said = run(&mut command(&["--retry-failed"]));
    assert_eq!(said.code, 1, "{}", said.err);
    let resumed = said.lines("resuming: 0 fetched and");
    assert_eq!(resumed.len(), 1, "{}", said.err);
    assert_eq!(lines_of(&results), 2 * PAGES);
    assert!(server.came().len() <= 2 * PAGES + 2);
    // The second run has ended, so this is the third.
    assert_eq!(run(&mut command(&["--retry-failed"])).code, 1);
    assert_eq!(lines_of(&results), 3 * PAGES);
}

#[test]
fn a_post_that_failed_is_tried_again_only_with_a_key_or_on_request() {
    let (server, _) = server();
    let dir = tempfile::tempdir().unwrap();
    let post = |flags: &[&str]| {
        let mut command = fetch(dir.path());
        command.args(["--data", "a=1"]).args(flags);
        run(command.arg(server.url("missing")))
    };
    assert_eq!(post(&[]).code, 1);
    let said = post(&["--retry-failed"]);
    let kept = "1 requests are not sent again";
    assert_eq!(said.lines(kept).len(), 1, "{}", said.err);
    assert_eq!(server.came().len(), 1);
    assert_eq!(post(&["--retry-failed", "--repeat-posts"]).code, 1);
    assert_eq!(server.came().len(), 2);
    let dir = tempfile::tempdir().unwrap();
    let keyed = |flags: &[&str]| {
        let mut command = fetch(dir.path());
        command
            .args(["--data", "a=1", "--idempotency-key"])
            .args(flags);
        run(command.arg(server.url("missing"))).code
    };
    assert_eq!((keyed(&[]), keyed(&["--retry-failed"])), (1, 1));
    let keys = server.came().into_iter().skip(2);
    let keys: Vec<_> = keys.map(|came| came.header("idempotency-key")).collect();
    assert!(keys[0].is_some() && keys[0] == keys[1], "{keys:?}");
}

#[test]
fn a_retry_that_has_no_effect_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state").display().to_string();
    for (flags, why) in [
        (
            &["--retry-failed"][..],
            "--retry-failed has an effect only with --state",
        ),
        (
            &["--retry-failed", "--again", "--state", &state],
            "--retry-failed cannot be combined with --again",
        ),
        (
            &["--retry-failed=,", "--state", &state],
            "has an empty reason",
        ),
        (
            &["--retry-failed", "--since", "1d", "--state", &state],
            "--since has an effect only with --again",
        ),
        (
            &["--retry-failed", "--state", &state],
            "no run has used the state folder",
        ),
    ] {
        let mut command = politely();
        let said = run(command.arg("fetch").args(flags).arg("http://127.0.0.1:1/"));
        assert_eq!(said.code, 2, "{}", said.err);
        assert_eq!(said.lines(why).len(), 1, "{}", said.err);
    }
}
