//! Tests of requests with several keys: the limits of all keys are kept, and a key that must wait
//! takes nothing from the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use politely::core::gate::HoldReason;
use politely::{AcquireError, Ask, Config, Key, Limiter, RefusalReason};
use tokio::task::JoinSet;

use crate::limiter_line::{key, limiter, ok, settle, steady};

/// Asserts that the starts are no closer than the rate allows, with two milliseconds of timer
/// slack.
fn assert_spaced(mut starts: Vec<politely::core::Timestamp>, rate: f64) {
    starts.sort_unstable();
    for (i, from) in starts.iter().enumerate() {
        for (j, to) in starts.iter().enumerate().skip(i) {
            let most = 1.0 + rate * (to.since(*from).as_secs_f64() + 0.002) + 1e-6;
            assert!(
                (j - i + 1) as f64 <= most + 1.0,
                "{} in {:?}",
                j - i + 1,
                to.since(*from)
            );
        }
    }
}

fn rated(rates: &[(&Key, f64)]) -> Limiter {
    let limiter = limiter(steady(1_000.0));
    for (key, rate) in rates {
        limiter.configure(key, steady(*rate)).unwrap();
    }
    limiter
}

/// Regression: without a key, `acquire` panicked. Only `try_acquire` is documented to do that.
#[tokio::test]
async fn a_request_without_a_key_is_an_error() {
    let none: [Key; 0] = [];
    let error = limiter(steady(1.0)).acquire(&none).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoKey), "{error}");
}

/// Regression: the cost and the bytes were charged to the first key each time.
#[tokio::test(start_paused = true)]
async fn one_key_in_the_way_takes_no_cost_of_the_others() {
    let (host, global) = (key("example.com"), key("global.invalid"));
    let mut config = Config::fixed(1.0, 10.0);
    config.limits.bytes_per_s = 1_000.0;
    let limiter = limiter(config);
    let minute = Duration::from_mins(1);
    limiter.hold(&global, minute, HoldReason::Operator).unwrap();
    let ask = Ask {
        cost: 10,
        bytes: 1_000,
        ..Ask::default()
    };
    for _ in 0..100 {
        let keys = [host.clone(), global.clone()];
        let refusal = limiter.try_in_turn(&keys, ask.clone(), limiter.turn());
        assert_eq!(refusal.unwrap_err().key, global);
    }
    let all = limiter.try_in_turn(&host, ask, limiter.turn());
    all.expect("nothing was taken").report(&ok());
}

