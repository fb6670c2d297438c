//! A finished list is fetched again with the same state folder: each page conditionally, all of
//! them once, also after a kill.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::recorder::{Answer, Came, Recorder};
use crate::run::{Said, fast, killed_at, rows_of, run};

const DATE: &str = "Sat, 28 Nov 2026 10:00:00 GMT";

fn fetch(dir: &Path) -> Command {
    let mut command = fast();
    command.arg("--state").arg(dir.join("state"));
    command.arg("--output").arg(dir.join("results.jsonl"));
    command
}

fn fetched(command: &mut Command) -> Said {
    let said = run(command);
    assert_eq!(said.code, 0, "{}", said.err);
    said
}

#[expect(clippy::unnecessary_wraps, reason = "the type of an answer")]
fn fine(headers: String) -> Answer {
    Some(("200 OK", headers))
}

/// Answers as a server does that has one version of a page.
fn versioned(came: &Came, tag: &str) -> Answer {
    let header = format!("ETag: {tag}\r\n");
    if came.header("if-none-match").as_deref() == Some(tag) {
        return Some(("304 Not Modified", header));
    }
    fine(header)
}

/// The rows of a run, by path.
fn rows_of_run(dir: &Path, number: u64) -> Vec<(String, Value)> {
    let of_run = |row: &Value| row["run"].as_u64().unwrap_or(1) == number;
    let rows = rows_of(&dir.join("results.jsonl")).into_iter();
    let named = rows.filter(of_run).map(|row| {
        let url = row["url"].as_str().unwrap();
        (url.rsplit('/').next().unwrap().to_owned(), row)
    });
    let mut rows: Vec<_> = named.collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

fn statuses(dir: &Path, number: u64) -> Vec<(String, u64)> {
    let rows = rows_of_run(dir, number).into_iter();
    rows.map(|(path, row)| (path, row["status"].as_u64().unwrap()))
        .collect()
}

fn expected(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    let rows = rows.iter();
    rows.map(|(path, status)| ((*path).to_owned(), *status))
        .collect()
}

/// The paths of requests, and their conditions.
fn conditions(came: &[Came]) -> BTreeSet<(String, Option<String>, Option<String>)> {
    let of = |came: &Came| {
        let (tag, date) = ("if-none-match", "if-modified-since");
        (came.path.clone(), came.header(tag), came.header(date))
    };
    came.iter().map(of).collect()
}

#[test]
fn a_finished_list_says_so_and_again_asks_whether_each_page_has_changed() {
    let version = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&version);
    let server = Recorder::start(move |came, _| match came.path.as_str() {
        "/tagged" | "/target" => versioned(came, "W/\"same\""),
        "/dated" if came.header("if-modified-since").as_deref() == Some(DATE) => {
            Some(("304 Not Modified", String::new()))
        }
        "/dated" => fine(format!("Last-Modified: {DATE}\r\n")),
        "/changing" => versioned(came, &format!("\"{}\"", now.load(Ordering::Relaxed))),
        "/star" => fine("ETag: *\r\n".to_owned()),
        "/moved" => Some(("302 Found", "Location: /target\r\n".to_owned())),
        _ => fine(String::new()),
    });
    let dir = tempfile::tempdir().unwrap();
    let pages = ["tagged", "dated", "changing", "star", "moved", "bare"];
    let urls = pages.map(|page| server.url(page));
    fetched(fetch(dir.path()).args(&urls));
    let first = server.came().len();

    let said = fetched(fetch(dir.path()).args(&urls));
    let all = "all 6 pages are done: 6 fetched and 0 failed before; --again fetches them again";
    assert_eq!(said.lines(all).len(), 1, "{}", said.err);
    assert_eq!(said.lines("resuming").len(), 0, "{}", said.err);
    assert_eq!(server.came().len(), first);

    version.store(1, Ordering::Relaxed);
    let said = fetched(fetch(dir.path()).arg("--again").args(&urls));
    let summary = said.lines("6 fetched (3 not modified), 0 failed");
    assert_eq!(summary.len(), 1, "{}", said.err);
    let asked = conditions(&server.came()[first..]);
    let (tag, of_zero, date) = ("W/\"same\"", "\"0\"", DATE);
    let none = None::<&str>;
    let wanted = [
        ("/bare", none, none),
        ("/changing", Some(of_zero), none),
        ("/dated", none, Some(date)),
        ("/moved", none, none),
        ("/star", none, none),
        ("/tagged", Some(tag), none),
        ("/target", Some(tag), none),
    ];
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let wanted = wanted.map(|(path, tag, date)| (path.to_owned(), owned(tag), owned(date)));
    assert_eq!(asked, BTreeSet::from(wanted));
    let rows = [
        ("bare", 200),
        ("changing", 200),
        ("dated", 304),
        ("moved", 304),
        ("star", 200),
        ("tagged", 304),
    ];
    assert_eq!(statuses(dir.path(), 2), expected(&rows));

    // A 304 keeps the validators, and a new answer brings new ones.
    let said = fetched(fetch(dir.path()).arg("--again").args(["--summary", "json"]));
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&summary["pages"], &summary["not_modified"]),
        (&6.into(), &4.into())
    );
    assert_eq!(rows_of_run(dir.path(), 3).len(), 6);
}

