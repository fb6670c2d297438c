//! Tests of the frontier with the built binary: the commands, and `kill -9` of the coordinator.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use politely::core::Rng;
use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::run::{Said, politely, rows, run};
use politely_testkit::process::{Server, free_place};

/// The kills of the coordinator in one run, unless a variable sets them.
const KILLS: u64 = 12;
const KILLS_VARIABLE: &str = "POLITELY_FRONTIER_KILLS";
const WORKERS: u64 = 3;
/// The most domains, and the most pages that each kill adds.
const DOMAINS: u64 = 20;
const PAGES_PER_KILL: u64 = 60;
/// The longest time that a part of a test may take.
const PATIENCE: Duration = Duration::from_mins(4);

fn serve(folder: &Path, address: SocketAddr) -> Server {
    let path = |name: &str| folder.join(name).display().to_string();
    let args = [
        "serve".to_owned(),
        format!("--bind={address}"),
        format!("--state={}", path("state")),
        format!("--frontier={}", path("frontier")),
    ];
    let fast = "--law=fixed --rate=10000 --burst=1000 --in-flight=1000 --lease=1s";
    let args = args.into_iter().chain(fast.split(' ').map(str::to_owned));
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let mut server = Server::start("politely", folder, program, args);
    server.says("politely: http://");
    server
}

fn frontier(address: SocketAddr, args: &[&str]) -> Said {
    let url = format!("http://{address}");
    run(politely()
        .arg("frontier")
        .args(args)
        .args(["--coordinator", &url]))
}

#[test]
fn a_crawl_is_imported_counted_and_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_place();
    let _server = serve(folder.path(), address);
    let list = folder.path().join("urls.txt");
    let line = json!({"url": "https://b.com/1", "priority": 9, "metadata": {"depth": 1}});
    let text = format!("# two hosts\nhttps://a.com/1\n\n{line}\nb.com/2\nhttps://a.com/1\n");
    std::fs::write(&list, text).expect("the list is written");
    let said = frontier(address, &["import", "news", list.to_str().expect("UTF-8")]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(
        said.err
            .contains("2 pages are new, 1 known, 0 beyond a bound, 1 invalid"),
        "{}",
        said.err
    );
    assert_eq!(said.lines("line 5: not a URL").len(), 1, "{}", said.err);

    let said = frontier(address, &["stats"]);
    assert!(
        said.out.starts_with("crawl  domains  pages  ready"),
        "{}",
        said.out
    );
    let said = frontier(address, &["stats", "--json"]);
    let row = &said.rows()[0];
    assert_eq!(
        (&row["crawl"], &row["pages"]),
        (&json!("news"), &json!(2)),
        "{row}"
    );

    let mut http = Http::new(address);
    let unit = take(&mut http, "news").expect("a unit")["units"][0].take();
    let page = &unit["pages"][0]["url"];
    assert_eq!(
        page, "https://b.com/1",
        "the page of the highest priority is first"
    );
    let words = json!({"client": "w", "units": [
        {"token": unit["token"], "pages": [{"url": page, "then": "finish"}]},
    ]});
    call(&mut http, "frontier/news/done", &words).expect("an answer");

    let copy = folder.path().join("copy.jsonl");
    let copy = copy.to_str().expect("UTF-8");
    let said = frontier(address, &["export", "news", "--output", copy]);
    assert_eq!(said.code, 0, "{}", said.err);
    let mut pages = rows(&std::fs::read_to_string(copy).expect("the copy"));
    pages.sort_by_key(|page| page["url"].to_string());
    assert_eq!(pages.len(), 2);
    assert_eq!(pages[1]["finished"], true);
    assert_eq!(pages[1]["metadata"]["depth"], 1);
    let said = frontier(address, &["import", "copy", copy]);
    assert_eq!(said.code, 0, "{}", said.err);
    let unit = take(&mut http, "copy").expect("a unit")["units"][0].take();
    assert_eq!(
        unit["pages"][0]["url"], "https://a.com/1",
        "a finished page stays finished"
    );

    for (args, word) in [
        (&["export", "nowhere"][..], "no crawl is named \"nowhere\""),
        (&["import", "a b"], "is not the name of a crawl"),
        (
            &["import", "news", "/nowhere/list"],
            "/nowhere/list: no such file",
        ),
    ] {
        let said = run(politely()
            .arg("frontier")
            .args(args)
            .args(["--coordinator", &format!("http://{address}")])
            .stdin(std::fs::File::open(&list).expect("the list")));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(
            said.err.contains(word) && said.err.lines().count() == 1,
            "{args:?}: {}",
            said.err
        );
    }
}

#[test]
fn a_frontier_that_cannot_be_served_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let free = "--bind=127.0.0.1:0";
    for (args, word) in [
        (&["--memory", "--frontier", file][..], "file"),
        (
            &["--memory", "--frontier-spacing", "fixed:1s"],
            "--frontier",
        ),
        (
            &["--memory", "--frontier", "x", "--frontier-spacing", "1s"],
            "must be fixed:TIME",
        ),
        (
            &[
                "--memory",
                "--frontier",
                "x",
                "--frontier-spacing",
                "mean:-1s",
            ],
            "-1",
        ),
    ] {
        let said = run(politely()
            .args(["serve", free])
            .args(args)
            .current_dir(folder.path()));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(said.err.contains(word), "{args:?}: {}", said.err);
    }
}

