//! Tests of the test servers: each server limits as its `Kind` says, and its log agrees with the
//! client.
//!
//! No assertion depends on the speed of the machine. The number of requests that a host may accept
//! follows from the times in its log.
#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use politely_testkit::{Kind, RealHost, RealTown, Set, Truth, repository};

/// An answer as a raw client receives it. No code of the product is involved.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: usize,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

fn get(host: &RealHost, path: &str) -> Answer {
    let authority = host
        .url_prefix
        .strip_prefix("http://")
        .expect("an http URL");
    let mut stream = TcpStream::connect(authority).expect("the host listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("the host takes a request");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the host answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.parse().expect("a numeric status"),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect(),
        body: body.len(),
    }
}

/// Sends `requests` requests one after the other, without a pause.
fn burst(host: &RealHost, requests: u32) -> Vec<Answer> {
    (1..=requests)
        .map(|n| get(host, &format!("/page/{n}")))
        .collect()
}

/// Sends `requests` requests at the same time.
fn volley(host: &RealHost, requests: u32) -> Vec<Answer> {
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=requests)
            .map(|n| scope.spawn(move || get(host, &format!("/page/{n}"))))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client thread"))
            .collect()
    })
}

fn assert_the_log_matches(truth: &Truth, answers: &[Answer], name: &str) {
    let mut seen: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    let mut logged: Vec<u16> = truth.arrivals.iter().map(|(_, status)| *status).collect();
    seen.sort_unstable();
    logged.sort_unstable();
    assert_eq!(seen, logged, "{name}");
    let served = answers.iter().filter(|answer| answer.status == 200);
    assert_eq!(
        truth.pages,
        served.clone().count(),
        "{name}: every page was asked for once"
    );
    for page in served {
        assert!(
            (2000..4000).contains(&page.body),
            "{name}: a page has {} bytes",
            page.body
        );
    }
}

/// Returns the least and the largest number of requests of a burst that a host may have accepted,
/// given the arrival times.
fn accepted_of_a_burst(kind: Kind, truth: &Truth) -> (usize, usize) {
    // nginx rounds the milliseconds in its log down.
    let span_ms = (truth.span_us() / 1000 + 1) as usize;
    let (least, most) = match kind {
        Kind::Leaky { per_second, burst } | Kind::LeakyQueue { per_second, burst } => {
            let at_once = 1 + burst as usize;
            (at_once, at_once + span_ms * per_second as usize / 1000 + 1)
        }
        Kind::InFlight { cap, .. } => (cap as usize, truth.requests()),
        Kind::FixedWindow {
            requests,
            window_ms,
        }
        | Kind::MovingWindow {
            requests,
            window_ms,
        } => {
            let requests = requests as usize;
            (requests, requests * (1 + span_ms / window_ms as usize))
        }
        // The burst may begin in one window and end in the next. Then the requests that the next
        // window has allowed so far are added.
        Kind::SlidingCounter {
            requests,
            window_ms,
        } => {
            let requests = requests as usize;
            (
                requests,
                requests + requests * span_ms / window_ms as usize + 1,
            )
        }
        Kind::Noisy { .. } | Kind::Open => (0, truth.requests()),
        Kind::Blocks { per_second, .. } => (0, (per_second as usize) * (1 + span_ms / 1000)),
    };
    (least.min(truth.requests()), most)
}

fn hosts_limit_as_declared(set: Set) {
    let town = RealTown::start(set);
    assert_eq!(town.hosts.len(), 16);
    let mut answers = BTreeMap::new();
    for host in &town.hosts {
        let send = match host.kind {
            Kind::InFlight { .. } | Kind::LeakyQueue { .. } => volley,
            _ => burst,
        };
        let requests = match host.kind {
            Kind::Noisy { every } => 2 * every,
            Kind::FixedWindow { requests, .. } => requests + 5,
            _ => 25,
        };
        answers.insert(host.name, send(host, requests));
    }

    let truths = town.truth();
    for host in &town.hosts {
        let (truth, answers) = (&truths[host.name], &answers[host.name]);
        assert_the_log_matches(truth, answers, host.name);
        let (least, most) = accepted_of_a_burst(host.kind, truth);
        let accepted = truth.accepted;
        assert!(
            (least..=most).contains(&accepted),
            "{}: {accepted}, not {least} to {most}",
            host.name
        );
        match host.kind {
            Kind::Noisy { every } => {
                let failed: Vec<usize> = (0..answers.len())
                    .filter(|n| answers[*n].status == 500)
                    .collect();
                assert_eq!(
                    failed,
                    [every as usize - 1, 2 * every as usize - 1],
                    "every {every}th"
                );
            }
            Kind::Open => assert_eq!(truth.accepted, 25),
            Kind::Blocks { per_second, .. } => {
                let too_fast = truth.peak_per_second > per_second as usize;
                assert_eq!(truth.refused > 0, too_fast, "{}", host.name);
            }
            _ => assert_eq!(
                truth.accepted + truth.refused,
                answers.len(),
                "{}",
                host.name
            ),
        }
    }
}

