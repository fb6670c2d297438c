//! A worker in a process of its own: exchange (report the last, acquire any next), get the page,
//! and so on until it has all.
//!
//! It keeps the client's side of the contract to the letter. A call that was not answered is
//! repeated under the same ids. A request leaves within its permit's time or not at all. It is
//! aborted when its lease ends, and that is counted from when the permit was *asked for*, which is
//! before it was granted: a process that was frozen between the coordinator's answer and its own
//! reading of it must not believe that the lease has just begun.

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

/// Names the file with a worker's orders; with it in its environment, this test binary is a worker.
pub(super) const ORDERS: &str = "POLITELY_TEST_WORKER";
/// Between two looks of a lane that has nothing to ask for.
const PAUSE: Duration = Duration::from_millis(20);
/// Until an unanswered call is repeated. Longer than an interval of these towns, so that another of
/// the keys asked for has come free meanwhile: it must not be granted beside the one whose answer
/// was lost.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// A call may take so long beyond the time it is held open.
const ANSWER_TAKES_MAX: Duration = Duration::from_secs(5);
/// Times one page is asked for, at most: none of these towns refuses so often.
const ATTEMPTS_MAX: u16 = 100;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) client: String,
    pub(super) coordinator: SocketAddr,
    /// Called in turns when it has no answer.
    pub(super) others: Vec<SocketAddr>,
    /// All pages it is to get, over all its lives.
    pub(super) urls: Vec<String>,
    pub(super) notes: PathBuf,
    /// Requests it may have under way.
    pub(super) lanes: usize,
    /// How long its calls may be held open.
    pub(super) wait_ms: u32,
    /// Where it stops itself, once.
    pub(super) freeze: Option<Freeze>,
}

/// Made before a stopped worker is let go on.
pub(super) fn thawed(notes: &Path) -> PathBuf {
    notes.with_extension("thawed")
}

/// Where a worker sends itself SIGSTOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Freeze {
    /// It has asked, and not read the answer.
    Asked,
    /// It has a permit, and not sent the request.
    Granted,
    /// It has sent the request, and not read the page.
    Sent,
}

/// The worker, where the orders say so; there is nothing to prove otherwise.
#[test]
fn worker_process() {
    if let Some(orders) = env::var_os(ORDERS) {
        work(Path::new(&orders));
    }
}

fn work(orders: &Path) {
    let orders = fs::read_to_string(orders).expect("the orders can be read");
    let orders: Orders = serde_json::from_str(&orders).expect("orders are JSON");
    // The process that started this one holds the other end.
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

/// A page to get.
#[derive(Clone)]
struct Job {
    url: String,
    /// Its wish's name. Of this life of the worker: what a killed one was granted, it may have
    /// used.
    id: String,
    attempt: u16,
    refused: u16,
    not_before: Instant,
}

/// What is left to do, by host.
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
                refused: 0,
                not_before: now,
            });
        }
        jobs
    }

    /// The next page of each host.
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

/// `127.0.0.1:80` of `http://127.0.0.1:80/page/1`.
pub(super) fn host(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or_default()
}

/// One request at a time.
struct Lane<'a> {
    worker: &'a Worker<'a>,
    /// The first is called.
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

    /// Unique for this client, over all its lives.
    fn fresh_id(&self) -> String {
        let number = self.worker.asked.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", process::id())
    }

    /// Says it again, word for word, until there is an answer; with it comes when it was said last.
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
                // It is away, or ending.
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
            refused: job.refused,
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
        // If it does not come through, the lease ends by itself.
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

    /// What becomes of the page.
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
        let after_ms = match next {
            Next::Retry { after_ms } => *after_ms,
            // A coordinator that does not know the permit cannot judge the request.
            _ if late => 0,
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
        job.refused += u16::from(after_ms == 0);
        job.not_before = Instant::now() + Duration::from_millis(after_ms);
        self.start_over(job);
    }

    fn freeze(&self, at: Freeze) {
        self.worker.freeze(at);
    }
}

impl Worker<'_> {
    /// Stops the process, if the orders say so and it has not been stopped before; until somebody
    /// lets it go on.
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
        // The signal may take effect a moment later: nothing goes on before whoever lets us go on
        // has said so.
        while !thawed(&self.orders.notes).exists() {
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
