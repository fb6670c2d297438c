//! Very many callers wait for one key in several processes.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_store::NodeId;
use politely_store::testing::Record;

use super::upgrade::write;
use super::{key, memory, ok, process};
use crate::clock::Clock;
use crate::limiter::Limiter;
use crate::sync::sleep;

const COORDINATORS: usize = 4;
const WAITERS: usize = 10_000;

/// No caller starves, order is kept within a process, all processes advance alike, and a permit
/// costs little more than one call of the engine.
#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_for_one_permit_a_second() {
    let memory = memory();
    let limiters = [(); COORDINATORS].map(|()| process(&memory, Config::fixed(1.0, 1.0)));
    sleep(Duration::from_secs(5)).await;
    let clock = Clock::tokio();
    let began = clock.now();
    let (tell, mut left) = tokio::sync::mpsc::unbounded_channel();
    for place in 0..WAITERS / COORDINATORS {
        for (who, limiter) in limiters.iter().enumerate() {
            let (limiter, tell, clock) = (limiter.clone(), tell.clone(), clock.clone());
            tokio::spawn(async move {
                let permit = limiter.acquire(&key()).await.unwrap();
                let _ = tell.send((clock.now(), who, place));
                permit.report(&ok());
            });
        }
    }
    drop(tell);
    let mut last = [None; COORDINATORS];
    let mut served = [0; COORDINATORS];
    let mut previous = None;
    while let Some((at, who, place)) = left.recv().await {
        assert!(last[who] < Some(place), "{place} after {:?}", last[who]);
        last[who] = Some(place);
        served[who] += 1;
        let most = served.iter().max().unwrap();
        let least = served.iter().min().unwrap();
        assert!(most - least <= 8, "{served:?}");
        if let Some(before) = previous.replace(at) {
            let gap = at.since(before);
            assert!(gap >= Duration::from_millis(998), "{gap:?}");
        }
    }
    assert_eq!(served.iter().sum::<usize>(), WAITERS);
    let took = clock.now().since(began);
    assert!(took <= Duration::from_secs(WAITERS as u64 + 10), "{took:?}");
    let commits = limiters.iter().filter_map(Limiter::commits);
    let operations: u64 = commits.map(|c| c.commits + c.conflicts + c.reads).sum();
    let each = operations as f64 / WAITERS as f64;
    assert!(each <= 1.5, "{each} engine operations a permit");
}

/// Returns how long a permit takes behind this many nodes that are gone.
async fn waits_behind(others: u32, config: &Config) -> Duration {
    let (memory, clock) = (memory(), Clock::tokio());
    let limiter = process(&memory, config.clone());
    sleep(Duration::from_secs(5)).await;
    limiter.acquire(&key()).await.unwrap().report(&ok());
    assert!(limiter.flush(Duration::from_secs(1)).await);
    write(&memory, |value| {
        let (mut cell, _) = Record::decode(value, Timestamp::ZERO, config).unwrap();
        cell.head.line.extend((0..others).map(|n| NodeId(7 + n)));
        *value = cell.encode(NodeId(7), 1);
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    let began = clock.now();
    limiter.acquire(&key()).await.unwrap().report(&ok());
    clock.now().since(began)
}

/// Regression: a process waited a quarter of a second for each node in line. When one was killed
/// every sixth of a second, two hosts of sixteen were not asked for ten minutes.
#[tokio::test(start_paused = true)]
async fn a_line_of_the_dead_is_waited_for_no_longer_than_four() {
    let waited = waits_behind(200, &Config::fixed(1.0, 1.0)).await;
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
}

/// Regression: the second caller of an open key wrote once to join the queue and once to be
/// served. Each write sent a notice.
#[tokio::test(start_paused = true)]
async fn nobody_stands_in_line_where_there_is_plenty() {
    let mut plenty = Config::fixed(1_000.0, 100.0);
    plenty.limits.in_flight = 100;
    for (config, at_once) in [(plenty, true), (Config::fixed(1.0, 1.0), false)] {
        let waited = waits_behind(1, &config).await;
        assert_eq!(waited < Duration::from_millis(200), at_once, "{waited:?}");
    }
}
