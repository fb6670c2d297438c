//! The estimate of the time that a run still takes, in its summary.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::misbehaving::{Server, respond};
use crate::run::{fetch_at, politely};

const PAGES: usize = 100;
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a run of `urls`, interrupts it when `is_reached` holds, and returns its JSON summary and
/// its messages.
fn interrupted(
    mut command: Command,
    urls: &[String],
    is_reached: impl Fn() -> bool,
) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command
        .args(["--summary", "json", "--output"])
        .arg(folder.path().join("results.jsonl"))
        .args(urls)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !is_reached() {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        assert!(Instant::now() < deadline, "the run does not get so far");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let summary = serde_json::from_slice(&output.stdout).unwrap();
    (summary, String::from_utf8(output.stderr).unwrap())
}

fn page_server() -> Server {
    Server::start(|_, stream| respond(stream, "200 OK", "", "page"))
}

fn pages(server: &Server) -> Vec<String> {
    (0..PAGES).map(|n| server.url(&n.to_string())).collect()
}

#[test]
fn the_slowest_host_gives_the_estimate() {
    let (slow, fast) = (page_server(), page_server());
    let urls = [pages(&slow), pages(&fast)[..10].to_vec()].concat();
    let (summary, said) = interrupted(fetch_at("0.5"), &urls, || !slow.counts().is_empty());
    let eta_s = summary["eta_s"].as_u64().unwrap();
    assert!((150..=200).contains(&eta_s), "{summary}\n{said}");
    let left = summary["left"].as_u64().unwrap();
    let line = format!("interrupted, {left} left, eta 3 min");
    assert!(said.contains(&line), "{said}");
}

#[test]
fn a_closed_host_makes_the_estimate_unknown_and_is_counted() {
    let healthy = page_server();
    let limited = Server::start(|_, stream| {
        respond(stream, "429 Too Many Requests", "Retry-After: 600\r\n", "")
    });
    let down = Server::start(|_, stream| respond(stream, "503 Service Unavailable", "", ""));
    let urls = [pages(&healthy), pages(&limited), pages(&down)].concat();
    let reached = || {
        let asked = |server: &Server| server.counts().values().sum::<usize>();
        asked(&healthy) > 0 && asked(&limited) > 0 && asked(&down) > 2
    };
    let (summary, said) = interrupted(fetch_at("5"), &urls, reached);
    assert_eq!(summary["eta_s"], Value::Null, "{summary}");
    assert_eq!(
        summary["hosts_closed"].as_u64(),
        Some(2),
        "{summary}\n{said}"
    );
    assert!(
        said.contains(" left, eta unknown: 2 hosts are closed"),
        "{said}"
    );
}

#[test]
fn a_host_whose_robots_txt_fails_is_closed() {
    let server = Server::start(|_, stream| respond(stream, "503 Service Unavailable", "", ""));
    let mut command = politely();
    command.arg("fetch");
    let (summary, said) = interrupted(command, &pages(&server), || !server.counts().is_empty());
    assert_eq!(
        summary["hosts_closed"].as_u64(),
        Some(1),
        "{summary}\n{said}"
    );
}
