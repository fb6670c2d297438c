//! Tests of the limiter over a coordinator of a few lines.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use politely_api::client::CallError;
use politely_api::wire::{
    Answer, Exchanged, Grant, Next, ReportedSignal, SendBodies, Told, ToldAnswer,
};
use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};

use super::call::{Call, Reply, Transport};
use super::{CoordinatorBuilder, CoordinatorError};
use crate::error::SetError;
use crate::limiter::Limiter;

/// A coordinator that grants every acquire request, unless it is unavailable. It records reports
/// and cancellations.
#[derive(Clone, Default)]
struct Generous(Arc<Inner>);

#[derive(Default)]
struct Inner {
    away: AtomicBool,
    calls: AtomicUsize,
    granted: AtomicUsize,
    reported: Mutex<Vec<(String, bool)>>,
    cancelled: Mutex<Vec<(String, bool)>>,
    /// For each report, the attempt, the number of refusals, and the method if it was sent.
    attempts: Mutex<Vec<(u16, u16, Option<String>)>>,
    /// The answers whose bodies its rules read, and the bodies that were sent.
    reads: Mutex<Option<SendBodies>>,
    bodies: Mutex<Vec<Option<String>>>,
    /// The method and the URL of each acquire request, if they were sent.
    heads: Mutex<Vec<(Option<String>, Option<String>)>>,
}

impl Transport for Generous {
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, CallError>> + Send + 'static {
        let reply = self.answer(call);
        // As on a network, other tasks run while a caller waits for the answer.
        async move {
            tokio::task::yield_now().await;
            reply
        }
    }
}

impl Generous {
    fn limiter(&self) -> Limiter {
        let builder = CoordinatorBuilder::new("http://127.0.0.1:1".to_owned(), None);
        builder.build_with(self.clone(), None).unwrap()
    }

    fn answer(&self, call: &Call) -> Result<Reply, CallError> {
        let Self(inner) = self;
        inner.calls.fetch_add(1, Ordering::Relaxed);
        if inner.away.load(Ordering::Relaxed) {
            return Err(CallError::Unavailable("unavailable".to_owned()));
        }
        match call {
            Call::Exchange(call, _) => {
                let mut said = Exchanged::default();
                for outcome in &call.report {
                    inner
                        .reported
                        .lock()
                        .push((outcome.permit.clone(), outcome.body_coming));
                    let counted = (outcome.attempt, outcome.free, outcome.method.clone());
                    inner.attempts.lock().push(counted);
                    inner.bodies.lock().push(outcome.body_start.clone());
                    let is_soft = outcome.body_start.as_deref() == Some("slow down");
                    said.report.push(ToldAnswer {
                        rate: 12.5,
                        next: next(outcome),
                        signal: is_soft.then_some(ReportedSignal::RateLimited),
                        ..ToldAnswer::default()
                    });
                }
                let heads =
                    (call.acquire.iter()).map(|item| (item.method.clone(), item.url.clone()));
                inner.heads.lock().extend(heads);
                for item in 0..call.acquire.len() as u32 {
                    let number = inner.granted.fetch_add(1, Ordering::Relaxed);
                    said.acquire.push(Answer::Granted(Grant {
                        item,
                        permit: format!("{number}"),
                        valid_for_ms: 60_000,
                        lease_ms: 120_000,
                        slots: 1,
                        send_bodies: *inner.reads.lock(),
                        ..Grant::default()
                    }));
                }
                Ok(Reply::Exchanged(said))
            }
            Call::Cancel(call) => {
                let permits = call
                    .permits
                    .iter()
                    .map(|permit| (permit.clone(), call.sent));
                inner.cancelled.lock().extend(permits);
                Ok(Reply::Done)
            }
            Call::Renew(..) | Call::Patch(..) => Ok(Reply::Done),
        }
    }
}

