//! Tests of limits that an operator declares: `--limits` and `--rate N/TIME`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::misbehaving::{Server, respond};
use crate::run::{fetch_at, politely, run};

/// Returns a server that notes when each request comes.
fn noting() -> (Server, Arc<Mutex<Vec<Instant>>>) {
    let came = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&came);
    let server = Server::start(move |_, stream| {
        notes.lock().unwrap().push(Instant::now());
        respond(stream, "200 OK", "", "page")
    });
    (server, came)
}

/// Returns the most requests in any window of `length`.
pub(crate) fn most(came: &[Instant], length: Duration) -> usize {
    let count = |first: &Instant| {
        let inside = |at: &&Instant| **at >= *first && **at < *first + length;
        came.iter().filter(inside).count()
    };
    came.iter().map(count).max().unwrap_or(0)
}

#[test]
fn no_window_has_more_requests_than_declared() {
    let (server, came) = noting();
    let urls = (0..12).map(|i| server.url(&format!("{i}")));
    let said = run(politely()
        .args(["fetch", "--profile", "api", "--law", "fixed"])
        .args(["--rate", "1000", "--limits", "5/2s; 2 concurrent"])
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let came = came.lock().unwrap();
    assert_eq!(came.len(), 12);
    // A request may come late on a busy machine, so the window of the judge is shorter.
    assert!(most(&came, Duration::from_millis(1_500)) <= 5);
    let [first, .., last] = &came[..] else {
        panic!("twelve requests came")
    };
    assert!(*last - *first >= Duration::from_millis(3_900));
}

#[test]
fn no_window_has_more_bytes_than_declared() {
    let came = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&came);
    let page = "p".repeat(10_000);
    let server = Server::start(move |_, stream| {
        notes.lock().unwrap().push(Instant::now());
        respond(stream, "200 OK", "", &page)
    });
    let urls = (0..10).map(|i| server.url(&format!("{i}")));
    let said = run(politely()
        .args(["fetch", "--profile", "api", "--law", "fixed", "--no-robots"])
        .args(["--rate", "1000", "--limits", "40kB/2s; 1 concurrent"])
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let came = came.lock().unwrap();
    assert_eq!(came.len(), 10);
    // Headers count as well, so the fourth page exceeds the quantity and is the last of its window.
    // A request may come late on a busy machine, so the window of the judge is shorter.
    assert!(most(&came, Duration::from_millis(1_500)) <= 4);
    assert!(came[9] - came[0] >= Duration::from_millis(3_900));
}

#[test]
fn each_process_keeps_the_rate_of_its_own_key() {
    let (server, came) = noting();
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("rules.toml");
    let rules = "[[rule]]\nmatch = [\"127.0.0.1\"]\naccount = \"all/{team}\"\n\
                 limits = [\"1000/s\"]\n[[rule.key]]\nname = \"consumer/{client}\"\n\
                 limits = [\"2/2s\"]\n";
    std::fs::write(&file, rules).expect("the folder is writable");
    let fetch = |names: &[&str]| {
        let urls = (0..5).map(|i| server.url(&format!("{i}")));
        let fetch = fetch_at("1000")
            .arg("--policy")
            .arg(&file)
            .args(names)
            .args(urls)
            .output();
        let output = fetch.expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = fetch(&["--client", "one", "--labels", "team=red"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(most(&came.lock().unwrap(), Duration::from_millis(1_500)) <= 2);
    for (names, missing) in [
        (&["--client", "one"][..], "--labels team=VALUE"),
        (&["--labels", "team=red"], "--client NAME"),
        (&["--labels", "Team=red"], "`Team=red`"),
        (&["--labels", "team"], "NAME=VALUE"),
    ] {
        let (code, said) = fetch(names);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.lines()
                .next()
                .is_some_and(|line| line.contains(missing)),
            "{said}"
        );
    }
}

#[test]
fn a_rate_with_a_window_is_spread_evenly() {
    let (server, came) = noting();
    let urls = (0..4).map(|i| server.url(&format!("{i}")));
    let said = run(politely()
        .args(["fetch", "--profile", "api", "--law", "fixed"])
        .args(["--rate", "120/min"])
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let came = came.lock().unwrap();
    assert!(came[3] - came[0] >= Duration::from_millis(1_300));
}

#[test]
fn a_wrong_limit_is_one_line_that_names_it() {
    for (flag, text, part) in [
        ("--limits", "0/s", "from 1 to 2^53"),
        ("--limits", "5/0s", "at least 1s"),
        ("--limits", "5/100000days", "at most 366 days"),
        ("--limits", "5/day@Atlantis", "unknown time zone `Atlantis`"),
        ("--limits", "5/s; 6/s", "the same window as `5/s`"),
        ("--limits", "-5/s", "begin with a whole number"),
        ("--rate", "5000/fortnight", "unknown window `fortnight`"),
        ("--rate", "1000/day@UTC", "--limits"),
    ] {
        for command in ["fetch", "serve"] {
            let url: &[&str] = if command == "fetch" {
                &["http://127.0.0.1:1/"]
            } else {
                &["--memory"]
            };
            let said = run(politely().args([command, flag, text]).args(url));
            assert_eq!(said.code, 2, "{text}");
            let first = said.err.lines().next().unwrap_or_default();
            assert!(first.contains(text) && first.contains(part), "{first}");
        }
    }
}
