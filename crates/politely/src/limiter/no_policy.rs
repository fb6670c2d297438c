//! The plan of a request in a build without policies: its own keys, and nothing else.

#![allow(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    dead_code,
    reason = "the same calls as with a policy"
)]

use std::borrow::Cow;
use std::time::Duration;

use http::Method;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use politely_core::retry::Policy;
use politely_core::signal::{Outcome, Report, Scope, WallClock};

use super::Limiter;
#[cfg(feature = "url")]
use super::scopes::Route;
use crate::backend::local::waiters::Arrival;
use crate::error::{Keys, MissingLabel};

/// The parts of a request that a policy would read.
pub(crate) struct RequestView<'a> {
    pub(crate) keys: Vec<Key>,
    #[cfg(feature = "url")]
    pub(crate) url: Option<&'a url::Url>,
    pub(crate) method: &'a Method,
    pub(crate) labels: &'a dyn Fn(&str) -> Option<&'a str>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    keys: Vec<Key>,
    ask: AcquireRequest,
    #[cfg(feature = "url")]
    route: Option<Route>,
}

/// No policy.
#[derive(Default)]
pub(super) struct InForce;

/// No share.
#[derive(Debug)]
pub(crate) enum Share {}

impl RequestView<'_> {
    pub(super) fn of_keys(keys: Vec<Key>) -> Self {
        Self {
            keys,
            #[cfg(feature = "url")]
            url: None,
            method: &Method::GET,
            labels: &|_| None,
        }
    }
}

impl InForce {
    pub(super) const fn is_set(&self) -> bool {
        false
    }
}

impl Share {
    pub(crate) const fn arrival(&self) -> Arrival {
        match *self {}
    }

    pub(crate) const fn granted(&self) {
        match *self {}
    }
}

impl Plan {
    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys::planned(&self.keys)
    }

    pub(super) fn into_keys(self) -> Vec<Key> {
        self.keys
    }

    pub(crate) fn key(&self) -> &Key {
        &self.keys[0]
    }

    pub(super) fn owner(&self) -> &Key {
        self.key()
    }

    pub(super) const fn account_of(&self, _: &Scope) -> Option<&Key> {
        None
    }

    pub(super) const fn account_of_caller(&self) -> Option<&Key> {
        None
    }

    #[cfg(feature = "url")]
    pub(super) const fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    pub(crate) const fn ask(&self) -> &AcquireRequest {
        &self.ask
    }

    pub(crate) const fn costing(&self, ask: AcquireRequest) -> AcquireRequest {
        ask
    }

    pub(crate) fn judge_and_warn(
        &self,
        _: &Outcome<'_>,
        _: WallClock,
        _: &mut Report,
    ) -> Option<Duration> {
        None
    }

    pub(crate) const fn keys_of_caller(&self) -> &[Key] {
        &[]
    }

    pub(super) const fn refused(&self) -> &[Key] {
        &[]
    }

    pub(crate) fn held_by(&self, _: &[Key]) -> &[Key] {
        &self.keys[..1]
    }

    pub(crate) const fn needs_bodies(&self) -> bool {
        false
    }

    pub(crate) const fn retry_policy<'p>(&self, policy: &'p Policy) -> Cow<'p, Policy> {
        Cow::Borrowed(policy)
    }

    pub(crate) const fn resends(&self, _: &Method) -> bool {
        false
    }
}

impl Limiter {
    pub(crate) fn plan(&self, request: RequestView<'_>) -> Result<Plan, MissingLabel> {
        let ask = AcquireRequest::default();
        #[cfg_attr(
            not(feature = "url"),
            expect(unused_mut, reason = "a route adds its key")
        )]
        let mut keys = request.keys;
        #[cfg(feature = "url")]
        let route = {
            let (route, spent) = self.route(&keys[0], request.url, request.method);
            keys.extend(spent);
            route
        };
        Ok(Plan {
            keys,
            ask,
            #[cfg(feature = "url")]
            route,
        })
    }

    pub(crate) const fn enter_share(&self, _: &Plan, _: &str, _: u16) -> Option<Share> {
        None
    }
}
