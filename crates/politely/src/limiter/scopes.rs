//! Parts of a host with quotas of their own, as its responses name them (`core::signal::Scope`).
//!
//! A part is a key: while it is held, its requests wait in that key's queue, and others of the host
//! pass. A rule of a policy names the part whose quotas its account has. Other requests belong to
//! the part that an earlier response to the same route named. What is not known to belong to it
//! leaves.
//!
//! Strangers choose the names, so both tables are bounded. A statement for which there is no room
//! is one about the whole host.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::budget::DeclaredLimits;
use politely_core::gate::HoldReason;
use politely_core::host::KeyRule;
use politely_core::key::Key;
use politely_core::signal::{Quota, Report, Scope, Signal, Unit, WAIT_MAX};
use url::Url;

use super::{Limiter, Plan};

/// Hosts and accounts whose parts are known. A process talks to few such APIs.
const OWNERS_MAX: usize = 1_024;
/// Routes that are known of one of them. About 100 bytes each.
const ROUTES_MAX: usize = 256;
/// Routes that a host refuses at a time, each by the quota of a part, before it is held whole. It
/// bounds the refusals by a part that has more routes than are known, or by ever new names.
const REFUSED_MAX: usize = 8;
/// Spent parts after which the keys of those that are no longer held leave memory. It bounds the
/// keys that ever new names make in a limiter without a capacity.
const SWEPT_EVERY: usize = 1_024;
/// The first hold of an account that was refused without a wait. Each further one is longer.
const BACKOFF: Duration = Duration::from_secs(1);
/// What the names of the keys of parts begin with, after `custom/`.
const PREFIX: &str = "quota/";
/// The shortest identifier that is no number: the hexadecimal digits of 64 bits.
const ID_MIN: usize = 16;
/// The longest identifier that is told apart from others.
const ID_MAX: usize = 64;

/// The method and path of a request, without the identifiers that select one of many like things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The hash of host, method and path. Identifiers after the first are left out.
    shape: u64,
    /// The first identifier in the path, such as the channel of Discord.
    id: Option<Box<str>>,
}

/// The parts that are known of all hosts.
#[derive(Default)]
pub(super) struct Scopes {
    is_any: AtomicBool,
    /// The number of statements that a part is spent.
    spent: AtomicUsize,
    by_owner: Mutex<HashMap<Key, Vec<Known>>>,
}

/// The part that a route belongs to, by the last response that named one.
struct Known {
    shape: u64,
    scope: Key,
    /// Nothing of the part leaves before this time.
    until: Timestamp,
    /// Whether a request of the route was refused.
    is_refused: bool,
}

impl Route {
    pub(super) fn of(url: &Url, method: &Method) -> Self {
        let mut shape = DefaultHasher::new();
        (method, url.host_str(), url.port()).hash(&mut shape);
        let mut id: Option<Box<str>> = None;
        for segment in url.path().split('/') {
            if is_id(segment) && id.is_some() {
                '#'.hash(&mut shape);
            } else {
                segment.hash(&mut shape);
                id = id.or_else(|| is_id(segment).then(|| segment.into()));
            }
        }
        let shape = shape.finish();
        Self { shape, id }
    }

    /// Returns the key of `scope` for this route, below the key of its host or account.
    fn key(&self, owner: &Key, scope: &Scope) -> Option<Key> {
        let name = scope.name().as_str();
        let name = match (scope, &self.id) {
            (Scope::Bucket(_), Some(id)) => format!("{PREFIX}{owner}/{name}/{id}"),
            _ => format!("{PREFIX}{owner}/{name}"),
        };
        Key::custom(&name).ok()
    }
}

/// Returns whether a segment of a path is a number or a long random text.
fn is_id(segment: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let mut bytes = segment.bytes();
    let is_long = (ID_MIN..=ID_MAX).contains(&segment.len());
    match segment.len() {
        0 => false,
        ..=ID_MAX if bytes.all(|byte| byte.is_ascii_digit()) => true,
        _ => {
            is_long
                && segment.bytes().all(is_word)
                && segment.contains(|c: char| c.is_ascii_digit())
        }
    }
}

impl Scopes {
    /// Returns the key of the part that `route` belongs to, if it is spent.
    pub(super) fn spent(&self, owner: &Key, route: &Route, now: Timestamp) -> Option<Key> {
        let by_owner = self.by_owner.lock();
        let known = by_owner.get(owner)?;
        let of_route = known.iter().find(|known| known.shape == route.shape)?;
        (of_route.until > now).then(|| of_route.scope.clone())
    }