#[test]
fn a_killed_run_goes_on_with_what_is_left() {
    const PAGES: usize = 150;
    const IN_FLIGHT: usize = 4;
    let server = Recorder::start(|came, _| {
        std::thread::sleep(Duration::from_millis(4));
        versioned(came, &format!("\"{}\"", came.path))
    });
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.txt");
    let urls: Vec<_> = (0..PAGES)
        .map(|page| server.url(&page.to_string()))
        .collect();
    fs::write(&list, urls.join("\n")).unwrap();
    let command = |again: &[&str]| {
        let mut command = fetch(dir.path());
        let in_flight = IN_FLIGHT.to_string();
        command.args(["--concurrency", &in_flight, "--in-flight", "9", "-i"]);
        command.arg(&list).args(again);
        command
    };
    fetched(&mut command(&[]));
    let results = dir.path().join("results.jsonl");
    for lines in [1, 40, 90] {
        killed_at(PAGES + lines, &results, &mut command(&["--again"]));
    }
    fetched(&mut command(&["--again"]));
    for (number, status) in [(1, 200), (2, 304)] {
        let rows = statuses(dir.path(), number);
        let pages: BTreeSet<_> = rows.iter().map(|(page, _)| page).collect();
        assert_eq!((rows.len(), pages.len()), (PAGES, PAGES), "one line a page");
        assert!(rows.iter().all(|row| row.1 == status), "run {number}");
    }
    let asked = server.came().len();
    assert!(asked <= 2 * PAGES + 3 * IN_FLIGHT, "{asked} requests");
    // The run has ended, so the next one begins.
    fetched(&mut command(&["--again"]));
    assert_eq!(rows_of_run(dir.path(), 3).len(), PAGES);
}

#[test]
fn a_list_says_which_pages_are_fetched_again_and_no_list_means_all() {
    let server = Recorder::start(|came, _| versioned(came, "\"1\""));
    let dir = tempfile::tempdir().unwrap();
    let urls = |pages: &[&str]| {
        pages
            .iter()
            .map(|page| server.url(page))
            .collect::<Vec<_>>()
    };
    fetched(fetch(dir.path()).args(urls(&["kept", "removed"])));
    fetched(
        fetch(dir.path())
            .arg("--again")
            .args(urls(&["kept", "added", "kept"])),
    );
    let rows = [("added", 200), ("kept", 304)];
    assert_eq!(statuses(dir.path(), 2), expected(&rows));
    fetched(fetch(dir.path()).arg("--again"));
    let rows = [("added", 304), ("kept", 304), ("removed", 304)];
    assert_eq!(statuses(dir.path(), 3), expected(&rows));
    // An older run's page is done for a command without the flag.
    let said = fetched(fetch(dir.path()).args(urls(&["removed"])));
    assert_eq!(said.lines("all 3 pages are done").len(), 1, "{}", said.err);
}

#[test]
fn a_failed_page_is_fetched_again_and_keeps_the_validators_of_its_last_good_answer() {
    let server = Recorder::start(|came, before| match (came.path.as_str(), before) {
        ("/wrong", _) => Some(("304 Not Modified", String::new())),
        ("/broken", 2..=3) => Some(("404 Not Found", String::new())),
        _ => versioned(came, "\"1\""),
    });
    let dir = tempfile::tempdir().unwrap();
    let urls = ["broken", "wrong"].map(|page| server.url(page));
    for (number, broken) in [(1, 200), (2, 404), (3, 304)] {
        let mut command = fetch(dir.path());
        let said = run(command.args(["--again", "--concurrency", "1"]).args(&urls));
        assert_eq!(said.code, 1, "{}", said.err);
        // An answer of 304 to a request without a condition is no page.
        let rows = [("broken", broken), ("wrong", 304)];
        assert_eq!(
            statuses(dir.path(), number),
            expected(&rows),
            "{}",
            said.err
        );
        let rows = rows_of_run(dir.path(), number);
        assert_eq!(rows[1].1["error"], "304 Not Modified");
        assert_eq!(rows[0].1["error"].is_null(), broken != 404);
    }
}

