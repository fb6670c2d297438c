//! A fleet of worker processes under `politely serve`, over hosts with known limits, while faults
//! happen.
//!
//! Each worker and each coordinator is a process of its own. The hosts run in this process, so that
//! the tests can read their log of every request. The tests judge safety by that log. The workers'
//! own notes show only which pages and permits they had.

mod clock_steps;
mod eight_workers;
mod failover;
mod frozen_worker;
pub(crate) mod http;
mod killed_coordinator;
mod killed_workers;
mod lost_answer;
mod notes;
pub(crate) mod verdict;
mod worker;
mod zookeeper;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use politely_target::{HostSpec, LimitSpec, Record, Service, Target, Town};
use serde_json::Value;

use http::Http;
use notes::{Note, What};
use politely_testkit::process::Server;
use politely_testkit::repository;
use worker::{Freeze, Orders};

/// Longest wait for an event that must come, on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// Lets one test at a time start processes again and again. Each start takes a core for a moment,
/// and two such tests would delay each other's requests.
pub(crate) fn restart_alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of fleets that this process has started.
static STARTED: AtomicU8 = AtomicU8::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Rust,
    Python,
}

/// Returns a worker's language: two of eight are written in Python.
const fn language(number: usize) -> Language {
    if number % 4 == 3 {
        Language::Python
    } else {
        Language::Rust
    }
}

struct Fleet {
    // The fields are declared in the order in which they must be dropped.
    workers: Vec<Worker>,
    coordinator: Option<Server>,
    /// If there are two coordinators, the one that workers call first.
    first: Option<(SocketAddr, Server)>,
    serve: Vec<String>,
    address: SocketAddr,
    target: Target,
    /// The machine's time at which the hosts' clocks were zero, in microseconds.
    began_us: u64,
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

struct Worker {
    language: Language,
    orders: Orders,
    process: Option<Child>,
}

impl Fleet {
    /// Starts the hosts and a coordinator, without workers.
    fn start(hosts: Vec<HostSpec>, serve: &[&str]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let town = Target::start_with(Town::new(hosts), Record::Memory);
        let target = runtime.block_on(town).expect("the town starts");
        let began_us = notes::wall_us();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let mut args = vec!["serve".to_owned()];
        if !serve.contains(&"--store") {
            args.push("--state".to_owned());
            args.push(state.to_str().expect("UTF-8").to_owned());
        }
        args.extend(serve.iter().map(|arg| (*arg).to_owned()));
        // This loopback address belongs to the fleet alone. So no other connection takes its port
        // while the coordinator is down.
        let [.., high, low] = process::id().to_be_bytes();
        let last = 1 + STARTED.fetch_add(1, Ordering::Relaxed) % 254;
        let mut fleet = Self {
            workers: Vec::new(),
            coordinator: None,
            first: None,
            serve: args,
            address: SocketAddr::from((Ipv4Addr::new(127, 32 | high & 31, low, last), 0)),
            target,
            began_us,
            folder,
            _runtime: runtime,
        };
        fleet.start_coordinator();
        fleet
    }

    /// Starts the coordinator: the first time on a free port, later on the same one.
    fn start_coordinator(&mut self) {
        let mut args = self.serve.clone();
        args.push("--bind".to_owned());
        args.push(self.address.to_string());
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_politely"));
        let name = if self.first.is_some() {
            "second"
        } else {
            "coordinator"
        };
        let mut coordinator = Server::start(name, self.folder.path(), &binary, args);
        let said = coordinator.says("politely: http");
        let address = said
            .rsplit('/')
            .next()
            .and_then(|address| address.parse().ok());
        self.address = address.expect("it says where it is");
        self.coordinator = Some(coordinator);
    }

    /// Starts a second coordinator, to which workers can switch. The test calls this one from now
    /// on.
    fn start_second_coordinator(&mut self) {
        let first = self.coordinator.take().expect("one runs");
        self.first = Some((self.address, first));
        self.address.set_port(0);
        self.start_coordinator();
    }

