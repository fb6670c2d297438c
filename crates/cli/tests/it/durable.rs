//! Kills `politely serve --state` with SIGKILL under concurrent changes. Every change that was
//! answered with 200 exists after a restart.
//!
//! `POLITELY_TEST_KILLS=300` kills more often.

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use politely::core::Rng;
use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::run::{politely, run};

const KILLS: u64 = 20;
const THREADS: u64 = 4;
/// Number of keys of each thread.
const KEYS: u64 = 10;
const PATIENCE: Duration = Duration::from_mins(1);

/// A coordinator, which is killed when this value is dropped.
pub(crate) struct Serve {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Serve {
    /// Ends the coordinator as a service manager does.
    pub(crate) fn end(mut self) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.expect("kill runs").success());
        assert!(self.child.wait().expect("a child").success());
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

fn serve(dir: &Path, durability: &str) -> Serve {
    serve_with(dir, &["--rate", "50", "--durability", durability])
}

/// Starts a coordinator with a state folder and further arguments.
pub(crate) fn serve_with(dir: &Path, args: &[&str]) -> Serve {
    let state = format!("--state={}", dir.display());
    serve_as(&[&[&state, "--in-flight=50", "--lease=60s"], args].concat())
}

/// Starts a coordinator with these arguments.
pub(crate) fn serve_as(args: &[&str]) -> Serve {
    let address = free_address();
    let mut command = politely();
    command.args(["serve", "--bind", &address.to_string(), "--profile", "api"]);
    command.args(args);
    let child = command.stderr(Stdio::null()).spawn().expect("it runs");
    let mut serve = Serve { child, address };
    let deadline = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(address).is_err() {
        let ended = serve.child.try_wait().expect("a child");
        assert!(
            ended.is_none() && Instant::now() < deadline,
            "it does not start: {ended:?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
    serve
}

pub(crate) fn call(
    http: &mut Http,
    method: &str,
    path: &str,
    body: &Value,
) -> Option<(u16, Value)> {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = http
        .call(method, path, &text, Instant::now() + PATIENCE)
        .ok()?;
    let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    Some((answer.status, body))
}

/// The changes of one thread: for each key the acknowledged ones, and the ones that were in flight
/// when the coordinator was killed.
#[derive(Default)]
struct Known {
    rates: BTreeMap<String, f64>,
    doubtful_rates: BTreeMap<String, f64>,
    /// When each acknowledged hold ends.
    holds: BTreeMap<String, Instant>,
    start_rate: Option<f64>,
    doubtful_start_rate: Option<f64>,
    permits: BTreeMap<String, Instant>,
    acknowledged: u64,
}

impl Known {
    /// Makes changes until the coordinator has been killed.
    fn change(&mut self, thread: u64, life: u64, address: SocketAddr, stop: &AtomicBool) {
        let mut http = Http::new(address);
        let mut rng = Rng::new(life * 100 + thread);
        let client = format!("w{thread}");
        let mut number = 0_u64;
        while !stop.load(SeqCst) {
            number += 1;
            let kind = rng.next_u64() % 10;
            let done = if kind < 5 {
                self.set_rate(&mut http, &mut rng, thread)
            } else if kind < 6 && thread == 0 {
                self.set_config(&mut http, &mut rng)
            } else {
                let key = format!("w{thread}l{life}n{number}.example");
                self.permit(&mut http, &client, &key, kind.is_multiple_of(2))
            };
            if done.is_none() {
                return;
            }
        }
    }

    fn set_rate(&mut self, http: &mut Http, rng: &mut Rng, thread: u64) -> Option<()> {
        let key = format!("w{thread}k{}.example", rng.next_u64() % KEYS);
        let rate = (rng.next_u64() % 40_000 + 100) as f64 / 1_000.0;
        self.doubtful_rates.insert(key.clone(), rate);
        let path = format!("/api/v1/keys/{key}");
        let (status, _) = call(http, "PATCH", &path, &json!({ "rate": rate }))?;
        assert_eq!(status, 200);
        self.doubtful_rates.remove(&key);
        self.rates.insert(key, rate);
        self.acknowledged += 1;
        Some(())
    }

    fn set_config(&mut self, http: &mut Http, rng: &mut Rng) -> Option<()> {
        let rate = (rng.next_u64() % 40_000 + 1_000) as f64 / 1_000.0;
        self.doubtful_start_rate = Some(rate);
        let patch = json!({ "crawling": { "rate_start": rate } });
        let (status, _) = call(http, "PATCH", "/api/v1/config", &patch)?;
        assert_eq!(status, 200);
        self.doubtful_start_rate = None;
        self.start_rate = Some(rate);
        self.acknowledged += 1;
        Some(())
    }

    /// Acquires a permit. The permit stays in flight, or a Retry-After is reported for it.
    fn permit(&mut self, http: &mut Http, client: &str, key: &str, refused: bool) -> Option<()> {
        let asked = json!({ "client": client, "items": [{ "key": key, "id": key }] });
        let (_, answer) = call(http, "POST", "/api/v1/acquire", &asked)?;
        let permit = answer["items"][0]["permit"].as_str()?.to_owned();
        if !refused {
            self.permits.insert(permit, Instant::now());
            return Some(());
        }
        let told = json!({ "client": client, "items": [{
            "permit": permit, "status": 429, "headers": { "Retry-After": "1800" }, "latency_ms": 9.0,
        }] });
        let (_, answer) = call(http, "POST", "/api/v1/report", &told)?;
        let answer = &answer["items"][0];
        assert!(
            answer["error"].is_null() && answer["durable"].is_null(),
            "{answer}"
        );
        let ends = Instant::now() + Duration::from_secs(1_790);
        self.holds.insert(key.to_owned(), ends);
        self.acknowledged += 1;
        Some(())
    }

    /// Asserts that every acknowledged change exists.
    fn demand(&mut self, thread: u64, life: u64, address: SocketAddr) {
        let mut http = Http::new(address);
        let mut get = |path: &str| call(&mut http, "GET", path, &Value::Null).expect("it answers");
        for (key, rate) in &mut self.rates {
            let (_, detail) = get(&format!("/api/v1/keys/{key}"));
            let found = detail["limits"]["rate"].as_f64();
            let doubtful = self.doubtful_rates.get(key).copied();
            assert!(
                found == Some(*rate) || found.is_some() && found == doubtful,
                "life {life}: {key} was {rate} or {doubtful:?}, is {found:?}"
            );
            *rate = found.expect("it is");
        }
        for (key, ends) in &self.holds {
            let (_, detail) = get(&format!("/api/v1/keys/{key}"));
            let left = ends.saturating_duration_since(Instant::now()).as_millis() as f64;
            let found = detail["ready_in_ms"].as_f64().unwrap_or_default();
            assert!(
                found >= left,
                "life {life}: {key} is held for {found} ms, not {left}"
            );
        }
        if let Some(rate) = self.start_rate {
            let (_, config) = get("/api/v1/config");
            let found = config["crawling"]["rate_start"].as_f64();
            let doubtful = self.doubtful_start_rate;
            assert!(
                found == Some(rate) || found.is_some() && found == doubtful,
                "life {life}: rate_start was {rate} or {doubtful:?}, is {found:?}"
            );
            self.start_rate = found;
        }
        let client = format!("w{thread}");
        for (permit, at) in std::mem::take(&mut self.permits) {
            if at.elapsed() > Duration::from_secs(50) {
                continue;
            }
            let told = json!({ "client": client, "items": [{ "permit": permit, "status": 200, "latency_ms": 9.0 }] });
            let (_, answer) = call(&mut http, "POST", "/api/v1/report", &told).expect("it answers");
            let answer = &answer["items"][0];
            assert!(
                answer["error"].is_null() && answer["late"].is_null(),
                "life {life}: {permit}: {answer}"
            );
        }
        self.doubtful_rates.clear();
        self.doubtful_start_rate = None;
        // Older holds were checked often enough.
        while self.holds.len() > 100 {
            self.holds.pop_first();
        }
    }
}

fn kills() -> u64 {
    let kills = env::var("POLITELY_TEST_KILLS").ok();
    kills.and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

#[test]
fn whatever_was_acknowledged_is_there_after_each_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut known: Vec<Known> = (0..THREADS).map(|_| Known::default()).collect();
    let mut rng = Rng::new(7);
    for life in 0..=kills() {
        // A test cannot cause a power loss. But the policy `power` must not lose more than `kill`.
        let durability = if life % 4 == 3 { "power" } else { "kill" };
        let mut serve = serve(dir.path(), durability);
        let stop = AtomicBool::new(false);
        for (thread, known) in known.iter_mut().enumerate() {
            known.demand(thread as u64, life, serve.address);
        }
        let before: u64 = known.iter().map(|known| known.acknowledged).sum();
        let until = before + 1 + rng.next_u64() % 60;
        thread::scope(|scope| {
            let changing: Vec<_> = known
                .iter_mut()
                .enumerate()
                .map(|(thread, known)| {
                    let (address, stop) = (serve.address, &stop);
                    scope.spawn(move || known.change(thread as u64, life, address, stop))
                })
                .collect();
            // Some changes are in flight at any moment. How far they come depends on the scheduler.
            thread::sleep(Duration::from_millis(20 + 5 * (until - before)));
            serve.child.kill().expect("it is killed");
            serve.child.wait().expect("it is gone");
            stop.store(true, SeqCst);
            for changing in changing {
                changing.join().expect("no change was refused");
            }
        });
    }
    let acknowledged: u64 = known.iter().map(|known| known.acknowledged).sum();
    assert!(
        acknowledged > kills(),
        "{acknowledged} changes in {} lives",
        kills()
    );
}

#[test]
fn a_state_is_checked_saved_and_restored() {
    let place = tempfile::tempdir().expect("a folder");
    let (dir, file) = (place.path().join("state"), place.path().join("backup"));
    let state =
        |args: &[&str], paths: &[&Path]| run(politely().arg("state").args(args).args(paths));
    let said = state(&["check"], &[&dir]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("no state folder"), "{}", said.err);

    let serve = serve(&dir, "kill");
    let mut http = Http::new(serve.address);
    let patch = json!({ "rate": 3.5 });
    let set = call(&mut http, "PATCH", "/api/v1/keys/h.example", &patch);
    assert_eq!(set.expect("it answers").0, 200);
    let said = state(&["check"], &[&dir]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("stop it first"), "{}", said.err);
    drop(serve);

    let said = state(&["check"], &[&dir]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("1 keys, 0 permits out, 1 starts"),
        "{}",
        said.out
    );
    assert_eq!(state(&["backup"], &[&dir, &file]).code, 0);

    std::fs::write(dir.join("politely.redb"), "").expect("it is emptied");
    assert_eq!(state(&["check"], &[&dir]).code, 1);
    let refused = run(politely()
        .args(["serve", "--bind", "127.0.0.1:0", "--state"])
        .arg(&dir));
    assert_eq!(refused.code, 2);
    let lines = refused.lines("politely state restore");
    assert_eq!(lines.len(), 1, "{}", refused.err);

    assert_eq!(state(&["restore"], &[&dir, &file]).code, 0);
    let serve = self::serve(&dir, "kill");
    let mut http = Http::new(serve.address);
    let (_, detail) =
        call(&mut http, "GET", "/api/v1/keys/h.example", &Value::Null).expect("it answers");
    assert_eq!(detail["limits"]["rate"], 3.5);
}
