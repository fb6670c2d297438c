//! What `try_acquire` was refused for: asked of the coordinator in the background, and kept until it is asked for again.

use std::time::Duration;

use hashbrown::HashMap;
use politely_core::Timestamp;
use politely_core::gate::HoldReason;
use politely_core::host::Reason;
use politely_core::key::Key;

use super::claim::Granted;
use super::lines::KeySet;
use crate::asked::RefusalReason;

/// A wish nobody came back for is forgotten.
const KEPT: Duration = Duration::from_secs(5);
/// … and so many are kept, about 300 bytes each.
const WISHES_MAX: usize = 1 << 14;
/// Without a call to be woken, ask again after so long.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// A permit may leave until its time, inclusive.
const MOMENT: Duration = Duration::from_millis(1);
/// A parked key of which nobody knows until when.
const PARKED: Duration = Duration::from_hours(2);

pub(super) struct Wishes {
    of: HashMap<KeySet, Wish, foldhash::fast::RandomState>,
    /// When the next kept permit lapses or a wish may be forgotten: all are looked at then, not before.
    due: Timestamp,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            of: HashMap::default(),
            due: Timestamp::NEVER,
        }
    }
}

struct Wish {
    touched: Timestamp,
    /// Its place in line.
    asked: Option<u64>,
    kept: Option<Granted>,
    /// The coordinator said no, until then.
    refused: Option<(Timestamp, RefusalReason)>,
}

/// What a call of `try_acquire` finds.
pub(super) enum Found {
    Permit(Granted),
    /// Ask again then.
    No(RefusalReason, Timestamp),
    /// The same, and it must join the line.
    New(KeySet),
}

impl Wishes {
    /// Somebody calls for a permit of `keys`.
    pub(super) fn call(&mut self, keys: &[Key], now: Timestamp) -> Found {
        if let Some(wish) = self.of.get_mut(keys) {
            wish.touched = now;
            if wish
                .kept
                .as_ref()
                .is_some_and(|kept| kept.start <= now && now <= kept.valid_until)
            {
                return wish
                    .kept
                    .take()
                    .map_or(Found::No(RefusalReason::Asked, now), Found::Permit);
            }
            if let Some((at, reason)) = wish.refused.filter(|(at, _)| *at > now) {
                return Found::No(reason, at);
            }
            if let Some(kept) = wish.kept.as_ref().filter(|kept| kept.start > now) {
                return Found::No(RefusalReason::Asked, kept.start);
            }
            return if wish.asked.is_some() || wish.kept.is_some() {
                Found::No(RefusalReason::Asked, now + AGAIN)
            } else {
                Found::New(KeySet::from(keys))
            };
        }
        if self.of.len() >= WISHES_MAX {
            return Found::No(RefusalReason::Asked, now + AGAIN);
        }
        let keys = KeySet::from(keys);
        let wish = Wish {
            touched: now,
            asked: None,
            kept: None,
            refused: None,
        };
        self.of.insert(KeySet::clone(&keys), wish);
        self.due = self.due.min(now + KEPT);
        Found::New(keys)
    }

    /// It stands in line.
    pub(super) fn joined(&mut self, keys: &[Key], number: u64) {
        if let Some(wish) = self.of.get_mut(keys) {
            wish.asked = Some(number);
        }
    }

    /// Keeps a permit that came; one that nobody wants any more comes back.
    pub(super) fn came(&mut self, keys: &[Key], granted: Granted) -> Option<Granted> {
        let Some(wish) = self.of.get_mut(keys) else {
            return Some(granted);
        };
        wish.asked = None;
        self.due = self.due.min(granted.valid_until + MOMENT);
        wish.kept.replace(granted)
    }

    /// The coordinator said no.
    pub(super) fn refused(&mut self, keys: &[Key], reason: RefusalReason, until: Timestamp) {
        if let Some(wish) = self.of.get_mut(keys) {
            wish.asked = None;
            wish.refused = Some((until, reason));
        }
    }

    /// Takes out the permits nobody took in time; and forgets wishes nobody came back for, as far as `withdraw` lets it.
    pub(super) fn sweep(
        &mut self,
        now: Timestamp,
        mut withdraw: impl FnMut(u64) -> bool,
    ) -> Vec<Granted> {
        let mut lapsed = Vec::new();
        if now < self.due {
            return lapsed;
        }
        self.of.retain(|_, wish| {
            if wish
                .kept
                .as_ref()
                .is_some_and(|kept| now > kept.valid_until)
            {
                lapsed.extend(wish.kept.take());
            }
            let forgotten = now.since(wish.touched) >= KEPT && wish.kept.is_none();
            let refused = wish.refused.is_some_and(|(at, _)| at > now);
            !(forgotten && !refused && wish.asked.is_none_or(&mut withdraw))
        });
        let kept = self.of.values().filter_map(|wish| wish.kept.as_ref());
        let lapses = kept.map(|kept| kept.valid_until + MOMENT).min();
        self.due = if self.of.is_empty() {
            Timestamp::NEVER
        } else {
            lapses.unwrap_or(Timestamp::NEVER).min(now + KEPT)
        };
        lapsed
    }

    /// When to sweep again.
    pub(super) const fn due(&self) -> Timestamp {
        self.due
    }

    /// All permits that are kept.
    pub(super) fn drain(&mut self) -> Vec<Granted> {
        self.of.drain().filter_map(|(_, wish)| wish.kept).collect()
    }
}

/// Until when a parked key is parked, and as which reason.
pub(super) fn parked(said: &str, rest_ms: Option<u64>) -> (Duration, Reason) {
    let all = [
        HoldReason::RetryAfter,
        HoldReason::QuotaSpent,
        HoldReason::Backoff,
        HoldReason::CrawlDelay,
        HoldReason::Operator,
    ];
    let reason = all
        .into_iter()
        .find(|reason| said.ends_with(reason.as_str()));
    let rest = rest_ms.map_or(PARKED, Duration::from_millis);
    (
        rest,
        Reason::Parked(reason.unwrap_or(HoldReason::RetryAfter)),
    )
}
