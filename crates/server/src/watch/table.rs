//! The table of all keys. It is built at most twice a second, and searched and sorted for each
//! reader.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::{Explanation, Limiter, Reason};
use politely_api::wire::{
    KeyPage, KeyPatch, KeyRow, KeyState, KeysPattern, KeysQuery, NeedCounts, SortBy,
};

use super::attention::{Attention, Known, Needs};
use super::past::Pasts;

use crate::coordinator::{engine_trouble, finite, ms_up, settings};

/// The shortest lifetime of a table. It is also kept for ten times as long as it took to build.
const FRESH: Duration = Duration::from_millis(500);
/// The most rows of a page.
const ROWS_MAX: u32 = 1_000;

/// The numbers of one key, without texts.
#[derive(Clone, Debug)]
pub(crate) struct Glance {
    pub(crate) key: Key,
    pub(crate) state: KeyState,
    ready: Timestamp,
    rate: f64,
    ceiling: Option<f64>,
    in_flight: (u32, u32),
    waiting: u32,
    granted: u64,
    reported: u64,
    refused: u64,
    needs: Needs,
}

/// All states of keys, with their names in metrics.
pub(super) const STATES: [(KeyState, &str); 10] = [
    (KeyState::Ready, "ready"),
    (KeyState::Pacing, "pacing"),
    (KeyState::Full, "full"),
    (KeyState::Bytes, "bytes"),
    (KeyState::Budget, "budget"),
    (KeyState::Hold, "hold"),
    (KeyState::Parked, "parked"),
    (KeyState::Breaker, "breaker"),
    (KeyState::Quarantine, "quarantine"),
    (KeyState::Unavailable, "unavailable"),
];

/// The numbers of the table in `/metrics`.
pub(super) struct TableMetrics {
    /// The number of keys in each state of [`STATES`].
    pub(super) states: [u64; STATES.len()],
    /// Keys with the time until their next request may start, in seconds.
    pub(super) waits: Vec<(Key, f64)>,
    /// Keys with their number of refusals.
    pub(super) refused: Vec<(Key, u64)>,
}

#[derive(Default)]
pub(crate) struct Table(Mutex<Made>);

#[derive(Clone, Default)]
struct Made {
    at: Timestamp,
    took: Duration,
    glances: Arc<Vec<Glance>>,
    attention: Attention,
    needs: NeedCounts,
}

pub(crate) fn glance(key: &Key, explained: &Explanation, waiting: usize, now: Timestamp) -> Glance {
    let state = match explained.wait.map(|wait| wait.reason) {
        None => KeyState::Ready,
        Some(Reason::Pace) => KeyState::Pacing,
        Some(Reason::InFlight) => KeyState::Full,
        Some(Reason::Bytes) => KeyState::Bytes,
        Some(Reason::Budget) => KeyState::Budget,
        Some(Reason::Hold(_)) => KeyState::Hold,
        Some(Reason::Parked(_)) => KeyState::Parked,
        Some(Reason::Breaker) => KeyState::Breaker,
        Some(Reason::Quarantine) => KeyState::Quarantine,
        Some(Reason::Unavailable | Reason::Unreadable) => KeyState::Unavailable,
    };
    Glance {
        key: key.clone(),
        state,
        ready: explained.wait.map_or(now, |wait| wait.at),
        rate: explained.rate,
        ceiling: explained.law.ceiling,
        in_flight: explained.in_flight,
        waiting: waiting as u32,
        granted: explained.tally.granted,
        reported: explained.tally.reported,
        refused: explained.refused,
        needs: Needs::default(),
    }
}

/// Returns the row of one key, with texts.
pub(crate) fn row(key: &Key, explained: &Explanation, waiting: usize, now: Timestamp) -> KeyRow {
    let glance = glance(key, explained, waiting, now);
    let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
    KeyRow {
        key: key.as_str().to_owned(),
        state: glance.state,
        why: explained.line(now),
        ready_in_ms: ms_up(glance.ready.since(now)),
        rate: glance.rate.is_finite().then_some(glance.rate),
        ceiling: glance.ceiling,
        tokens: finite(explained.tokens),
        burst: finite(explained.burst),
        in_flight: glance.in_flight.0,
        in_flight_max: glance.in_flight.1,
        waiting: glance.waiting,
        granted: glance.granted,
        reported: glance.reported,
        refused: glance.refused,
        refused_share: glance.refused_share(),
        latency_p50_ms: explained.latency.map(|(p50, _)| ms(p50)),
        latency_p95_ms: explained.latency.map(|(_, p95)| ms(p95)),
        set: None,
        needs: Vec::new(),
        minutes: None,
    }
}

