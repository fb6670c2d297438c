//! A worker in a process of its own. It repeats one exchange with the coordinator until it has all
//! its pages: it reports the last outcome, acquires the next permit, and gets that page.
//!
//! It keeps the client's side of the contract exactly. A call without an answer is repeated under
//! the same ids. A request leaves within its permit's time or not at all. The worker aborts a
//! request when its lease ends. It counts the lease from the time when it *requested* the permit,
//! which is before the grant. A process that was frozen between the coordinator's answer and the
//! reading of it must not assume that the lease has just begun.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::env;
use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use politely_api::wire::{
    Answer, ErrorKind, Exchange, Exchanged, Grant, Item, Kind, Next, Told, Want,
};
use serde::{Deserialize, Serialize};

use super::http::Http;
use super::notes::{self, Notes, What};

/// The environment variable that names the file with a worker's orders. If it is set, this test
/// binary is a worker.
pub(super) const ORDERS: &str = "POLITELY_TEST_WORKER";
/// Pause of a lane that has nothing to request.
const PAUSE: Duration = Duration::from_millis(20);
/// Time until a call without an answer is repeated. It is longer than an interval of these towns,
/// so another key of the request is free by then. That key must not be granted beside the one whose
/// answer was lost.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// Longest time of a call beyond the time for which it is held open.
const ANSWER_TAKES_MAX: Duration = Duration::from_secs(5);
/// Most attempts of one page. No host of these towns refuses so often.
const ATTEMPTS_MAX: u16 = 100;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) client: String,
    pub(super) coordinator: SocketAddr,
    /// Other coordinators, which the worker calls in turn when the first does not answer.
    pub(super) others: Vec<SocketAddr>,
    /// All pages that the worker must get, including those from before a restart.
    pub(super) urls: Vec<String>,
    pub(super) notes: PathBuf,
    /// Most requests in flight.
    pub(super) lanes: usize,
    /// The time for which the coordinator may hold a call open, in milliseconds.
    pub(super) wait_ms: u32,
    /// The point at which the worker stops itself once.
    pub(super) freeze: Option<Freeze>,
}

/// Returns the path of a file that the test creates before it continues a stopped worker.
pub(super) fn thawed(notes: &Path) -> PathBuf {
    notes.with_extension("thawed")
}

/// The point at which a worker sends itself SIGSTOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Freeze {
    /// The worker has sent its call and not read the answer.
    Asked,
    /// The worker has a permit and has not sent the request.
    Granted,
    /// The worker has sent the request and not read the page.
    Sent,
}

/// Runs as a worker if the environment says so. Otherwise this test does nothing.
#[test]
fn worker_process() {
    if let Some(orders) = env::var_os(ORDERS) {
        work(Path::new(&orders));
    }
}

fn work(orders: &Path) {
    let orders = fs::read_to_string(orders).expect("the orders can be read");
    let orders: Orders = serde_json::from_str(&orders).expect("orders are JSON");
    // The process that started this one holds the other end of its standard input. When that
    // process ends, this one ends too.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        process::exit(1);
    });
    let got: BTreeSet<String> = notes::read(&orders.notes)
        .into_iter()
        .filter(|note| note.what == What::Got)
        .map(|note| note.url)
        .collect();
    let worker = Worker {
        jobs: Mutex::new(Jobs::new(&orders.urls, &got)),
        notes: Notes::open(&orders.notes),
        freeze: Mutex::new(orders.freeze),
        asked: AtomicU32::new(0),
        orders: &orders,
    };
    thread::scope(|scope| {
        for _ in 0..orders.lanes {
            scope.spawn(|| Lane::new(&worker).run());
        }
    });
}

struct Worker<'a> {
    orders: &'a Orders,
    jobs: Mutex<Jobs>,
    notes: Notes,
    freeze: Mutex<Option<Freeze>>,
    asked: AtomicU32,
}

/// A page that the worker must get.
#[derive(Clone)]
struct Job {
    url: String,
    /// The id of its acquire request. It is new after every start, because a killed worker may have
    /// used its permit.
    id: String,
    attempt: u16,
    free: u16,
    not_before: Instant,
}

/// The pages that the worker has not got yet, by host.
struct Jobs {
    hosts: BTreeMap<String, VecDeque<Job>>,
    left: usize,
}

impl Jobs {
    fn new(urls: &[String], got: &BTreeSet<String>) -> Self {
        let mut jobs = Self {
            hosts: BTreeMap::new(),
            left: 0,
        };
        let now = Instant::now();
        for url in urls.iter().filter(|url| !got.contains(*url)) {
            jobs.left += 1;
            jobs.give_back(Job {
                url: url.clone(),
                id: String::new(),
                attempt: 1,
                free: 0,
                not_before: now,
            });
        }
        jobs
    }