    /// Kills the coordinator with SIGKILL.
    fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Divides all pages of all hosts among `count` workers, in turn, and starts them. If there are
    /// two coordinators, every second pair of workers calls the second one first.
    fn start_workers(&mut self, count: usize, lanes: usize) {
        let mut urls = vec![Vec::new(); count];
        for host in self.target.hosts() {
            for (page, url) in host.page_urls().enumerate() {
                urls[page % count].push(url);
            }
        }
        for (number, urls) in urls.into_iter().enumerate() {
            let coordinator = match &self.first {
                Some((first, _)) if number % 4 < 2 => *first,
                _ => self.address,
            };
            self.start_worker(language(number), urls, lanes, coordinator, None);
        }
    }

    fn start_worker(
        &mut self,
        language: Language,
        urls: Vec<String>,
        lanes: usize,
        coordinator: SocketAddr,
        freeze: Option<Freeze>,
    ) {
        let number = self.workers.len();
        let notes = self.folder.path().join(format!("worker-{number}.notes"));
        File::create(&notes).expect("the folder can be written");
        let mut worker = Worker {
            language,
            orders: Orders {
                client: format!("worker-{number}"),
                coordinator,
                others: self.first.iter().map(|_| self.address).collect(),
                urls,
                notes,
                lanes,
                wait_ms: 1_000,
                freeze,
            },
            process: None,
        };
        worker.start();
        self.workers.push(worker);
    }

    /// Sends a GET request below `/api/v1`.
    fn ask(&self, path: &str) -> Value {
        self.say("GET", path, "")
    }

    fn say(&self, method: &str, path: &str, body: &str) -> Value {
        let path = format!("/api/v1/{path}");
        let deadline = Instant::now() + PATIENCE;
        let answer = Http::new(self.address)
            .call(method, &path, body, deadline)
            .unwrap_or_else(|why| panic!("{method} {path}: {why}"));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    /// Returns the notes of all workers, ordered by time.
    fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<_> = self.workers.iter().flat_map(Worker::notes).collect();
        notes.sort_by_key(|note| note.at_us);
        notes
    }

    /// Returns the number of pages that workers got so far. It counts a page that was fetched twice
    /// as two, so it is cheap.
    fn progress(&self) -> usize {
        let texts = self
            .workers
            .iter()
            .filter_map(|worker| fs::read_to_string(&worker.orders.notes).ok());
        texts.map(|text| text.matches("\"got\"").count()).sum()
    }

    /// Returns the number of different pages that workers got.
    fn pages(&self) -> usize {
        let got = self
            .notes()
            .into_iter()
            .filter(|note| note.what == What::Got);
        got.map(|note| note.url).collect::<BTreeSet<_>>().len()
    }

    fn pages_wanted(&self) -> usize {
        self.workers
            .iter()
            .map(|worker| worker.orders.urls.len())
            .sum()
    }

    /// Waits until `is_true` returns true.
    fn until(&mut self, what: &str, is_true: impl FnMut(&mut Self) -> bool) {
        self.until_within(PATIENCE, what, is_true);
    }

