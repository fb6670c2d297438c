//! The checks that every call passes before the router: a cap on concurrent calls, then access.
//!
//! They are not a layer of the router, because a layer allocates a future and copies all state for
//! each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::Instant;
use tower_service::Service;

use super::access::{Access, admit, permit};
use super::logins::{Logins, Peer};
use super::problem::Wrong;
use super::waiting::Waiting;
use crate::tokens::Tokens;

/// The most concurrent calls, including held-open calls. A call beyond the cap is answered 503.
const CALLS_MAX: usize = 1 << 16;

/// All routes of a coordinator, behind the checks.
pub(crate) struct Gate {
    router: Router,
    access: Access,
    logins: Logins,
    /// The number of times that the tokens were replaced.
    replaced: watch::Sender<u64>,
    waiting: Waiting,
    calls: AtomicUsize,
    /// The number of calls so far.
    begun: AtomicUsize,
}

impl Gate {
    pub(super) fn new(
        router: Router,
        access: Access,
        replaced: watch::Sender<u64>,
        waiting: Waiting,
    ) -> Self {
        Self {
            router,
            access,
            logins: Logins::default(),
            replaced,
            waiting,
            calls: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
        }
    }

    /// Replaces the tokens and ends the streams of events, so that their readers reconnect. Returns
    /// `false` and does nothing if the coordinator was started without tokens.
    pub(crate) fn replace(&self, tokens: Tokens) -> bool {
        let Access::Tokens(known) = &self.access else {
            return false;
        };
        *known.write() = Arc::new(tokens);
        self.replaced.send_modify(|count| *count += 1);
        true
    }

    /// Sets the most items that may wait per client and per peer.
    pub(crate) fn set_waiting(&self, most: usize) {
        self.waiting.set_most(most);
    }

    /// Waits until no call has begun or has been under way for `time`.
    pub(crate) async fn idle(&self, time: Duration) {
        let (mut seen, mut last) = (0, Instant::now());
        while last.elapsed() < time {
            tokio::time::sleep(time / 4).await;
            let begun = self.begun.load(Ordering::Relaxed);
            if begun != seen || self.calls.load(Ordering::Relaxed) > 0 {
                (seen, last) = (begun, Instant::now());
            }
        }
    }

    /// Answers a call of `peer`.
    pub(crate) async fn answer(&self, peer: &Peer, mut request: Request<Incoming>) -> Response {
        let Some(_held) = Held::take(&self.calls) else {
            return Wrong::busy("too many calls at a time").into_response();
        };
        self.begun.fetch_add(1, Ordering::Relaxed);
        let authority = request.uri().authority().map(Authority::as_str);
        let caller = admit(
            &self.access,
            &self.logins,
            peer,
            authority,
            request.headers(),
        );
        let caller = caller.and_then(|caller| {
            permit(&caller, request.method(), request.uri().path())?;
            Ok(caller)
        });
        match caller {
            Ok(caller) => request.extensions_mut().insert(caller),
            Err(refused) => return refused.into_response(),
        };
        let Ok(response) = self.router.clone().call(request).await;
        response
    }
}

/// One call's place under the cap. It is released when dropped.
struct Held<'a>(&'a AtomicUsize);

impl<'a> Held<'a> {
    fn take(calls: &'a AtomicUsize) -> Option<Self> {
        let held = Self(calls);
        (calls.fetch_add(1, Ordering::Relaxed) < CALLS_MAX).then_some(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        let (tokens, waiting) = (watch::Sender::new(0), Waiting::new(1));
        Gate::new(Router::new(), Access::Loopback, tokens, waiting)
    }

    const TIME: Duration = Duration::from_mins(1);
    const QUARTER: Duration = Duration::from_secs(15);
    const CALLED_AT: Duration = Duration::from_secs(55);

    #[tokio::test(start_paused = true)]
    async fn a_call_delays_the_end_of_an_idle_coordinator() {
        let (gate, start) = (gate(), Instant::now());
        gate.idle(TIME).await;
        assert_eq!(start.elapsed(), TIME);
        let call = async {
            tokio::time::sleep(CALLED_AT).await;
            gate.begun.fetch_add(1, Ordering::Relaxed);
        };
        let start = Instant::now();
        tokio::join!(gate.idle(TIME), call);
        assert!(start.elapsed() >= CALLED_AT + TIME);
        assert!(start.elapsed() <= 2 * TIME + QUARTER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_coordinator_with_a_call_under_way_is_not_idle() {
        let gate = gate();
        let call = Held::take(&gate.calls);
        let idle = tokio::time::timeout(60 * TIME, gate.idle(TIME)).await;
        assert!(idle.is_err());
        drop(call);
        assert!(
            tokio::time::timeout(2 * TIME, gate.idle(TIME))
                .await
                .is_ok()
        );
    }
}
