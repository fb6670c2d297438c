//! Eight workers, two of them in Python, crawl the sixteen limited hosts. Together they use the
//! limits as well as one process.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use politely_target::{Entry, Target, Town, arrivals_above};

use super::Fleet;
use super::verdict::used;
use crate::run::{politely, run};

/// The period for which the use of a limit is measured, in seconds since the host's first request.
/// The fleet has learned the limits by then.
const STEADY_S: Range<u64> = 70..130;
/// Requests per second that a polite fleet may use of each host. It must use a share of
/// [`USED_SHARE_MIN`] in that period. On the hosts with slots a request takes 200 ms, and the
/// profile keeps one slot busy, so the rate is 5.
const KNOWN: [(&str, f64); 11] = [
    ("slow-bucket", 2.0),
    ("steps-down", 3.0),
    ("nginx-delay", 5.0),
    ("nginx-nodelay", 10.0),
    ("four-slots", 5.0),
    ("four-slots-queue", 5.0),
    ("ietf-headers", 8.0),
    ("x-headers", 3.0),
    ("noisy", RATE_MAX),
    ("unlimited", RATE_MAX),
    ("blocks", RATE_MAX),
];
const USED_SHARE_MIN: f64 = 0.95;
/// Pages of a host beyond the number that its rate allows until the end of the period.
const PAGES_MORE: u32 = 10;
/// Pages of each other host. These have two fixed windows, two sliding windows, and two limits at
/// once. Their use after two minutes is a matter of luck, for one process and for eight.
/// `docs/reference/fleet-use.md` has their measured use over five minutes.
const PAGES: u32 = 100;
/// The highest rate of the profile `crawler`.
const RATE_MAX: f64 = 10.0;
const BURST: f64 = 1.0;
/// How late, in seconds, a busy machine sends a request whose permit has started. The requests that
/// follow it in time arrive closer to it.
const SENT_LATE_S: f64 = 0.1;
const IN_FLIGHT: u64 = 4;
/// The time for a host of whose limit only half is used.
const PATIENCE: Duration = Duration::from_mins(5);
/// The largest share of refused requests, compared with one process in the same minutes: this
/// multiple, plus [`REFUSED_MORE`] for a few unlucky probes.
const REFUSED_TIMES_MAX: f64 = 1.2;
const REFUSED_MORE: f64 = 0.002;
/// The largest share of permits that two coordinators may cancel. A worker that wants any one of
/// its hosts leaves the other queues, whose permits then go to the next worker.
const CANCELLED_SHARE_MAX: f64 = 0.05;

#[test]
fn eight_workers_are_as_good_as_one_process() {
    eight_workers(None);
}

#[cfg(feature = "faults")]
#[test]
fn eight_workers_of_two_coordinators_on_redis() {
    let redis = politely_testkit::redis::RedisServer::start("");
    eight_workers(Some(&redis.url()));
}

#[cfg(feature = "faults")]
#[test]
fn eight_workers_of_two_coordinators_on_zookeeper() {
    let ensemble = politely_testkit::zookeeper::Ensemble::start();
    eight_workers(Some(&ensemble.url("/politely")));
}

/// Runs the workers with one coordinator, or with two that share the engine at the URL `store`.
///
/// The permits that no worker uses of two coordinators are counted too, since they would waste the
/// limits.
fn eight_workers(store: Option<&str>) {
    let mut town = Town::full();
    for host in &mut town.hosts {
        host.pages = known(&host.name).map_or(PAGES, |rate| {
            (rate * STEADY_S.end as f64) as u32 + PAGES_MORE
        });
    }
    let serve = store.map(|url| vec!["--store", url]).unwrap_or_default();
    let mut fleet = Fleet::start(town.hosts.clone(), &serve);
    if store.is_some() {
        fleet.start_second_coordinator();
    }
    fleet.start_workers(8, 3);
    let alone = one_process(town);
    fleet.finish_within(PATIENCE);

    fleet.demand_all_pages();
    if store.is_none() {
        // A coordinator counts only its own permits.
        fleet.demand_balance();
    } else {
        let stats = fleet.ask("stats");
        let count = |field: &str| stats[field].as_f64().expect("a count");
        let cancelled = count("cancelled") / count("granted");
        eprintln!("{:.1} % of the permits were cancelled", cancelled * 1e2);
        assert!(cancelled <= CANCELLED_SHARE_MAX, "{}", fleet.story());
    }
    let judge = fleet.target.judge();
    let (mut table, mut slow) = (String::new(), Vec::new());
    for row in &judge.hosts {
        let entries = fleet.arrivals(&row.host);
        let above = arrivals_above(entries.iter().map(Entry::arrived), RATE_MAX);
        let _ = write!(table, "\n{:20} {above:.2} above {RATE_MAX}/s", row.host);
        if let Some(rate) = known(&row.host) {
            let share = used(&entries, STEADY_S) / rate;
            let _ = write!(table, ", {:.1} % of {rate}/s", share * 1e2);
            slow.extend((share < USED_SHARE_MIN).then(|| row.host.clone()));
        }
        let most = BURST + 1.0 + RATE_MAX * SENT_LATE_S;
        assert!(above <= most, "{}{table}{}", row.host, fleet.story());
        assert!(
            row.in_flight_max <= IN_FLIGHT,
            "{}\n{}",
            row.host,
            fleet.story()
        );
        assert_eq!(row.blocked, 0, "{}\n{}", row.host, fleet.story());
    }
    eprintln!(
        "refused: fleet {:.2} %, one process {:.2} %{table}{}\none process:\n{alone}",
        judge.refused_share() * 1e2,
        alone.refused_share() * 1e2,
        fleet.story()
    );
    assert!(slow.is_empty(), "{slow:?}{table}");
    let most = alone.refused_share() * REFUSED_TIMES_MAX + REFUSED_MORE;
    assert!(
        judge.refused_share() <= most,
        "{}\none process:\n{alone}",
        fleet.story()
    );
}

fn known(name: &str) -> Option<f64> {
    let found = KNOWN.iter().find(|(known, _)| *known == name);
    found.map(|(_, rate)| *rate)
}

/// Runs one `politely fetch` over another town at the same time, on the same machine.
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
    // The list takes one page of each host in turn.
    for page in 0..target
        .hosts()
        .iter()
        .map(|host| host.pages)
        .max()
        .unwrap_or(0)
    {
        for host in target.hosts().iter().filter(|host| page < host.pages) {
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
