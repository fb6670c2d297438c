//! Tests of the bounds of sessions and locks.

use politely_api::wire::{ClaimLock, LockAnswer, LockMode, ReleaseLock, SESSION_LOCKS_MAX};

use super::*;
use crate::coordinator::SessionError;

fn claim(session: &str, number: usize) -> ClaimLock {
    ClaimLock {
        session: session.to_owned(),
        key: format!("h{number}.example"),
        max: 1,
        mode: LockMode::Exclusive,
        wait_ms: 0,
        id: None,
    }
}

/// Keys with locks are not evicted, and the lock that has no room ends nothing.
#[tokio::test(start_paused = true)]
async fn a_session_and_a_coordinator_have_room_for_so_many_locks() {
    let settings = Settings {
        clock: Clock::tokio(),
        capacity: 2 * SESSION_LOCKS_MAX + 10,
        ..Settings::default()
    };
    let coordinator = Coordinator::new(settings).unwrap();
    let worker = coordinator.worker("w");
    let mut numbers = 0..;
    for session in 0..3 {
        let opened = coordinator.open_session(&worker, 3_600_000).await.unwrap();
        let mut held = 0;
        let capped = loop {
            let claim = claim(&opened.session, numbers.next().unwrap());
            match coordinator.lock(&claim, |_| true).await {
                Ok(LockAnswer::Held { .. }) => held += 1,
                Err(SessionError::Capped(why)) => break why,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(capped.lines().count(), 1, "{capped}");
        if session < 2 {
            assert_eq!(held, SESSION_LOCKS_MAX);
            assert!(capped.contains("open another session"), "{capped}");
        } else {
            assert!(held <= 10, "the coordinator has no room for {held} locks");
        }
        let state = coordinator
            .renew_session(&opened.session, |_| true)
            .await
            .unwrap();
        assert_eq!((state.locks.len(), state.lost.len()), (held, 0));
        // A released lock makes room for another.
        let first = state.locks[0].clone();
        let release = ReleaseLock {
            session: opened.session.clone(),
            key: first.key.clone(),
            fencing: Some(first.fencing),
        };
        coordinator.release(&release, |_| true).await.unwrap();
        let again = ClaimLock {
            key: first.key,
            ..claim(&opened.session, 0)
        };
        coordinator.lock(&again, |_| true).await.unwrap();
    }
}
