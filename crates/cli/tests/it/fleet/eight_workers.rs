//! Eight workers, two of them in Python, over the sixteen limited hosts: together they are as good as one process.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use politely_target::{Entry, Target, Town, arrivals_above};

use super::Fleet;
use super::verdict::steady_rate;
use crate::run::{politely, run};

/// So many that the hosts are learned and then used for a while; the slowest need 50 s at best.
const PAGES: u32 = 100;
/// The crawler profile's.
const RATE_MAX: f64 = 10.0;
const BURST: f64 = 1.0;
const IN_FLIGHT: u64 = 4;
/// Requests per second of the hosts that the law must not waste: it is their ceiling, or they say what they allow.
const KNOWN: [(&str, f64); 5] = [
    ("unlimited", RATE_MAX),
    ("blocks", RATE_MAX),
    ("nginx-nodelay", 10.0),
    ("ietf-headers", 8.0),
    ("x-headers", 3.0),
];
/// Of that, once it is found. What the other hosts came to is printed: whether one process does better there was not measured.
const USED_SHARE_MIN: f64 = 0.95;
/// Refused of all, beside what one process had in the same minute: a fifth more, and what two or three unlucky probes cost.
const REFUSED_TIMES_MAX: f64 = 1.2;
const REFUSED_MORE: f64 = 0.005;

#[test]
fn eight_workers_are_as_good_as_one_process() {
    let mut town = Town::full();
    for host in &mut town.hosts {
        host.pages = PAGES;
    }
    let mut fleet = Fleet::start(town.hosts.clone(), &[]);
    fleet.start_workers(8, 3);
    let alone = one_process(town);
    fleet.finish();

    fleet.demand_all_pages();
    fleet.demand_balance();
    let judge = fleet.target.judge();
    let (mut table, mut slow) = (String::new(), Vec::<&(&str, f64)>::new());
    for row in &judge.hosts {
        let entries = fleet.arrivals(&row.host);
        let above = arrivals_above(entries.iter().map(Entry::arrived), RATE_MAX);
        let steady = steady_rate(&entries).unwrap_or_default();
        let known = KNOWN.iter().find(|(name, _)| *name == row.host);
        slow.extend(known.filter(|(_, rate)| steady < rate * USED_SHARE_MIN));
        let _ = writeln!(
            table,
            "{:20} {above:.2} above {RATE_MAX}/s, steady {steady:.2}/s",
            row.host
        );
        assert!(
            above <= BURST + 1.0,
            "{}\n{table}{}",
            row.host,
            fleet.story()
        );
        assert!(
            row.in_flight_max <= IN_FLIGHT,
            "{}\n{}",
            row.host,
            fleet.story()
        );
        assert_eq!(row.blocked, 0, "{}\n{}", row.host, fleet.story());
    }
    eprintln!(
        "refused: fleet {:.2} %, one process {:.2} %\n{table}{}\none process:\n{alone}",
        judge.refused_share() * 1e2,
        alone.refused_share() * 1e2,
        fleet.story()
    );
    assert!(slow.is_empty(), "{slow:?}\n{table}");
    let most = alone.refused_share() * REFUSED_TIMES_MAX + REFUSED_MORE;
    assert!(
        judge.refused_share() <= most,
        "{}\none process:\n{alone}",
        fleet.story()
    );
}

/// `politely fetch` over a town of its own, at the same time, on the same machine.
fn one_process(town: Town) -> politely_target::Report {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let target = runtime
        .block_on(Target::start(town))
        .expect("the town starts");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("urls.txt");
    let mut urls = String::new();
    for page in 0..PAGES {
        for host in target.hosts() {
            writeln!(urls, "{}/page/{page}", host.url()).expect("a string grows");
        }
    }
    fs::write(&list, urls).expect("the list is written");
    let began = Instant::now();
    let said = run(politely()
        .arg("fetch")
        .arg("--output")
        .arg(folder.path().join("results"))
        .arg("--input")
        .arg(&list));
    assert_eq!(said.code, 0, "{}", said.err);
    eprintln!("one process took {:?}", began.elapsed());
    target.shutdown()
}
