//! Two coordinators share a `ZooKeeper` ensemble. Its leader is killed, then one of the
//! coordinators. The workers lose no page, and no permit is granted twice.

use politely_testkit::zookeeper::Ensemble;

use super::verdict::{Numbers, demand_permits_differ};
use super::{Fleet, Language, Worker, open_hosts};

const NUMBERS: Numbers = Numbers {
    rate: 4.0,
    burst: 1.0,
    in_flight: 2,
};
const HOSTS: usize = 4;
const PAGES: u32 = 24;

#[test]
fn a_killed_leader_and_a_killed_coordinator_cost_no_page() {
    let mut ensemble = Ensemble::start();
    let (url, numbers) = (ensemble.url("/politely"), NUMBERS.args());
    let mut serve = vec!["--store", &url, "--lease", "10s"];
    serve.extend(numbers.iter().map(String::as_str));
    let mut fleet = Fleet::start(open_hosts(HOSTS, PAGES, 250.0), &serve);
    fleet.start_second_coordinator();
    fleet.start_workers(4, 3);

    let wanted = fleet.pages_wanted();
    fleet.until("the work begins", |fleet| fleet.progress() >= wanted / 4);
    let leader = ensemble.leader();
    ensemble.members[leader].kill();
    let before = fleet.progress();
    fleet.until("the work goes on", |fleet| {
        fleet.progress() >= (before + wanted / 8).min(wanted * 3 / 4)
    });
    fleet.first = None;
    fleet.until("all workers are done", |fleet| {
        fleet.workers.iter_mut().all(Worker::is_done)
    });
    fleet.demand_all_pages();
    fleet.demand_limits(NUMBERS);
    let permits = demand_permits_differ(&fleet.notes());
    let languages = [Language::Rust, Language::Python];
    for language in languages {
        assert!(
            fleet
                .workers
                .iter()
                .any(|worker| worker.language == language)
        );
    }
    eprintln!("{permits} permits for {wanted} pages");
}
