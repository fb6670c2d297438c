//! What every call passes before it finds its route: not too many at a time, and only from those who may.
//!
//! It stands in front of the router and not in it: a layer is a future on the heap and a copy of all state for each call, and
//! this is two comparisons.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tower_service::Service;

use super::access::{Access, allowed};
use super::problem::Wrong;

/// Calls at a time, those held open included: more are told to come again.
const CALLS_MAX: usize = 1 << 16;

/// All routes of a coordinator, for those who may call.
pub(crate) struct Gate {
    router: Router,
    access: Access,
    calls: AtomicUsize,
}

impl Gate {
    pub(super) const fn new(router: Router, access: Access) -> Self {
        Self {
            router,
            access,
            calls: AtomicUsize::new(0),
        }
    }

    /// Answers a call.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response {
        let Some(_held) = Held::take(&self.calls) else {
            return Wrong::busy("too many calls at a time").into_response();
        };
        let authority = request.uri().authority().map(Authority::as_str);
        if let Err(refused) = allowed(&self.access, authority, request.headers()) {
            return refused.into_response();
        }
        let Ok(response) = self.router.clone().call(request).await;
        response
    }
}

/// A call's place; given back when dropped.
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
