//! Coordinators of several versions share keys while they are upgraded one by one.

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;

use super::{key, memory, ok, process};
use crate::cells::{Engine, Memory, Version, Write, Written};
use crate::shared::hub;
use crate::sync::sleep;

async fn value(memory: &Memory) -> Vec<u8> {
    let cells = vec![hub::name(&key())];
    memory.read(cells).await.remove(0).unwrap().unwrap()
}

/// Somebody of a later version writes what `change` makes of the cell.
async fn write(memory: &Memory, change: impl FnOnce(&mut Vec<u8>)) {
    let mut value = value(memory).await;
    let expected = Version::of(&value);
    value[0] ^= 0xff;
    change(&mut value);
    let write = Write {
        cell: hub::name(&key()),
        expected,
        before: None,
        value,
        keep: Duration::from_hours(1),
        notify: false,
    };
    let written = memory.compare_and_set(vec![write]).await.remove(0);
    assert_eq!(written, Ok(Written::Done));
}

#[tokio::test(start_paused = true)]
async fn what_a_later_version_adds_is_carried_along() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(1.0, 1.0));
    sleep(Duration::from_secs(5)).await;
    limiter.acquire(&key()).await.unwrap().report(&ok());
    assert!(limiter.settled(Duration::from_secs(1)).await);
    write(&memory, |value| value.extend(b"and more")).await;
    for _ in 0..3 {
        limiter.acquire(&key()).await.unwrap().report(&ok());
        assert!(limiter.settled(Duration::from_secs(1)).await);
    }
    assert!(value(&memory).await.ends_with(b"and more"));
    assert_eq!(limiter.explain(&key()).unwrap().tally.reported, 4);
}

/// It is not overwritten, nobody is let through, and once it can be read again all goes on.
#[tokio::test(start_paused = true)]
async fn a_cell_of_another_layout_is_left_alone() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(1.0, 1.0));
    sleep(Duration::from_secs(5)).await;
    limiter.acquire(&key()).await.unwrap().report(&ok());
    assert!(limiter.settled(Duration::from_secs(1)).await);
    write(&memory, |value| value[Version::LEN] = 77).await;
    let theirs = value(&memory).await;
    let waits = Arc::new(limiter.clone());
    let waiting = tokio::spawn(async move { waits.acquire(&key()).await.unwrap().report(&ok()) });
    sleep(Duration::from_mins(1)).await;
    assert!(!waiting.is_finished());
    assert_eq!(value(&memory).await, theirs);
    let why = limiter.explain(&key()).unwrap().wait.unwrap();
    assert_eq!(why.reason, politely_core::host::Reason::Away);
    write(&memory, |value| value[Version::LEN] = 1).await;
    waiting.await.unwrap();
}
