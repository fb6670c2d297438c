//! The faults of a fleet on `ZooKeeper`: killed leaders, a lost quorum, a process that stands still
//! for longer than its session, and lost answers. Killed processes and servers are in `killed.rs`.
//!
//! An ensemble loses no confirmed write. So in all cases no permit is granted twice (P7).

use std::thread;
use std::time::Duration;

use super::crew::{Crew, fixed, same};
use super::proxy::Proxy;
use crate::fleet::{open_hosts, verdict::Numbers};
use politely_testkit::zookeeper::Ensemble;

const NUMBERS: Numbers = Numbers {
    rate: 3.0,
    burst: 1.0,
    in_flight: 2,
};
const HOSTS: u64 = 8;
const PROCESSES: usize = 4;
const CHROOT: &str = "/politely";
/// The time for which a process or the quorum is away. A session ends after six seconds.
const AWAY: Duration = Duration::from_secs(9);
/// Longest time between a grant and its request: a permit starts at most 2 s ahead, and may be used
/// for at most half a second more.
const LAST_LEAVES_US: u64 = 2_500_000;

#[test]
fn a_killed_leader_grants_nothing_twice() {
    let (mut crew, mut ensemble) = start(24);
    for kill in 1..=3 {
        crew.until_arrivals(kill * 4 * HOSTS);
        let leader = ensemble.leader();
        ensemble.members[leader].kill();
        let back = crew.until_it_goes_on();
        eprintln!("work goes on {back:.2?} after the leader was killed");
        ensemble.members[leader].start_again();
        ensemble.wait_for_members(3);
    }
    finish(crew);
}

#[test]
fn without_a_quorum_nothing_leaves() {
    let (mut crew, mut ensemble) = start(24);
    crew.until_arrivals(5 * HOSTS);
    let leader = ensemble.leader();
    let both = [leader, (leader + 1) % 3];
    for number in both {
        ensemble.members[number].kill();
    }
    let quiet_from = crew.now_us() + LAST_LEAVES_US;
    thread::sleep(AWAY);
    let quiet_until = crew.now_us();
    for number in both {
        ensemble.members[number].start_again();
    }
    ensemble.wait_for_members(3);
    crew.finish();
    for host in crew.target.hosts() {
        let entries = crew.entries(&host.name);
        let mut within = entries.iter().map(|entry| entry.arrived_us);
        let early = within.find(|arrived| (quiet_from..quiet_until).contains(arrived));
        assert_eq!(early, None, "{}{}", host.name, crew.story());
    }
    finish(crew);
}

#[test]
fn a_process_that_outlives_its_session_starts_another() {
    let (mut crew, _ensemble) = start(60);
    crew.until_arrivals(3 * HOSTS);
    for number in 0..2 {
        crew.members[number].freeze();
        thread::sleep(AWAY);
        crew.members[number].thaw();
        crew.until_it_goes_on();
    }
    finish(crew);
}

#[test]
fn lost_answers_charge_no_slot_twice() {
    let ensemble = Ensemble::start();
    let members = ensemble.members.iter();
    let proxies: Vec<Proxy> = members.map(|member| Proxy::start(member.address)).collect();
    let addresses: Vec<_> = proxies.iter().map(|it| it.address.to_string()).collect();
    let url = format!("zookeeper://{}{CHROOT}", addresses.join(","));
    let mut crew = Crew::start(open_hosts(HOSTS as usize, 30, 400.0));
    for proxy in &proxies {
        proxy.lose(1);
    }
    crew.hire(&same(&url, PROCESSES), &fixed(NUMBERS, "--timeout 5s"));
    crew.until_arrivals(crew.pages() * 9 / 10);
    for proxy in &proxies {
        proxy.lose(0);
    }
    crew.finish();
    let lost: u64 = proxies.iter().map(Proxy::lost).sum();
    eprintln!("{lost} answers lost");
    assert!(lost > 10, "{lost} answers lost");
    crew.demand_books(&ensemble.url(CHROOT), NUMBERS);
    finish(crew);
}

fn start(pages: u32) -> (Crew, Ensemble) {
    let ensemble = Ensemble::start();
    let mut crew = Crew::start(open_hosts(HOSTS as usize, pages, 400.0));
    let args = fixed(NUMBERS, "--lease 5s --timeout 1500ms");
    crew.hire(&same(&ensemble.url(CHROOT), PROCESSES), &args);
    (crew, ensemble)
}

fn finish(mut crew: Crew) {
    crew.finish();
    crew.demand_all_pages();
    crew.demand_pace(NUMBERS, 0.0);
    crew.demand_in_flight(NUMBERS.in_flight);
}
