//! Tests of a worker without a coordinator, in virtual time.

use std::time::Duration;

use politely_api::client::CallError;
use politely_api::wire::{Answer, Exchanged, Grant, KeyLimit, WorkerShare};
use politely_core::Timestamp;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};
use tokio::sync::oneshot;

use super::super::call::{Call, Reply};
use super::super::outcome::outcome_of;
use super::super::permit_guard::Granted;
use super::{OnUnavailable, Session, Step};
use crate::error::AcquireError;

const START: Timestamp = Timestamp::from_micros(1_000_000_000);
/// The rate of the key, in requests per second.
const RATE: f64 = 4.0;

fn after(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn key() -> Key {
    Key::host("a.example").unwrap()
}

fn session(on_unavailable: OnUnavailable) -> Session {
    Session::new("w".to_owned(), 7).going_on(on_unavailable)
}

type Comes = oneshot::Receiver<Result<super::super::permit_guard::CoordinatorGuard, AcquireError>>;

fn ask(session: &mut Session, keys: &[Key]) -> Result<Comes, AcquireError> {
    let (answer, comes) = oneshot::channel();
    session.acquire(keys, AcquireRequest::default(), None, answer)?;
    Ok(comes)
}

/// Answers the next call with one grant, as a coordinator with two workers that allows a minute.
fn grant(session: &mut Session, limit: Option<KeyLimit>) -> Granted {
    let Step::Call(sent) = session.next(START) else {
        panic!("a call is due")
    };
    let granted = Answer::Granted(Grant {
        permit: "p".to_owned(),
        lease_ms: 10_000,
        slots: 1,
        limit,
        ..Grant::default()
    });
    let reply = Reply::Exchanged(Exchanged {
        acquire: vec![granted],
        share: Some(WorkerShare {
            workers: 2,
            place: 1,
            clock_us: 5_000_000,
            lasts_ms: 60_000,
        }),
        ..Exchanged::default()
    });
    let mut deliveries = session.answered(sent, Ok(reply), START);
    deliveries.pop().unwrap().1.unwrap()
}

const LIMIT: KeyLimit = KeyLimit {
    rate: RATE,
    in_flight: 1_000,
};

/// Lets each call fail until `until_ms`, and returns what leaves meanwhile, with its time.
fn left_until(session: &mut Session, from_ms: u64, until_ms: u64) -> Vec<(u64, Granted)> {
    let mut left = Vec::new();
    for ms in from_ms..until_ms {
        for (_, result) in session.go_on(after(ms)) {
            left.push((ms, result.unwrap()));
        }
        if let Step::Call(sent) = session.next(after(ms)) {
            let gone = Err(CallError::Unavailable("connection refused".to_owned()));
            session.answered(sent, gone, after(ms));
        }
    }
    left
}

#[test]
fn a_worker_goes_on_with_its_turns_from_three_seconds_after_the_loss_until_its_time_is_over() {
    let mut session = session(OnUnavailable::Share);
    let first = ask(&mut session, &[key()]).unwrap();
    drop(grant(&mut session, Some(LIMIT)));
    drop(first);
    let _comes: Vec<Comes> = (0..200)
        .map(|_| ask(&mut session, &[key()]).unwrap())
        .collect();
    let left: Vec<u64> = left_until(&mut session, 1, 70_000)
        .iter()
        .map(|(ms, _)| *ms)
        .collect();
    // Turns of the second of two places at 4/s: a quarter and three quarters of a second.
    assert_eq!(left.first(), Some(&3_250), "{left:?}");
    assert!(
        left.windows(2).all(|pair| pair[1] - pair[0] == 500),
        "{left:?}"
    );
    assert!((59_000..60_000).contains(left.last().unwrap()), "{left:?}");
}

#[test]
fn a_worker_has_its_share_of_the_cap_in_flight() {
    let mut session = session(OnUnavailable::Share);
    let first = ask(&mut session, &[key()]).unwrap();
    let limit = KeyLimit {
        in_flight: 3,
        ..LIMIT
    };
    let held = grant(&mut session, Some(limit));
    let _comes: Vec<Comes> = (0..9)
        .map(|_| ask(&mut session, &[key()]).unwrap())
        .collect();
    // The share of the second of two places is one slot of three.
    assert_eq!(left_until(&mut session, 1, 10_000).len(), 0);
    drop((first, held));
    for from_ms in [10_000, 12_000] {
        let kept = left_until(&mut session, from_ms, from_ms + 2_000);
        assert_eq!(kept.len(), 1, "one slot at {from_ms} ms");
    }
}

#[test]
fn a_key_without_a_limit_and_a_request_of_two_keys_wait() {
    for (limit, keys) in [
        (None, vec![key()]),
        (Some(LIMIT), vec![Key::host("b.example").unwrap()]),
        (Some(LIMIT), vec![key(), Key::host("b.example").unwrap()]),
    ] {
        let mut session = session(OnUnavailable::Share);
        let _first = ask(&mut session, &[key()]).unwrap();
        drop(grant(&mut session, limit));
        let _comes = ask(&mut session, &keys).unwrap();
        assert_eq!(left_until(&mut session, 1, 20_000).len(), 0, "{keys:?}");
    }
}

#[test]
fn a_refusal_ends_the_share_of_its_key_and_a_wait_is_kept() {
    for (wait, expected) in [(None, 0), (Some(Duration::from_secs(8)), 4)] {
        let mut session = session(OnUnavailable::Share);
        let _first = ask(&mut session, &[key()]).unwrap();
        drop(grant(&mut session, Some(LIMIT)));
        let _comes: Vec<Comes> = (0..99)
            .map(|_| ask(&mut session, &[key()]).unwrap())
            .collect();
        let left = left_until(&mut session, 1, 4_000);
        let (ms, granted) = left.into_iter().next_back().unwrap();
        let report = Report {
            retry_after: wait,
            ..Report::of(Signal::RateLimited)
        };
        let outcome = outcome_of(&granted.permit, &report, false);
        session.report(&key(), outcome, &report, after(ms));
        drop(granted);
        let later: Vec<u64> = left_until(&mut session, 4_000, 13_700)
            .iter()
            .map(|(ms, _)| *ms)
            .collect();
        assert_eq!(later.len(), expected, "{later:?}");
        assert!(
            later.iter().all(|at| *at >= ms + 8_000),
            "{later:?} after {ms}"
        );
    }
}

#[test]
fn what_left_on_the_share_is_reported_with_its_request() {
    let mut session = session(OnUnavailable::Share);
    let _first = ask(&mut session, &[key()]).unwrap();
    drop(grant(&mut session, Some(LIMIT)));
    let _comes = ask(&mut session, &[key()]).unwrap();
    let (ms, mut granted) = left_until(&mut session, 1, 4_000).pop().unwrap();
    session.let_lapse(&mut granted, true);
    let mut now = ms + 1;
    let reported = loop {
        now += 1;
        match session.next(after(now)) {
            Step::Call(sent) => match &sent.call {
                Call::Exchange(call, _) if !call.report.is_empty() => break call.report.clone(),
                _ => drop(session.answered(sent, Ok(Reply::Done), after(now))),
            },
            Step::Wait(_) => {}
        }
    };
    let item = reported[0].sent.clone().unwrap();
    assert_eq!(item.key.as_deref(), Some(key().as_str()));
    assert!(reported[0].status.is_none() && !reported[0].permit.is_empty());
}

#[test]
fn a_worker_that_does_not_wait_fails_at_once() {
    let mut session = session(OnUnavailable::Stop);
    let _comes = ask(&mut session, &[key()]).unwrap();
    let Step::Call(sent) = session.next(START) else {
        panic!("a call is due")
    };
    let gone = Err(CallError::Unavailable("connection refused".to_owned()));
    let failed = session.answered(sent, gone, START).pop().unwrap().1;
    assert!(matches!(failed, Err(AcquireError::Unavailable(why)) if why.contains("refused")));
    assert!(matches!(
        ask(&mut session, &[key()]),
        Err(AcquireError::Unavailable(_))
    ));
    // A call finds out that a coordinator answers again.
    let Step::Call(sent) = session.next(after(1_100)) else {
        panic!("a call is due")
    };
    session.answered(
        sent,
        Ok(Reply::Exchanged(Exchanged::default())),
        after(1_100),
    );
    assert!(ask(&mut session, &[key()]).is_ok());
}
