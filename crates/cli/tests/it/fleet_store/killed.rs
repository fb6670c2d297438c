//! F1 and F3: processes are killed at any point, and others are started in their place. The
//! servers of a `ZooKeeper` ensemble, and a `PostgreSQL`, are killed among them.

use std::env;

use politely::core::Rng;

use super::crew::{Crew, fixed, same};
use crate::fleet::{open_hosts, restart_alone, verdict::Numbers};
use politely_testkit::postgres::PostgresServer;
use politely_testkit::redis::RedisServer;
use politely_testkit::zookeeper::Ensemble;

/// Number of kills, unless `POLITELY_TEST_KILLS` sets another one for a long run.
const KILLS: u64 = 25;
/// Each kill of this number kills a server of the ensemble instead of a process.
const SERVER_EVERY: u64 = 5;
const HOSTS: u64 = 16;
const PROCESSES: usize = 4;
const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};

#[test]
fn killed_processes_cost_nothing_but_their_leases() {
    let _alone = restart_alone();
    let redis = RedisServer::start("");
    kill_processes(&redis.url(), |_| false);
}

/// An ensemble loses no confirmed write, so no permit is granted twice (P7).
#[test]
fn killed_processes_and_servers_grant_nothing_twice() {
    let _alone = restart_alone();
    let mut ensemble = Ensemble::start();
    let url = ensemble.url("/politely");
    kill_processes(&url, |kill| {
        let is_server = kill % SERVER_EVERY == 0;
        if is_server {
            ensemble.wait_for_members(3);
            // Every second time, the victim is the leader.
            let follower = kill / SERVER_EVERY % 2;
            let victim = (ensemble.leader() + follower as usize) % 3;
            ensemble.members[victim].kill();
            ensemble.members[victim].start_again();
        }
        is_server
    });
}

/// Each of its commits is on disk before it is acknowledged (P7).
#[test]
fn killed_processes_and_a_killed_database_grant_nothing_twice() {
    let _alone = restart_alone();
    let mut server = PostgresServer::start("");
    let url = server.url();
    kill_processes(&url, |kill| {
        let is_server = kill % SERVER_EVERY == 0;
        if is_server {
            server.kill();
            server.start_again();
        }
        is_server
    });
}

/// Kills processes that share the engine at `url`, and asserts the promises. Before each kill it
/// calls `kill_server`, and kills no process if that returns true.
fn kill_processes(url: &str, mut kill_server: impl FnMut(u64) -> bool) {
    let kills =
        env::var("POLITELY_TEST_KILLS").map_or(KILLS, |kills| kills.parse().expect("a number"));
    let pages = 10 + kills / 2;
    let mut crew = Crew::start(open_hosts(HOSTS as usize, pages as u32, 300.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(url, PROCESSES), &args);

    let mut chance = Rng::new(1);
    let (mut killed, mut servers) = (0, 0);
    while killed + servers < kills {
        let kill = killed + servers;
        crew.until_arrivals((kill + 1) * crew.pages() * 8 / (kills * 10));
        if kill_server(kill) {
            servers += 1;
            continue;
        }
        let member = &mut crew.members[(chance.next_u64() % PROCESSES as u64) as usize];
        killed += u64::from(member.kill());
        member.start();
    }
    crew.finish();
    eprintln!(
        "{killed} processes and {servers} servers killed, {} requests for {} pages{}",
        crew.arrivals(),
        crew.pages(),
        crew.story()
    );

    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
    crew.demand_grants(url, NUMBERS);
}