/// Decides that a failed request may be sent twice more, at once.
fn next(outcome: &Told) -> Next {
    match outcome.meaning.as_ref().map(|meaning| meaning.signal) {
        Some(ReportedSignal::Overloaded) if outcome.attempt < 3 => Next::Retry {
            after_ms: 0,
            free: false,
        },
        Some(ReportedSignal::Overloaded) => Next::GiveUp {
            reason: "enough".to_owned(),
        },
        _ => Next::Done,
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

fn key() -> Key {
    Key::host("example.com").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_cost_few_calls() {
    let coordinator = Generous::default();
    let limiter = coordinator.limiter();
    let tasks: Vec<_> = (0..100)
        .map(|task| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let key = Key::host(&format!("h{}.example", task % 10)).unwrap();
                for _ in 0..50 {
                    let mut permit = limiter.acquire(&key).await.unwrap();
                    permit.sent();
                    permit.report(&Report::of(Signal::Ok));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(limiter.flush(PATIENCE).await);
    let calls = coordinator.0.calls.load(Ordering::Relaxed);
    assert_eq!(coordinator.0.reported.lock().len(), 5_000);
    assert!(calls < 1_000, "{calls} calls for 5,000 permits");
    let stats = limiter.stats();
    assert_eq!(
        (stats.granted, stats.reported, stats.cancelled),
        (5_000, 5_000, 0)
    );
    assert_eq!(limiter.rate(&Key::host("h0.example").unwrap()), Some(12.5));
}

#[tokio::test]
async fn a_permit_is_reported_heard_or_cancelled() {
    let coordinator = Generous::default();
    let limiter = coordinator.limiter();
    let (key, report) = (key(), Report::of(Signal::Ok));
    limiter.acquire(&key).await.unwrap().report(&report);
    let (_, mut slot) = limiter.acquire(&key).await.unwrap().report_head(&report);
    slot.received(100);
    assert!(slot.renew().is_some());
    drop(slot);
    drop(limiter.acquire(&key).await.unwrap());
    let mut sent = limiter.acquire(&key).await.unwrap();
    sent.sent();
    assert!(sent.renew().is_some());
    drop(sent);
    limiter.acquire(&key).await.unwrap().abandon();
    assert!(limiter.flush(PATIENCE).await);
    let said = |permit: &str, flag| (permit.to_owned(), flag);
    assert_eq!(
        *coordinator.0.reported.lock(),
        [said("0", false), said("1", true), said("1", false)]
    );
    let mut cancelled = coordinator.0.cancelled.lock().clone();
    cancelled.sort();
    assert_eq!(cancelled, [said("2", false), said("3", true)]);
}

#[tokio::test]
async fn nobody_is_let_through_while_it_is_away_and_nothing_is_lost() {
    let coordinator = Generous::default();
    let limiter = coordinator.limiter();
    let key = key();
    let held = limiter.acquire(&key).await.unwrap();
    coordinator.0.away.store(true, Ordering::Relaxed);
    held.report(&Report::of(Signal::Ok));
    let waiting = tokio::spawn({
        let (limiter, key) = (limiter.clone(), key.clone());
        async move { limiter.acquire(&key).await }
    });
    let calls = coordinator.0.calls.load(Ordering::Relaxed);
    while coordinator.0.calls.load(Ordering::Relaxed) < calls + 5 {
        assert!(!waiting.is_finished());
        assert!(limiter.try_acquire(&key).is_err());
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.last_error().as_deref(), Some("unavailable"));
    coordinator.0.away.store(false, Ordering::Relaxed);
    let permit = waiting.await.unwrap().unwrap();
    permit.report(&Report::of(Signal::Ok));
    assert!(limiter.flush(PATIENCE).await);
    assert_eq!(coordinator.0.reported.lock().len(), 2);
}

#[tokio::test]
async fn who_tries_is_called_when_the_permit_is_there() {
    let coordinator = Generous::default();
    let limiter = coordinator.limiter();
    let key = key();
    for _ in 0..20 {
        assert!(limiter.try_acquire(&key).is_err());
        assert_eq!(limiter.ready().await, std::slice::from_ref(&key));
        limiter
            .try_acquire(&key)
            .unwrap()
            .report(&Report::of(Signal::Ok));
    }
    assert!(limiter.flush(PATIENCE).await);
    assert_eq!(coordinator.0.reported.lock().len(), 20);
}

#[tokio::test]
async fn a_closed_limiter_ends_all_waiting_and_still_reports() {
    let coordinator = Generous::default();
    let limiter = coordinator.limiter();
    let held = limiter.acquire(&key()).await.unwrap();
    coordinator.0.away.store(true, Ordering::Relaxed);
    let key = key();
    let waiting = limiter.acquire(&key);
    let closing = async {
        tokio::task::yield_now().await;
        limiter.close();
    };
    let (ended, ()) = tokio::join!(waiting, closing);
    assert_eq!(ended.unwrap_err(), crate::AcquireError::Closed);
    coordinator.0.away.store(false, Ordering::Relaxed);
    held.report(&Report::of(Signal::Ok));
    assert!(limiter.flush(PATIENCE).await);
    assert_eq!(coordinator.0.reported.lock().len(), 1);
}

#[test]
fn what_cannot_be_a_coordinator_is_an_error_at_once() {
    let build = |url: &str| Limiter::builder().coordinator(url).build().map(drop);
    assert!(build("http://127.0.0.1:7077").is_ok());
    for url in ["", "127.0.0.1:7077", "ftp://x", "http://"] {
        let why = build(url).unwrap_err().to_string();
        assert!(why.starts_with(url), "{why}");
    }
    let builder = || Limiter::builder().coordinator("http://127.0.0.1:7077");
    assert!(builder().client("").build().is_err());
    assert!(builder().client("x".repeat(129)).build().is_err());
    assert!(builder().token("a\nb").build().is_err());
}

/// Without the coordinator's decision it would be sent five times, with pauses of seconds.
#[cfg(feature = "tower")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_a_request_is_sent_again_the_coordinator_says() {
    use http::{Request, Response};
    use tower::{Layer, ServiceExt};

    let coordinator = Generous::default();
    let limiter = coordinator.limiter();
    let sent = Arc::new(AtomicUsize::new(0));
    let failing = tower::service_fn({
        let sent = Arc::clone(&sent);
        move |_: Request<String>| {
            sent.fetch_add(1, Ordering::Relaxed);
            let mut response = Response::new(String::new());
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            std::future::ready(Ok::<_, std::io::Error>(response))
        }
    });
    let layer = crate::http::layer::PoliteLayer::new(limiter.clone());
    let ask = |method: &str| {
        let request = Request::builder()
            .method(method)
            .uri("http://example.com/a?b=c");
        let request = request.body(String::new()).unwrap();
        layer.layer(failing.clone()).oneshot(request)
    };
    assert_eq!(ask("GET").await.unwrap().status(), 503);
    assert_eq!(sent.load(Ordering::Relaxed), 3);
    assert_eq!(ask("POST").await.unwrap().status(), 503);
    assert!(limiter.flush(PATIENCE).await);
    let heads = coordinator.0.attempts.lock().clone();
    let mut counted: Vec<_> = heads.into_iter().collect();
    counted.dedup();
    let post = Some("POST".to_owned());
    assert_eq!(
        counted,
        [
            (1, 0, None),
            (2, 0, None),
            (3, 0, None),
            (1, 0, post.clone())
        ]
    );
    // The rule of the policy may depend on the method and the path.
    let url = Some("http://example.com/a".to_owned());
    let get = (None, url.clone());
    let heads = coordinator.0.heads.lock().clone();
    assert_eq!(heads, [get.clone(), get.clone(), get, (post, url)]);
}

#[cfg(feature = "tower")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_the_coordinators_rules_read_is_sent_and_their_meaning_counts() {
    use http::{Request, Response};
    use tower::{Layer, ServiceExt};

    for (reads, status, sent) in [
        (None, 200, vec![None]),
        (Some(SendBodies::Errors), 200, vec![None]),
        (Some(SendBodies::Errors), 404, vec![None]),
        (
            Some(SendBodies::Errors),
            403,
            vec![Some("slow down"), Some("page")],
        ),
        (
            Some(SendBodies::All),
            200,
            vec![Some("slow down"), Some("page")],
        ),
    ] {
        let coordinator = Generous::default();
        *coordinator.0.reads.lock() = reads;
        let limiter = coordinator.limiter();
        let count = Arc::new(AtomicUsize::new(0));
        let host = tower::service_fn(move |_: Request<String>| {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let body = if is_first { "slow down" } else { "page" };
            let mut response = Response::new(body.to_owned());
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            std::future::ready(Ok::<_, std::io::Error>(response))
        });
        let layer = crate::http::layer::PoliteLayer::new(limiter.clone());
        let request = Request::get("http://example.com/").body(String::new());
        let page = layer.layer(host).oneshot(request.unwrap()).await.unwrap();
        assert_eq!(page.status(), status);
        drop(page);
        assert!(limiter.flush(PATIENCE).await);
        let bodies = coordinator.0.bodies.lock().clone();
        let is_coming = coordinator.0.reported.lock().clone();
        let heads = bodies.into_iter().zip(is_coming);
        let heads = heads.filter_map(|(body, (_, coming))| coming.then_some(body));
        let heads: Vec<Option<String>> = heads.collect();
        let sent: Vec<_> = sent
            .into_iter()
            .map(|body| body.map(str::to_owned))
            .collect();
        assert_eq!(heads, sent, "{reads:?} {status}");
    }
}

/// A caller must not believe that a change took effect which the coordinator has to make.
#[tokio::test]
async fn what_a_coordinator_keeps_cannot_be_changed_here() {
    let limiter = Generous::default().limiter();
    let (key, config) = (Key::host("example.com").unwrap(), Config::crawler());
    let limits = config.limits;
    let refused = [
        limiter.reconfigure(config),
        limiter.reconfigure_new(limits),
        limiter.restore(&key, b"state"),
        limiter.resume(&key, &crate::Recovery::default()),
        limiter
            .readmit(&crate::Earlier {
                keys: std::slice::from_ref(&key),
                start: limiter.now(),
                lease: PATIENCE,
                estimate: &crate::UnitCosts::NONE,
            })
            .map(drop),
        limiter.numbers(&key).map(drop).map_err(SetError::from),
        limiter
            .adopt(&[(key.clone(), LeaseId(1))], PATIENCE)
            .await
            .map(drop)
            .map_err(SetError::from),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(SetError::Unsupported(_))),
            "{refused:?}"
        );
    }
    assert_eq!((limiter.keys(), limiter.explain(&key)), (Vec::new(), None));
}

#[test]
fn limits_that_the_coordinator_keeps_are_an_error() {
    let builder = Limiter::builder().rate(10.0);
    let remote = builder.coordinator("http://127.0.0.1:1");
    assert_eq!(remote.build().unwrap_err(), CoordinatorError::Limits);
    let builder = Limiter::builder().coordinator("http://127.0.0.1:1");
    assert!(builder.build().is_ok());
}
