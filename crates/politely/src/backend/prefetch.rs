//! Prefetches: after a refusal by `try_acquire`, the permit is acquired in the background.
//!
//! The permit is kept until the same keys are requested again, or until it expires. This module has
//! no clock and does no I/O. The backend acquires the permits, and gives back what
//! [`Prefetches::sweep`] returns.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use politely_core::Timestamp;
use politely_core::key::Key;
use tokio::sync::Notify;

use crate::error::RefusalReason;

/// The time after which a refused caller should call again, unless it waits for `ready`.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// A prefetch that no call asks for again is dropped after this time.
const KEPT: Duration = Duration::from_secs(5);
/// The maximum number of prefetches, about 300 bytes each.
const PREFETCHES_MAX: usize = 1 << 14;
/// A permit is valid until and including `valid_until`, so it is dropped this much later.
const MOMENT: Duration = Duration::from_millis(1);

/// The keys of one request. The outcome is reported to the first.
pub(super) type KeySet = Arc<[Key]>;

/// A permit that waits for the next call.
pub(super) trait Prefetched {
    /// Returns the earliest time at which the request may leave.
    fn start(&self) -> Timestamp;
    /// Returns the latest time at which the request may leave.
    fn valid_until(&self) -> Timestamp;
}

/// The prefetches of a backend. `P` is a permit, and `R` identifies a request for one.
pub(super) struct Prefetches<P, R> {
    of: HashMap<KeySet, Prefetch<P, R>, foldhash::fast::RandomState>,
    /// Permits that expired and are not given back yet.
    expired: Vec<P>,
    /// Keys whose prefetch ended.
    ready: Vec<Key>,
    /// The time of the next sweep: a kept permit expires or a prefetch may be dropped then.
    due: Timestamp,
}

struct Prefetch<P, R> {
    called_at: Timestamp,
    state: State<P, R>,
}

enum State<P, R> {
    Acquiring(R),
    Kept(P),
    /// No permit was granted, for this reason and until this time.
    Refused(RefusalReason, Timestamp),
}

/// The result of a call of `try_acquire`.
pub(super) enum Found<P> {
    Permit(P),
    /// There is no permit. The caller should call again at this time.
    No(RefusalReason, Timestamp),
    /// There is no prefetch. The backend must [start](Prefetches::start) one.
    Missing,
}

impl<P, R> Default for Prefetches<P, R> {
    fn default() -> Self {
        Self {
            of: HashMap::default(),
            expired: Vec::new(),
            ready: Vec::new(),
            due: Timestamp::NEVER,
        }
    }
}

impl<P: Prefetched, R> Prefetches<P, R> {
    /// Takes the prefetched permit of `keys`.
    pub(super) fn take(&mut self, keys: &[Key], now: Timestamp) -> Found<P> {
        let Some(prefetch) = self.of.get_mut(keys) else {
            return if self.of.len() >= PREFETCHES_MAX {
                Found::No(RefusalReason::Asked, now + AGAIN)
            } else {
                Found::Missing
            };
        };
        prefetch.called_at = now;
        match &prefetch.state {
            State::Acquiring(_) => return Found::No(RefusalReason::Asked, now + AGAIN),
            State::Kept(permit) if permit.start() > now => {
                return Found::No(RefusalReason::Asked, permit.start());
            }
            State::Refused(reason, until) if *until > now => return Found::No(*reason, *until),
            State::Kept(_) | State::Refused(..) => {}
        }
        match self.of.remove(keys).map(|prefetch| prefetch.state) {
            Some(State::Kept(permit)) if now <= permit.valid_until() => Found::Permit(permit),
            Some(State::Kept(permit)) => {
                self.expired.push(permit);
                self.due = now;
                Found::Missing
            }
            _ => Found::Missing,
        }
    }

    /// Adds the prefetch of `keys`, which `request` acquires.
    pub(super) fn start(&mut self, keys: KeySet, request: R, now: Timestamp) {
        let prefetch = Prefetch {
            called_at: now,
            state: State::Acquiring(request),
        };
        self.of.insert(keys, prefetch);
        self.due = self.due.min(now + KEPT);
    }

    /// Keeps `permit` for the next call. Returns it if its prefetch was dropped meanwhile.
    pub(super) fn granted(&mut self, keys: &[Key], permit: P) -> Option<P> {
        let Some(prefetch) = self.of.get_mut(keys) else {
            return Some(permit);
        };
        self.due = self.due.min(permit.valid_until() + MOMENT);
        prefetch.state = State::Kept(permit);
        self.ready.push(keys[0].clone());
        None
    }

    /// Notes that no permit is granted until `until`.
    pub(super) fn refused(&mut self, keys: &[Key], reason: RefusalReason, until: Timestamp) {
        if let Some(prefetch) = self.of.get_mut(keys) {
            prefetch.state = State::Refused(reason, until);
            self.ready.push(keys[0].clone());
        }
    }

    /// Returns the permits that expired, and drops the prefetches that no call asked for again.
    ///
    /// A request is dropped only if `withdraw` returns `true`.
    pub(super) fn sweep(&mut self, now: Timestamp, mut withdraw: impl FnMut(&R) -> bool) -> Vec<P> {
        if now < self.due {
            return Vec::new();
        }
        let mut expired = std::mem::take(&mut self.expired);
        let mut due = now + KEPT;
        let ended = self.of.extract_if(|_, prefetch| {
            let is_forgotten = now.since(prefetch.called_at) >= KEPT;
            match &prefetch.state {
                State::Acquiring(request) => is_forgotten && withdraw(request),
                State::Kept(permit) => {
                    let is_expired = now > permit.valid_until();
                    if !is_expired {
                        due = due.min(permit.valid_until() + MOMENT);
                    }
                    is_expired
                }
                State::Refused(_, until) => is_forgotten && now >= *until,
            }
        });
        expired.extend(ended.filter_map(|(_, prefetch)| prefetch.state.into_permit()));
        self.due = if self.of.is_empty() {
            Timestamp::NEVER
        } else {
            due
        };
        expired
    }

    /// Returns the time of the next sweep.
    #[cfg(feature = "coordinator")]
    pub(super) const fn due(&self) -> Timestamp {
        self.due
    }

    /// Returns the keys whose prefetch ended since the last call.
    pub(super) fn take_ready(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.ready)
    }

    /// Removes all prefetches and returns the permits. `withdraw` gets the open requests.
    pub(super) fn drain(&mut self, mut withdraw: impl FnMut(&R)) -> Vec<P> {
        let mut permits = std::mem::take(&mut self.expired);
        for (_, prefetch) in self.of.drain() {
            if let State::Acquiring(request) = &prefetch.state {
                withdraw(request);
            }
            permits.extend(prefetch.state.into_permit());
        }
        permits
    }
}

impl<P, R> State<P, R> {
    fn into_permit(self) -> Option<P> {
        match self {
            Self::Kept(permit) => Some(permit),
            Self::Acquiring(_) | Self::Refused(..) => None,
        }
    }
}

/// Waits until `take` returns keys. `signal` says when to call it again.
pub(super) async fn ready(signal: &Notify, mut take: impl FnMut() -> Vec<Key>) -> Vec<Key> {
    loop {
        let keys = take();
        if !keys.is_empty() {
            return keys;
        }
        signal.notified().await;
    }
}