#[test]
fn hosts_of_the_crawlers_set_limit_as_declared() {
    hosts_limit_as_declared(Set::Crawler);
}

#[test]
fn hosts_of_the_api_clients_set_limit_as_declared() {
    hosts_limit_as_declared(Set::Api);
}

#[test]
fn four_slots_hold_four_requests() {
    let town = RealTown::start(Set::Crawler);
    let host = town.host("nginx-4conn");
    assert_eq!(host.in_flight_cap(), Some(4));
    let answers = volley(host, 4);
    assert!(
        answers.iter().all(|answer| answer.status == 200),
        "{answers:?}"
    );
    assert!(town.truth()[host.name].peak_in_flight <= 4);

    // A client is refused only if it has more than four requests in flight.
    let mut answers = answers;
    for _ in 0..20 {
        answers.extend(volley(host, 12));
        let truth = &town.truth()[host.name];
        if truth.refused > 0 {
            assert!(truth.peak_in_flight > 4, "{}", truth.peak_in_flight);
            return;
        }
    }
    panic!("twelve at once, twenty times, and never more than four: {answers:?}");
}

#[test]
fn robots_txt_is_missing_and_counts() {
    let town = RealTown::start(Set::Crawler);
    for host in &town.hosts {
        assert_eq!(get(host, "/robots.txt").status, 404, "{}", host.name);
    }
    // The request for robots.txt has taken this host's only place. The place is free half a second
    // later, by the host's own log.
    let host = town.host("nginx-2rps");
    let next = get(host, "/page/1").status;
    let truth = &town.truth()[host.name];
    let too_soon = truth.smallest_gap_us.expect("two requests") < 499_000;
    assert_eq!(next == 429, too_soon);
    // On a host with a quota, the request for robots.txt has used one of twenty.
    let host = town.host("express-20in10-draft8");
    let answers = burst(host, 20);
    let truth = &town.truth()[host.name];
    if truth.span_us() < 10_000_000 {
        assert_eq!(answers.last().map(|answer| answer.status), Some(429));
    }
}

