//! Coordinators are killed while they count. The audit has what they counted until some seconds
//! before, it names the hour in which counts may be missing, and a restarted coordinator says the
//! same.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use politely_testkit::postgres::PostgresServer;
use politely_testkit::redis::RedisServer;
use politely_testkit::zookeeper::Ensemble;
use serde_json::{Value, json};

use crate::durable::{Serve, call, serve_as, serve_with};
use crate::fleet::http::Http;
use crate::run::{politely, run};

const PATIENCE: Duration = Duration::from_mins(1);
/// Items of one call.
const ITEMS: usize = 50;

/// Requests `calls` times permits of [`ITEMS`] keys, and reports what came.
fn work(serve: &Serve, client: &str, calls: usize) {
    let mut http = Http::new(serve.address);
    let mut post = |path: &str, items: Vec<Value>| {
        let mut body = json!({"client": client, "items": items});
        if path.ends_with("acquire") {
            body["wait_ms"] = json!(20_000);
        }
        let (status, answer) = call(&mut http, "POST", path, &body).expect("it answers");
        assert_eq!(status, 200, "{answer}");
        answer["items"].as_array().expect("items").clone()
    };
    for round in 0..calls {
        let key = |n| format!("{client}-{round}-{n}.example");
        let mut left: Vec<usize> = (0..ITEMS).collect();
        while !left.is_empty() {
            let items = left.iter().map(|n| json!({"key": key(*n)}));
            let granted = post("/api/v1/acquire", items.collect());
            let (mut told, mut waiting) = (Vec::new(), Vec::new());
            for (n, item) in left.into_iter().zip(granted) {
                match item["permit"].as_str() {
                    Some(permit) => {
                        let status = if n % 5 == 0 { 404 } else { 200 };
                        told.push(json!({"permit": permit, "status": status}));
                    }
                    None => waiting.push(n),
                }
            }
            let told = post("/api/v1/report", told);
            assert!(told.iter().all(|item| item["error"].is_null()), "{told:?}");
            left = waiting;
        }
    }
}

/// A coordinator's audit of the last day.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    granted: u64,
    answers: [u64; 2],
    /// Whether the audit says so, and the mix of statuses. One call follows the other, so that only
    /// the second may know what the coordinator has just read.
    is_incomplete: [bool; 2],
}

fn ask(serve: &Serve) -> Said {
    let mut http = Http::new(serve.address);
    let mut get = |path: &str| {
        let (status, answer) = call(&mut http, "GET", path, &Value::Null).expect("it answers");
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let audit = get("/api/v1/audit?by=account&step=1d");
    let rows = audit["rows"].as_array().expect("rows").iter();
    let mix = get("/api/v1/answers");
    let is_incomplete = [&audit, &mix].map(|answer| answer["incomplete"].is_array());
    Said {
        granted: rows.filter_map(|row| row["granted"].as_u64()).sum(),
        answers: ["200", "404"].map(|status| mix["statuses"][status].as_u64().unwrap_or(0)),
        is_incomplete,
    }
}

const fn said(calls: u64, is_incomplete: bool) -> Said {
    let granted = calls * ITEMS as u64;
    Said {
        granted,
        answers: [granted / 5 * 4, granted / 5],
        is_incomplete: [is_incomplete; 2],
    }
}

/// Waits until a coordinator says `expected`.
fn until(serve: &Serve, expected: &Said) -> Duration {
    let began = Instant::now();
    loop {
        let now = ask(serve);
        if now == *expected {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{now:?}, not {expected:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Kills one of two coordinators on the engine at `url`.
fn kill_one_of_two(url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("--store={url}");
    let first = serve_with(folder.path(), &[&store]);
    let second = serve_as(&[&store]);
    work(&first, "ann", 4);
    work(&second, "bob", 2);
    for serve in [&first, &second] {
        until(serve, &said(6, false));
    }
    drop(first);
    let noticed = until(&second, &said(6, true));
    // Another one, and the killed one with its folder, have the counts from the log.
    let third = serve_as(&[&store]);
    let first = serve_with(folder.path(), &[&store]);
    for serve in [&third, &first] {
        until(serve, &said(6, true));
    }
    work(&first, "ann", 1);
    for serve in [first, second, third] {
        until(&serve, &said(7, true));
        serve.end();
    }
    // Nothing is counted twice when the log is read again.
    let first = serve_with(folder.path(), &[&store]);
    until(&first, &said(7, true));
    let url = format!("http://{}", first.address);
    let printed = run(politely().args(["audit", "--coordinator", &url])).err;
    assert!(printed.contains("incomplete hours (unix): "), "{printed}");
    eprintln!("the kill was noticed after {noticed:?}");
}

#[test]
fn a_killed_coordinator_on_redis_leaves_its_counts_and_an_incomplete_hour() {
    kill_one_of_two(&RedisServer::start("").url());
}

#[test]
fn a_killed_coordinator_on_postgres_leaves_its_counts_and_an_incomplete_hour() {
    kill_one_of_two(&PostgresServer::start("").url());
}

#[test]
fn a_killed_coordinator_on_zookeeper_leaves_its_counts_and_an_incomplete_hour() {
    kill_one_of_two(&Ensemble::start().url("/politely"));
}

#[test]
fn coordinators_that_end_in_order_leave_no_incomplete_hour() {
    let server = RedisServer::start("");
    let store = format!("--store={}", server.url());
    let first = serve_as(&[&store]);
    let second = serve_as(&[&store]);
    work(&first, "ann", 2);
    first.end();
    until(&second, &said(2, false));
    work(&second, "bob", 2);
    second.end();
    until(&serve_as(&[&store]), &said(4, false));
}

/// Waits until all counts so far are in the state folder.
fn until_saved(folder: &Path) {
    let roster = folder.join("usage/roster.json");
    let read = || fs::read(&roster).expect("the roster");
    for _ in 0..2 {
        let (before, began) = (read(), Instant::now());
        while read() == before {
            assert!(began.elapsed() < PATIENCE, "it is never saved");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_state_folder_keeps_the_counts_and_says_that_the_coordinator_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let serve = || serve_with(folder.path(), &[]);
    let first = serve();
    work(&first, "ann", 2);
    assert_eq!(ask(&first), said(2, false));
    first.end();
    let second = serve();
    assert_eq!(ask(&second), said(2, false));
    work(&second, "ann", 2);
    until_saved(folder.path());
    drop(second);
    assert_eq!(ask(&serve()), said(4, true));
    // Without a folder nothing is known of an earlier run.
    assert_eq!(ask(&serve_as(&["--memory"])), said(0, true));
}
