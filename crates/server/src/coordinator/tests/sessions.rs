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

fn release(session: &str, number: usize) -> ReleaseLock {
    ReleaseLock {
        session: session.to_owned(),
        key: format!("h{number}.example"),
        fencing: None,
    }
}

/// Makes each call that names a session at `coordinators` in turn, with `pause` between them.
/// After each, every claim of the session lasts for its whole time-out from before the call.
async fn renew_by_each_call(coordinators: &[Coordinator], ttl: Duration, pause: Duration) {
    let worker = coordinators[0].worker("w");
    let opened = coordinators[0].open_session(&worker, ttl.as_millis() as u32);
    let session = opened.await.unwrap().session;
    let again = ClaimLock {
        id: Some("1".to_owned()),
        ..claim(&session, 0)
    };
    for call in 0..20 {
        tokio::time::sleep(pause).await;
        let at = &coordinators[call % coordinators.len()];
        let sent = at.0.limiter.lock_time();
        match call / 2 % 5 {
            0 => assert!(matches!(
                at.lock(&again, |_| true).await.unwrap(),
                LockAnswer::Held { .. }
            )),
            1 => _ = at.lock(&claim(&session, 1), |_| true).await,
            2 => at.use_session(&session, |_| true).await.unwrap(),
            3 => _ = at.release(&release(&session, 1), |_| true).await.unwrap(),
            _ => _ = at.renew_session(&session, |_| true).await.unwrap(),
        }
        for one in coordinators {
            for number in 0..2 {
                let key = Key::parse(&format!("h{number}.example")).unwrap();
                let _ = one.refresh(&key).await;
                let view = one.0.limiter.locks(&key);
                for claim in view.iter().flat_map(|view| view.locks.claims()) {
                    let lasts = claim.ends.since(sent);
                    assert!(lasts >= ttl, "call {call}, {key}: {lasts:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_that_names_a_session_leaves_its_claims_the_whole_time_out() {
    for pause_ms in [1, 900, 2_900, 4_100, 9_990] {
        let settings = Settings {
            clock: Clock::tokio(),
            ..Settings::default()
        };
        let coordinator = Coordinator::new(settings).unwrap();
        let pause = Duration::from_millis(pause_ms);
        renew_by_each_call(&[coordinator], Duration::from_secs(10), pause).await;
    }
}

/// It runs in real time, because the engine's thread has its own clock.
#[tokio::test(flavor = "multi_thread")]
async fn calls_at_two_coordinators_leave_a_session_its_whole_time_out() {
    let town = shared::Town::new();
    let two = [town.coordinator().await, town.coordinator().await];
    renew_by_each_call(&two, Duration::from_secs(4), Duration::from_millis(300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_silent_worker_ends_a_third_after_its_time_out_at_the_latest() {
    let settings = Settings {
        clock: Clock::tokio(),
        ..Settings::default()
    };
    let coordinator = Coordinator::new(settings).unwrap();
    let worker = coordinator.worker("w");
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let opened = coordinator.open_session(&worker, 9_000).await.unwrap();
        sessions.push(opened.session);
    }
    coordinator
        .lock(&claim(&sessions[0], 0), |_| true)
        .await
        .unwrap();
    let waits = ClaimLock {
        wait_ms: 60_000,
        ..claim(&sessions[1], 0)
    };
    let began = tokio::time::Instant::now();
    let held = coordinator.lock(&waits, |_| true).await.unwrap();
    assert!(matches!(held, LockAnswer::Held { .. }), "{held:?}");
    let waited = began.elapsed();
    let at_most = Duration::from_millis(12_100);
    assert!(
        (Duration::from_secs(9)..at_most).contains(&waited),
        "{waited:?}"
    );
}

/// Returns the number of events in the log that contain `text`.
fn count_events(coordinator: &Coordinator, text: &str) -> usize {
    let count = std::cell::Cell::new(0);
    coordinator.watch().events().has(|event| {
        count.set(count.get() + usize::from(event.text.contains(text)));
        false
    });
    count.get()
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_found_held_has_one_event_however_often_its_call_is_repeated() {
    let settings = Settings {
        clock: Clock::tokio(),
        ..Settings::default()
    };
    let coordinator = Coordinator::new(settings).unwrap();
    let worker = coordinator.worker("w");
    let first = coordinator.open_session(&worker, 60_000).await.unwrap();
    let second = coordinator.open_session(&worker, 60_000).await.unwrap();
    let lock = async |claim: &ClaimLock| coordinator.lock(claim, |_| true).await.unwrap();
    lock(&claim(&first.session, 0)).await;
    let repeated = ClaimLock {
        id: Some("1".to_owned()),
        ..claim(&second.session, 0)
    };
    assert!(matches!(lock(&repeated).await, LockAnswer::Wait { .. }));
    // The second session gets the lock between two of its calls.
    let ended = coordinator.close_session(&first.session, |_| true).await;
    ended.unwrap();
    for _ in 0..3 {
        let LockAnswer::Held { fencing, .. } = lock(&repeated).await else {
            panic!("the key is free");
        };
        let text = format!("held by w, fencing number {fencing}");
        assert_eq!(count_events(&coordinator, &text), 1);
    }
    // A release whose answer was lost has its event with the next call.
    let key = Key::parse("h0.example").unwrap();
    let id = crate::coordinator::sessions::parse(&second.session).unwrap();
    coordinator.0.limiter.release_lock(&key, id).await.unwrap();
    for _ in 0..2 {
        let release = release(&second.session, 0);
        coordinator.release(&release, |_| true).await.unwrap();
    }
    assert_eq!(
        count_events(&coordinator, "released"),
        2,
        "one of each session"
    );
}
