//! A frontier in Redis with the built binary: two coordinators, workers and the engine are killed
//! while pages are added, taken and finished.
//!
//! No acknowledged page is lost, none comes again after an acknowledged `done`, and never are the
//! words of two owners accepted about one page.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use politely::core::Rng;
use politely_testkit::process::{Server, free_place};
use politely_testkit::redis::RedisServer;
use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::fleet_store::proxy::Proxy;
use crate::run::{politely, run};

/// The kills in one run, unless a variable sets them.
const KILLS: u64 = 24;
const KILLS_VARIABLE: &str = "POLITELY_FRONTIER_KILLS";
/// Every so manieth kill is one of the engine.
const ENGINE_EVERY: u64 = 6;
const WORKERS: u64 = 4;
const DOMAINS: u64 = 20;
/// The pages that each kill adds.
const PAGES_PER_KILL: u64 = 60;
/// The longest time that a part of a test may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// An engine that acknowledges what is in its log. With `everysec` it may lose the last seconds.
fn engine() -> RedisServer {
    RedisServer::start("appendonly yes\nappendfsync always\n")
}

fn serve(folder: &Path, engine: &str, address: SocketAddr) -> Server {
    let (bind, store) = (format!("--bind={address}"), format!("--store={engine}"));
    let args = ["serve", &bind, &store, "--frontier"].map(str::to_owned);
    let fast = "--law=fixed --rate=10000 --burst=1000 --in-flight=1000 --lease=1s";
    let args = args.into_iter().chain(fast.split(' ').map(str::to_owned));
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let mut server = Server::start("politely", folder, program, args);
    server.says("politely: http://");
    server
}

fn call(http: &mut Http, path: &str, body: &Value) -> Option<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let path = format!("/api/v1/{path}");
    let answer = http.call("POST", &path, &body.to_string(), deadline).ok()?;
    serde_json::from_slice(&answer.body).ok()
}

/// What the workers know from answers of the coordinators.
#[derive(Default)]
struct Known {
    /// Pages that were answered `new`.
    new: Vec<String>,
    /// How often an outcome of each page was accepted.
    finished: BTreeMap<String, u64>,
    /// Pages whose outcome was sent, and whose answer was lost.
    in_doubt: Vec<String>,
}

struct Crawl {
    addresses: [SocketAddr; 2],
    known: Mutex<Known>,
    exchanges: AtomicU64,
    next_page: AtomicU64,
    is_over: AtomicBool,
    pages_max: AtomicU64,
}

