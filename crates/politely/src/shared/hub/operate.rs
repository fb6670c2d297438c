//! What an operator sees of all keys, and what outlives a restart.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{Explanation, Host, Reason, Wait};
use politely_core::key::Key;

use super::super::desk::{Count, Desk};
use super::{AGAIN, Hub, STALE};
use crate::waiters::Turn;

impl Hub {
    /// Has all been written?
    pub(in crate::shared) fn is_quiet(&self) -> bool {
        self.desks.iter().flatten().all(Desk::is_quiet)
    }

    pub(in crate::shared) const fn count(&self) -> Count {
        self.shop.count
    }

    /// How long commits took of late: the median and the 99th percentile.
    pub(in crate::shared) fn took(&self) -> (Duration, Duration) {
        self.shop.took.quantiles()
    }

    pub(in crate::shared) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.of.keys()
    }

    pub(in crate::shared) fn len(&self) -> usize {
        self.of.len()
    }

    /// Bytes held, from capacities; long names and what is under way own a little more.
    pub(in crate::shared) fn memory(&self) -> usize {
        self.desks.capacity() * size_of::<Option<Desk>>()
            + self.due_of.capacity() * size_of::<Timestamp>()
            + self.of.capacity() * size_of::<(Key, usize)>()
            + self.named.capacity() * size_of::<(Arc<str>, usize)>()
    }

    pub(in crate::shared) fn set_config(&mut self, config: Arc<Config>, mono: Timestamp) {
        self.shop.config = config;
        for id in 0..self.desks.len() {
            if let Some(desk) = &mut self.desks[id] {
                desk.look_again(mono);
                self.wake(id);
            }
        }
    }

    pub(in crate::shared) fn position(&self, key: &Key, turn: Turn) -> usize {
        let desk = self.of.get(key).and_then(|id| self.desks[*id].as_ref());
        desk.map_or(0, |desk| desk.before(turn))
    }

    /// Why `key` waits, as far as it is known here, its times made our own clock's.
    pub(in crate::shared) fn explain(&mut self, key: &Key, mono: Timestamp) -> Option<Explanation> {
        let id = *self.of.get(key)?;
        let now = self.shop.epochs.now(mono);
        let away = !self.shop.epochs.is_fresh(mono) || self.refused.is_some();
        let desk = self.desks[id].as_mut()?;
        let blind = if away && desk.is_shut() {
            Some(Reason::Away)
        } else {
            desk.is_unreadable().then_some(Reason::Unreadable)
        };
        let mut explained = desk.host().look(now, &self.shop.config);
        if let Some(wait) = &mut explained.wait {
            wait.at = self.shop.epochs.mono(wait.at);
        }
        if let Some(event) = &mut explained.event {
            event.at = self.shop.epochs.mono(event.at);
        }
        if let Some(reason) = blind
            && explained.wait.is_none_or(|wait| wait.at < mono + AGAIN)
        {
            explained.wait = Some(Wait {
                at: mono + AGAIN,
                reason,
            });
        }
        Some(explained)
    }

    pub(in crate::shared) fn with_host<T>(
        &mut self,
        key: &Key,
        see: impl FnOnce(&mut Host) -> T,
    ) -> Option<T> {
        let id = *self.of.get(key)?;
        self.desks[id].as_mut().map(|desk| see(desk.host()))
    }

    /// Nothing that was said about `key` waits to be written.
    pub(in crate::shared) fn is_written(&self, key: &Key) -> bool {
        let desk = self.of.get(key).and_then(|id| self.desks[*id].as_ref());
        desk.is_none_or(Desk::is_quiet)
    }

    /// A caller had the cell of `key` read: `value` is what it holds. Says whether the key is
    /// known.
    pub(in crate::shared) fn was_looked_at(
        &mut self,
        key: &Key,
        value: Option<&[u8]>,
        mono: Timestamp,
    ) -> bool {
        let Some(value) = value else {
            return self.of.contains_key(key);
        };
        let id = self.desk(key, mono);
        if let Some(desk) = &mut self.desks[id] {
            desk.noticed(value, &mut self.shop, mono);
        }
        self.wake(id);
        true
    }

    /// The engine answered, or did not.
    pub(in crate::shared) const fn has_tried(&self) -> bool {
        self.shop.trouble.is_some()
            || self.refused.is_some()
            || self.shop.epochs.last_seen().is_some()
    }

    /// Why nothing is written, if nothing is.
    pub(in crate::shared) fn trouble(&self, mono: Timestamp) -> Option<String> {
        if self.shop.epochs.is_fresh(mono) {
            let (since, why) = self.refused.as_ref()?;
            let stands = mono.since(*since);
            return (stands >= STALE)
                .then(|| format!("takes no writes for {:.1} s: {why}", stands.as_secs_f64()));
        }
        if self.stood_still(mono) && self.shop.trouble.is_none() {
            return None;
        }
        let refused = self.refused.as_ref().map(|(_, why)| &**why);
        let why = self.shop.trouble.as_deref().or(refused);
        let why = why.unwrap_or("no answer yet");
        let seen = self.shop.epochs.last_seen();
        let away = seen.map(|seen| mono.since(seen).as_secs_f64());
        let away = away.map_or_else(String::new, |away| format!("away for {away:.1} s: "));
        let share = if self.is_alone(mono) {
            format!("; each of {} goes on with its share", self.members())
        } else {
            String::new()
        };
        Some(format!("{away}{why}{share}"))
    }

    /// A state that an earlier run kept.
    pub(in crate::shared) fn remember(&mut self, key: &Key, state: &[u8]) {
        if !self.of.contains_key(key) {
            self.remembered.insert(key.clone(), state.to_vec());
        }
    }

    /// The states that learned something since this was last called.
    pub(in crate::shared) fn take_learned(&mut self) -> Vec<(Key, Vec<u8>)> {
        let mut learned = Vec::new();
        for (key, &id) in &self.of {
            if let Some(desk) = &mut self.desks[id]
                && std::mem::take(&mut desk.learned)
            {
                learned.push((key.clone(), desk.host().snapshot()));
            }
        }
        learned
    }

    /// How many share the engine.
    pub(in crate::shared) fn members(&self) -> usize {
        self.shop.epochs.place().1
    }

    /// Lingering reports are written now.
    pub(in crate::shared) fn flush(&mut self, mono: Timestamp) {
        for id in 0..self.desks.len() {
            if let Some(desk) = &mut self.desks[id] {
                desk.flush(mono);
                self.wake(id);
            }
        }
    }
}