    /// Takes the next page of each host.
    fn take(&mut self) -> Vec<Job> {
        let now = Instant::now();
        let ready = |line: &VecDeque<Job>| line.front().is_some_and(|job| job.not_before <= now);
        let lines = self.hosts.values_mut().filter(|line| ready(line));
        lines.filter_map(VecDeque::pop_front).collect()
    }

    fn give_back(&mut self, job: Job) {
        let line = self.hosts.entry(host(&job.url).to_owned()).or_default();
        if job.attempt == 1 && job.id.is_empty() {
            line.push_back(job);
        } else {
            line.push_front(job);
        }
    }
}

/// Returns the host of a URL: `127.0.0.1:80` for `http://127.0.0.1:80/page/1`.
pub(super) fn host(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or_default()
}

/// A loop that has one request in flight at a time.
struct Lane<'a> {
    worker: &'a Worker<'a>,
    /// The worker calls the first one.
    coordinators: VecDeque<Http>,
    pages: BTreeMap<String, Http>,
}

impl<'a> Lane<'a> {
    fn new(worker: &'a Worker<'a>) -> Self {
        Self {
            worker,
            coordinators: [worker.orders.coordinator]
                .iter()
                .chain(&worker.orders.others)
                .map(|address| Http::new(*address))
                .collect(),
            pages: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        let mut told: Option<(Job, Told)> = None;
        loop {
            let mut offer = self.worker.jobs.lock().expect("no lane panicked").take();
            if offer.is_empty() && told.is_none() {
                if self.worker.jobs.lock().expect("no lane panicked").left == 0 {
                    return;
                }
                thread::sleep(PAUSE);
                continue;
            }
            for job in offer.iter_mut().filter(|job| job.id.is_empty()) {
                job.id = self.fresh_id();
            }
            let (asked_at, answer) = self.exchange(told.as_ref().map(|(_, told)| told), &offer);
            if let Some((job, told)) = told.take() {
                self.hear(job, &told, &answer.report[0].next, answer.report[0].late);
            }
            let mut granted = None;
            for answer in answer.acquire {
                match answer {
                    Answer::Granted(grant) => granted = Some(grant),
                    Answer::Refused { item, .. } => offer[item as usize].id = self.fresh_id(),
                    Answer::Wait { .. } => {}
                    Answer::Error { error, .. } => panic!("{error:?}"),
                }
            }
            let job = granted
                .as_ref()
                .map(|grant| offer.remove(grant.item as usize));
            let mut jobs = self.worker.jobs.lock().expect("no lane panicked");
            for job in offer {
                jobs.give_back(job);
            }
            drop(jobs);
            if let (Some(job), Some(grant)) = (job, granted) {
                told = self.use_permit(job, &grant, asked_at);
            }
        }
    }

    fn coordinator(&mut self) -> &mut Http {
        &mut self.coordinators[0]
    }

    /// Returns an id that is unique for this client, across restarts.
    fn fresh_id(&self) -> String {
        let number = self.worker.asked.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", process::id())
    }

    /// Repeats the same call until there is an answer. Returns the answer and the time of the last
    /// repetition.
    fn exchange(&mut self, told: Option<&Told>, offer: &[Job]) -> (Instant, Exchanged) {
        let items = offer.iter().map(|job| Item {
            id: Some(job.id.clone()),
            url: Some(job.url.clone()),
            kind: if job.attempt > 1 {
                Kind::Retry
            } else {
                Kind::First
            },
            ..Item::default()
        });
        let exchange = Exchange {
            session: None,
            share: None,
            client: self.worker.orders.client.clone(),
            wait_ms: if offer.is_empty() {
                0
            } else {
                self.worker.orders.wait_ms
            },
            want: Want::Any(1),
            report: told.cloned().into_iter().collect(),
            acquire: items.collect(),
        };
        let body = serde_json::to_string(&exchange).expect("an exchange is JSON");
        let held = Duration::from_millis(u64::from(exchange.wait_ms));
        loop {
            let asked_at = Instant::now();
            let deadline = asked_at + held + ANSWER_TAKES_MAX;
            let sent = self
                .coordinator()
                .send("POST", "/api/v1/exchange", &body, deadline);
            if !offer.is_empty() {
                self.freeze(Freeze::Asked);
            }
            let frozen_long = deadline.max(Instant::now() + ANSWER_TAKES_MAX);
            let answer = sent.and_then(|()| self.coordinator().receive(frozen_long));
            match answer {
                Ok(answer) if answer.status == 200 => {
                    let answer = serde_json::from_slice(&answer.body);
                    return (
                        asked_at,
                        answer.expect("the coordinator's answer is understood"),
                    );
                }
                Ok(answer) if answer.status < 500 => {
                    panic!(
                        "{}: {}",
                        answer.status,
                        String::from_utf8_lossy(&answer.body)
                    )
                }
                // The coordinator is down or shutting down.
                Ok(_) | Err(_) => {
                    self.coordinators.rotate_left(1);
                    thread::sleep(AGAIN_AFTER);
                }
            }
        }
    }

    fn use_permit(&mut self, job: Job, grant: &Grant, asked_at: Instant) -> Option<(Job, Told)> {
        let came = Instant::now();
        let notes = &self.worker.notes;
        notes.write(What::Granted, &job.url, &grant.permit, 0);
        let start = came + Duration::from_millis(grant.start_in_ms);
        let start_by = start + Duration::from_millis(grant.valid_for_ms);
        let lease_end = asked_at + Duration::from_millis(grant.start_in_ms + grant.lease_ms);
        thread::sleep(start.saturating_duration_since(Instant::now()));
        self.freeze(Freeze::Granted);
        let page = self
            .pages
            .entry(host(&job.url).to_owned())
            .or_insert_with(|| Http::new(host(&job.url).parse().expect("hosts have addresses")));
        let path = format!("/{}", job.url.splitn(4, '/').nth(3).unwrap_or_default());
        let now = Instant::now();
        if now > start_by || now >= lease_end {
            notes.write(What::Stale, &job.url, &grant.permit, 0);
            self.cancel(grant, lease_end);
            self.start_over(job);
            return None;
        }
        let sent = page.send("GET", &path, "", lease_end);
        let frozen = self.worker.freeze(Freeze::Sent);
        let page = self.pages.get_mut(host(&job.url)).expect("it was asked");
        let answer = if frozen && Instant::now() >= lease_end {
            Err(std::io::ErrorKind::TimedOut.into())
        } else {
            sent.and_then(|()| page.receive(lease_end))
        };
        let mut told = Told {
            permit: grant.permit.clone(),
            latency_ms: now.elapsed().as_secs_f64() * 1e3,
            attempt: job.attempt,
            free: job.free,
            ..Told::default()
        };
        if let Ok(answer) = answer {
            if answer.status == 200 {
                notes.write(What::Got, &job.url, &grant.permit, answer.status);
            }
            told.status = Some(answer.status);
            told.bytes = answer.body.len() as u64;
            told.headers = answer.headers;
        } else {
            page.hang_up();
            notes.write(What::Aborted, &job.url, &grant.permit, 0);
            told.error = Some(ErrorKind::Timeout);
        }
        Some((job, told))
    }

    fn cancel(&mut self, grant: &Grant, deadline: Instant) {
        let body = serde_json::json!({
            "client": self.worker.orders.client, "permits": [grant.permit],
        });
        // If this call fails, the lease expires.
        let deadline = deadline.max(Instant::now() + ANSWER_TAKES_MAX);
        let _ = self
            .coordinator()
            .call("POST", "/api/v1/cancel", &body.to_string(), deadline);
    }

    fn start_over(&self, mut job: Job) {
        job.id = self.fresh_id();
        let mut jobs = self.worker.jobs.lock().expect("no lane panicked");
        jobs.give_back(job);
    }

    /// Handles the coordinator's answer to a report: the page is done, retried or given up.
    fn hear(&self, mut job: Job, told: &Told, next: &Next, late: bool) {
        let what = if late { What::HeardLate } else { What::Heard };
        let status = told.status.unwrap_or(0);
        self.worker
            .notes
            .write(what, &job.url, &told.permit, status);
        if status == 200 {
            self.worker.jobs.lock().expect("no lane panicked").left -= 1;
            return;
        }
        let (after_ms, free) = match next {
            Next::Retry { after_ms, free } => (*after_ms, *free),
            // A coordinator that does not know the permit cannot judge the request.
            _ if late => (0, true),
            Next::Done | Next::GiveUp { .. } => {
                self.worker
                    .notes
                    .write(What::GivenUp, &job.url, &told.permit, status);
                self.worker.jobs.lock().expect("no lane panicked").left -= 1;
                return;
            }
        };
        assert!(
            job.attempt < ATTEMPTS_MAX,
            "{}: refused without end",
            job.url
        );
        job.attempt += 1;
        job.free += u16::from(free);
        job.not_before = Instant::now() + Duration::from_millis(after_ms);
        self.start_over(job);
    }

    fn freeze(&self, at: Freeze) {
        self.worker.freeze(at);
    }
}

impl Worker<'_> {
    /// Stops the process if its orders say so, unless it was stopped before. Returns after the test
    /// has continued it.
    fn freeze(&self, at: Freeze) -> bool {
        let mut freeze = self.freeze.lock().expect("no lane panicked");
        if *freeze != Some(at) {
            return false;
        }
        *freeze = None;
        let stopped = Command::new("kill")
            .args(["-STOP", &process::id().to_string()])
            .status();
        assert!(stopped.is_ok_and(|status| status.success()), "kill -STOP");
        // SIGSTOP may take effect a moment later. So the worker waits until the test has allowed it
        // to continue.
        while !thawed(&self.orders.notes).exists() {
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
