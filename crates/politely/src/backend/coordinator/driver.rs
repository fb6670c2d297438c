//! The driver: a thread that makes the calls. Callers may live on any runtime, on several, or on
//! none.

use std::sync::Arc;
use std::time::Duration;

use politely_api::client::CallError;
use politely_core::Timestamp;
use tokio::task::JoinSet;

use super::call::{Reply, Sent, Transport};
use super::permit_guard::CoordinatorGuard;
use super::session::{Delivery, Step};
use super::{CoordinatorError, Shared};
use crate::sync::sleep;

/// After the limiter was dropped, the driver waits this long for a coordinator that is unavailable.
const FAREWELL: Duration = Duration::from_secs(2);

/// Starts the thread. It ends when the limiter and its permits are dropped and everything is sent.
pub(super) fn start(
    shared: Arc<Shared>,
    transport: impl Transport,
) -> Result<(), CoordinatorError> {
    let failed = |why: std::io::Error| CoordinatorError::Thread(why.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    std::thread::Builder::new()
        .name("politely-driver".to_owned())
        .spawn(move || runtime.block_on(run(&shared, transport)))
        .map_err(failed)?;
    Ok(())
}

/// Makes one call after another.
pub(super) async fn run(shared: &Arc<Shared>, transport: impl Transport) {
    let mut calls: JoinSet<(Sent, Result<Reply, CallError>)> = JoinSet::new();
    let mut hopeless: Option<Timestamp> = None;
    loop {
        let now = shared.clock.now();
        let (step, deliveries) = {
            let mut session = shared.session.lock();
            if session.is_over() {
                return;
            }
            if session.is_hopeless() {
                if now.since(*hopeless.get_or_insert(now)) > FAREWELL {
                    return;
                }
            } else {
                hopeless = None;
            }
            let deliveries = session.go_on(now);
            if session.is_going_on() {
                shared.ready.notify_one();
            }
            (session.next(now), deliveries)
        };
        if !deliveries.is_empty() {
            deliver(shared, deliveries);
        }
        let until = match step {
            Step::Call(sent) => {
                let calling = transport.call(&sent.call);
                calls.spawn(async move {
                    let reply = calling.await;
                    (sent, reply)
                });
                continue;
            }
            Step::Wait(until) => until,
        };
        let pause = async {
            match until {
                Timestamp::NEVER => std::future::pending().await,
                at => sleep(at.since(shared.clock.now())).await,
            }
        };
        tokio::select! {
            Some(ended) = calls.join_next() => {
                // A call that panicked would panic again, so the driver ends.
                let Ok((sent, reply)) = ended else { return };
                let deliveries = shared.session.lock().answered(sent, reply, shared.clock.now());
                deliver(shared, deliveries);
                shared.ready.notify_one();
                shared.call_ended.notify_waiters();
            }
            () = shared.wake.notified() => {}
            () = pause => {}
        }
    }
}

/// Delivers results to the callers. If a caller has left, its guard is dropped, which gives the
/// permit back.
pub(super) fn deliver(shared: &Arc<Shared>, deliveries: Vec<Delivery>) {
    for (answer, result) in deliveries {
        let result = result.map(|granted| CoordinatorGuard::new(shared, granted));
        let _ = answer.send(result);
    }
}
