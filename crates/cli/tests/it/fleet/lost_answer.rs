//! Every tenth answer of the coordinator is lost, after the coordinator has done the work.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use politely_api::wire::{Answer, Exchange, Exchanged};

use super::http::Http;
use super::notes::What;
use super::verdict::{Numbers, demand_permits_differ};
use super::{Fleet, Language, open_hosts};

const EVERY: usize = 10;
const NUMBERS: Numbers = Numbers {
    rate: 4.0,
    burst: 1.0,
    in_flight: 2,
};

#[test]
fn an_answer_that_is_lost_costs_nothing() {
    let args = NUMBERS.args();
    let serve: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut fleet = Fleet::start(open_hosts(8, 36, 20.0), &serve);
    let proxy = Proxy::start(fleet.address);
    let urls: Vec<Vec<String>> = fleet
        .target
        .hosts()
        .iter()
        .map(|host| host.page_urls().collect())
        .collect();
    for number in 0..4 {
        // Each worker gets a quarter of every host's pages, so that it can request any of the eight
        // keys.
        let part = urls
            .iter()
            .flat_map(|urls| urls.iter().skip(number).step_by(4).cloned());
        fleet.start_worker(Language::Rust, part.collect(), 2, proxy.address, None);
    }
    fleet.finish();

    let (lost, wrong) = (proxy.lost.load(Ordering::Relaxed), proxy.wrong());
    fleet.demand_all_pages();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(lost > 10, "only {lost} answers were lost");
    let stats = fleet.demand_balance();
    // Each granted permit reached its worker, even if the first answer was lost.
    let seen = demand_permits_differ(&fleet.notes());
    assert_eq!(stats["granted"], seen, "{}", fleet.story());
    assert_eq!(stats["expired"], 0, "{}", fleet.story());
    let stale = fleet
        .notes()
        .iter()
        .filter(|note| note.what == What::Stale)
        .count();
    let arrivals: u64 = fleet
        .target
        .judge()
        .hosts
        .iter()
        .map(|host| host.arrivals)
        .sum();
    assert_eq!(arrivals as usize, seen - stale, "{}", fleet.story());
    fleet.demand_limits(NUMBERS);
    eprintln!("{lost} answers lost{}", fleet.story());
}

/// A proxy between workers and the coordinator. It remembers the permit that each request id got.
struct Proxy {
    address: SocketAddr,
    lost: Arc<AtomicUsize>,
    told: Arc<Mutex<Told>>,
    ended: Arc<AtomicBool>,
}

/// The permits by client and request id, and the answers that differed when they were repeated.
#[derive(Default)]
struct Told {
    permits: BTreeMap<(String, String), String>,
    wrong: Vec<String>,
}

impl Proxy {
    fn start(coordinator: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (lost, told, ended) = (Arc::default(), Arc::default(), Arc::default());
        let proxy = Self {
            address,
            lost: Arc::clone(&lost),
            told: Arc::clone(&told),
            ended: Arc::clone(&ended),
        };
        let answers = Arc::new(AtomicUsize::new(0));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (lost, told, answers) =
                    (Arc::clone(&lost), Arc::clone(&told), Arc::clone(&answers));
                thread::spawn(move || {
                    pass_on(stream, coordinator, &answers, &lost, &told);
                });
            }
        });
        proxy
    }

    fn wrong(&self) -> Vec<String> {
        self.told.lock().expect("no thread panicked").wrong.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Forwards the calls of one connection, until it is closed or an answer is to be lost.
fn pass_on(
    mut worker: TcpStream,
    coordinator: SocketAddr,
    answers: &AtomicUsize,
    lost: &AtomicUsize,
    told: &Mutex<Told>,
) {
    let mut there = Http::new(coordinator);
    let _ = worker.set_nodelay(true);
    while let Some((path, body)) = read_call(&mut worker) {
        let deadline = Instant::now() + Duration::from_mins(1);
        let Ok(answer) = there.call("POST", &path, &body, deadline) else {
            return;
        };
        if let (Ok(asked), Ok(answered)) = (
            serde_json::from_str::<Exchange>(&body),
            serde_json::from_slice::<Exchanged>(&answer.body),
        ) {
            told.lock()
                .expect("no thread panicked")
                .hear(&asked, &answered);
            let grants = answered
                .acquire
                .iter()
                .any(|answer| matches!(answer, Answer::Granted(_)));
            if grants && answers.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1 {
                lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\n\r\n",
            answer.status,
            answer.body.len()
        );
        if worker
            .write_all(&[head.as_bytes(), &answer.body].concat())
            .is_err()
        {
            return;
        }
    }
}

impl Told {
    fn hear(&mut self, asked: &Exchange, answered: &Exchanged) {
        for answer in &answered.acquire {
            let Answer::Granted(grant) = answer else {
                continue;
            };
            let id = asked.acquire[grant.item as usize]
                .id
                .clone()
                .unwrap_or_default();
            let name = (asked.client.clone(), id);
            let before = self.permits.insert(name.clone(), grant.permit.clone());
            if let Some(before) = before.filter(|before| *before != grant.permit) {
                self.wrong
                    .push(format!("{name:?} was told {before}, then {}", grant.permit));
            }
        }
    }
}

/// Reads the path and the body of the next call.
fn read_call(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut read = Vec::new();
    let mut some = [0; 16 << 10];
    loop {
        let text = String::from_utf8_lossy(&read);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length?.parse().ok()?;
            if body.len() >= length {
                return Some((head.split(' ').nth(1)?.to_owned(), body.to_owned()));
            }
        }
        let count = stream.read(&mut some).ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&some[..count]);
    }
}
