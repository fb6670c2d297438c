//! Four processes crawl sixteen hosts with real limits. They use the limits as well as one process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::run::{politely, run};
use politely_testkit::redis::RedisServer;
use politely_testkit::{RealHost, RealTown, Set, Truth};

/// The period for which the use of a limit is measured, in seconds since the host's first request.
/// The processes have learned the limits by then.
const STEADY_S: Range<u64> = 60..120;
/// The hosts of whose limit a share of [`USED_SHARE_MIN`] must be used in that period. The limits
/// of the other hosts take longer to learn, or their use is a matter of luck.
/// `docs/reference/fleet-use.md` has the measured use of all hosts.
const KNOWN: [&str; 8] = [
    "express-20in10-draft8",
    "express-20in10-draft7",
    "express-20in10-legacy",
    "express-100in10-draft6",
    "nginx-10rps",
    "nginx-2rps-burst5",
    "nginx-5rps-503",
    "nginx-5rps-queue",
];
const USED_SHARE_MIN: f64 = 0.95;
/// Pages of a host beyond the number that its rate allows until the end of the period. They are for
/// its burst or its first window.
const PAGES_MORE: u32 = 20;
/// Pages of each other host.
const PAGES: u32 = 90;
/// The most pages of a host.
const PAGES_MAX: u32 = 1_300;
const PROCESSES: usize = 4;
/// The largest share of refused requests, compared with one process in the same time: this
/// multiple, plus [`REFUSED_MORE`] for a few unlucky probes.
const REFUSED_TIMES_MAX: f64 = 1.2;
const REFUSED_MORE: f64 = 0.002;

#[test]
fn four_processes_are_as_good_as_one() {
    let redis = RedisServer::start("");
    let url = redis.url();
    let (one, four) = std::thread::scope(|scope| {
        let one = scope.spawn(|| crawl(1, None));
        let four = scope.spawn(|| crawl(PROCESSES, Some(&url)));
        (one.join().expect("a crawl"), four.join().expect("a crawl"))
    });
    let story = format!("\none process: {}\nfour: {}", one.story, four.story);
    eprintln!("{story}");
    assert!(
        four.refused_share <= one.refused_share * REFUSED_TIMES_MAX + REFUSED_MORE,
        "{story}"
    );
    assert!(four.wasted.is_empty(), "{:?}{story}", four.wasted);
}

struct Crawl {
    refused_share: f64,
    /// The hosts in [`KNOWN`] of whose limits too little was used.
    wasted: Vec<&'static str>,
    story: String,
}

fn crawl(processes: usize, store: Option<&str>) -> Crawl {
    let town = RealTown::with_pages(Set::Api, PAGES_MAX);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lists = town.lists(processes, pages);
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
        town.hosts
            .iter()
            .all(|host| truth[host.name].pages == pages(host) as usize),
        "{story}"
    );
    let requests: usize = truth.values().map(Truth::requests).sum();
    let refused: usize = truth.values().map(|truth| truth.refused).sum();
    let refused_share = refused as f64 / requests as f64;
    let wasted = town.hosts.iter().filter(|host| {
        let used = steady(host, &truth[host.name]);
        KNOWN.contains(&host.name) && used.is_none_or(|used| used < USED_SHARE_MIN)
    });
    Crawl {
        refused_share,
        wasted: wasted.map(|host| host.name).collect(),
        story: format!(
            "refused {refused} of {requests}, {:.2} %, {story}",
            refused_share * 1e2
        ),
    }
}

fn pages(host: &RealHost) -> u32 {
    let per_second = host
        .kind
        .per_second()
        .filter(|_| KNOWN.contains(&host.name));
    per_second.map_or(PAGES, |rate| {
        (rate * STEADY_S.end as f64) as u32 + PAGES_MORE
    })
}

/// Returns the share of a host's limit that was used in [`STEADY_S`].
fn steady(host: &RealHost, truth: &Truth) -> Option<f64> {
    let steady = truth.steady(host.kind, host.kind.per_second()?, STEADY_S)?;
    Some(steady.share)
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
            host.best_time(pages(host)).as_secs_f64(),
        );
        let steady = steady(host, truth).filter(|_| KNOWN.contains(&host.name));
        let steady = steady.map_or_else(String::new, |share| {
            format!(", steady {:.1} %", share * 1e2)
        });
        let _ = writeln!(
            table,
            "{:24} requests {:3} refused {:3} failed {:3} in flight {:2} held {:2} took {took:5.1} s, best {best:5.1} s, used {:3.0} %{steady}",
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
