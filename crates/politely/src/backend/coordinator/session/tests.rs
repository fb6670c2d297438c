use std::time::Duration;

use politely_api::client::CallError;
use politely_api::wire::{
    Answer, Exchange, Exchanged, Grant, Item, KeyPatch, RefusedCode, Renewed, RenewedPermit, Want,
};
use politely_core::Timestamp;
use politely_core::host::{AcquireRequest, CrawlDelay};
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};
use tokio::sync::oneshot;

use super::super::call::{Call, Kind, Reply, Sent};
use super::super::outcome::outcome_of;
use super::super::permit_guard::Granted;
use super::{Session, Step};
use crate::error::{AcquireError, RefusalReason};

const START: Timestamp = Timestamp::from_micros(1_000_000_000);

fn session() -> Session {
    Session::new("w".to_owned(), 7)
}

fn after(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn key(host: usize) -> Key {
    Key::host(&format!("h{host}.example")).unwrap()
}

type Comes = oneshot::Receiver<Result<super::super::permit_guard::CoordinatorGuard, AcquireError>>;

fn ask(session: &mut Session, host: usize) -> Comes {
    let (answer, comes) = oneshot::channel();
    session
        .acquire(&[key(host)], AcquireRequest::default(), None, answer)
        .unwrap();
    comes
}

fn report(session: &mut Session, permit: &str) {
    let report = Report::of(Signal::Ok);
    let outcome = outcome_of(permit, &report, false);
    session.report(&key(0), outcome, &report, START);
}

/// Returns the next call at `now`, or the time of the next look.
fn call(session: &mut Session, now: Timestamp) -> Result<Sent, Timestamp> {
    match session.next(now) {
        Step::Call(sent) => Ok(sent),
        Step::Wait(at) => Err(at),
    }
}

fn exchange(sent: &Sent) -> &Exchange {
    match &sent.call {
        Call::Exchange(call, _) => call,
        other => panic!("{other:?}"),
    }
}

fn ids(sent: &Sent) -> Vec<String> {
    let items = exchange(sent).acquire.iter();
    items.map(|item| item.id.clone().unwrap()).collect()
}

/// Returns the index of a host's item in a call. Hosts come in no order.
fn place(sent: &Sent, host: usize) -> u32 {
    let named = Some(key(host).as_str().to_owned());
    let mut items = exchange(sent).acquire.iter();
    let at = items.position(|item| item.key == named);
    u32::try_from(at.unwrap()).unwrap()
}

fn granted(item: u32, permit: &str) -> Answer {
    Answer::Granted(Grant {
        item,
        permit: permit.to_owned(),
        valid_for_ms: 50,
        lease_ms: 10_000,
        slots: 1,
        ..Grant::default()
    })
}

#[expect(clippy::unnecessary_wraps, reason = "what a transport returns")]
fn says(answers: Vec<Answer>) -> Result<Reply, CallError> {
    Ok(Reply::Exchanged(Exchanged {
        acquire: answers,
        ..Exchanged::default()
    }))
}

fn unauthorized() -> CallError {
    CallError::Rejected {
        status: http::StatusCode::UNAUTHORIZED,
        detail: None,
    }
}

fn away() -> Result<Reply, CallError> {
    Err(CallError::Unavailable("connection refused".to_owned()))
}

#[test]
fn callers_of_many_hosts_share_a_call() {
    let mut session = session();
    let mut comes: Vec<_> = (0..100).map(|i| ask(&mut session, i)).collect();
    let sent = call(&mut session, START).unwrap();
    assert_eq!(exchange(&sent).acquire.len(), 100);
    assert_eq!(
        (exchange(&sent).want, sent.kind),
        (Want::Any(100), Kind::Poll)
    );
    // Two are served. The others are sent once more, in one call and with the same ids.
    let ids_before = ids(&sent);
    let [third, seventh] = [3, 7].map(|host| place(&sent, host));
    let answers = vec![granted(third, "a"), granted(seventh, "b")];
    let served: Vec<_> = session
        .answered(sent, says(answers), after(5))
        .into_iter()
        .map(|(_, result)| result.unwrap().permit)
        .collect();
    assert_eq!(served, ["a", "b"]);
    comes.truncate(90);
    let sent = call(&mut session, after(6)).unwrap();
    let again = ids(&sent);
    assert_eq!(again.len(), 88, "who gave up is not asked for");
    assert!(again.iter().all(|id| ids_before.contains(id)));
    assert!(
        call(&mut session, after(20)).is_err(),
        "nobody is left to be asked for"
    );
}

#[test]
fn reports_ride_with_whoever_is_asked_for() {
    let mut session = session();
    let _comes: Vec<_> = (0..50).map(|i| ask(&mut session, i)).collect();
    for i in 0..50 {
        report(&mut session, &format!("{i}"));
    }
    let sent = call(&mut session, START).unwrap();
    assert_eq!(
        (exchange(&sent).report.len(), exchange(&sent).acquire.len()),
        (50, 50)
    );
    assert_eq!(
        (exchange(&sent).wait_ms, exchange(&sent).want),
        (0, Want::Any(50))
    );
    // Reports that come meanwhile wait for this call's answer, and then share one call.
    for i in 50..70 {
        report(&mut session, &format!("{i}"));
        assert!(call(&mut session, after(i)).is_err());
    }
    assert!(!session.is_idle());
    session.answered(sent, says(vec![]), after(100));
    let sent = call(&mut session, after(101)).unwrap();
    assert_eq!(exchange(&sent).report.len(), 20);
    session.answered(sent, says(vec![]), after(102));
    assert!(session.is_idle());
}

#[test]
fn one_crowded_host_does_not_fill_the_calls() {
    let mut session = session();
    let _crowd: Vec<_> = (0..1_000).map(|_| ask(&mut session, 0)).collect();
    let _one = ask(&mut session, 1);
    let sent = call(&mut session, START).unwrap();
    assert_eq!(exchange(&sent).acquire.len(), 33);
    assert!(
        call(&mut session, after(10)).is_err(),
        "the first of the line are asked for"
    );
}

#[test]
fn without_an_answer_everything_is_sent_again_in_one_call_at_a_time() {
    let mut session = session();
    let _comes: Vec<_> = (0..3).map(|i| ask(&mut session, i)).collect();
    for permit in ["a", "b", "c"] {
        report(&mut session, permit);
    }
    let sent = call(&mut session, START).unwrap();
    let (mut before, mut now) = (ids(&sent), START);
    before.sort();
    session.answered(sent, away(), now);
    report(&mut session, "d");
    for _ in 0..20 {
        // The pause has full jitter and is at most a second, so the coordinator's return is noticed
        // soon.
        let sent = match call(&mut session, now) {
            Ok(sent) => sent,
            Err(at) => {
                assert!(at.since(now) <= Duration::from_secs(1), "{at:?}");
                now = at;
                call(&mut session, now).unwrap()
            }
        };
        assert!(matches!(
            session.next(now + Duration::from_mins(1)),
            Step::Wait(_)
        ));
        let permits: Vec<_> = exchange(&sent)
            .report
            .iter()
            .map(|outcome| &*outcome.permit)
            .collect();
        assert_eq!(permits, ["a", "b", "c", "d"]);
        let mut again = ids(&sent);
        again.sort();
        assert_eq!(again, before);
        assert_eq!(exchange(&sent).wait_ms, 0, "a probe is answered at once");
        assert_eq!(session.last_error().as_deref(), Some("connection refused"));
        session.answered(sent, away(), now);
    }
    now = now + Duration::from_secs(1);
    let sent = call(&mut session, now).unwrap();
    session.answered(sent, says(vec![]), now);
    assert_eq!(session.last_error(), None);
    let sent = call(&mut session, now + Duration::from_millis(1)).unwrap();
    assert_eq!(sent.kind, Kind::Poll, "the calls are held open again");
}

#[test]
fn a_busy_coordinator_says_when_to_come_again() {
    let mut session = session();
    let _comes = ask(&mut session, 0);
    let sent = call(&mut session, START).unwrap();
    let busy = CallError::Busy {
        retry_after: Duration::from_secs(3),
        detail: "overloaded".to_owned(),
    };
    session.answered(sent, Err(busy), START);
    let at = call(&mut session, after(2_900)).unwrap_err();
    assert!((after(3_000)..=after(4_500)).contains(&at));
    assert!(call(&mut session, at).is_ok());
}

#[test]
fn a_coordinator_that_refuses_is_no_reason_to_wait() {
    let mut session = session();
    let _comes = ask(&mut session, 0);
    let sent = call(&mut session, START).unwrap();
    let deliveries = session.answered(sent, Err(unauthorized()), START);
    let why = deliveries
        .into_iter()
        .map(|(_, result)| result.unwrap_err());
    assert_eq!(
        why.collect::<Vec<_>>(),
        [AcquireError::Coordinator(unauthorized().to_string())]
    );
}

/// Regression: `fetch` without a label that a rule needs waited without a word.
#[test]
fn a_refused_item_is_the_last_error_until_the_next_answer() {
    let mut session = session();
    let _comes = ask(&mut session, 0);
    let sent = call(&mut session, START).unwrap();
    let error = politely_api::wire::Error {
        field: "labels".to_owned(),
        detail: "the rule needs token_name".to_owned(),
    };
    let wrong = Answer::Error { item: 0, error };
    let mut deliveries = session.answered(sent, says(vec![wrong]), START);
    let why = "labels: the rule needs token_name";
    assert_eq!(
        deliveries.pop().unwrap().1.unwrap_err(),
        AcquireError::Coordinator(why.to_owned())
    );
    let told = session.last_error();
    assert!(told.is_some_and(|told| told.ends_with(why)));
    let _comes = ask(&mut session, 1);
    let sent = call(&mut session, after(300)).unwrap();
    session.answered(sent, says(Vec::new()), after(300));
    assert_eq!(session.last_error(), None);
}

#[test]
fn what_the_coordinator_says_of_an_item_is_what_the_caller_hears() {
    let refused = |code: RefusedCode| Answer::Refused {
        item: 0,
        code,
        reason: "parked, Retry-After".to_owned(),
        retry_in_ms: Some(7_000),
    };
    let cases = [
        (
            RefusedCode::Parked,
            AcquireError::Parked(key(0), Duration::from_secs(7)),
        ),
        (RefusedCode::Full, AcquireError::Full),
        (RefusedCode::QueueFull, AcquireError::QueueFull(key(0))),
    ];
    for (said, heard) in cases {
        let mut session = session();
        let _comes = ask(&mut session, 0);
        let sent = call(&mut session, START).unwrap();
        let mut deliveries = session.answered(sent, says(vec![refused(said)]), START);
        assert_eq!(deliveries.pop().unwrap().1.unwrap_err(), heard);
    }
    // The request is sent again if the coordinator is shutting down or has used up the id.
    for said in [RefusedCode::Closing, RefusedCode::IdUsed] {
        let mut session = session();
        let _comes = ask(&mut session, 0);
        let sent = call(&mut session, START).unwrap();
        let before = ids(&sent);
        assert!(
            session
                .answered(sent, says(vec![refused(said)]), START)
                .is_empty()
        );
        let sent = call(&mut session, after(300)).unwrap();
        assert_ne!(ids(&sent), before, "{said:?}");
    }
}

/// Regression: `try_acquire` returned `Asked` forever, and the flush returned that everything had
/// arrived.
#[test]
fn a_wrong_token_is_an_error_of_try_acquire_and_of_settled() {
    let mut session = session();
    let keys = [key(0)];
    let refused = |session: &mut Session, now| {
        session
            .try_acquire(&keys, AcquireRequest::default(), now)
            .unwrap_err()
            .0
    };
    assert_eq!(refused(&mut session, START), RefusalReason::Asked);
    assert_eq!(session.is_accepted(), Some(true), "nothing is reported");
    let sent = call(&mut session, START).unwrap();
    let wrong = || Err(unauthorized());
    session.answered(sent, wrong(), after(10));
    assert_eq!(session.take_ready(), keys, "worth calling again");
    assert_eq!(refused(&mut session, after(11)), RefusalReason::Refused);
    session.patch(&keys[0], KeyPatch::default());
    assert_eq!(session.is_accepted(), None);
    let sent = call(&mut session, after(12)).unwrap();
    session.answered(sent, wrong(), after(20));
    assert_eq!(session.is_accepted(), Some(false));
}

#[test]
fn a_refused_try_starts_a_prefetch_whose_permit_is_kept_until_it_expires() {
    let mut session = session();
    let keys = [key(0)];
    let refused = |session: &mut Session, now| {
        session
            .try_acquire(&keys, AcquireRequest::default(), now)
            .unwrap_err()
            .0
    };
    assert_eq!(refused(&mut session, START), RefusalReason::Asked);
    assert_eq!(refused(&mut session, START), RefusalReason::Asked);
    let sent = call(&mut session, START).unwrap();
    assert_eq!(exchange(&sent).acquire.len(), 1, "asked for once");
    session.answered(sent, says(vec![granted(0, "a")]), after(10));
    assert_eq!(session.take_ready(), keys);
    let permit = session
        .try_acquire(&keys, AcquireRequest::default(), after(20))
        .unwrap();
    assert_eq!(permit.permit, "a");
    // The next permit comes, and no call takes it.
    assert_eq!(refused(&mut session, after(21)), RefusalReason::Asked);
    let sent = call(&mut session, after(22)).unwrap();
    session.answered(sent, says(vec![granted(0, "b")]), after(30));
    let mut now = after(31);
    let sent = loop {
        match call(&mut session, now) {
            Ok(sent) => break sent,
            Err(at) => now = at,
        }
    };
    assert!(now <= after(82), "{now:?}");
    assert!(matches!(&sent.call, Call::Cancel(call) if call.permits == ["b"] && !call.sent));
    session.answered(sent, Ok(Reply::Done), now);
    assert!(
        call(&mut session, after(200)).is_err(),
        "not asked for again unless somebody calls"
    );
}

#[test]
fn a_prefetch_that_no_call_asks_for_again_is_dropped() {
    let mut session = session();
    let keys = [key(0)];
    _ = session.try_acquire(&keys, AcquireRequest::default(), START);
    let sent = call(&mut session, START).unwrap();
    // Its call is still held open. Then the call ends without a permit.
    assert!(call(&mut session, after(6_000)).is_err());
    session.answered(sent, says(vec![]), after(6_001));
    assert!(call(&mut session, after(12_000)).is_err());
    assert_eq!(session.stats().waiting, 0);
}

#[test]
fn a_parked_key_is_the_refusal_of_try_acquire() {
    let mut session = session();
    let keys = [key(0)];
    _ = session.try_acquire(&keys, AcquireRequest::default(), START);
    let sent = call(&mut session, START).unwrap();
    let parked = Answer::Refused {
        item: 0,
        code: RefusedCode::Parked,
        reason: "parked, Retry-After".to_owned(),
        retry_in_ms: Some(7_200_000),
    };
    session.answered(sent, says(vec![parked]), START);
    let (reason, at) = session
        .try_acquire(&keys, AcquireRequest::default(), after(1))
        .unwrap_err();
    assert_eq!(
        (reason.to_string().as_str(), at),
        ("parked, Retry-After", after(7_200_000))
    );
}

#[test]
fn a_lease_is_renewed_at_half_and_its_loss_is_noticed() {
    let mut session = session();
    let granted = Granted {
        sent: None,
        slot: None,
        permit: "a".to_owned(),
        key: key(0),
        start: START,
        valid_until: after(50),
        lasts: Duration::from_secs(10),
        send_bodies: None,
    };
    let lease = std::sync::Arc::new(granted.lease());
    session.hold(&granted, &lease);
    assert_eq!(call(&mut session, START).unwrap_err(), after(5_000));
    let sent = call(&mut session, after(5_000)).unwrap();
    let renewed = RenewedPermit {
        permit: "a".to_owned(),
        lease_ms: 10_000,
    };
    let reply = Renewed {
        renewed: vec![renewed],
        lost: Vec::new(),
    };
    session.answered(sent, Ok(Reply::Renewed(reply)), after(5_010));
    assert_eq!(
        lease.left(after(14_000 - 1)),
        Some(Duration::from_millis(1))
    );
    assert_eq!(lease.left(after(14_000)), None, "not renewed in time");
    let sent = call(&mut session, after(10_000)).unwrap();
    let reply = Renewed {
        renewed: Vec::new(),
        lost: vec!["a".to_owned()],
    };
    session.answered(sent, Ok(Reply::Renewed(reply)), after(10_001));
    assert_eq!(lease.left(after(10_002)), None);
}

/// The coordinator may have been killed and have lost the delay.
#[test]
fn a_crawl_delay_is_sent_with_every_prefetch_while_it_is_fresh() {
    let mut session = session();
    let delay = |ms: u64, secs| CrawlDelay {
        pause: Duration::from_micros(ms * 1_000 - 1),
        fresh: Duration::from_secs(secs),
    };
    session.crawl_delay(&key(0), delay(2_000, 10), START);
    session.crawl_delay(&key(0), delay(1_000, 60), START);
    let mut comes = Vec::new();
    for (ms, outcome) in [
        (0, Some((2_000, 10_000))),
        (4_000, Some((2_000, 6_000))),
        (10_000, None),
    ] {
        comes.extend([ask(&mut session, 0), ask(&mut session, 1)]);
        let sent = call(&mut session, after(ms)).unwrap();
        let items = &exchange(&sent).acquire;
        let said = |host| {
            let Item {
                crawl_delay_ms,
                crawl_delay_fresh_ms,
                ..
            } = items[place(&sent, host) as usize];
            crawl_delay_ms.zip(crawl_delay_fresh_ms)
        };
        assert_eq!((said(0), said(1)), (outcome, None), "{ms}");
        session.answered(sent, says(Vec::new()), after(ms));
    }
}
