//! A crawl whose workers and coordinators are killed while pages are added, taken and finished.
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
use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::run::{politely, run};

/// The variable that sets the number of kills in one run.
const KILLS_VARIABLE: &str = "POLITELY_FRONTIER_KILLS";
/// The most domains, and the pages that each kill adds.
const DOMAINS: u64 = 20;
const PAGES_PER_KILL: u64 = 60;
/// The longest time that a part of a test may take.
const PATIENCE: Duration = Duration::from_mins(4);

/// Returns the number of kills in one run: that of the variable, or `otherwise`.
pub(crate) fn kills(otherwise: u64) -> u64 {
    std::env::var(KILLS_VARIABLE).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Starts a coordinator with fast limits, a short lease and these arguments.
pub(crate) fn serve(folder: &Path, args: &[String]) -> Server {
    let fast = "--law=fixed --rate=10000 --burst=1000 --in-flight=1000 --lease=1s";
    let args = ["serve"]
        .into_iter()
        .chain(fast.split(' '))
        .map(str::to_owned)
        .chain(args.iter().cloned());
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let mut server = Server::start("politely", folder, program, args);
    server.says("politely: http://");
    server
}

pub(crate) fn call(http: &mut Http, path: &str, body: &Value) -> Option<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let path = format!("/api/v1/{path}");
    let answer = http.call("POST", &path, &body.to_string(), deadline).ok()?;
    serde_json::from_slice(&answer.body).ok()
}

/// The workers' record of the coordinators' answers.
#[derive(Default)]
struct Known {
    /// Pages that were answered `new`.
    new: Vec<String>,
    /// How often an outcome of each page was accepted.
    finished: BTreeMap<String, u64>,
    /// Pages whose outcome was sent, and whose answer was lost.
    in_doubt: Vec<String>,
}

/// A crawl by workers that die, through coordinators that are killed.
pub(crate) struct Crawl {
    /// The coordinators. Several share an engine.
    pub(crate) addresses: Vec<SocketAddr>,
    lease_ms: u64,
    known: Mutex<Known>,
    /// The answered exchanges so far.
    pub(crate) exchanges: AtomicU64,
    next_page: AtomicU64,
    is_over: AtomicBool,
    pages_max: AtomicU64,
}

impl Crawl {
    pub(crate) fn new(coordinators: usize, lease_ms: u64) -> Self {
        Self {
            addresses: (0..coordinators).map(|_| free_place()).collect(),
            lease_ms,
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

    /// Works until the crawl is over, with any coordinator. The worker dies at random: it forgets
    /// its unit.
    pub(crate) fn work(&self, worker: u64) {
        let mut rng = Rng::new(worker);
        let mut https: Vec<_> = self.addresses.iter().copied().map(Http::new).collect();
        let client = format!("worker-{worker}");
        let (mut done, mut pages) = (Vec::new(), Vec::new());
        while !self.is_over.load(Ordering::Relaxed) {
            let at = rng.next_u64() as usize % https.len();
            let http = &mut https[at];
            let body = json!({
                "client": client, "done": done, "pages_per_unit": 3, "wait_ms": 100,
                "lease_ms": self.lease_ms,
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
        let is_shared = self.addresses.len() > 1;
        let mut known = self.known();
        for (words, answer) in done.iter().zip(said["done"].as_array().expect("answers")) {
            match answer["error"]["field"].as_str() {
                None => {}
                Some("token") => continue,
                // A report that the keys do not know any more, after the engine was killed.
                Some(field) if is_shared && field.starts_with("pages[") => continue,
                Some("unit") if is_shared => {
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

    /// Lets the workers find more pages.
    pub(crate) fn grow(&self) {
        self.pages_max.fetch_add(PAGES_PER_KILL, Ordering::Relaxed);
    }

    /// Waits until all pages are finished. Each step forward may take [`PATIENCE`], since the time
    /// of the whole wait grows with the number of kills.
    pub(crate) fn wait_for_the_end(&self) {
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
    pub(crate) fn wait(&self, mut is_met: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_met() {
            if Instant::now() > deadline {
                self.is_over.store(true, Ordering::Relaxed);
                panic!("the workers do not get on: {:?}", self.counts());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn check(&self) {
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
    pub(crate) fn import(&self, folder: &Path) {
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
