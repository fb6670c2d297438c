//! The histories of active keys: a point every ten seconds for a quarter of an hour, counts of half
//! an hour, and the latest decisions.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use politely::Directions;
use politely::core::Timestamp;
use politely::core::control::Latency;
use politely::core::key::Key;
use politely::core::signal::{Report, Signal};
use politely_api::wire::{Decision, Minutes, Point};
use std::collections::HashMap;

use super::minutes::{self, Minute};
use super::table::largest;

/// The length of a step.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// The number of steps that are kept.
const STEPS: usize = 90;
/// The number of decisions that are kept.
const DECISIONS: usize = 30;
const SHARDS: usize = 64;
/// The most keys with a history, per shard: 8,192 in all, at most 10 KB each.
const KEYS: usize = 128;
/// The smallest relative change of a rate that is announced.
const MOVED: f64 = 0.1;
/// The shortest time between two announcements of a key's rate.
const QUIET: Duration = Duration::from_secs(1);

type Shard = HashMap<Key, Box<Past>, foldhash::fast::RandomState>;

pub(crate) struct Pasts {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
}

#[derive(Default)]
struct Past {
    /// The current step. It is stored inline, because every grant and every report changes it.
    step: Option<Step>,
    /// The earlier steps, oldest first.
    steps: VecDeque<Step>,
    minutes: minutes::Past,
    decisions: VecDeque<(Timestamp, String)>,
    /// The rate that was announced last, at the time `told`.
    rate: f64,
    told: Timestamp,
    touched: Timestamp,
}

#[derive(Default)]
struct Step {
    began: Timestamp,
    rate: f64,
    granted: u32,
    ok: u32,
    refused: u32,
    failed: u32,
    blocked: u32,
    latency: Latency,
}

impl Default for Pasts {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Pasts {
    pub(crate) fn granted(&self, now: Timestamp, key: &Key, slots: u16) {
        self.with(now, key, |past| {
            past.step(now).granted += u32::from(slots);
            past.minutes.current(now).granted += u32::from(slots);
        });
    }

    /// Records an outcome. Returns the rate before and after if it changed enough to be announced.
    pub(crate) fn reported(
        &self,
        now: Timestamp,
        key: &Key,
        report: &Report,
        directions: &Directions,
    ) -> Option<(f64, f64)> {
        self.with(now, key, |past| {
            let minute = past.minutes.current(now);
            minute.reported += 1;
            minute.refused += u32::from(report.signal.is_refusal());
            let step = past.step(now);
            step.rate = directions.rate;
            match report.signal {
                Signal::Ok | Signal::UrlError => step.ok += 1,
                Signal::RateLimited => step.refused += 1,
                Signal::Overloaded | Signal::Unreachable => step.failed += 1,
                Signal::Blocked => step.blocked += 1,
            }
            if report.signal == Signal::Ok {
                step.latency.record(report.latency);
            }
            let (from, to) = (past.rate, directions.rate);
            if from == 0.0 {
                past.rate = to;
                return None;
            }
            let moved = (to - from).abs() > from * MOVED && to.is_finite();
            if !moved || now.since(past.told) < QUIET {
                return None;
            }
            (past.rate, past.told) = (to, now);
            past.decide(now, format!("{from:.2}/s -> {to:.2}/s"));
            Some((from, to))
        })?
    }

    /// Records that the lease of a permit expired without a report.
    pub(crate) fn expired(&self, now: Timestamp, key: &Key) {
        self.with(now, key, |past| past.minutes.current(now).expired += 1);
    }

    /// Returns the last half hour of `key`, if it has a history.
    pub(crate) fn minutes(&self, now: Timestamp, key: &Key) -> Option<Minutes> {
        let shard = self.shard(key);
        shard.get(key).map(|past| past.minutes.points(now))
    }

    /// Returns the recent counts of the keys with refusals or expired leases.
    pub(super) fn recent_trouble(&self, now: Timestamp) -> HashMap<Key, Minute> {
        let mut recent = HashMap::new();
        for shard in &self.shards {
            for (key, past) in &*shard.lock() {
                let minute = past.minutes.recent(now);
                if minute.refused > 0 || minute.expired > 0 {
                    recent.insert(key.clone(), minute);
                }
            }
        }
        recent
    }

    pub(crate) fn decided(&self, now: Timestamp, key: &Key, text: String) {
        self.with(now, key, |past| past.decide(now, text));
    }

