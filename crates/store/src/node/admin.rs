//! What an operator sees of all keys, and what outlives a restart.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::host::{Explanation, Host, Reason, Wait};
use politely_core::key::Key;

use super::{AGAIN, Counts, Node, STALE};
use crate::replica::Replica;

impl Node {
    /// Has all been written?
    pub fn is_flushed(&self) -> bool {
        self.replicas.iter().flatten().all(Replica::is_flushed)
    }

    pub const fn counts(&self) -> Counts {
        self.context.count
    }

    /// How long commits took of late: the median and the 99th percentile.
    pub fn commit_latency(&self) -> (Duration, Duration) {
        self.context.took.quantiles()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.of.keys()
    }

    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Bytes held, from capacities; long names and what is under way own a little more.
    pub fn memory(&self) -> usize {
        self.replicas.capacity() * size_of::<Option<Replica>>()
            + self.due_of.capacity() * size_of::<Timestamp>()
            + self.of.capacity() * size_of::<(Key, usize)>()
            + self.named.capacity() * size_of::<(Arc<str>, usize)>()
    }

    pub fn set_config(&mut self, config: Arc<Config>, local: Timestamp) {
        self.context.config = config;
        for id in 0..self.replicas.len() {
            if let Some(replica) = &mut self.replicas[id] {
                replica.look_again(local);
                self.wake(id);
            }
        }
    }

    pub fn position(&self, key: &Key, turn: Arrival) -> usize {
        let replica = self.of.get(key).and_then(|id| self.replicas[*id].as_ref());
        replica.map_or(0, |replica| replica.before(turn))
    }

    /// Why `key` waits, as far as it is known here, its times made our own clock's.
    pub fn explain(&mut self, key: &Key, local: Timestamp) -> Option<Explanation> {
        let id = *self.of.get(key)?;
        let now = self.context.clock.now(local);
        let away = !self.context.clock.is_fresh(local) || self.refused.is_some();
        let replica = self.replicas[id].as_mut()?;
        let blind = if away && replica.is_shut() {
            Some(Reason::Away)
        } else {
            replica.is_unreadable().then_some(Reason::Unreadable)
        };
        let mut explained = replica.host().look(now, &self.context.config);
        if let Some(wait) = &mut explained.wait {
            wait.at = self.context.clock.local(wait.at);
        }
        if let Some(event) = &mut explained.event {
            event.at = self.context.clock.local(event.at);
        }
        if let Some(reason) = blind
            && explained.wait.is_none_or(|wait| wait.at < local + AGAIN)
        {
            explained.wait = Some(Wait {
                at: local + AGAIN,
                reason,
            });
        }
        Some(explained)
    }

    pub fn with_host<T>(&mut self, key: &Key, see: impl FnOnce(&mut Host) -> T) -> Option<T> {
        let id = *self.of.get(key)?;
        self.replicas[id]
            .as_mut()
            .map(|replica| see(replica.host()))
    }

    /// The engine answered, or did not.
    pub const fn has_tried(&self) -> bool {
        self.context.last_error.is_some()
            || self.refused.is_some()
            || self.context.clock.last_seen().is_some()
    }

    /// Why nothing is written, if nothing is.
    pub fn last_error(&self, local: Timestamp) -> Option<String> {
        if self.context.clock.is_fresh(local) {
            let (since, why) = self.refused.as_ref()?;
            let stands = local.since(*since);
            return (stands >= STALE)
                .then(|| format!("takes no writes for {:.1} s: {why}", stands.as_secs_f64()));
        }
        if self.stood_still(local) && self.context.last_error.is_none() {
            return None;
        }
        let refused = self.refused.as_ref().map(|(_, why)| &**why);
        let why = self.context.last_error.as_deref().or(refused);
        let why = why.unwrap_or("no answer yet");
        let seen = self.context.clock.last_seen();
        let away = seen.map(|seen| local.since(seen).as_secs_f64());
        let away = away.map_or_else(String::new, |away| format!("away for {away:.1} s: "));
        let share = if self.is_alone(local) {
            format!("; each of {} goes on with its share", self.members())
        } else {
            String::new()
        };
        Some(format!("{away}{why}{share}"))
    }

    /// A state that an earlier run kept.
    pub fn remember(&mut self, key: &Key, state: &[u8]) {
        if !self.of.contains_key(key) {
            self.remembered.insert(key.clone(), state.to_vec());
        }
    }

    /// The states that learned something since this was last called.
    pub fn take_learned(&mut self) -> Vec<(Key, Vec<u8>)> {
        let mut learned = Vec::new();
        for (key, &id) in &self.of {
            if let Some(replica) = &mut self.replicas[id]
                && std::mem::take(&mut replica.learned)
            {
                learned.push((key.clone(), replica.host().snapshot()));
            }
        }
        learned
    }

    /// How many share the engine.
    pub fn members(&self) -> usize {
        self.context.clock.place().1
    }

    /// Lingering reports are written now.
    pub fn flush(&mut self, local: Timestamp) {
        for id in 0..self.replicas.len() {
            if let Some(replica) = &mut self.replicas[id] {
                replica.flush(local);
                self.wake(id);
            }
        }
    }
}