#[tokio::test(start_paused = true)]
async fn one_key_in_the_way_takes_nothing_of_the_others() {
    let (host, global) = (key("example.com"), key("global.invalid"));
    let limiter = rated(&[(&host, 10.0), (&global, 10.0)]);
    limiter
        .hold(&global, Duration::from_mins(1), HoldReason::Operator)
        .unwrap();
    for _ in 0..1_000 {
        let refusal = limiter
            .try_acquire(&[host.clone(), global.clone()])
            .unwrap_err();
        assert_eq!(refusal.key, global);
        assert!(matches!(refusal.reason, RefusalReason::Wait(_)));
    }
    let waiting = tokio::spawn({
        let (limiter, keys) = (limiter.clone(), [host.clone(), global.clone()]);
        async move {
            limiter
                .acquire(&keys)
                .await
                .map(|permit| permit.report(&ok()))
        }
    });
    settle().await;
    let told = limiter.explain(&host).unwrap();
    assert_eq!(
        (told.in_flight.0, told.wait),
        (0, None),
        "no slot, no token while waiting"
    );
    limiter
        .try_acquire(&host)
        .expect("the host is free for others")
        .report(&ok());
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_keys_are_kept_whatever_the_order_they_are_named_in() {
    let (a, b, site) = (
        key("a.example.com"),
        key("b.example.com"),
        key("site.invalid"),
    );
    let limiter = rated(&[(&a, 4.0), (&b, 4.0), (&site, 5.0)]);
    let starts = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for i in 0..300 {
        let mut keys = vec![if i % 2 == 0 { a.clone() } else { b.clone() }, site.clone()];
        if i % 3 == 0 {
            keys.reverse();
        }
        let (limiter, starts) = (limiter.clone(), Arc::clone(&starts));
        tasks.spawn(async move {
            let permit = limiter.acquire(&keys).await.unwrap();
            starts.lock().unwrap().push((i % 2, limiter.now()));
            permit.report(&ok());
        });
    }
    let began = limiter.now();
    let done = tokio::time::timeout(Duration::from_mins(2), tasks.join_all()).await;
    let starts = starts.lock().unwrap().clone();
    assert!(
        done.is_ok(),
        "{} of 300 in 120 s, 60 s would do",
        starts.len()
    );
    let took = limiter.now().since(began).as_secs_f64();
    assert!(took < 90.0, "300 at 5/s took {took} s");
    assert_spaced(starts.iter().map(|(_, at)| *at).collect(), 5.0);
    for host in [0, 1] {
        let of_host = starts
            .iter()
            .filter(|(of, _)| *of == host)
            .map(|(_, at)| *at);
        assert_spaced(of_host.collect(), 4.0);
    }
    for key in [&a, &b, &site] {
        assert_eq!(limiter.explain(key).unwrap().tally.live, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_several_keys_keeps_their_place() {
    // Regression: a request that found the second key busy went to the end of that key's queue, and
    // then to the end of the first key's queue. Each host's requests left in any order.
    let global = key("global.invalid");
    let hosts: Vec<Key> = (0..5).map(|i| key(&format!("h{i}.example"))).collect();
    let mut rates: Vec<_> = hosts.iter().map(|host| (host, 1.3)).collect();
    rates.push((&global, 5.0));
    let limiter = rated(&rates);
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for i in 0..200 {
        let (limiter, served) = (limiter.clone(), Arc::clone(&served));
        let keys = [hosts[i % 5].clone(), global.clone()];
        tasks.spawn(async move {
            let permit = limiter.acquire(&keys).await.unwrap();
            served.lock().unwrap().push(i);
            permit.report(&ok());
        });
        tokio::task::yield_now().await;
    }
    let began = limiter.now();
    tasks.join_all().await;
    let took = limiter.now().since(began).as_secs_f64();
    assert!(took < 50.0, "200 at 5/s took {took} s");
    let served = served.lock().unwrap().clone();
    for host in 0..5 {
        let order: Vec<_> = served.iter().filter(|i| **i % 5 == host).collect();
        assert!(order.is_sorted(), "host {host}: {order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_named_twice_is_one_key() {
    let mut config = steady(1.0);
    config.limits.in_flight = 1;
    let limiter = limiter(config);
    let host = key("example.com");
    let permit = limiter.try_acquire(&[host.clone(), host.clone()]).unwrap();
    assert_eq!(limiter.explain(&host).unwrap().in_flight.0, 1);
    permit.report(&ok());
    assert_eq!(limiter.explain(&host).unwrap().tally.reported, 1);
}

/// Regression: a permit of three keys was counted as granted three times and as reported once.
#[tokio::test(start_paused = true)]
async fn a_permit_of_several_keys_counts_once() {
    let keys = [key("a.example"), key("b.example"), key("c.example")];
    let limiter = rated(&[(&keys[0], 10.0), (&keys[1], 10.0), (&keys[2], 1.0)]);
    limiter.try_acquire(&keys).unwrap().report(&ok());
    // A grant that another key stops counts neither as granted nor as cancelled.
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(limiter.try_acquire(&keys).unwrap_err().key, keys[2]);
    limiter.acquire(&keys).await.unwrap().report(&ok());
    limiter.acquire(&keys).await.map(drop).unwrap();
    limiter.try_acquire(&keys[0]).unwrap().report(&ok());
    let stats = limiter.stats();
    assert_eq!((stats.granted, stats.reported, stats.cancelled), (4, 3, 1));
}

#[expect(
    clippy::disallowed_methods,
    reason = "time is virtual here, and all that happens in it is waited for"
)]
async fn pass(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Starts ten callers that request this key without a pause. Each one keeps its permit for `held`.
fn saturate(
    limiter: &Limiter,
    key: &Key,
    tasks: &mut JoinSet<()>,
    served: &Arc<AtomicU64>,
    held: Duration,
) {
    for _ in 0..10 {
        let (limiter, key, served) = (limiter.clone(), key.clone(), Arc::clone(served));
        tasks.spawn(async move {
            loop {
                let permit = limiter.acquire(&key).await.unwrap();
                pass(held).await;
                permit.report(&ok());
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// Sends one request for all `keys` beside many requests for one key each. Returns its wait, and
/// how many of the other requests each key serves in the first minute.
async fn served_beside_many(
    limiter: &Limiter,
    keys: &[Key],
    held: Duration,
) -> (Duration, Vec<u64>) {
    let (mut tasks, mut counts) = (JoinSet::new(), Vec::new());
    for key in keys {
        let served = Arc::new(AtomicU64::new(0));
        saturate(limiter, key, &mut tasks, &served, held);
        counts.push(served);
        // The departures of each key then lie between those of the others.
        pass(Duration::from_millis(37)).await;
    }
    pass(Duration::from_secs(5)).await;
    let served = || counts.iter().map(|count| count.load(Ordering::Relaxed));
    let (before, came): (Vec<u64>, _) = (served().collect(), limiter.now());
    let all = tokio::time::timeout(Duration::from_secs(59), limiter.acquire(keys));
    let permit = all.await.expect("nobody starves").unwrap();
    let waited = limiter.now().since(came);
    permit.report(&ok());
    pass(Duration::from_mins(1).saturating_sub(waited)).await;
    let served = served().zip(before).map(|(after, before)| after - before);
    (waited, served.collect())
}

/// Regression: a request that was served by one key returned that permit if another key was not
/// free at that moment. Requests for the first key alone took it, and this repeated from key to key
/// for ever.
#[tokio::test(start_paused = true)]
async fn several_keys_at_once_do_not_starve_beside_those_who_want_one() {
    let keys = [key("a.example"), key("b.example"), key("c.example")];
    let limiter = rated(&[(&keys[0], 10.0), (&keys[1], 10.0), (&keys[2], 0.5)]);
    let (waited, served) = served_beside_many(&limiter, &keys, Duration::ZERO).await;
    // Ten requests are before it in the queue of the slowest key.
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    assert!(
        served[0] >= 590 && served[1] >= 590 && served[2] >= 28,
        "{served:?}"
    );
}

/// The same for slots, whose return cannot be predicted.
#[tokio::test(start_paused = true)]
async fn several_keys_at_once_do_not_starve_for_slots() {
    let keys = [key("a.example"), key("b.example")];
    let limiter = limiter(steady(1_000.0));
    for key in &keys {
        let mut config = steady(1_000.0);
        config.limits.in_flight = 1;
        limiter.configure(key, config).unwrap();
    }
    let (waited, served) = served_beside_many(&limiter, &keys, Duration::from_millis(100)).await;
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert!(served.iter().all(|served| *served >= 580), "{served:?}");
}
