//! Two coordinators share one Redis, and the one that all workers call is killed. The workers
//! continue with the other one, and report to it the permits that the killed one granted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Instant;

use politely_api::wire::{Acquired, Answer, Cancelled, KeyDetail, KeyState, Renewed, Reported};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::http::Http;
use super::notes::{self, Note, What};
use super::verdict::{Numbers, demand_permits_differ};
use super::{Fleet, Language, PATIENCE, Worker, open_hosts};
use crate::run::politely;
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 4.0,
    burst: 1.0,
    in_flight: 2,
};
const HOSTS: usize = 4;
const PAGES: u32 = 24;

#[test]
fn permits_of_a_killed_coordinator_are_brought_to_the_other() {
    let redis = RedisServer::start("");
    let (url, numbers) = (redis.url(), NUMBERS.args());
    let mut serve = vec!["--store", &url, "--lease", "5s"];
    serve.extend(numbers.iter().map(String::as_str));
    let mut fleet = Fleet::start(open_hosts(HOSTS, PAGES, 250.0), &serve);
    let first = fleet.address;
    fleet.start_second_coordinator();
    let [rust, python, fetched] = shares(&fleet);
    fleet.start_worker(Language::Rust, rust, 4, first, None);
    fleet.start_worker(Language::Python, python, 4, first, None);
    let mut fetch = Fetch::start(&fleet, first, &fetched);

    let wanted = fleet.pages_wanted();
    fleet.until("the work goes on", |fleet| fleet.progress() >= wanted / 3);
    let held = Held::take(first);
    fleet.first = None;
    let killed_us = notes::wall_us();
    held.bring_to(fleet.address);

    fleet.until("all workers are done", |fleet| {
        fleet.workers.iter_mut().all(Worker::is_done)
    });
    fleet.until("fetch is done", |_| fetch.is_done());
    fleet.demand_all_pages();
    fleet.demand_limits(NUMBERS);
    demand_permits_differ(&fleet.notes());
    let brought = demand_brought(&fleet.notes(), killed_us);
    let lost = demand_books(&mut fleet);
    Held::demand_books(&mut fleet);
    demand_metrics(fleet.address);
    eprintln!("{brought} permits under way were brought to the other, {lost} expired");
}

