//! Prefetches: after a refusal by `try_acquire`, the permit is acquired in the background.
//!
//! It is kept until the same keys are asked for again, or until it expires.

use std::time::Duration;

use hashbrown::HashMap;
use politely_core::Timestamp;
use politely_core::gate::HoldReason;
use politely_core::host::Reason;
use politely_core::key::Key;

use super::lines::KeySet;
use super::permit_guard::Granted;
use crate::error::RefusalReason;

/// A prefetch that no call asks for again is dropped after this time.
const KEPT: Duration = Duration::from_secs(5);
/// The maximum number of prefetches, about 300 bytes each.
const PREFETCHES_MAX: usize = 1 << 14;
/// The time after which a refused caller should ask again, unless it waits for `ready`.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// A permit is valid until and including `valid_until`, so it is dropped this much later.
const MOMENT: Duration = Duration::from_millis(1);
/// The assumed length of a hold that parks a key, if the coordinator does not send it.
const PARKED: Duration = Duration::from_hours(2);

pub(super) struct Prefetches {
    of: HashMap<KeySet, Prefetch, foldhash::fast::RandomState>,
    /// The time of the next sweep: a kept permit expires or a prefetch may be dropped then.
    due: Timestamp,
}

impl Default for Prefetches {
    fn default() -> Self {
        Self {
            of: HashMap::default(),
            due: Timestamp::NEVER,
        }
    }
}

struct Prefetch {
    touched: Timestamp,
    /// The number of its acquire request.
    request: Option<u64>,
    kept: Option<Granted>,
    /// The coordinator refused, until this time and for this reason.
    refused: Option<(Timestamp, RefusalReason)>,
}

/// The result of a call of `try_acquire`.
pub(super) enum Found {
    Permit(Granted),
    /// There is no permit. Ask again at this time.
    No(RefusalReason, Timestamp),
    /// There is no permit, and an acquire request must be added for these keys.
    New(KeySet),
}

impl Prefetches {
    /// Takes the prefetched permit of `keys`, or notes the prefetch.
    pub(super) fn call(&mut self, keys: &[Key], now: Timestamp) -> Found {
        if let Some(prefetch) = self.of.get_mut(keys) {
            prefetch.touched = now;
            if prefetch
                .kept
                .as_ref()
                .is_some_and(|kept| kept.start <= now && now <= kept.valid_until)
            {
                return prefetch
                    .kept
                    .take()
                    .map_or(Found::No(RefusalReason::Asked, now), Found::Permit);
            }
            if let Some((at, reason)) = prefetch.refused.filter(|(at, _)| *at > now) {
                return Found::No(reason, at);
            }
            if let Some(kept) = prefetch.kept.as_ref().filter(|kept| kept.start > now) {
                return Found::No(RefusalReason::Asked, kept.start);
            }
            return if prefetch.request.is_some() || prefetch.kept.is_some() {
                Found::No(RefusalReason::Asked, now + AGAIN)
            } else {
                Found::New(KeySet::from(keys))
            };
        }
        if self.of.len() >= PREFETCHES_MAX {
            return Found::No(RefusalReason::Asked, now + AGAIN);
        }
        let keys = KeySet::from(keys);
        let prefetch = Prefetch {
            touched: now,
            request: None,
            kept: None,
            refused: None,
        };
        self.of.insert(KeySet::clone(&keys), prefetch);
        self.due = self.due.min(now + KEPT);
        Found::New(keys)
    }

    /// Notes the number of the prefetch's acquire request.
    pub(super) fn joined(&mut self, keys: &[Key], number: u64) {
        if let Some(prefetch) = self.of.get_mut(keys) {
            prefetch.request = Some(number);
        }
    }

    /// Keeps a permit for the next call. Returns the permit that is not needed any more, if there
    /// is one.
    pub(super) fn came(&mut self, keys: &[Key], granted: Granted) -> Option<Granted> {
        let Some(prefetch) = self.of.get_mut(keys) else {
            return Some(granted);
        };
        prefetch.request = None;
        self.due = self.due.min(granted.valid_until + MOMENT);
        prefetch.kept.replace(granted)
    }

    /// Notes that the coordinator refused.
    pub(super) fn refused(&mut self, keys: &[Key], reason: RefusalReason, until: Timestamp) {
        if let Some(prefetch) = self.of.get_mut(keys) {
            prefetch.request = None;
            prefetch.refused = Some((until, reason));
        }
    }

    /// Returns the kept permits that expired, and drops the prefetches that no call asked for
    /// again.
    ///
    /// A prefetch with an acquire request is dropped only if `withdraw` returns `true`.
    pub(super) fn sweep(
        &mut self,
        now: Timestamp,
        mut withdraw: impl FnMut(u64) -> bool,
    ) -> Vec<Granted> {
        let mut lapsed = Vec::new();
        if now < self.due {
            return lapsed;
        }
        self.of.retain(|_, prefetch| {
            if prefetch
                .kept
                .as_ref()
                .is_some_and(|kept| now > kept.valid_until)
            {
                lapsed.extend(prefetch.kept.take());
            }
            let forgotten = now.since(prefetch.touched) >= KEPT && prefetch.kept.is_none();
            let refused = prefetch.refused.is_some_and(|(at, _)| at > now);
            !(forgotten && !refused && prefetch.request.is_none_or(&mut withdraw))
        });
        let kept = self
            .of
            .values()
            .filter_map(|prefetch| prefetch.kept.as_ref());
        let lapses = kept.map(|kept| kept.valid_until + MOMENT).min();
        self.due = if self.of.is_empty() {
            Timestamp::NEVER
        } else {
            lapses.unwrap_or(Timestamp::NEVER).min(now + KEPT)
        };
        lapsed
    }

    /// Returns the time of the next sweep.
    pub(super) const fn due(&self) -> Timestamp {
        self.due
    }

    /// Removes all prefetches and returns the kept permits.
    pub(super) fn drain(&mut self) -> Vec<Granted> {
        self.of
            .drain()
            .filter_map(|(_, prefetch)| prefetch.kept)
            .collect()
    }
}

/// Returns how long a key is parked, and the reason.
pub(super) fn parked(text: &str, rest_ms: Option<u64>) -> (Duration, Reason) {
    let all = [
        HoldReason::RetryAfter,
        HoldReason::QuotaSpent,
        HoldReason::Backoff,
        HoldReason::CrawlDelay,
        HoldReason::Operator,
    ];
    let reason = all
        .into_iter()
        .find(|reason| text.ends_with(reason.as_str()));
    let rest = rest_ms.map_or(PARKED, Duration::from_millis);
    (
        rest,
        Reason::Parked(reason.unwrap_or(HoldReason::RetryAfter)),
    )
}
