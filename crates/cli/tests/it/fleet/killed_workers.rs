//! A worker is killed a hundred times, at any point of its work, and started again.

use politely::core::Rng;
use politely_target::{Headers, LimitSpec, RetryAfter, Signals};

use super::verdict::{Numbers, demand_permits_differ};
use super::{Fleet, open_hosts, restart_alone};

const KILLS: usize = 100;
const WORKERS: usize = 8;
const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};
/// Half an interval, in microseconds: the time for which a permit may be used.
const GOOD_FOR_US: u64 = 166_667;

#[test]
fn killed_workers_cost_nothing_but_their_leases() {
    let _alone = restart_alone();
    let mut hosts = open_hosts(16, 60, 150.0);
    // Two hosts allow less than the operator's numbers, and send a Retry-After.
    for host in &mut hosts[..2] {
        host.limit = LimitSpec::TokenBucket {
            rate: 2.0,
            burst: 4,
        };
        host.signals = Signals {
            status: 429,
            retry_after: RetryAfter::Seconds,
            headers: Headers::None,
        };
        host.pages = 36;
    }
    let args = NUMBERS.args();
    let mut serve: Vec<&str> = args.iter().map(String::as_str).collect();
    serve.extend(["--lease", "2s"]);
    let mut fleet = Fleet::start(hosts, &serve);
    fleet.start_workers(WORKERS, 3);

    // The kills depend on progress instead of time, so they happen under load on a slow machine
    // too.
    let mut chance = Rng::new(4);
    let wanted = fleet.pages_wanted();
    let mut kills = 0;
    while kills < KILLS {
        let due = kills * wanted * 8 / (KILLS * 10);
        fleet.until("the work goes on", |fleet| fleet.progress() >= due);
        let victim = (chance.next_u64() % WORKERS as u64) as usize;
        let worker = &mut fleet.workers[victim];
        kills += usize::from(worker.kill());
        worker.start();
    }
    fleet.finish();

    fleet.demand_all_pages();
    fleet.demand_limits(NUMBERS);
    let holds = fleet.demand_holds(GOOD_FOR_US);
    assert!(holds > 0, "nothing was refused\n{}", fleet.story());
    let stats = fleet.demand_balance();
    assert!(stats["expired"].as_u64() > Some(0), "{}", fleet.story());
    let permits = demand_permits_differ(&fleet.notes());
    eprintln!(
        "{kills} kills, {permits} permits, {holds} holds{}",
        fleet.story()
    );
}
