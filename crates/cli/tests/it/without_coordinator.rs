//! Workers go on with their shares while the coordinator is killed, and report what they sent.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use politely::coordinator::OnUnavailable;
use politely::core::key::Key;
use politely::{Limiter, Report, Signal};
use politely_target::{HostSpec, LimitSpec};

use crate::coordinator_fetch::{Coordinator, TOKEN, fetch, shown_at};
use crate::hosts::Hosts;
use crate::run::run;

/// The rate of the key, in requests per second. Its burst is 1.
const RATE: f64 = 8.0;
const WORKERS: usize = 3;

const ARGS: [&str; 9] = [
    "--allow-shares",
    "--profile",
    "api",
    "--law",
    "fixed",
    "--rate",
    "8",
    "--burst",
    "1",
];

/// Sends requests until `until`, and notes when they leave.
async fn send(limiter: Limiter, key: Key, left: Arc<Mutex<Vec<Instant>>>, until: Instant) {
    while Instant::now() < until {
        let acquired = tokio::time::timeout_at(until.into(), limiter.acquire(&key)).await;
        let Ok(permit) = acquired else { return };
        left.lock().unwrap().push(Instant::now());
        permit.unwrap().report(&Report::of(Signal::Ok));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_keep_the_rate_while_the_coordinator_is_away_and_report_all() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start_with(folder.path(), "127.0.0.1:0", &ARGS);
    let (url, bind) = (coordinator.url.clone(), coordinator.address().to_owned());
    let key = Key::host("a.example").unwrap();
    let limiters: Vec<Limiter> = (0..WORKERS)
        .map(|i| {
            let builder = Limiter::builder().coordinator(&url).token(TOKEN);
            let builder = builder.client(format!("worker-{i}"));
            builder
                .on_unavailable(OnUnavailable::Share)
                .build()
                .unwrap()
        })
        .collect();
    let left = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let at = |secs: u64| began + Duration::from_secs(secs);
    let mut senders = tokio::task::JoinSet::new();
    for limiter in &limiters {
        senders.spawn(send(
            limiter.clone(),
            key.clone(),
            Arc::clone(&left),
            at(20),
        ));
    }
    tokio::time::sleep_until(at(5).into()).await;
    drop(coordinator);
    let killed = Instant::now();
    tokio::time::sleep_until(at(15).into()).await;
    // The limit is declared now, so the reports that come late are counted by it.
    let args = [&ARGS[..], &["--limits", "100000/day"]].concat();
    let again = Coordinator::start_with(folder.path(), &bind, &args);
    let back = Instant::now();
    senders.join_all().await;
    for limiter in &limiters {
        limiter.close();
        assert!(
            limiter.flush(Duration::from_secs(5)).await,
            "{:?}",
            limiter.last_error()
        );
    }
    let mut left = left.lock().unwrap().clone();
    left.sort_unstable();
    let shared = left
        .iter()
        .filter(|at| **at > killed + Duration::from_secs(1) && **at < back);
    // Six of the ten seconds, less a turn per worker.
    let shared = shared.count();
    assert!((30..=60).contains(&shared), "{shared} of 56");
    for (i, from) in left.iter().enumerate() {
        for (j, to) in left.iter().enumerate().skip(i) {
            // Burst 1, one more at the end of the window, and 150 ms for this machine's timers.
            let most = 2.0 + RATE * ((*to - *from).as_secs_f64() + 0.15);
            let (from, to) = (*from - began, *to - began);
            assert!(
                (j - i + 1) as f64 <= most,
                "{} from {from:?} to {to:?}",
                j - i + 1
            );
        }
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let told = shown_at(&again, "keys/a.example").await;
    let remaining = told["budgets"][0]["remaining"]
        .as_u64()
        .expect("a declared limit");
    let before = left.iter().filter(|at| **at < killed).count() as u64;
    let sent_since = left.len() as u64 - before;
    assert!(
        100_000 - remaining >= sent_since - 1,
        "{remaining} left of {sent_since}: {told}"
    );
}

#[test]
fn a_fetch_goes_on_with_its_share_and_ends_without_the_coordinator() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = HostSpec::new("open", LimitSpec::None {});
    host.pages = 60;
    let hosts = Hosts::start(vec![host]);
    let coordinator = Coordinator::start_with(folder.path(), "127.0.0.1:0", &ARGS);
    let mut command = fetch(folder.path(), "one", &hosts.lists(1)[0]);
    command.args([
        "--coordinator",
        &coordinator.url,
        "--on-unavailable",
        "share",
    ]);
    command.arg("--token-file").arg(folder.path().join("token"));
    let said = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&mut command));
        while hosts.arrivals() < 20 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(coordinator);
        running.join().unwrap()
    });
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("goes on with its share"), "{}", said.err);
    assert_eq!(hosts.end().hosts[0].pages, 60);
}

#[test]
fn a_fetch_that_does_not_wait_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = fetch(folder.path(), "one", &["http://127.0.0.1:9/".to_owned()]);
    command.args([
        "--coordinator",
        "http://127.0.0.1:1",
        "--on-unavailable",
        "stop",
    ]);
    let said = run(&mut command);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("no coordinator answers"), "{}", said.err);
}
