//! An account over fifty hosts, eight processes and two coordinators, whose limits an operator
//! changes every second: no window has more requests than declared.
//!
//! `WHOLE_RUN=1` runs for a minute with each kind of change.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use politely::core::Rng;
use politely_testkit::redis::RedisServer;
use serde_json::{Value, json};

use crate::durable::{Serve, call, serve_with};
use crate::fleet::http::Http;
use crate::run::politely;

const HOSTS: u8 = 50;
const PROCESSES: usize = 8;
/// Pages of each host and process, more than the limits let through.
const PAGES: usize = 40;
/// The declared windows.
const WINDOWS_S: [u64; 2] = [5, 15];
/// Changes with low quantities, and then as many with high ones. A window that begins under high
/// quantities ends under low ones.
const SPELL: usize = 4;
/// The longest way of a request from its grant to its host, on a busy machine. A request that was
/// granted before a change arrives after it.
const WAY: Duration = Duration::from_millis(1_500);

/// How an operator changes the limits of the account.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// `PATCH /api/v1/keys/{key}`, at either coordinator.
    OfKey,
    /// `PUT /api/v1/policy`, which the other coordinator follows within seconds.
    OfPolicy,
}

impl Change {
    /// Returns the longest time until all coordinators follow a change.
    const fn follows_within(self) -> Duration {
        match self {
            Self::OfKey => Duration::ZERO,
            Self::OfPolicy => Duration::from_secs(3),
        }
    }
}

/// Returns the port of fifty hosts, which have addresses of their own, and the times of their
/// requests.
fn hosts() -> (u16, Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let came = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&came);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let notes = Arc::clone(&notes);
            thread::spawn(move || serve(&stream, &notes));
        }
    });
    (port, came)
}

fn serve(mut stream: &TcpStream, notes: &Mutex<Vec<Instant>>) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.starts_with("GET") {
            notes.lock().expect("not poisoned").push(Instant::now());
        }
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage";
        if line.is_empty() && stream.write_all(page).is_err() {
            return;
        }
    }
}

/// A process of the fleet, which is killed when this value is dropped.
struct Crawler(Child);

impl Drop for Crawler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn crawler(dir: &Path, number: usize, coordinators: &[SocketAddr], port: u16) -> Crawler {
    let list = dir.join(format!("list-{number}"));
    let mut urls = String::new();
    for page in 0..PAGES {
        for host in 1..=HOSTS {
            let url = writeln!(urls, "http://127.0.1.{host}:{port}/{number}/{page}");
            url.expect("a text");
        }
    }
    std::fs::write(&list, urls).expect("the folder is writable");
    let mut urls: Vec<String> = coordinators
        .iter()
        .map(|at| format!("http://{at}"))
        .collect();
    urls.rotate_left(number % 2);
    let mut fetch = politely();
    fetch.args([
        "fetch",
        "--no-robots",
        "--summary",
        "none",
        "--coordinator",
        &urls.join(","),
    ]);
    fetch
        .args(["--client", &format!("worker-{number}"), "-i"])
        .arg(&list);
    fetch.stdout(Stdio::null()).stderr(Stdio::null());
    Crawler(fetch.spawn().expect("the binary runs"))
}

fn texts(quantities: [u64; 2]) -> [String; 2] {
    [0, 1].map(|i| format!("{}/{}s", quantities[i], WINDOWS_S[i]))
}

fn rules(quantities: [u64; 2]) -> String {
    let limits = texts(quantities)
        .map(|text| format!("\"{text}\""))
        .join(", ");
    format!("[[rule]]\nmatch = [\"*\"]\naccount = \"shared\"\nlimits = [{limits}]\n")
}

/// Changes the limits to `quantities` at the coordinator of `http`.
fn change(how: Change, http: &mut Http, quantities: [u64; 2]) {
    let answer = match how {
        Change::OfKey => {
            let limits = json!({ "limits": texts(quantities) });
            call(http, "PATCH", "/api/v1/keys/custom%2Fshared", &limits)
        }
        Change::OfPolicy => {
            let deadline = Instant::now() + Duration::from_secs(30);
            let answer = http.call("PUT", "/api/v1/policy", &rules(quantities), deadline);
            answer.ok().map(|answer| (answer.status, Value::Null))
        }
    };
    let (status, said) = answer.expect("it answers");
    assert!((200..300).contains(&status), "{status}: {said}");
}

