//! A replica replaces its master and has not received the master's last writes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::crew::{Crew, fixed, same};
use super::proxy::Proxy;
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::redis::RedisServer;

const NUMBERS: Numbers = Numbers {
    rate: 4.0,
    burst: 1.0,
    in_flight: 4,
};
/// The furthest that a permit starts ahead, in seconds.
const HORIZON_S: f64 = 2.0;
const HOSTS: u64 = 8;
/// The time between the replica's last write from its master and the master's death, in
/// milliseconds.
const CUTS_MS: [u64; 3] = [0, 200, 1_000];

#[test]
fn what_the_replica_has_not_heard_of_is_all_that_is_granted_twice() {
    for cut in CUTS_MS {
        fail_over(cut, false);
    }
}

#[test]
fn with_wait_nothing_is_granted_twice() {
    for cut in CUTS_MS {
        fail_over(cut, true);
    }
}

fn fail_over(cut_ms: u64, waits: bool) {
    let mut master = RedisServer::start("");
    let replica = replica_of(&master);
    let proxy = Proxy::start(master.address);
    let url = proxy.url() + if waits { "?wait=1" } else { "" };
    let mut crew = Crew::start(open_hosts(HOSTS as usize, 16, 700.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&url, 4), &args);
    crew.until_arrivals(5 * HOSTS);

    let cut = Instant::now();
    replica.order(&["replicaof", "no", "one"]);
    std::thread::sleep(Duration::from_millis(cut_ms));
    master.kill();
    let lag = cut.elapsed();
    // With `wait`, the new master needs a replica too.
    let next = replica_of(&replica);
    proxy.lead_to(replica.address);
    let back = crew.until_it_goes_on();
    crew.finish();

    eprintln!("cut {cut_ms} ms, wait {waits}: lag {lag:.2?}, work goes on after {back:.2?}");
    let again = if waits {
        0.0
    } else {
        NUMBERS.rate * lag.as_secs_f64().min(HORIZON_S)
    };
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, again);
    crew.demand_in_flight(NUMBERS.in_flight + again.ceil() as u64);
    drop(next);
}

/// Starts a replica and waits until it is in sync.
pub(super) fn replica_of(master: &RedisServer) -> RedisServer {
    replica_by(master, master.address)
}

/// Starts a replica that reaches its master at the address `way`, and waits until it is in sync.
pub(super) fn replica_by(master: &RedisServer, way: SocketAddr) -> RedisServer {
    let (ip, port) = (way.ip(), way.port());
    let replica = RedisServer::start(&format!("replicaof {ip} {port}\n"));
    replica.wait_for_info("master_link_status:up");
    politely_testkit::redis::wait_for("it acknowledges", || {
        master.cli(&["wait", "1", "100"]) == "1"
    });
    replica
}