#[test]
fn a_request_that_may_act_twice_is_sent_again_only_on_request() {
    let server = Recorder::start(|came, _| versioned(came, "\"1\""));
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.jsonl");
    let (post, get) = (server.url("post"), server.url("get"));
    let lines = format!(
        "{{\"url\": \"{post}\", \"body\": {{\"q\": 1}}}}\n{{\"url\": \"{get}\", \"meta\": 1}}\n"
    );
    fs::write(&list, lines.replace("\"meta\": 1", "\"meta\": 0")).unwrap();
    fetched(fetch(dir.path()).arg("-i").arg(&list));
    fs::write(&list, lines).unwrap();
    for input in [true, false] {
        let mut command = fetch(dir.path());
        command.arg("--again");
        if input {
            command.arg("-i").arg(&list);
        }
        let said = fetched(&mut command);
        let skipped = said.lines("1 requests are not sent again");
        assert_eq!(skipped.len(), 1, "{}", said.err);
    }
    let rows = rows_of_run(dir.path(), 2);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0].1["status"], &rows[0].1["meta"]),
        (&304.into(), &1.into())
    );
    let mut command = fetch(dir.path());
    fetched(command.args(["--again", "--repeat-posts"]));
    let rows = [("get", 304), ("post", 200)];
    assert_eq!(statuses(dir.path(), 4), expected(&rows));
    let posts = server
        .came()
        .into_iter()
        .filter(|came| came.method == "POST");
    let posts: Vec<_> = posts.collect();
    assert_eq!(posts.len(), 2);
    assert!(
        posts
            .iter()
            .all(|post| post.header("if-none-match").is_none())
    );
}

#[test]
fn a_page_that_was_fetched_lately_is_not_fetched_again() {
    let server = Recorder::fine();
    let dir = tempfile::tempdir().unwrap();
    let url = server.url("a");
    fetched(fetch(dir.path()).arg(&url));
    let said = fetched(fetch(dir.path()).args(["--again", "--since", "30d", &url]));
    let lately = "nothing to fetch again: no page is older than --since";
    assert_eq!(said.lines(lately).len(), 1, "{}", said.err);
    assert_eq!(server.came().len(), 1);
    fetched(fetch(dir.path()).args(["--again", "--since", "1ms", &url]));
    assert_eq!(server.came().len(), 2);
}

#[test]
fn a_page_whose_body_is_not_there_is_fetched_whole() {
    let server = Recorder::start(|came, _| versioned(came, "\"1\""));
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    let again = |flags: &[&str]| {
        let mut command = fetch(dir.path());
        command.arg("--again").args(flags);
        fetched(command.arg(server.url("a")));
    };
    let save = ["--save", pages.to_str().unwrap()];
    again(&[]);
    again(&save);
    again(&save);
    let saved = rows_of_run(dir.path(), 3)[0].1["saved"].clone();
    let saved = saved.as_str().expect("the file of the body").to_owned();
    assert_eq!(fs::read_to_string(&saved).unwrap(), "page");
    fs::write(&saved, "cut").unwrap();
    again(&save);
    fs::remove_file(&saved).unwrap();
    again(&save);
    assert_eq!(fs::read_to_string(&saved).unwrap(), "page");
    let of_run = |number| statuses(dir.path(), number)[0].1;
    assert_eq!([1, 2, 3, 4, 5].map(of_run), [200, 200, 304, 200, 200]);
}

#[test]
fn a_condition_of_the_user_stays_as_it_is() {
    let server = Recorder::start(|came, _| versioned(came, "\"1\""));
    let dir = tempfile::tempdir().unwrap();
    fetched(fetch(dir.path()).arg(server.url("a")));
    let mut command = fetch(dir.path());
    command.args(["--again", "--header", "If-None-Match: \"0\""]);
    fetched(&mut command);
    let sent = server.came()[1].header("if-none-match");
    assert_eq!(sent.as_deref(), Some("\"0\""));
    assert_eq!(statuses(dir.path(), 2), expected(&[("a", 200)]));
}

#[test]
fn a_line_that_is_no_url_is_reported_once_in_each_run() {
    let server = Recorder::fine();
    let dir = tempfile::tempdir().unwrap();
    for number in [1, 2] {
        let said = run(fetch(dir.path()).args(["--again", "nonsense", &server.url("a")]));
        assert_eq!(said.code, 1, "{}", said.err);
        assert_eq!(said.lines("must begin with http").len(), 1, "{}", said.err);
        assert_eq!(rows_of_run(dir.path(), number).len(), 2);
    }
}

#[test]
fn again_without_a_state_folder_is_refused() {
    for (flags, why) in [
        (&["--again"][..], "--again has an effect only with --state"),
        (
            &["--since", "1d"],
            "--since has an effect only with --again",
        ),
        (
            &["--repeat-posts"],
            "--repeat-posts has an effect only with --again",
        ),
        (&["--again", "--since", "2 weeks"], "unknown unit"),
    ] {
        let said = run(fast().args(flags).arg("http://127.0.0.1:1/"));
        assert_eq!(said.code, 2, "{}", said.err);
        assert_eq!(said.lines(why).len(), 1, "{}", said.err);
    }
}