    /// Returns the history of `key`: points, oldest first, and decisions, newest first.
    pub(crate) fn of(&self, now: Timestamp, key: &Key) -> (Vec<Point>, Vec<Decision>) {
        let shard = self.shard(key);
        let Some(past) = shard.get(key) else {
            return (Vec::new(), Vec::new());
        };
        let ms = |at: Timestamp| now.since(at).as_millis() as u64;
        let latency = |of: Option<Duration>| of.unwrap_or_default().as_secs_f64() * 1e3;
        let steps = past.steps.iter().chain(&past.step);
        let points = steps.map(|step| Point {
            ago_ms: ms(step.began),
            rate: step.rate.min(1e9),
            granted: step.granted,
            ok: step.ok,
            refused: step.refused,
            failed: step.failed,
            blocked: step.blocked,
            latency_p50_ms: latency(step.latency.p50()),
            latency_p95_ms: latency(step.latency.p95()),
        });
        let decisions = past.decisions.iter().rev().map(|(at, text)| Decision {
            ago_ms: ms(*at),
            text: text.clone(),
        });
        (points.collect(), decisions.collect())
    }

    /// Returns the keys with the most grants per second in the last full step, at most `most`.
    pub(crate) fn busiest(&self, now: Timestamp, most: usize) -> Vec<(Key, f64)> {
        let mut grants = Vec::new();
        for shard in &self.shards {
            for (key, past) in &*shard.lock() {
                let granted = past.granted_in_last_step(now);
                if granted > 0 {
                    grants.push((granted, key.clone()));
                }
            }
        }
        let per_second = |(granted, key)| (key, f64::from(granted) / STEP.as_secs_f64());
        largest(grants, most).map(per_second).collect()
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        self.shards[self.hasher.hash_one(key) as usize % SHARDS].lock()
    }

    /// Calls `enter` with the history of `key`. Returns `None` if all places are taken by active
    /// keys.
    fn with<T>(&self, now: Timestamp, key: &Key, enter: impl FnOnce(&mut Past) -> T) -> Option<T> {
        let mut shard = self.shard(key);
        if let Some(past) = shard.get_mut(key) {
            past.touched = now;
            return Some(enter(past));
        }
        if shard.len() >= KEYS {
            // Of eight keys in the shard, the one that is idle for longest is replaced, if it is
            // idle at all.
            let (idle, touched) = shard
                .iter()
                .take(8)
                .map(|(key, past)| (key, past.touched))
                .min_by_key(|(_, touched)| *touched)?;
            if now.since(touched) < STEP {
                return None;
            }
            let idle = idle.clone();
            shard.remove(&idle);
        }
        let past = shard.entry(key.clone()).or_default();
        past.touched = now;
        Some(enter(past))
    }
}

impl Past {
    fn step(&mut self, now: Timestamp) -> &mut Step {
        let fresh = |step: &Step| now.since(step.began) < STEP;
        if !self.step.as_ref().is_some_and(fresh) {
            let micros = STEP.as_micros() as u64;
            let next = Step {
                began: Timestamp::from_micros(now.as_micros() / micros * micros),
                rate: self.rate,
                ..Step::default()
            };
            if let Some(past) = self.step.replace(next) {
                // The current step counts as one of the kept steps.
                if self.steps.len() + 1 >= STEPS {
                    self.steps.pop_front();
                }
                self.steps.push_back(past);
            }
        }
        self.step
            .as_mut()
            .expect("a step was begun above if there was none")
    }

    /// Returns the grants of the step before the one that contains `now`.
    fn granted_in_last_step(&self, now: Timestamp) -> u32 {
        let steps = self.step.iter().chain(self.steps.back());
        let last = |step: &&Step| {
            let age = now.since(step.began);
            age >= STEP && age < STEP * 2
        };
        steps.filter(last).map(|step| step.granted).sum()
    }

    fn decide(&mut self, now: Timestamp, text: String) {
        if self.decisions.len() >= DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back((now, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::host(name).unwrap()
    }

    #[test]
    fn the_busiest_keys_come_first_and_are_at_most_as_many_as_asked_for() {
        let pasts = Pasts::default();
        let at = |secs: u64| Timestamp::from_micros(secs * 1_000_000);
        pasts.granted(at(10), &key("slow.example"), 1);
        pasts.granted(at(11), &key("fast.example"), 20);
        pasts.granted(at(12), &key("middle.example"), 10);
        assert_eq!(pasts.busiest(at(19), 2), [], "the step is not full yet");
        let busiest = pasts.busiest(at(20), 2);
        assert_eq!(
            busiest,
            [(key("fast.example"), 2.0), (key("middle.example"), 1.0)]
        );
        pasts.granted(at(21), &key("slow.example"), 5);
        assert_eq!(pasts.busiest(at(29), 9).len(), 3);
        assert_eq!(pasts.busiest(at(30), 9), [(key("slow.example"), 0.5)]);
    }
}
