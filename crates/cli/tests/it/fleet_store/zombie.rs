//! A master was replaced, does not know it, and continues to serve one process.

use std::thread;
use std::time::{Duration, Instant};

use super::crew::{Crew, fixed};
use super::failover::replica_by;
use super::proxy::Proxy;
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};
/// The furthest that a permit starts ahead, in seconds.
const HORIZON_S: f64 = 2.0;
const HOSTS: u64 = 8;

#[test]
fn a_master_without_replicas_soon_grants_nothing() {
    let master = RedisServer::start("min-replicas-to-write 0\nmin-replicas-max-lag 1\n");
    let link = Proxy::start(master.address);
    let replica = replica_by(&master, link.address);
    master.order(&["config", "set", "min-replicas-to-write", "1"]);
    let (theirs, others) = (Proxy::start(master.address), Proxy::start(master.address));
    let mut stores = vec![theirs.url()];
    stores.extend(vec![others.url(); 3]);
    let mut crew = Crew::start(open_hosts(HOSTS as usize, 25, 500.0));
    crew.hire(&stores, &fixed(NUMBERS, "--lease 5s --timeout 1500ms"));
    crew.until_arrivals(6 * HOSTS);

    link.stall();
    replica.order(&["replicaof", "no", "one"]);
    let split = Instant::now();
    others.lead_to(replica.address);
    crew.until("the old master refuses", |_| {
        master.cli(&["set", "probe", "1"]).starts_with("NOREPLICAS")
    });
    let twice = split.elapsed();
    // The old master stays in this state for a while.
    thread::sleep(Duration::from_secs(3));
    theirs.lead_to(replica.address);
    crew.finish();

    eprintln!("two masters granted for {twice:.2?}");
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, NUMBERS.rate * (twice.as_secs_f64() + HORIZON_S));
    crew.demand_in_flight(2 * NUMBERS.in_flight);
}