    /// Notes that `route` belongs to the part `scope`, of which nothing leaves before `until`.
    /// Returns whether there is room.
    fn note(
        &self,
        owner: &Key,
        route: &Route,
        scope: &Key,
        until: Timestamp,
        is_refused: bool,
        now: Timestamp,
    ) -> bool {
        let mut by_owner = self.by_owner.lock();
        if !by_owner.contains_key(owner) && by_owner.len() >= OWNERS_MAX {
            let is_spent = |known: &Vec<Known>| known.iter().any(|known| known.until > now);
            by_owner.retain(|_, known| is_spent(known));
            if by_owner.len() >= OWNERS_MAX {
                return false;
            }
        }
        let all = by_owner.entry(owner.clone()).or_default();
        let others = all.iter().filter(|known| known.shape != route.shape);
        let is_spent = |known: &&Known| known.is_refused && known.until > now;
        if is_refused && others.filter(is_spent).count() >= REFUSED_MAX {
            return false;
        }
        all.retain(|known| known.shape != route.shape || known.scope == *scope);
        let of_scope = all.iter_mut().filter(|known| known.scope == *scope);
        let until = of_scope.fold(until, |until, known| until.max(known.until));
        for known in all.iter_mut().filter(|known| known.scope == *scope) {
            known.until = until;
        }
        if let Some(known) = all.iter_mut().find(|known| known.shape == route.shape) {
            known.is_refused = is_refused;
        } else {
            if all.len() >= ROUTES_MAX {
                let Some(old) = all.iter().position(|known| known.until <= now) else {
                    return false;
                };
                all.remove(old);
            }
            all.push(Known {
                shape: route.shape,
                scope: scope.clone(),
                until,
                is_refused,
            });
        }
        self.is_any.store(true, Ordering::Relaxed);
        true
    }
}

impl Limiter {
    /// Returns the route of a request, and the key of the part that it belongs to, if that is
    /// spent. `owner` is its account or its host.
    pub(super) fn route(
        &self,
        owner: &Key,
        url: Option<&Url>,
        method: &Method,
    ) -> (Option<Route>, Option<Key>) {
        let route = url.map(|url| Route::of(url, method));
        let is_any = self.0.scopes.is_any.load(Ordering::Relaxed);
        let known = route.as_ref().filter(|_| is_any);
        let key = known.and_then(|route| self.0.scopes.spent(owner, route, self.now()));
        (route, key)
    }

