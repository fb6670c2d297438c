//! Tests of more keys than the capacity, with and without a state folder.

use std::path::Path;

use super::durable::copied;
use super::*;
use crate::store::Store;

const CAPACITY: usize = 5;

fn settings(limits: &str) -> Settings {
    let mut config = Config::fixed(1_000.0, 1_000.0);
    config.declared = limits.parse().unwrap();
    Settings {
        config,
        capacity: CAPACITY,
        ..Settings::default()
    }
}

fn resumed(dir: &Path, limits: &str) -> Coordinator {
    let (store, kept) = Store::open(dir).unwrap();
    Coordinator::resume(settings(limits), store, kept).unwrap()
}

fn name(host: usize) -> String {
    format!("h{host}.example")
}

async fn visit(coordinator: &Coordinator, host: usize) -> Answer {
    let worker = coordinator.worker("a");
    let patience = Duration::from_mins(1);
    let answer = coordinator
        .one(&worker, item(&name(host), ""), patience)
        .await;
    if let Answer::Granted(grant) = &answer {
        let mut aftermath = Aftermath::default();
        coordinator.report(&worker, &told(grant), &mut aftermath);
        coordinator.see_to(aftermath).await;
    }
    answer
}

fn left(coordinator: &Coordinator, host: usize) -> u64 {
    coordinator.explain(&name(host)).unwrap().budgets[0].remaining
}

/// Each of 12 hosts spends its budget request by request. `again` may stop the coordinator and
/// start the next one between two rounds.
async fn spend(
    limits: &str,
    mut coordinator: Coordinator,
    again: impl AsyncFn(Coordinator) -> Coordinator,
) {
    for round in 0..3 {
        for host in 0..12 {
            visit(&coordinator, host).await.granted();
            assert_eq!(left(&coordinator, host), 2 - round, "{limits}, host {host}");
        }
        assert!(coordinator.limiter().stats().keys <= CAPACITY as u64);
        coordinator = again(coordinator).await;
        for host in 0..12 {
            assert_eq!(left(&coordinator, host), 2 - round, "{limits}, host {host}");
        }
    }
    let worker = coordinator.worker("a");
    for host in 0..12 {
        let asked = item(&name(host), "");
        let (_, reason, _) = coordinator.one(&worker, asked, AT_ONCE).await.wait();
        assert_eq!(reason, "budget");
    }
}

#[tokio::test]
async fn saved_keys_make_room_and_their_counts_stay_exact() {
    for limits in ["3/day@UTC", "3/day"] {
        let dir = tempfile::tempdir().unwrap();
        let stay = async |coordinator| coordinator;
        spend(limits, resumed(dir.path(), limits), stay).await;
    }
}

#[tokio::test]
async fn counts_stay_exact_when_the_coordinator_stops() {
    for limits in ["3/day@UTC", "3/day"] {
        let dir = tempfile::tempdir().unwrap();
        let restart = async |coordinator: Coordinator| {
            assert!(coordinator.save().await);
            drop(coordinator);
            resumed(dir.path(), limits)
        };
        spend(limits, resumed(dir.path(), limits), restart).await;
    }
}

#[tokio::test]
async fn counts_stay_exact_when_the_coordinator_is_killed() {
    for limits in ["3/day@UTC", "3/day"] {
        let first = tempfile::tempdir().unwrap();
        let dirs = std::cell::RefCell::new(vec![first]);
        let path = || dirs.borrow().last().unwrap().path().to_owned();
        let kill = async |coordinator: Coordinator| {
            let copy = copied(&path());
            dirs.borrow_mut().push(copy);
            drop(coordinator);
            resumed(&path(), limits)
        };
        spend(limits, resumed(&path(), limits), kill).await;
    }
}

#[tokio::test]
async fn without_a_disk_a_key_stays_until_its_budget_is_whole() {
    let coordinator = Coordinator::new(settings("3/day")).unwrap();
    for host in 0..CAPACITY {
        visit(&coordinator, host).await.granted();
    }
    visit(&coordinator, CAPACITY).await.refused();
    assert_eq!(left(&coordinator, 0), 2);
}

#[tokio::test]
async fn permits_out_keep_their_keys_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = resumed(dir.path(), "3/day");
    let worker = coordinator.worker("a");
    for host in 0..CAPACITY {
        let asked = item(&name(host), "");
        coordinator.one(&worker, asked, AT_ONCE).await.granted();
    }
    visit(&coordinator, CAPACITY).await.refused();
}
