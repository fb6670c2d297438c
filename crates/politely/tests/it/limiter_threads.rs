//! Tests with many threads and the machine's clock. They assert properties that hold for every
//! timing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use politely::core::Rng;
use politely::{Key, Limiter};
use tokio::task::JoinSet;

use crate::limiter_line::{key, ok, steady};

const TASKS: u64 = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_is_lost_and_no_slot_leaks() {
    let mut config = steady(50_000.0);
    config.limits.in_flight = 2;
    let limiter = Limiter::builder().config(config).build().unwrap();
    let hosts: Arc<[Key]> = (0..4).map(|i| key(&format!("h{i}.example"))).collect();
    let under_way: Arc<[AtomicUsize]> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let served = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, hosts) = (limiter.clone(), Arc::clone(&hosts));
        let (under_way, served) = (Arc::clone(&under_way), Arc::clone(&served));
        tasks.spawn(async move {
            let mut rng = Rng::new(task);
            for _ in 0..100 {
                let which = (rng.next_u64() % 4) as usize;
                let acquired = limiter.acquire(&hosts[which]);
                let patience = Duration::from_micros(rng.next_u64() % 2_000);
                let permit = if rng.next_u64().is_multiple_of(4) {
                    match tokio::time::timeout(patience, acquired).await {
                        Ok(permit) => permit.unwrap(),
                        Err(_) => continue,
                    }
                } else {
                    acquired.await.unwrap()
                };
                assert!(under_way[which].fetch_add(1, Ordering::SeqCst) < 2, "P2");
                tokio::task::yield_now().await;
                under_way[which].fetch_sub(1, Ordering::SeqCst);
                served.fetch_add(1, Ordering::Relaxed);
                if rng.next_u64().is_multiple_of(8) {
                    drop(permit);
                } else {
                    permit.report(&ok());
                }
            }
        });
    }
    // If a wake-up were lost, the remaining tasks would wait for ever.
    let all = tokio::time::timeout(Duration::from_mins(2), tasks.join_all());
    all.await.expect("nobody waits for good");
    let stats = limiter.stats();
    assert_eq!(stats.granted, stats.reported + stats.cancelled);
    assert_eq!((stats.waiting, stats.late), (0, 0));
    assert!(served.load(Ordering::Relaxed) > 0);
    for host in hosts.iter() {
        assert_eq!(limiter.explain(host).unwrap().tally.live, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_bound_holds_with_newcomers_from_all_sides() {
    let limiter = Limiter::builder()
        .config(steady(1e6))
        .capacity(16)
        .build()
        .unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..8_u64 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut rng = Rng::new(task);
            for _ in 0..2_000 {
                let key = key(&format!("h{}.example", rng.next_u64() % 200));
                if let Ok(permit) = limiter.try_acquire(&key) {
                    permit.report(&ok());
                }
            }
        });
    }
    let watch = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            for _ in 0..200 {
                let keys = limiter.stats().keys;
                assert!(keys <= 16, "{keys} keys of 16");
                tokio::task::yield_now().await;
            }
        }
    });
    tasks.join_all().await;
    watch.await.unwrap();
    assert_eq!(
        limiter.stats().keys,
        limiter.keys().len() as u64,
        "the counter does not drift"
    );
    assert!(limiter.keys().len() <= 16);
}