impl Table {
    /// Returns the rows that match `query`. It is slow with a million keys, so it must not run on
    /// an async thread.
    pub(super) fn page(&self, limiter: &Limiter, pasts: &Pasts, query: &KeysQuery) -> KeyPage {
        let (glances, needs) = self.glances(limiter, pasts);
        let text = query.q.as_deref().unwrap_or("").to_ascii_lowercase();
        let prefix = query.prefix.as_deref().map(Key::canonical_prefix);
        let matches = |glance: &&Glance| {
            contains(glance.key.as_str(), &text)
                && query.state.is_none_or(|state| glance.state == state)
                && (prefix.as_ref()).is_none_or(|prefix| glance.key.as_str().starts_with(&**prefix))
                && (query.cursor.as_ref()).is_none_or(|cursor| glance.key.as_str() > &**cursor)
                && query.needs.is_none_or(|need| glance.needs.contains(need))
        };
        let mut found: Vec<&Glance> = glances.iter().filter(matches).collect();
        let matching = found.len();
        let order = |a: &&Glance, b: &&Glance| {
            let order = a.compare(b, query.sort);
            let order = if query.descending {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| a.key.as_str().cmp(b.key.as_str()))
        };
        let first = query.offset as usize;
        let last = first.saturating_add(query.limit.unwrap_or(100).min(ROWS_MAX) as usize);
        if last < found.len() {
            found.select_nth_unstable_by(last, order);
            found.truncate(last);
        }
        found.sort_unstable_by(order);
        let is_by_name = query.sort == SortBy::Name && !query.descending;
        let next = found.last().filter(|_| is_by_name && last < matching);
        let next = next.map(|glance| glance.key.as_str().to_owned());
        let now = limiter.now();
        let rows = found.into_iter().skip(first).filter_map(|glance| {
            let explained = limiter.explain(&glance.key)?;
            let set = settings(limiter, &glance.key);
            let set = (set != KeyPatch::default()).then(|| Box::new(set));
            let minutes = query.minutes.then(|| pasts.minutes(now, &glance.key));
            Some(KeyRow {
                set,
                needs: glance.needs.list(),
                minutes: minutes.flatten(),
                ..row(&glance.key, &explained, glance.waiting as usize, now)
            })
        });
        let (engine_error, engine_warnings) = engine_trouble(limiter);
        KeyPage {
            keys: rows.collect(),
            next,
            matching: matching as u32,
            total: glances.len() as u32,
            needs,
            engine_error,
            engine_warnings,
        }
    }

    /// Returns the keys that match `pattern`. It must not run on an async thread, like
    /// [`Table::page`].
    pub(super) fn matching(
        &self,
        limiter: &Limiter,
        pasts: &Pasts,
        pattern: &KeysPattern,
    ) -> Vec<Key> {
        let (glances, _) = self.glances(limiter, pasts);
        let text = pattern.q.as_deref().unwrap_or("").to_ascii_lowercase();
        let prefix = Key::canonical_prefix(pattern.prefix.as_deref().unwrap_or(""));
        let matches = |glance: &&Glance| {
            glance.key.as_str().starts_with(&prefix)
                && contains(glance.key.as_str(), &text)
                && pattern.state.is_none_or(|state| glance.state == state)
        };
        let found = glances.iter().filter(matches);
        found.map(|glance| glance.key.clone()).collect()
    }

    fn glances(&self, limiter: &Limiter, pasts: &Pasts) -> (Arc<Vec<Glance>>, NeedCounts) {
        let mut made = self.0.lock();
        let now = limiter.now();
        if made.at == Timestamp::ZERO || now.since(made.at) >= FRESH.max(made.took * 10) {
            let mut glances = Vec::with_capacity(made.glances.len());
            let mut needs = NeedCounts::default();
            let mut next = made.attention.next(pasts.recent_trouble(now));
            limiter.each(|key, explained, waiting| {
                let mut glance = glance(key, explained, waiting, now);
                glance.needs = next.needs(now, &glance.known());
                glance.needs.count(&mut needs);
                glances.push(glance);
            });
            let attention = next.done();
            *made = Made {
                at: now,
                took: limiter.now().since(now),
                glances: Arc::new(glances),
                attention,
                needs,
            };
        }
        (Arc::clone(&made.glances), made.needs)
    }