/// Asserts that the metrics contain the cost of sharing.
fn demand_metrics(coordinator: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    let answer = Http::new(coordinator).call("GET", "/metrics", "", deadline);
    let metrics = String::from_utf8(answer.expect("an answer").body).expect("text");
    for name in [
        "politely_commits_total",
        "politely_commit_items_total",
        "politely_commit_conflicts_total",
        "politely_commit_seconds_count",
        "politely_commit_seconds_bucket{le=\"+Inf\"}",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

/// Returns all pages of all hosts in three lists.
fn shares(fleet: &Fleet) -> [Vec<String>; 3] {
    let mut shares = <[Vec<String>; 3]>::default();
    for host in fleet.target.hosts() {
        for (page, url) in host.page_urls().enumerate() {
            shares[page % 3].push(url);
        }
    }
    shares
}

/// Asserts that the requests that were in flight when the coordinator was killed were reported to
/// the other one in time. Returns their number.
fn demand_brought(notes: &[Note], killed_us: u64) -> usize {
    let of = |what: What| {
        let of = notes.iter().filter(move |note| note.what == what);
        of.map(|note| (note.permit.as_str(), note.at_us))
            .collect::<BTreeMap<_, _>>()
    };
    let (got, heard) = (of(What::Got), of(What::Heard));
    let granted = of(What::Granted);
    let under_way = granted.iter().filter(|(permit, at_us)| {
        **at_us < killed_us && got.get(*permit).is_some_and(|at_us| *at_us > killed_us)
    });
    let under_way: Vec<_> = under_way.map(|(permit, _)| permit).collect();
    for permit in &under_way {
        assert!(
            heard.contains_key(*permit),
            "{permit} was not heard in time"
        );
    }
    under_way.len()
}

/// Asserts that each host's counts balance once the last lease has ended. A permit may expire only
/// if the killed coordinator had not written it, or granted it in an answer that was lost. There
/// are at most as many as slots. Returns the number of expired permits.
fn demand_books(fleet: &mut Fleet) -> u64 {
    let keys: Vec<String> = fleet
        .target
        .hosts()
        .iter()
        .map(|host| host.addr.to_string())
        .collect();
    let mut lost = 0;
    for key in keys {
        let books = books_of(fleet, &key);
        let served = u64::from(PAGES);
        assert!(books.row.reported + books.expired >= served, "{books:?}");
        assert!(books.expired <= NUMBERS.in_flight, "{books:?}");
        lost += books.expired;
    }
    lost
}

/// Waits until the key has no lease left, and returns its counts.
fn books_of(fleet: &mut Fleet, key: &str) -> KeyDetail {
    let path = format!("keys/{}", key.replace('/', "%2F"));
    let mut books = KeyDetail::default();
    fleet.until("the key's leases are over", |fleet| {
        books = serde_json::from_value(fleet.ask(&path)).expect("a key's books");
        books.row.in_flight == 0
    });
    assert_eq!(
        books.row.granted,
        books.row.reported + books.cancelled + books.expired,
        "{books:?}"
    );
    books
}

/// Permits that the first coordinator grants to the test itself, each of its own key.
struct Held {
    permits: Vec<String>,
}

impl Held {
    const KEYS: [&str; 6] = [
        "custom/reported",
        "custom/refused",
        "custom/cancelled",
        "custom/renewed",
        "custom/body-coming",
        "custom/answer-lost",
    ];

    fn take(first: SocketAddr) -> Self {
        let permits = Self::KEYS.map(|key| permit(acquire(first, key, key)));
        let head =
            json!({"permit": permits[4], "status": 200, "latency_ms": 10, "body_coming": true});
        assert!(!report(first, &head).items[0].late);
        Self {
            permits: permits.into(),
        }
    }

    fn bring_to(&self, other: SocketAddr) {
        let [reported, refused, cancelled, renewed, heard, lost] = &self.permits[..] else {
            panic!("one of each")
        };
        let ok = |permit: &str| json!({"permit": permit, "status": 200, "latency_ms": 10});
        assert!(!report(other, &ok(reported)).items[0].late);
        assert!(report(other, &ok(reported)).items[0].late, "counted twice");

        let told = json!({"permit": refused, "status": 429, "headers": {"retry-after": "600"}});
        let answer = report(other, &told);
        assert!(
            !answer.items[0].late && answer.items[0].hold_ms > 599_000,
            "{answer:?}"
        );

        let named = |permit: &str| json!({"client": "test", "permits": [permit]});
        let answer: Cancelled = say(other, "cancel", &named(cancelled));
        assert_eq!(answer.cancelled, [cancelled.as_str()]);

        let answer: Renewed = say(other, "renew", &named(renewed));
        assert!(answer.renewed[0].lease_ms > 4_000, "{answer:?}");
        assert!(!report(other, &ok(renewed)).items[0].late);

        report(other, &ok(heard));

        // The test repeats this request under the same id, because the answer was lost. It gets
        // another permit, beside the one that no worker knows.
        let again = permit(acquire(other, "custom/answer-lost", "custom/answer-lost"));
        assert_ne!(again, *lost);
        let third = acquire(other, "custom/answer-lost", "another");
        assert!(
            matches!(&third, Answer::Wait { reason, .. } if reason == "in flight"),
            "{third:?}"
        );
        assert!(!report(other, &ok(&again)).items[0].late);
    }

    fn demand_books(fleet: &mut Fleet) {
        let mut books = Self::KEYS.map(|key| books_of(fleet, key)).into_iter();
        let mut next = || books.next().expect("one of each");
        let counts = |books: &KeyDetail| {
            let (row, cancelled) = (&books.row, books.cancelled);
            (row.granted, row.reported, cancelled, books.expired)
        };
        assert_eq!(counts(&next()), (1, 1, 0, 0));
        let refused = next();
        assert_eq!((counts(&refused), refused.row.refused), ((1, 1, 0, 0), 1));
        assert!(
            matches!(refused.row.state, KeyState::Hold | KeyState::Parked),
            "{refused:?}"
        );
        assert_eq!(counts(&next()), (1, 0, 1, 0));
        assert_eq!(counts(&next()), (1, 1, 0, 0));
        assert_eq!(counts(&next()), (1, 1, 0, 0));
        assert_eq!(counts(&next()), (2, 1, 0, 1));
    }
}

fn acquire(address: SocketAddr, key: &str, id: &str) -> Answer {
    // The wait is longer than an interval and much shorter than a lease.
    let body = json!({"client": "test", "wait_ms": 1_000, "items": [{"id": id, "key": key}]});
    let mut answer: Acquired = say(address, "acquire", &body);
    answer.items.remove(0)
}

fn permit(answer: Answer) -> String {
    match answer {
        Answer::Granted(grant) => grant.permit,
        other => panic!("{other:?}"),
    }
}

fn report(address: SocketAddr, told: &Value) -> Reported {
    say(
        address,
        "report",
        &json!({"client": "test", "items": [told]}),
    )
}

fn say<T: DeserializeOwned>(address: SocketAddr, path: &str, body: &Value) -> T {
    let deadline = Instant::now() + PATIENCE;
    let path = format!("/api/v1/{path}");
    let answer = Http::new(address)
        .call("POST", &path, &body.to_string(), deadline)
        .unwrap_or_else(|why| panic!("{path}: {why}"));
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 200, "{path}: {text}");
    serde_json::from_slice(&answer.body).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// `politely fetch` as one more worker. It uses the library's own client.
struct Fetch(Child);

impl Fetch {
    fn start(fleet: &Fleet, first: SocketAddr, urls: &[String]) -> Self {
        let folder = fleet.folder.path();
        let list = folder.join("urls.txt");
        fs::write(&list, urls.join("\n")).expect("the folder can be written");
        let talk = File::create(folder.join("fetch.talk")).expect("the folder can be written");
        let coordinators = format!("http://{first},http://{}", fleet.address);
        let mut command = politely();
        command
            .args(["fetch", "--no-robots", "--summary", "none", "--coordinator"])
            .args([&coordinators, "-i"])
            .arg(list)
            .arg("--output")
            .arg(folder.join("out.jsonl"))
            .env_remove("POLITELY_TOKEN")
            .stdin(Stdio::null())
            .stderr(talk);
        Self(command.spawn().expect("the binary runs"))
    }

    /// Returns whether the process has ended, and asserts that it has all its pages.
    fn is_done(&mut self) -> bool {
        let ended = self.0.try_wait().expect("it can be waited for");
        assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
        ended.is_some()
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