impl Crawl {
    fn new(addresses: [SocketAddr; 2]) -> Self {
        Self {
            addresses,
            known: Mutex::default(),
            exchanges: AtomicU64::new(0),
            next_page: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            pages_max: AtomicU64::new(2 * PAGES_PER_KILL),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no worker failed")
    }

    /// Works until the crawl is over, with either coordinator. The worker dies at random: it
    /// forgets its unit.
    fn work(&self, worker: u64) {
        let mut rng = Rng::new(worker);
        let mut https = self.addresses.map(Http::new);
        let client = format!("worker-{worker}");
        let (mut done, mut pages) = (Vec::new(), Vec::new());
        while !self.is_over.load(Ordering::Relaxed) {
            let http = &mut https[(rng.next_u64() % 2) as usize];
            let body = json!({
                "client": client, "done": done, "pages_per_unit": 3, "wait_ms": 100,
                "lease_ms": 800,
            });
            let answer = call(http, "frontier/c/exchange", &body);
            let Some(said) = answer.filter(|answer| answer["units"].is_array()) else {
                // The coordinator or the engine was killed, or starts.
                self.known().in_doubt.append(&mut pages);
                done.clear();
                http.hang_up();
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            self.exchanges.fetch_add(1, Ordering::Relaxed);
            self.learn(&said, &done, &std::mem::take(&mut pages));
            done.clear();
            let unit = &said["units"][0];
            if unit.is_null() || rng.next_u64().is_multiple_of(10) {
                continue;
            }
            let of_unit = unit["pages"].as_array().expect("pages");
            let url = |page: &Value| page["url"].as_str().expect("a URL").to_owned();
            pages = of_unit.iter().map(url).collect();
            // Sometimes only a part of the unit is visited.
            pages.truncate(1 + (rng.next_u64() % 3) as usize);
            let permit = &unit["grant"]["permit"];
            let words = pages.iter().enumerate().map(|(slot, url)| {
                let report =
                    json!({"permit": permit, "slot": slot, "status": 200, "latency_ms": 1});
                json!({"url": url, "report": report})
            });
            let words: Vec<_> = words.collect();
            let found = (0..2).filter_map(|_| self.new_page());
            let found: Vec<_> = found.map(|url| json!({ "url": url })).collect();
            done.push(json!({"token": unit["token"], "pages": words, "found": found}));
        }
    }

    /// Returns a page that no worker found before, while there is room.
    fn new_page(&self) -> Option<String> {
        let number = self.next_page.fetch_add(1, Ordering::Relaxed);
        let is_room = number < self.pages_max.load(Ordering::Relaxed);
        is_room.then(|| format!("https://host-{}.example/{number}", number % DOMAINS))
    }

    fn learn(&self, said: &Value, done: &[Value], pages: &[String]) {
        let mut known = self.known();
        for (words, answer) in done.iter().zip(said["done"].as_array().expect("answers")) {
            match answer["error"]["field"].as_str() {
                None => {}
                Some("token") => continue,
                // A report that the keys do not know any more, after the engine was killed.
                Some(field) if field.starts_with("pages[") => continue,
                Some("unit") => {
                    known.in_doubt.extend_from_slice(pages);
                    continue;
                }
                Some(_) => panic!("{answer}"),
            }
            for url in pages {
                *known.finished.entry(url.clone()).or_default() += 1;
            }
            let found = words["found"].as_array().expect("pages");
            let answers = answer["found"].as_array().map_or(&[][..], Vec::as_slice);
            for (page, answer) in found.iter().zip(answers) {
                assert_eq!(answer["answer"], "new", "{page}");
                let url = page["url"].as_str().expect("a URL");
                known.new.push(url.to_owned());
            }
        }
        for unit in said["units"].as_array().expect("units") {
            for page in unit["pages"].as_array().expect("pages") {
                let url = page["url"].as_str().expect("a URL");
                let is_finished = known.finished.contains_key(url);
                assert!(!is_finished, "{url} was finished, and came again");
            }
        }
    }

    fn counts(&self) -> Option<Value> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut http = Http::new(self.addresses[0]);
        let answer = http.call("GET", "/api/v1/frontier/c", "", deadline).ok()?;
        serde_json::from_slice(&answer.body).ok()
    }

    /// Waits until all pages are finished. Each step forward may take [`PATIENCE`], since the time
    /// of the whole wait grows with the number of kills.
    fn wait_for_the_end(&self) {
        let (mut finished, mut is_finished) = (None, false);
        while !is_finished {
            self.wait(|| {
                let Some(counts) = self.counts() else {
                    return false;
                };
                let are_found = self.next_page.load(Ordering::Relaxed)
                    >= self.pages_max.load(Ordering::Relaxed);
                is_finished = are_found && counts["pages"] == counts["finished"];
                let before = finished;
                finished = counts["finished"].as_u64();
                is_finished || finished != before
            });
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until a condition holds, and ends the crawl if it does not.
    fn wait(&self, mut is_met: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_met() {
            if Instant::now() > deadline {
                self.is_over.store(true, Ordering::Relaxed);
                panic!("the workers do not get on: {:?}", self.counts());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn check(&self) {
        let known = self.known();
        for url in &known.new {
            let is_done = known.finished.contains_key(url) || known.in_doubt.contains(url);
            assert!(is_done, "{url} was lost");
        }
        for (url, times) in &known.finished {
            assert_eq!(*times, 1, "{url} was done {times} times");
        }
        assert!(known.new.len() as u64 > PAGES_PER_KILL, "pages were found");
    }

    /// Adds the first pages.
    fn import(&self, folder: &Path) {
        let seeds: Vec<_> = (0..PAGES_PER_KILL)
            .filter_map(|_| self.new_page())
            .collect();
        let list = folder.join("urls.txt");
        std::fs::write(&list, seeds.join("\n")).expect("the list is written");
        let url = format!("http://{}", self.addresses[0]);
        let said = run(politely()
            .args(["frontier", "import", "c"])
            .arg(list)
            .args(["--coordinator", &url]));
        assert_eq!(said.code, 0, "{}", said.err);
        self.known().new = seeds;
    }
}

#[test]
fn no_acknowledged_page_is_lost_or_done_twice_when_coordinators_and_the_engine_are_killed() {
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |text| text.parse().expect("a number"));
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let mut engine = engine();
    let url = engine.url();
    let crawl = Crawl::new([free_place(), free_place()]);
    let start = |at: usize| serve(folders[at].path(), &url, crawl.addresses[at]);
    let mut servers = [0, 1].map(|at| Some(start(at)));
    crawl.import(folders[0].path());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let crawl = &crawl;
            scope.spawn(move || crawl.work(worker));
        }
        let mut rng = Rng::new(5);
        for kill in 0..kills {
            let until = crawl.exchanges.load(Ordering::Relaxed) + 5 + rng.next_u64() % 40;
            crawl.wait(|| crawl.exchanges.load(Ordering::Relaxed) >= until);
            crawl.pages_max.fetch_add(PAGES_PER_KILL, Ordering::Relaxed);
            if kill % ENGINE_EVERY == ENGINE_EVERY - 1 {
                engine.kill();
                engine.start_again();
            } else {
                let at = (kill % 2) as usize;
                // A server that is dropped is killed with SIGKILL.
                servers[at].take();
                servers[at] = Some(start(at));
            }
        }
        crawl.wait_for_the_end();
    });
    crawl.check();
    drop(servers);
}

#[test]
fn a_slow_wire_and_lost_answers_cost_no_page() {
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let engine = engine();
    let proxy = Proxy::start(engine.address);
    let crawl = Crawl::new([free_place(), free_place()]);
    let _servers = [
        serve(folders[0].path(), &proxy.url(), crawl.addresses[0]),
        serve(folders[1].path(), &engine.url(), crawl.addresses[1]),
    ];
    crawl.import(folders[0].path());
    proxy.delay(20);
    proxy.lose(3);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let crawl = &crawl;
            scope.spawn(move || crawl.work(worker));
        }
        crawl.wait(|| proxy.lost() >= 5);
        crawl.pages_max.fetch_add(PAGES_PER_KILL, Ordering::Relaxed);
        crawl.wait(|| proxy.lost() >= 10);
        proxy.lose(0);
        crawl.wait_for_the_end();
    });
    crawl.check();
}

#[test]
fn a_shared_frontier_needs_a_redis_and_no_folder() {
    for (args, word) in [
        (
            &["--frontier", "x", "--store", "redis://127.0.0.1:1"][..],
            "name no folder",
        ),
        (
            &["--frontier", "--store", "zookeeper://127.0.0.1:1"],
            "needs Redis or Valkey",
        ),
        (&["--frontier", "--memory"], "name a folder"),
    ] {
        let said = run(politely().args(["serve", "--bind=127.0.0.1:0"]).args(args));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        let is_clear = said.err.contains(word) && said.err.lines().count() == 1;
        assert!(is_clear, "{args:?}: {}", said.err);
    }
}