    /// Holds what the response to a planned request is about, if that is not the whole host, and
    /// takes it out of `report`. Returns the keys that are held.
    ///
    /// It is about the part of a host that it names, or about the keys to which the rule says that
    /// a refusal belongs. Call it before the report. If the requests of the part are not known, the
    /// report stays as it is, and is about the whole key. With a coordinator it does nothing, since
    /// the coordinator does the same.
    #[cfg_attr(
        not(feature = "policy"),
        expect(private_interfaces, reason = "plans are public with a policy")
    )]
    pub fn hear_scope(&self, plan: &Plan, report: &mut Report) -> Vec<Key> {
        // A coordinator keeps the configuration.
        if self.operations().config().is_err() {
            return Vec::new();
        }
        let mut held = Vec::from_iter(self.hear_part(plan, report));
        held.extend_from_slice(self.hear_own(plan, report));
        held
    }

    /// Holds the keys to which the rule of a plan says that a refusal belongs, and takes it out of
    /// `report`: the host goes on for other callers. The quotas that the response states are
    /// theirs, too.
    fn hear_own<'p>(&self, plan: &'p Plan, report: &mut Report) -> &'p [Key] {
        if report.of_scope || plan.refused().is_empty() {
            return &[];
        }
        if report.signal != Signal::RateLimited {
            // The keys that all callers share are stopped together with the host.
            let of_caller = plan.keys_of_caller();
            let are_own = plan.refused().iter().all(|key| of_caller.contains(key));
            return if are_own {
                self.hear_quotas(plan.refused(), report)
            } else {
                &[]
            };
        }
        report.of_scope = true;
        let spent = std::mem::take(&mut report.quotas).spent_until();
        let named = |wait: Option<Duration>| wait.filter(|wait| !wait.is_zero());
        let (length, reason) = match (named(report.retry_after), named(spent)) {
            (Some(after), _) => (after, HoldReason::RetryAfter),
            (None, Some(reset)) => (reset.min(WAIT_MAX), HoldReason::QuotaSpent),
            (None, None) => (BACKOFF, HoldReason::Backoff),
        };
        report.retry_after = Some(length);
        for key in plan.refused() {
            // The keys of a granted request are known, so there is room for them.
            let _ = self.hold(key, length, reason);
        }
        plan.refused()
    }

    /// Takes the quotas out of `report`, and holds `keys` until the last spent one resets: no more
    /// is left of it than the requests under way take, or too little for another request as this
    /// one. Returns the keys if there is one.
    fn hear_quotas<'k>(&self, keys: &'k [Key], report: &mut Report) -> &'k [Key] {
        let quotas = std::mem::take(&mut report.quotas);
        let Some(first) = keys.first().filter(|_| !quotas.is_empty()) else {
            return &[];
        };
        // The request that is reported is counted already.
        let out = self.explain(first).map_or(0, |known| known.in_flight.0);
        let others = u64::from(out.saturating_sub(1));
        let used = |unit| {
            let name = match unit {
                Unit::Tokens => "tokens",
                Unit::InputTokens => "input_tokens",
                Unit::OutputTokens => "output_tokens",
                Unit::Points => "points",
                _ => return None,
            };
            report.used.of(name.parse().ok()?)
        };
        let is_spent = |quota: &&Quota| match quota.unit {
            Unit::Requests => quota.remaining.is_some_and(|left| left <= others),
            unit => quota.is_spent() || quota.remaining.is_some_and(|left| Some(left) < used(unit)),
        };
        let spent = quotas.iter().filter(is_spent);
        let resets = spent.filter_map(|quota| quota.reset);
        let Some(reset) = resets.max().filter(|reset| !reset.is_zero()) else {
            return &[];
        };
        for key in keys {
            // The keys of a granted request are known, so there is room for them.
            let _ = self.hold(key, reset.min(WAIT_MAX), HoldReason::QuotaSpent);
        }
        keys
    }

    /// Holds the part of a host that a response names, if its quota is spent.
    fn hear_part(&self, plan: &Plan, report: &mut Report) -> Option<Key> {
        let caller = plan.account_of_caller();
        let is_of_account = caller.is_some() && report.quotas.iter().any(|quota| quota.of_account);
        if report.scope.is_none() && !is_of_account {
            return None;
        }
        let mut narrowed = report.clone();
        let (key, wait) = if let Some(scope) = &report.scope {
            let wait = narrowed.narrow();
            let account = plan.account_of(scope).cloned();
            let key = account.or_else(|| self.note_scope(plan, scope, wait, narrowed.of_scope));
            (key?, wait)
        } else {
            let wait = narrowed.narrow_to_account();
            (caller?.clone(), wait)
        };
        *report = narrowed;
        let reason = if report.of_scope {
            HoldReason::RetryAfter
        } else {
            HoldReason::QuotaSpent
        };
        // If there is no room for the key, there is no request of it to hold.
        let _ = self.hold(&key, wait?, reason);
        Some(key)
    }

    /// Notes the part that the route of a plan belongs to. Returns its key if there is room.
    fn note_scope(
        &self,
        plan: &Plan,
        scope: &Scope,
        wait: Option<Duration>,
        is_refused: bool,
    ) -> Option<Key> {
        let (owner, route) = (plan.owner(), plan.route()?);
        let key = route.key(owner, scope)?;
        let now = self.now();
        let until = wait.map_or(Timestamp::ZERO, |wait| now + wait);
        if !self
            .0
            .scopes
            .note(owner, route, &key, until, is_refused, now)
        {
            return None;
        }
        if wait.is_some() {
            let spent = self.0.scopes.spent.fetch_add(1, Ordering::Relaxed) + 1;
            if spent.is_multiple_of(SWEPT_EVERY) {
                let is_part = |key: &Key| {
                    let name = key.as_str().strip_prefix("custom/");
                    name.is_some_and(|name| name.starts_with(PREFIX))
                };
                self.evict_idle(is_part);
            }
            // No number limits the part but the server's own.
            let limits = Some(DeclaredLimits::default());
            let alone = KeyRule {
                limits,
                ..KeyRule::default()
            };
            let _ = self.follow_rule(&key, Some(&Arc::new(alone)));
        }
        Some(key)
    }
}

#[cfg(test)]
#[path = "scopes_tests.rs"]
mod tests;
