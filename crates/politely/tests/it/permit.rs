//! Tests of a permit's two steps: the report of the head, and the slot until the end of the body.

use std::future::pending;
use std::time::Duration;

use politely::{Ask, Clock, Config, Key, Limiter, Reason, RefusalReason, Report, Signal};

fn limiter() -> Limiter {
    let config = Config::fixed(10.0, 4.0);
    let clock = Clock::tokio();
    let builder = Limiter::builder().config(config).clock(clock);
    builder.build().unwrap()
}

/// Returns the counts (in flight, granted, reported, cancelled, expired).
fn books(limiter: &Limiter, key: &Key) -> (u32, u64, u64, u64, u64) {
    let known = limiter.explain(key).unwrap();
    let tally = known.tally;
    let accounted = tally.reported + tally.cancelled + tally.expired + tally.live;
    assert_eq!(tally.granted, accounted);
    let (granted, reported) = (tally.granted, tally.reported);
    (
        known.in_flight.0,
        granted,
        reported,
        tally.cancelled,
        tally.expired,
    )
}

#[tokio::test(start_paused = true)]
async fn declared_numbers_are_kept() {
    let builder = Limiter::builder().rate(10.0).burst(5).in_flight(2);
    let limiter = builder.clock(Clock::tokio()).build().unwrap();
    let key = Key::host("a.example").unwrap();
    let began = limiter.now();
    for _ in 0..25 {
        let permit = limiter.acquire(&key).await.unwrap();
        let ok = http::Response::new(());
        drop(permit.report_response(&ok));
    }
    // Five leave at once, and twenty at ten per second.
    let took = limiter.now().since(began);
    assert!(took >= Duration::from_millis(1_990), "{took:?}");
    assert!(took <= Duration::from_millis(2_100), "{took:?}");

    let (_a, _b) = (limiter.acquire(&key).await, limiter.acquire(&key).await);
    tokio::time::advance(Duration::from_secs(1)).await;
    let refusal = limiter.try_acquire(&key).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Wait(Reason::InFlight));
    let wrong = Limiter::builder().rate(0.0).build().unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "rate_start must be a number above 0, not 0"
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_is_reported_as_it_stands() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let permit = limiter.try_acquire(&key).unwrap();
    tokio::time::advance(Duration::from_millis(40)).await;
    let ok = http::Response::new(());
    let slot = permit.report_response(&ok);
    assert_eq!(books(&limiter, &key), (1, 1, 0, 0, 0), "the body comes");
    assert_eq!(limiter.stats().reported, 1, "the key has learned");
    drop(slot);
    assert_eq!(books(&limiter, &key), (0, 1, 1, 0, 0));

    let mut refused = http::Response::new(());
    *refused.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    let retry_after = "7".parse().unwrap();
    refused.headers_mut().insert("retry-after", retry_after);
    let permit = limiter.try_acquire(&key).unwrap();
    drop(permit.report_response(&refused));
    assert_eq!(limiter.stats().refused, 1);
    let held = limiter.try_acquire(&key).unwrap_err();
    let wait = held.at.since(limiter.now());
    assert!(wait >= Duration::from_secs(7), "{wait:?}");
}