/// Asserts the limit headers that each host sends with a 200 and with a refusal. If a new version
/// of a server changes its headers, this test fails instead of a test that counts refusals.
#[test]
fn hosts_speak_the_dialects_they_are_here_for() {
    let town = RealTown::start(Set::Crawler);
    let quota = RealTown::start(Set::Api);
    // This requests pages until the first refusal, which comes long before 200 requests at any
    // speed of the machine.
    let dialect = |host: &RealHost| {
        let told = |answer: &Answer| {
            let names = answer.headers.keys().map(String::as_str);
            let about_limits = |name: &&str| {
                name.contains("ratelimit") || matches!(*name, "retry-after" | "cf-mitigated")
            };
            names.filter(about_limits).collect::<Vec<_>>().join(" ")
        };
        let first = get(host, "/page/1");
        let mut answers = (2..200).map(|n| get(host, &format!("/page/{n}")));
        let refusal = answers.find(|answer| matches!(answer.status, 403 | 429 | 503));
        let refusal = refusal.unwrap_or_else(|| panic!("{} refuses nothing", host.name));
        (told(&first), refusal.status, told(&refusal))
    };
    let speaks = |host: &RealHost, first: &str, status: u16, refusal: &str| {
        assert_eq!(
            dialect(host),
            (first.to_owned(), status, refusal.to_owned()),
            "{}",
            host.name
        );
    };

    let host = |name| town.host(name);
    speaks(host("nginx-2rps"), "", 429, "");
    speaks(host("nginx-2rps-burst5"), "", 429, "retry-after");
    speaks(host("nginx-5rps-503"), "", 503, "");
    speaks(host("nginx-10rps"), "", 429, "");
    let ietf = "ratelimit ratelimit-policy";
    let ietf_refusal = "ratelimit ratelimit-policy retry-after";
    speaks(host("express-20in10-draft8"), ietf, 429, ietf_refusal);
    speaks(host("express-20in10-draft7"), ietf, 429, ietf_refusal);
    let draft6 = "ratelimit-limit ratelimit-policy ratelimit-remaining ratelimit-reset";
    speaks(
        quota.host("express-100in10-draft6"),
        draft6,
        429,
        &format!("{draft6} retry-after"),
    );
    let legacy = "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset";
    let always = format!("retry-after {legacy}");
    speaks(host("express-20in10-legacy"), legacy, 429, &always);
    speaks(host("express-30in10-bare"), "", 429, "");
    speaks(host("express-blocks"), "", 403, "cf-mitigated");
    speaks(host("flask-5in1-fixed"), &always, 429, &always);
    speaks(host("flask-20in10-moving"), &always, 429, &always);
    speaks(host("flask-20in10-counter"), "", 429, "");

    let by_date = get(host("flask-20in10-moving"), "/page/1");
    let retry_after = by_date.header("retry-after").expect("a Retry-After");
    assert!(retry_after.ends_with(" GMT"), "{retry_after}");
    // The log shows the request above, which ignored a Retry-After.
    assert!(!town.truth()["flask-20in10-moving"].held.is_empty());
    assert!(town.truth()["flask-20in10-counter"].held.is_empty());
}

#[test]
fn best_times_are_those_of_the_readme() {
    let readme =
        fs::read_to_string(repository().join("tests/servers/README.md")).expect("a README");
    for set in [Set::Crawler, Set::Api] {
        let town = RealTown::start(set);
        for host in &town.hosts {
            let row = readme
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", host.name)));
            let row = row.unwrap_or_else(|| panic!("{} has no row", host.name));
            let stated = row
                .trim_end_matches([' ', '|'])
                .rsplit('|')
                .next()
                .expect("a last column")
                .trim();
            assert_eq!(
                stated,
                format!("{:.1}", host.best_time(150).as_secs_f64()),
                "{}",
                host.name
            );
        }
        let slowest = town.hosts.iter().map(|host| host.best_time(150)).max();
        assert_eq!(slowest, Some(Duration::from_millis(74_500)));
    }
}

#[test]
fn no_server_outlives_the_town() {
    let town = RealTown::start(Set::Api);
    let pids = town.pids();
    let alive = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(pids.iter().all(alive));
    drop(town);
    assert!(!pids.iter().any(alive));
}

/// This environment variable is set for the process that starts a town and is then killed.
const TO_BE_KILLED: &str = "POLITELY_TOWN_TO_BE_KILLED";

/// Killed tests run no destructors. Without the watchdogs, each one left three servers behind.
#[test]
fn no_server_outlives_a_killed_test() {
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let town = RealTown::start(Set::Api);
        let pids: Vec<String> = town.pids().iter().map(u32::to_string).collect();
        println!("\nservers: {}", pids.join(" "));
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let itself = std::env::current_exe().expect("the path of this test");
    let left_behind = tempfile::tempdir().expect("a temporary folder");
    let mut test = Command::new(itself)
        .env("TMPDIR", left_behind.path())
        .env(TO_BE_KILLED, "1")
        .args(["--exact", "--nocapture", "no_server_outlives_a_killed_test"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs twice");
    let mut lines = BufReader::new(test.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let pids: Vec<String> = lines
        .find_map(|line| {
            Some(
                line.strip_prefix("servers: ")?
                    .split(' ')
                    .map(str::to_owned)
                    .collect(),
            )
        })
        .unwrap();
    test.kill().expect("it runs");
    test.wait().expect("it ends");
    let deadline = Instant::now() + Duration::from_secs(30);
    // The process that adopts the orphans may be slow to reap them. A zombie has no command line
    // and holds no port.
    let alive = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty())
    };
    while pids.iter().any(alive) {
        assert!(Instant::now() < deadline, "some of {pids:?} still run");
        thread::sleep(Duration::from_millis(10));
    }
}