/// Asserts that no window has more arrivals than were declared, as far as an observer of the hosts
/// can tell. `changes` are in order.
fn judge(how: Change, came: &[Instant], changes: &[(Instant, [u64; 2])]) {
    for (i, window_s) in WINDOWS_S.into_iter().enumerate() {
        // A request may arrive late, so the window of the judge is shorter.
        let length = Duration::from_secs(window_s).saturating_sub(WAY);
        for (last, at) in came.iter().enumerate() {
            let inside = came[..=last].partition_point(|first| *at - *first >= length);
            let count = (last + 1 - inside) as u64;
            // The permit of the last one was granted at most this long ago.
            let since_grant = WAY + how.follows_within();
            let before = changes.partition_point(|(since, _)| *since + since_grant <= *at);
            let in_force = &changes[before.saturating_sub(1)..];
            let in_force = in_force.iter().take_while(|(since, _)| since <= at);
            let most = in_force.map(|(_, quantities)| quantities[i]).max();
            assert!(
                Some(count) <= most,
                "{how:?}: {count} requests in {window_s} s, and {most:?} were declared"
            );
        }
    }
}

/// Runs the fleet for `changes` seconds, and changes the limits each second.
fn run_with(how: Change, changes: usize) {
    let redis = RedisServer::start("");
    let dir = tempfile::tempdir().expect("a folder");
    let (port, came) = hosts();
    let mut rng = Rng::new(1);
    // The first request of a process opens its connections, so the run begins under low quantities.
    let mut drawn = (0..changes).map(|change| {
        let [low, high] = if (change / SPELL).is_multiple_of(2) {
            [8, 15]
        } else {
            [35, 60]
        };
        let quantity = low + rng.next_u64() % (high - low);
        [quantity, quantity * 2]
    });
    let first = drawn.next().expect("a change");
    let mut changed = vec![(Instant::now(), first)];
    let coordinators: Vec<Serve> = (0..2)
        .map(|number| {
            let file = dir.path().join(format!("rules-{number}.toml"));
            std::fs::write(&file, rules(first)).expect("the folder is writable");
            let file = format!("--policy={}", file.display());
            let state = dir.path().join(format!("state-{number}"));
            let args = ["--law=fixed", "--rate=1000", "--store", &redis.url(), &file];
            serve_with(&state, &args)
        })
        .collect();
    let addresses: Vec<SocketAddr> = coordinators.iter().map(|serve| serve.address).collect();
    let crawlers = (0..PROCESSES).map(|number| crawler(dir.path(), number, &addresses, port));
    let crawlers: Vec<Crawler> = crawlers.collect();
    while came.lock().expect("not poisoned").is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let mut https: Vec<Http> = addresses.iter().map(|at| Http::new(*at)).collect();
    let began = Instant::now();
    for (number, quantities) in drawn.enumerate() {
        let due = began + Duration::from_secs(number as u64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // The change is in force at some time of its call. Higher quantities count from the
        // beginning of the call, and lower ones from its end.
        let higher = quantities[0] > changed[changed.len() - 1].1[0];
        let before = Instant::now();
        change(how, &mut https[number % 2], quantities);
        changed.push((if higher { before } else { Instant::now() }, quantities));
    }
    thread::sleep(Duration::from_secs(1));
    drop(crawlers);
    let mut came = came.lock().expect("not poisoned").clone();
    came.sort();
    judge(how, &came, &changed);
    let seconds = began.elapsed().as_secs() as usize;
    println!(
        "{how:?}: {} requests in {seconds} s, {} changes",
        came.len(),
        changed.len()
    );
    // The lowest quantity of a window always has room for so many.
    assert!(came.len() >= 8 * seconds / 5 / 2, "{} requests", came.len());
}

#[test]
fn no_window_of_an_account_has_more_than_declared_while_its_limits_change_every_second() {
    let is_whole = std::env::var_os("WHOLE_RUN").is_some();
    let changes = if is_whole { 60 } else { 13 };
    run_with(Change::OfKey, changes);
    run_with(Change::OfPolicy, changes);
}