    /// Returns the number of keys for which no request may start now.
    pub(super) fn limited(&self, limiter: &Limiter, pasts: &Pasts) -> u64 {
        let (glances, _) = self.glances(limiter, pasts);
        let limited = glances
            .iter()
            .filter(|glance| glance.state != KeyState::Ready);
        limited.count() as u64
    }

    /// Returns the number of keys in each state of [`STATES`], the `most` keys with the longest
    /// waits in seconds, and the `most` keys with the most refusals.
    pub(super) fn metrics(&self, limiter: &Limiter, pasts: &Pasts, most: usize) -> TableMetrics {
        let (glances, _) = self.glances(limiter, pasts);
        let now = limiter.now();
        let mut states = [0; STATES.len()];
        let (mut waits, mut refused) = (Vec::new(), Vec::new());
        for glance in &*glances {
            if let Some(at) = STATES.iter().position(|(state, _)| *state == glance.state) {
                states[at] += 1;
            }
            let wait = glance.ready.since(now);
            if !wait.is_zero() {
                waits.push((wait, &glance.key));
            }
            if glance.refused > 0 {
                refused.push((glance.refused, &glance.key));
            }
        }
        let seconds = |(wait, key): (Duration, &Key)| (key.clone(), wait.as_secs_f64());
        TableMetrics {
            states,
            waits: largest(waits, most).map(seconds).collect(),
            refused: largest(refused, most)
                .map(|(count, key)| (key.clone(), count))
                .collect(),
        }
    }

    /// Marks the table as outdated, so that a change is visible at once.
    pub(crate) fn stale(&self) {
        self.0.lock().at = Timestamp::ZERO;
    }
}

/// Returns the `most` largest values, the largest first.
pub(super) fn largest<T: Ord, K: Ord>(
    mut values: Vec<(T, K)>,
    most: usize,
) -> impl Iterator<Item = (T, K)> {
    let order = |a: &(T, K), b: &(T, K)| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1));
    if most < values.len() {
        values.select_nth_unstable_by(most, order);
        values.truncate(most);
    }
    values.sort_unstable_by(order);
    values.into_iter()
}

/// Returns whether `name` contains `text`, which is in lower case. Only custom keys have capital
/// letters.
fn contains(name: &str, text: &str) -> bool {
    name.contains(text) || name.to_ascii_lowercase().contains(text)
}

impl Glance {
    const fn known(&self) -> Known<'_> {
        Known {
            key: &self.key,
            state: self.state,
            ready: self.ready,
            waiting: self.waiting,
            granted: self.granted,
        }
    }

    fn refused_share(&self) -> f64 {
        if self.reported == 0 {
            0.0
        } else {
            self.refused as f64 / self.reported as f64
        }
    }

    /// Returns the number of callers of a key with needs, to compare keys with the same needs.
    const fn urgency(&self) -> u32 {
        if self.needs.rank() == Needs::NONE_RANK {
            0
        } else {
            self.waiting
        }
    }

    fn compare(&self, other: &Self, by: SortBy) -> Ordering {
        let number = |of: fn(&Self) -> f64| of(self).total_cmp(&of(other));
        match by {
            SortBy::Name => self.key.as_str().cmp(other.key.as_str()),
            SortBy::Rate => number(|glance| glance.rate),
            SortBy::Ceiling => number(|glance| glance.ceiling.unwrap_or(0.0)),
            SortBy::InFlight => self.in_flight.cmp(&other.in_flight),
            SortBy::Waiting => self.waiting.cmp(&other.waiting),
            SortBy::RefusedShare => number(Self::refused_share),
            SortBy::Granted => self.granted.cmp(&other.granted),
            SortBy::ReadyIn => self.ready.cmp(&other.ready),
            SortBy::Attention => (self.needs.rank().cmp(&other.needs.rank()))
                .then_with(|| other.urgency().cmp(&self.urgency())),
        }
    }
}
