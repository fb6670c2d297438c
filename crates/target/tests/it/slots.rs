//! Limits on concurrency, where the order of departures matters.

use politely_target::{HostSpec, LimitSpec, Record, Service, Target, Town};

use crate::client::Client;

/// A service time no test waits for: these requests stay inside until their clients leave.
const FOREVER: Service = Service {
    mean_ms: 3_600_000.0,
    cv: 0.0,
};

fn slots(limit: LimitSpec, service: Service) -> Town {
    let mut host = HostSpec::new("slots", limit);
    host.service = service;
    Town::new(vec![host])
}

/// Waits until the judge sees it; a test that hangs here fails by its time limit, not by a race.
async fn until(target: &Target, seen: impl Fn(&politely_target::HostReport) -> bool) {
    while !seen(&target.judge().hosts[0]) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_full_house_refuses_and_a_client_that_leaves_makes_room() {
    let target = Target::start(slots(LimitSpec::ConcurrencyReject { slots: 2 }, FOREVER))
        .await
        .unwrap();
    let addr = target.hosts()[0].addr;
    let mut inside = Vec::new();
    for number in 1..=2 {
        let mut client = Client::connect(addr).await;
        client.send("/page/0").await;
        until(&target, |row| row.arrivals == number).await;
        inside.push(client);
    }
    let mut third = Client::connect(addr).await;
    assert_eq!(third.get("/page/1").await.status, 429);
    assert_eq!(
        target.judge().hosts[0].in_flight_max,
        3,
        "the refused one is there for a moment"
    );

    inside.pop();
    until(&target, |row| row.left == 1).await;
    third.send("/page/1").await;
    until(&target, |row| row.arrivals == 4).await;
    assert_eq!(target.judge().hosts[0].refused, 1, "there was room");
}

#[tokio::test]
async fn queued_requests_are_served_in_order_by_one_slot() {
    let limit = LimitSpec::ConcurrencyQueue { slots: 1, queue: 3 };
    let service = Service {
        mean_ms: 20.0,
        cv: 0.0,
    };
    let target = Target::start_with(slots(limit, service), Record::Memory)
        .await
        .unwrap();
    let addr = target.hosts()[0].addr;
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut client = Client::connect(addr).await;
        client.send(&format!("/page/{number}")).await;
        until(&target, |row| row.arrivals == number + 1).await;
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.receive().await.status, 200);
    }
    let entries = target.entries("slots");
    let pages: Vec<_> = entries.iter().map(|entry| entry.page.unwrap()).collect();
    assert_eq!(pages, [0, 1, 2, 3]);
    // One at a time: each had the slot for its 20 ms after the one before it had left.
    assert!(
        entries
            .windows(2)
            .all(|pair| pair[1].departed_us >= pair[0].departed_us + 20_000)
    );
}

#[tokio::test]
async fn a_queued_client_that_leaves_loses_its_place_only() {
    let limit = LimitSpec::ConcurrencyQueue { slots: 1, queue: 1 };
    let target = Target::start(slots(limit, FOREVER)).await.unwrap();
    let addr = target.hosts()[0].addr;
    let mut clients = Vec::new();
    for number in 1..=2 {
        let mut client = Client::connect(addr).await;
        client.send("/page/0").await;
        until(&target, |row| row.arrivals == number).await;
        clients.push(client);
    }
    let mut third = Client::connect(addr).await;
    assert_eq!(
        third.get("/page/0").await.status,
        429,
        "slot and queue are taken"
    );
    clients.pop();
    until(&target, |row| row.left == 1).await;
    third.send("/page/0").await;
    until(&target, |row| row.arrivals == 4).await;
    assert_eq!(
        target.judge().hosts[0].refused,
        1,
        "the place in the queue was free"
    );
}
