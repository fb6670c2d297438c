//! A run with hosts that are dead, silent, blocked or closed ends, and says why each page is
//! missing.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde_json::Value;

use crate::misbehaving::{Server, Then, respond};
use crate::run::{politely, rows_of, run};

/// The hosts that serve no page, and a part of the reason that their pages end with.
const TROUBLED: [(&str, &str); 4] = [
    ("dead", "the host never answered"),
    ("blocked", "blocked by the host"),
    ("closed", "robots.txt answers 503"),
    ("silent", "robots.txt: no answer in"),
];

/// A list of URLs, and a crawl of it.
struct Size {
    healthy: usize,
    pages_per_host: usize,
    /// The pages of the blocked host. Beyond two, they wait for its holds.
    pages_blocked: usize,
    flags: &'static [&'static str],
}

/// A crawl with every kind of trouble that takes some seconds.
const SMALL: Size = Size {
    healthy: 3,
    pages_per_host: 5,
    pages_blocked: 2,
    flags: &["--timeout", "1s", "--give-up-after", "3s"],
};
/// The crawl with default settings, which takes two minutes.
const WHOLE: Size = Size {
    healthy: 26,
    pages_per_host: 67,
    pages_blocked: 67,
    flags: &[],
};

fn page(path: &str, stream: &mut std::net::TcpStream) -> std::io::Result<Then> {
    match path {
        "/robots.txt" => respond(stream, "404 Not Found", "", ""),
        _ => respond(stream, "200 OK", "", "page"),
    }
}

fn blocked(path: &str, stream: &mut std::net::TcpStream) -> std::io::Result<Then> {
    match path {
        "/robots.txt" => respond(stream, "404 Not Found", "", ""),
        _ => respond(stream, "403 Forbidden", "cf-mitigated: challenge\r\n", ""),
    }
}

fn silent(_: &str, _: &mut std::net::TcpStream) -> std::io::Result<Then> {
    loop {
        std::thread::park();
    }
}

/// Crawls a list of `size`. Returns the seconds from the last page of a healthy host to the end.
fn ends(size: &Size) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let healthy: Vec<_> = (0..size.healthy).map(|_| Server::start(page)).collect();
    let (blocked, silent) = (Server::start(blocked), Server::start(silent));
    let closed = Server::start(|_, stream| respond(stream, "503 Service Unavailable", "", ""));
    let bases = [
        "http://127.0.0.1:1/".to_owned(),
        blocked.url(""),
        closed.url(""),
        silent.url(""),
    ];
    let mut urls = Vec::new();
    let mut of = BTreeMap::new();
    for number in 0..size.pages_per_host {
        urls.extend(healthy.iter().map(|server| server.url(&number.to_string())));
        for (base, trouble) in bases.iter().zip(TROUBLED) {
            if trouble.0 != "blocked" || number < size.pages_blocked {
                let url = format!("{base}{number}");
                of.insert(url.clone(), trouble);
                urls.push(url);
            }
        }
    }
    let (list, results) = (folder.path().join("list"), folder.path().join("results"));
    fs::write(&list, urls.join("\n")).unwrap();
    let said = run(politely()
        .args(["fetch", "--summary", "json", "-i"])
        .arg(&list)
        .arg("-o")
        .arg(&results)
        .args(size.flags));
    let ended = Instant::now();
    assert_eq!(said.code, 1, "{}", said.err);
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    let fetched = size.healthy * size.pages_per_host;
    assert_eq!(summary["pages"], fetched, "{}", said.err);
    assert_eq!(summary["failed"], of.len(), "{}", said.err);
    let rows = rows_of(&results);
    assert_eq!(rows.len(), urls.len());
    for row in rows {
        let error = row["error"].as_str();
        match of.get(row["url"].as_str().unwrap()) {
            None => assert_eq!(error, None, "{row}"),
            Some((kind, why)) => {
                let error = error.unwrap_or_else(|| panic!("a page of the {kind} host: {row}"));
                assert!(error.contains(why), "{kind}: {row}");
            }
        }
    }
    let last = healthy
        .iter()
        .filter_map(|server| Some(server.times().last()?.1));
    ended.duration_since(last.max().unwrap()).as_secs_f64()
}

/// With `WHOLE_RUN=1` and `--nocapture` the crawl has 2,010 pages of 30 hosts, and prints its time.
#[test]
fn a_run_with_dead_silent_blocked_and_closed_hosts_ends_and_says_why() {
    let is_whole = std::env::var_os("WHOLE_RUN").is_some();
    let seconds = ends(if is_whole { &WHOLE } else { &SMALL });
    println!("the run ended {seconds:.1} s after the last page of a healthy host");
}