#[tokio::test]
async fn an_error_of_a_client_is_reported_as_its_failure() {
    let limiter = limiter();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    crate::server::tls_provider();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let key = Key::host(&url).unwrap();
    for _ in 0..5 {
        let permit = limiter.acquire(&key).await.unwrap();
        let response = client.get(&url).send().await;
        drop(permit.report_response(&response));
        assert!(response.is_err());
    }
    let refusal = limiter.try_acquire(&key).unwrap_err();
    let (reason, reported) = (refusal.reason, limiter.stats().reported);
    assert_eq!(
        (reason, reported),
        (RefusalReason::Wait(Reason::Breaker), 5)
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_heard_is_learned_at_once_and_in_flight_until_its_end() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let permit = limiter.try_acquire(&key).unwrap();
    let mut report = Report::of(Signal::RateLimited);
    report.retry_after = Some(Duration::from_secs(5));
    let (directions, slot) = permit.heard(&report);
    assert!(directions.event && !directions.late);
    assert!(directions.hold_until >= limiter.now() + Duration::from_secs(5));
    assert_eq!(limiter.stats().reported, 1);
    assert_eq!(books(&limiter, &key), (1, 1, 0, 0, 0));
    drop(slot);
    assert_eq!(books(&limiter, &key), (0, 1, 1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_keeps_coming_keeps_its_lease() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let (_, mut slot) = limiter
        .try_acquire(&key)
        .unwrap()
        .heard(&Report::of(Signal::Ok));
    for _ in 0..10 {
        tokio::time::advance(Duration::from_mins(1)).await;
        slot.received(1 << 20);
    }
    assert_eq!(books(&limiter, &key), (1, 1, 0, 0, 0));
    drop(slot);
    assert_eq!(books(&limiter, &key), (0, 1, 1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_loses_it_and_is_counted_once() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let (_, slot) = limiter
        .try_acquire(&key)
        .unwrap()
        .heard(&Report::of(Signal::Ok));
    tokio::time::advance(Duration::from_mins(3)).await;
    assert_eq!(books(&limiter, &key), (0, 1, 0, 0, 1));
    drop(slot);
    assert_eq!(books(&limiter, &key), (0, 1, 0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_was_heard_and_dropped_is_not_lost() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let ask = async |signal| {
        let permit = limiter.acquire(&key).await.unwrap();
        drop(permit.heard(&Report::of(signal)));
    };
    for _ in 0..5 {
        ask(Signal::Overloaded).await;
    }
    ask(Signal::Ok).await;
    assert_eq!(limiter.explain(&key).unwrap().wait, None, "closed again");
}

#[tokio::test(start_paused = true)]
async fn a_body_holds_all_its_keys() {
    let limiter = limiter();
    let keys = ["a.example", "b.example"].map(|name| Key::host(name).unwrap());
    let permit = limiter.try_acquire(&keys).unwrap();
    let (_, slot) = permit.heard(&Report::of(Signal::Ok));
    for key in &keys {
        assert_eq!(books(&limiter, key), (1, 1, 0, 0, 0));
    }
    drop(slot);
    for key in &keys {
        assert_eq!(books(&limiter, key), (0, 1, 1, 0, 0));
    }
}

/// Regression: only permits taken from the iterator were returned, and the parts of a sent permit
/// counted as unsent.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_split_and_dropped_returns_whole() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let ask = Ask {
        slots: 3,
        ..Ask::default()
    };
    let run = || {
        let run = limiter.try_in_turn(&key, ask.clone(), limiter.turn());
        run.unwrap()
    };
    let first = run().split().next();
    assert_eq!(books(&limiter, &key), (1, 3, 0, 2, 0));
    drop(first);
    assert_eq!(books(&limiter, &key), (0, 3, 0, 3, 0));

    tokio::time::advance(Duration::from_secs(1)).await;
    let mut sent = run();
    sent.sent();
    drop(sent.split());
    let last = limiter.try_acquire(&key).expect("four leave at once");
    let refusal = limiter.try_acquire(&key).expect_err("three have left");
    assert_eq!(refusal.reason, RefusalReason::Wait(Reason::Pace));
    drop(last);
}

/// Regression: two of the three stayed in flight until their leases expired.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_reported_whole_is_the_first() {
    let (limiter, key) = (limiter(), Key::host("a.example").unwrap());
    let ask = Ask {
        slots: 3,
        ..Ask::default()
    };
    let run = limiter.try_in_turn(&key, ask, limiter.turn()).unwrap();
    run.report(&Report::of(Signal::Ok));
    assert_eq!(books(&limiter, &key), (0, 3, 1, 2, 0));
}

/// Regression: a request that outlived its lease no longer counted as in flight, and the next one
/// was sent beside it.
#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_slot_as_long_as_it_takes() {
    let mut config = Config::fixed(10.0, 4.0);
    config.limits.in_flight = 1;
    config.lease = Duration::from_secs(10);
    let builder = Limiter::builder().config(config).clock(Clock::tokio());
    let (limiter, key) = (builder.build().unwrap(), Key::host("a.example").unwrap());
    let permit = limiter.try_acquire(&key).unwrap();
    let after = |s| tokio::time::timeout(Duration::from_secs(s), pending::<()>());
    let slow = permit.during(after(300));
    let beside = async {
        _ = after(299).await;
        limiter.try_acquire(&key).expect_err("it is under way")
    };
    let (_, refusal) = tokio::join!(slow, beside);
    assert_eq!(refusal.reason, RefusalReason::Wait(Reason::InFlight));
    assert!(!permit.report(&Report::of(Signal::Ok)).late);
}