    fn until_within(
        &mut self,
        patience: Duration,
        what: &str,
        mut is_true: impl FnMut(&mut Self) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        while !is_true(self) {
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.story());
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// Waits until all workers have all their pages and no permit is in flight.
    fn finish(&mut self) {
        self.finish_within(PATIENCE);
    }

    fn finish_within(&mut self, patience: Duration) {
        self.until_within(patience, "all workers are done", |fleet| {
            fleet.workers.iter_mut().all(Worker::is_done)
        });
        self.until("no permit is out", |fleet| fleet.ask("stats")["live"] == 0);
    }

    /// Asserts that granted = reported + cancelled + expired + live. Returns the coordinator's
    /// counts.
    fn demand_balance(&self) -> Value {
        let stats = self.ask("stats");
        let count = |field: &str| stats[field].as_u64().expect("a count");
        assert_eq!(
            count("granted"),
            count("reported") + count("cancelled") + count("expired") + count("live"),
            "{}",
            self.story()
        );
        stats
    }

    fn demand_all_pages(&self) {
        assert_eq!(self.pages(), self.pages_wanted(), "{}", self.story());
        let notes = self.notes();
        let given_up = notes.iter().find(|note| note.what == What::GivenUp);
        assert!(given_up.is_none(), "{given_up:?}\n{}", self.story());
    }

    /// Returns the state of the fleet, for the message of a failed assertion.
    fn story(&self) -> String {
        let mut story = format!("\n{}", self.target.judge());
        let notes = self.notes();
        let count = |what: What| notes.iter().filter(|note| note.what == what).count();
        let _ = writeln!(
            story,
            "workers: {} granted, {} stale, {} aborted, {} got, {} heard, {} heard late, {} given up",
            count(What::Granted),
            count(What::Stale),
            count(What::Aborted),
            count(What::Got),
            count(What::Heard),
            count(What::HeardLate),
            count(What::GivenUp),
        );
        if self.coordinator.is_some() {
            let stats = self.ask("stats");
            for field in [
                "granted",
                "reported",
                "refused",
                "cancelled",
                "expired",
                "late",
                "live",
            ] {
                let _ = write!(story, "{field} {} ", stats[field]);
            }
        }
        story
    }
}

impl Worker {
    fn start(&mut self) {
        let mut command = match self.language {
            Language::Rust => {
                let mut command = Command::new(env::current_exe().expect("this test"));
                command.args(["--exact", "fleet::worker::worker_process"]);
                command
            }
            Language::Python => {
                let python = repository().join(".venv/bin/python");
                assert!(
                    python.exists(),
                    "{} is missing: run scripts/setup",
                    python.display()
                );
                let mut command = Command::new(python);
                command
                    .arg(repository().join("crates/cli/tests/it/fleet/worker.py"))
                    .arg(self.orders_file())
                    .env("PYTHONPATH", repository().join("clients/python/src"))
                    .env_remove("POLITELY_TOKEN");
                command
            }
        };
        let orders = serde_json::to_vec(&self.orders).expect("orders are JSON");
        fs::write(self.orders_file(), orders).expect("the folder can be written");
        let talk = File::options()
            .create(true)
            .append(true)
            .open(self.talk_file())
            .expect("the folder can be written");
        let process = command
            .env(worker::ORDERS, self.orders_file())
            .stdin(Stdio::piped())
            .stdout(talk.try_clone().expect("a file handle"))
            .stderr(talk)
            .spawn();
        self.process = Some(process.expect("the worker starts"));
    }

    fn orders_file(&self) -> PathBuf {
        self.orders.notes.with_extension("orders")
    }

    fn talk_file(&self) -> PathBuf {
        self.orders.notes.with_extension("talk")
    }

    fn notes(&self) -> Vec<Note> {
        notes::read(&self.orders.notes)
    }

    /// Kills the worker with SIGKILL. Returns `false` if it had ended before.
    fn kill(&mut self) -> bool {
        let done = self.is_done();
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        !done
    }

    /// Returns whether the worker has ended by itself, with all its pages.
    fn is_done(&mut self) -> bool {
        let Some(process) = &mut self.process else {
            return false;
        };
        let ended = process.try_wait().expect("it can be waited for");
        let fine = ended.is_none_or(|status: ExitStatus| status.success());
        let talk = || fs::read_to_string(self.orders.notes.with_extension("talk"));
        assert!(
            fine,
            "{}: {}",
            self.orders.client,
            talk().unwrap_or_default()
        );
        ended.is_some()
    }

    /// Returns whether the worker has stopped itself.
    fn is_frozen(&self) -> bool {
        let process = self.process.as_ref().expect("it was started");
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id()));
        // The state comes after the name, which is in parentheses.
        stat.unwrap_or_default()
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    }

    /// Continues the worker with SIGCONT.
    fn thaw(&self) {
        let process = self.process.as_ref().expect("it was started");
        File::create(worker::thawed(&self.orders.notes)).expect("the folder can be written");
        let going = Command::new("kill")
            .args(["-CONT", &process.id().to_string()])
            .status();
        assert!(going.is_ok_and(|status| status.success()), "kill -CONT");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Returns hosts without limits: their arrivals are the requests that the coordinator allowed.
pub(crate) fn open_hosts(count: usize, pages: u32, service_ms: f64) -> Vec<HostSpec> {
    let host = |number| {
        let mut host = HostSpec::new(&format!("open-{number}"), LimitSpec::None {});
        host.pages = pages;
        host.service = Service {
            mean_ms: service_ms,
            cv: 0.3,
        };
        host
    };
    (0..count).map(host).collect()
}
