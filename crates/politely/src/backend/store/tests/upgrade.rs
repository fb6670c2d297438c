//! Nodes of several versions share keys during an upgrade.

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;

use super::{key, memory, ok, process};
use crate::sync::sleep;
use politely_store::{Engine, Memory, Version, Write, Written, cell_name};

async fn value(memory: &Memory) -> Vec<u8> {
    let cells = vec![cell_name(&key())];
    memory.read(cells).await.remove(0).unwrap().unwrap()
}

/// Writes what `change` makes of the cell, as a later version would.
pub(super) async fn write(memory: &Memory, change: impl FnOnce(&mut Vec<u8>)) {
    let mut value = value(memory).await;
    let expected = Version::of(&value);
    value[0] ^= 0xff;
    change(&mut value);
    let write = Write {
        cell: cell_name(&key()),
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
    assert!(limiter.flush(Duration::from_secs(1)).await);
    write(&memory, |value| value.extend(b"and more")).await;
    for _ in 0..3 {
        limiter.acquire(&key()).await.unwrap().report(&ok());
        assert!(limiter.flush(Duration::from_secs(1)).await);
    }
    assert!(value(&memory).await.ends_with(b"and more"));
    assert_eq!(limiter.explain(&key()).unwrap().tally.reported, 4);
}

/// The cell is not overwritten, nothing is granted, and all goes on once it can be decoded.
#[tokio::test(start_paused = true)]
async fn a_cell_of_another_layout_is_left_alone() {
    let memory = memory();
    let limiter = process(&memory, Config::fixed(1.0, 1.0));
    sleep(Duration::from_secs(5)).await;
    limiter.acquire(&key()).await.unwrap().report(&ok());
    assert!(limiter.flush(Duration::from_secs(1)).await);
    write(&memory, |value| value[Version::LEN] = 77).await;
    let theirs = value(&memory).await;
    let waits = Arc::new(limiter.clone());
    let waiting = tokio::spawn(async move { waits.acquire(&key()).await.unwrap().report(&ok()) });
    sleep(Duration::from_mins(1)).await;
    assert!(!waiting.is_finished());
    assert_eq!(value(&memory).await, theirs);
    let why = limiter.explain(&key()).unwrap().wait.unwrap();
    assert_eq!(why.reason, politely_core::host::Reason::Unreadable);
    write(&memory, |value| value[Version::LEN] = 1).await;
    waiting.await.unwrap();
}

/// The value is too short for a version. It was there before, or came after a read found nothing.
#[tokio::test(start_paused = true)]
async fn a_cell_of_somebody_else_is_left_alone() {
    for found_nothing in [false, true] {
        let memory = memory();
        let limiter = process(&memory, Config::fixed(1.0, 1.0));
        // A new epoch is quiet for a second. A caller reads and waits meanwhile.
        let quiet = Duration::from_millis(if found_nothing { 500 } else { 5_000 });
        let asking = limiter.clone();
        let waiting = tokio::spawn(async move {
            sleep(quiet.saturating_sub(Duration::from_millis(400))).await;
            asking.acquire(&key()).await.unwrap().report(&ok());
        });
        sleep(if found_nothing { quiet } else { Duration::ZERO }).await;
        let write = Write {
            cell: cell_name(&key()),
            expected: None,
            before: None,
            value: b"junk".to_vec(),
            keep: Duration::from_hours(1),
            notify: false,
        };
        let written = memory.compare_and_set(vec![write]).await.remove(0);
        assert_eq!(written, Ok(Written::Done));
        sleep(Duration::from_mins(1)).await;
        assert!(!waiting.is_finished(), "{found_nothing}");
        assert_eq!(value(&memory).await, b"junk");
        let why = limiter.explain(&key()).unwrap().wait.unwrap();
        assert_eq!(why.reason, politely_core::host::Reason::Unreadable);
        assert!(limiter.commits().unwrap().conflicts < 3, "{found_nothing}");
    }
}
