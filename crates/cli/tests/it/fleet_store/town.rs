//! Four processes over sixteen really limited hosts are as good as one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Instant;

use crate::fleet::ALONE;
use crate::run::{politely, run};
use crate::servers::redis::RedisServer;
use crate::servers::{RealTown, Set, Truth};

const PAGES: u32 = 90;
const PROCESSES: usize = 4;
/// Refused of all, beside what one process had in the same minute: a fifth more, and what two or three unlucky probes cost.
const REFUSED_TIMES_MAX: f64 = 1.2;
const REFUSED_MORE: f64 = 0.005;

#[test]
fn four_processes_are_as_good_as_one() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let redis = RedisServer::start("");
    let url = redis.url();
    let (one, four) = std::thread::scope(|scope| {
        let one = scope.spawn(|| crawl(1, None));
        let four = scope.spawn(|| crawl(PROCESSES, Some(&url)));
        (one.join().expect("a crawl"), four.join().expect("a crawl"))
    });
    let story = format!("\none process: {}\nfour: {}", one.1, four.1);
    eprintln!("{story}");
    assert!(
        four.0 <= one.0 * REFUSED_TIMES_MAX + REFUSED_MORE,
        "{story}"
    );
}

/// Share of refused requests, and what happened.
fn crawl(processes: usize, store: Option<&str>) -> (f64, String) {
    let town = RealTown::start(Set::Api);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut lists = vec![String::new(); processes];
    for page in 1..=PAGES {
        for host in &town.hosts {
            let list = &mut lists[page as usize % processes];
            writeln!(list, "{}", host.page(page)).expect("a string grows");
        }
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (number, list) in lists.iter().enumerate() {
            let mut command = fetch(folder.path(), number, list, store);
            scope.spawn(move || {
                let said = run(&mut command);
                assert_eq!(said.code, 0, "process {number}: {}", said.err);
            });
        }
    });
    let took = began.elapsed();
    let truth = town.truth();
    let story = format!("{:.1} s\n{}", took.as_secs_f64(), table(&town, &truth));
    assert!(
        truth.values().all(|truth| truth.pages == PAGES as usize),
        "{story}"
    );
    let requests: usize = truth.values().map(Truth::requests).sum();
    let refused: usize = truth.values().map(|truth| truth.refused).sum();
    let share = refused as f64 / requests as f64;
    (
        share,
        format!(
            "refused {refused} of {requests}, {:.2} %, {story}",
            share * 1e2
        ),
    )
}

fn fetch(folder: &Path, number: usize, list: &str, store: Option<&str>) -> Command {
    let file = folder.join(format!("{number}.txt"));
    fs::write(&file, list).expect("the list is written");
    let mut command = politely();
    command.args(["fetch", "--summary", "none", "--profile", "api", "-i"]);
    command
        .arg(file)
        .arg("--output")
        .arg(folder.join(format!("{number}.jsonl")));
    if let Some(store) = store {
        command.args(["--store", store]);
    }
    command
}

fn table(town: &RealTown, truth: &BTreeMap<&'static str, Truth>) -> String {
    let mut table = String::new();
    for host in &town.hosts {
        let truth = &truth[host.name];
        let (took, best) = (
            truth.span_us() as f64 / 1e6,
            host.best_time(PAGES).as_secs_f64(),
        );
        let _ = writeln!(
            table,
            "{:24} requests {:3} refused {:3} failed {:3} in flight {:2} held {:2} took {took:5.1} s, best {best:5.1} s, used {:3.0} %",
            host.name,
            truth.requests(),
            truth.refused,
            truth.failed,
            truth.peak_in_flight,
            truth.held.len(),
            best / took * 1e2,
        );
    }
    table
}