fn call(http: &mut Http, path: &str, body: &Value) -> Option<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let path = format!("/api/v1/{path}");
    let answer = http.call("POST", &path, &body.to_string(), deadline).ok()?;
    serde_json::from_slice(&answer.body).ok()
}

fn take(http: &mut Http, crawl: &str) -> Option<Value> {
    let body = json!({"client": "w", "wait_ms": 10_000});
    call(http, &format!("frontier/{crawl}/take"), &body)
}

/// What the workers know from answers of the coordinator.
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
    address: SocketAddr,
    known: Mutex<Known>,
    exchanges: AtomicU64,
    next_page: AtomicU64,
    is_over: AtomicBool,
    pages_max: AtomicU64,
}

impl Crawl {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no worker failed")
    }

    /// Works until the crawl is over. The worker dies at random: it forgets its unit.
    fn work(&self, worker: u64) {
        let mut rng = Rng::new(worker);
        let mut http = Http::new(self.address);
        let client = format!("worker-{worker}");
        let mut done = Vec::new();
        let mut pages = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let body = json!({
                "client": client, "done": done, "pages_per_unit": 3, "wait_ms": 100,
                "lease_ms": 400,
            });
            let answer = call(&mut http, "frontier/c/exchange", &body);
            let said = answer.filter(|answer| answer["units"].is_array());
            let Some(said) = said else {
                // The coordinator was killed, or starts.
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
            let found: Vec<_> = (0..2).filter_map(|_| self.new_page()).collect();
            let found: Vec<_> = found.iter().map(|url| json!({"url": url})).collect();
            let words: Vec<_> = words.collect();
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
            if !answer["error"].is_null() {
                assert_eq!(answer["error"]["field"], "token", "{answer}");
                continue;
            }
            for url in pages {
                *known.finished.entry(url.clone()).or_default() += 1;
            }
            let found = words["found"].as_array().expect("pages");
            let answers = answer["found"].as_array().map_or(&[][..], Vec::as_slice);
            for (page, answer) in found.iter().zip(answers) {
                assert_eq!(answer["answer"], "new", "{page}");
                known
                    .new
                    .push(page["url"].as_str().expect("a URL").to_owned());
            }
        }
        for unit in said["units"].as_array().expect("units") {
            for page in unit["pages"].as_array().expect("pages") {
                let url = page["url"].as_str().expect("a URL");
                assert!(
                    !known.finished.contains_key(url),
                    "{url} was finished, and came again"
                );
            }
        }
    }
}

#[test]
fn no_acknowledged_page_is_lost_or_done_twice_when_the_coordinator_is_killed() {
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_place();
    let mut server = Some(serve(folder.path(), address));
    let crawl = Crawl {
        address,
        known: Mutex::default(),
        exchanges: AtomicU64::new(0),
        next_page: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        pages_max: AtomicU64::new(2 * PAGES_PER_KILL),
    };
    let seeds: Vec<_> = (0..PAGES_PER_KILL)
        .filter_map(|_| crawl.new_page())
        .collect();
    let list = folder.path().join("urls.txt");
    std::fs::write(&list, seeds.join("\n")).expect("the list is written");
    let said = frontier(address, &["import", "c", list.to_str().expect("UTF-8")]);
    assert_eq!(said.code, 0, "{}", said.err);
    crawl.known().new = seeds;

    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let crawl = &crawl;
            scope.spawn(move || crawl.work(worker));
        }
        let mut rng = Rng::new(5);
        for _ in 0..kills {
            let until = crawl.exchanges.load(Ordering::Relaxed) + 5 + rng.next_u64() % 40;
            wait(&crawl, || crawl.exchanges.load(Ordering::Relaxed) >= until);
            // A server that is dropped is killed with SIGKILL.
            server.take();
            crawl.pages_max.fetch_add(PAGES_PER_KILL, Ordering::Relaxed);
            server = Some(serve(folder.path(), address));
        }
        let mut http = Http::new(address);
        wait(&crawl, || {
            let deadline = Instant::now() + Duration::from_secs(20);
            let answer = http.call("GET", "/api/v1/frontier/c", "", deadline);
            let counts: Value =
                serde_json::from_slice(&answer.expect("an answer").body).expect("JSON");
            let is_done = counts["pages"] == counts["finished"];
            is_done
                && crawl.next_page.load(Ordering::Relaxed)
                    >= crawl.pages_max.load(Ordering::Relaxed)
        });
        crawl.is_over.store(true, Ordering::Relaxed);
    });

    let known = crawl.known();
    for url in &known.new {
        let is_done = known.finished.contains_key(url) || known.in_doubt.contains(url);
        assert!(is_done, "{url} was lost");
    }
    for (url, times) in &known.finished {
        assert_eq!(*times, 1, "{url} was done {times} times");
    }
    assert!(known.new.len() as u64 > PAGES_PER_KILL, "pages were found");
    drop(server);
}

/// Waits until a condition holds, and ends the crawl if it does not.
fn wait(crawl: &Crawl, mut is_met: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_met() {
        if Instant::now() > deadline {
            crawl.is_over.store(true, Ordering::Relaxed);
            panic!("the workers do not get on");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
