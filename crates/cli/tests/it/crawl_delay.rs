//! Tests that all processes together keep a Crawl-delay of robots.txt, by the host's own record.
//! The limits are shared through a coordinator or an engine.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use politely_target::{HostReport, HostSpec, LimitSpec, Robots, Service};

use crate::coordinator_fetch::Coordinator;
use crate::hosts::Hosts;
use crate::run::politely;
use politely_testkit::redis::RedisServer;

const PAGES: u32 = 6;
/// Limits so wide that only the Crawl-delay delays requests.
const QUICK: [&str; 8] = [
    "--law",
    "fixed",
    "--rate",
    "20",
    "--burst",
    "4",
    "--in-flight",
    "8",
];

/// A host with a Crawl-delay of one second that answers slowly. A process that does not know of a
/// request in flight therefore comes too early.
struct Host(Hosts);

impl Host {
    fn start() -> Self {
        Self(Hosts::start(vec![HostSpec {
            pages: PAGES,
            robots: Robots::Text("User-agent: *\nCrawl-delay: 1\n".to_owned()),
            service: Service {
                mean_ms: 300.0,
                cv: 0.0,
            },
            ..HostSpec::new("patient", LimitSpec::None {})
        }]))
    }

    fn until_arrivals(&self, enough: u64) {
        while self.0.arrivals() < enough {
            sleep(Duration::from_millis(5));
        }
    }

    /// Starts two processes. The first has read robots.txt before the second begins, and the second
    /// has still to read it.
    fn two_fetch(&self, folder: &Path, sharing: &[String]) -> [Child; 2] {
        let first = self.fetch(folder, 0, sharing);
        self.until_arrivals(2);
        [first, self.fetch(folder, 1, sharing)]
    }

    fn fetch(&self, folder: &Path, which: usize, sharing: &[String]) -> Child {
        let list = folder.join(format!("{which}.txt"));
        let half = self.0.lists(2)[which].join("\n");
        fs::write(&list, half).expect("the list is written");
        let mut command: Command = politely();
        command.args(["fetch", "--summary", "none", "-i"]).arg(list);
        command.args(sharing).stdout(Stdio::null());
        command.spawn().expect("the binary runs")
    }

    /// Waits until both processes have ended, and returns the host's report.
    fn saw(self, fetches: [Child; 2]) -> HostReport {
        for mut fetch in fetches {
            assert!(fetch.wait().expect("it ends").success());
        }
        self.0.end().hosts[0].clone()
    }
}

fn demand_a_second_between_any_two(saw: &HostReport) {
    // Each process requests robots.txt as well.
    assert_eq!(
        (saw.pages, saw.arrivals),
        (PAGES.into(), (PAGES + 2).into())
    );
    let gap_ms = saw.gap_min_ms.expect("several came");
    // The requests leave a second apart. On the way, one may be delayed by some milliseconds.
    assert!(gap_ms >= 990.0 && saw.in_flight_max == 1, "{saw:?}");
}

/// Returns the flags of a process that shares hosts through `coordinator`.
fn through(coordinator: &Coordinator, folder: &Path) -> Vec<String> {
    let token = folder.join("token").display().to_string();
    let flags = ["--coordinator", &coordinator.url, "--token-file", &token];
    flags.map(str::to_owned).into()
}

/// Regression: each process counted the delay from its own last request.
#[test]
fn through_a_coordinator() {
    let (host, folder) = (Host::start(), tempfile::tempdir().expect("a folder"));
    let coordinator = Coordinator::start_with(folder.path(), "127.0.0.1:0", &QUICK);
    let sharing = through(&coordinator, folder.path());
    let fetches = host.two_fetch(folder.path(), &sharing);
    demand_a_second_between_any_two(&host.saw(fetches));
}

#[test]
fn through_a_coordinator_that_forgot_it() {
    let (host, folder) = (Host::start(), tempfile::tempdir().expect("a folder"));
    let coordinator = Coordinator::start_with(folder.path(), "127.0.0.1:0", &QUICK);
    let sharing = through(&coordinator, folder.path());
    let fetches = host.two_fetch(folder.path(), &sharing);
    host.until_arrivals(5);
    let bind = coordinator.address().to_owned();
    drop(coordinator);
    fs::remove_dir_all(folder.path().join("state")).expect("its state is forgotten");
    let _again = Coordinator::start_with(folder.path(), &bind, &QUICK);
    demand_a_second_between_any_two(&host.saw(fetches));
}

/// Regression: a request was sent while a request of another process was in flight.
#[test]
fn through_a_store() {
    let (host, folder) = (Host::start(), tempfile::tempdir().expect("a folder"));
    let redis = RedisServer::start("");
    let url = redis.url();
    let sharing = [&["--store", &url][..], &QUICK].concat();
    let sharing = sharing.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let fetches = host.two_fetch(folder.path(), &sharing);
    demand_a_second_between_any_two(&host.saw(fetches));
}
