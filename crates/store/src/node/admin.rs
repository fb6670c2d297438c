//! Questions and settings of an operator, and what outlives a restart.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::host::{Explanation, Host, Reason, Wait};
use politely_core::key::Key;

use super::{Counts, Node};
use crate::replica::Replica;
use crate::shared_clock::STALE;

/// The wait that is reported for a key whose cell cannot be written or read.
const AGAIN: Duration = Duration::from_millis(250);

impl Node {
    /// Returns whether all events are written.
    pub fn is_flushed(&self) -> bool {
        self.table.all().all(Replica::is_flushed)
    }

    /// Schedules the write of all events now.
    pub fn flush(&mut self, local: Timestamp) {
        self.table.change_all(|replica| replica.flush(local));
    }

    /// Returns the totals of this node.
    pub const fn counts(&self) -> Counts {
        self.context.counts
    }

    /// Adds a permit of another node to the granted ones.
    pub const fn note_adopted(&mut self) {
        self.context.counts.granted += 1;
    }

    /// Returns the median and the 99th percentile of the latency of the latest commits.
    pub fn commit_latency(&self) -> (Duration, Duration) {
        self.context.latency.quantiles()
    }

    /// Returns the keys in memory, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.table.keys()
    }

    /// Returns whether `key` is in memory.
    pub fn knows(&self, key: &Key) -> bool {
        self.table.id_of(key).is_some()
    }

    /// Drops the keys for which `may_go` returns true, if memory holds nothing of them that the
    /// engine does not hold. Their cells stay in the engine.
    pub fn drop_idle(&mut self, may_go: &mut dyn FnMut(&Key) -> bool) {
        self.table.drop_idle_where(may_go, usize::MAX);
    }

    /// Returns the number of keys in memory.
    pub fn keys_len(&self) -> usize {
        self.table.len()
    }

    /// Returns the bytes that the keys hold in memory.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Returns the number of nodes that share the engine.
    pub fn members(&self) -> usize {
        self.context.clock.rank().1
    }

    /// Returns the shared time at `local`.
    pub fn shared_time(&self, local: Timestamp) -> Timestamp {
        self.context.clock.now(local)
    }

    /// Returns the length of a lease.
    pub fn lease(&self) -> Duration {
        self.context.config.lease
    }

    /// Returns the configuration of all keys.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.context.config)
    }

    /// Sets the configuration of all keys.
    pub fn set_config(&mut self, config: Arc<Config>, local: Timestamp) {
        self.context.config = config;
        self.table.change_all(|replica| replica.retry_at(local));
    }

    /// Returns the number of callers in the queue of `key` that arrived before `arrival`.
    pub fn position(&self, key: &Key, arrival: Arrival) -> usize {
        let id = self.table.id_of(key);
        let replica = id.and_then(|id| self.table.get(id));
        replica.map_or(0, |replica| replica.waiters_before(arrival))
    }

    /// Explains why `key` waits, as far as this node knows. All times are local.
    pub fn explain(&mut self, key: &Key, local: Timestamp) -> Option<Explanation> {
        let id = self.table.id_of(key)?;
        let now = self.context.clock.now(local);
        let is_unavailable =
            !self.context.clock.is_fresh(local) || self.heartbeats.refused.is_some();
        let replica = self.table.get_mut(id)?;
        let reason = if is_unavailable && !replica.has_fallback() {
            Some(Reason::Unavailable)
        } else {
            replica.is_unreadable().then_some(Reason::Unreadable)
        };
        let mut explained = replica.host().look(now, &self.context.config);
        if let Some(wait) = &mut explained.wait {
            wait.at = self.context.clock.local(wait.at);
        }
        if let Some((until, _)) = &mut explained.hold {
            *until = self.context.clock.local(*until);
        }
        if explained.last_grant > Timestamp::ZERO {
            explained.last_grant = self.context.clock.local(explained.last_grant);
        }
        if let Some(event) = &mut explained.event {
            event.at = self.context.clock.local(event.at);
        }
        let at = local + AGAIN;
        if let Some(reason) = reason
            && explained.wait.is_none_or(|wait| wait.at < at)
        {
            explained.wait = Some(Wait { at, reason });
        }
        Some(explained)
    }

    /// Calls `see` with the state of `key`, as far as this node knows it.
    pub fn with_host<T>(&mut self, key: &Key, see: impl FnOnce(&mut Host) -> T) -> Option<T> {
        let id = self.table.id_of(key)?;
        let replica = self.table.get_mut(id)?;
        Some(see(replica.host()))
    }

    /// Returns whether no event of `key` waits to be written.
    pub fn is_written(&self, key: &Key) -> bool {
        let id = self.table.id_of(key);
        let replica = id.and_then(|id| self.table.get(id));
        replica.is_none_or(Replica::is_flushed)
    }

    /// Returns whether a report of `key` that is not written yet spends more of the declared limits
    /// than its permit did.
    pub fn owes(&self, key: &Key) -> bool {
        let id = self.table.id_of(key);
        let replica = id.and_then(|id| self.table.get(id));
        replica.is_some_and(Replica::owes)
    }

    /// Takes over the value of the cell of `key`, which was read for a caller. Returns whether the
    /// key is known.
    pub fn handle_refresh(&mut self, key: &Key, value: Option<&[u8]>, local: Timestamp) -> bool {
        let Some(value) = value else {
            return self.table.id_of(key).is_some();
        };
        let id = self.replica(key, local);
        if let Some(replica) = self.table.get_mut(id) {
            replica.handle_notice(value, &mut self.context, local);
        }
        self.wake_after_change(id);
        true
    }

    /// Returns whether the engine has answered or failed at least once.
    pub const fn has_tried(&self) -> bool {
        self.context.last_error.is_some()
            || self.heartbeats.refused.is_some()
            || self.context.clock.last_seen().is_some()
    }

    /// Returns why no event can be written now, `None` if all is well.
    pub fn last_error(&self, local: Timestamp) -> Option<String> {
        let refused = self.heartbeats.refused.as_ref();
        if self.context.clock.is_fresh(local) {
            let unread = || "its settings have not been read yet".to_owned();
            let Some((since, why)) = refused else {
                return (!self.settings.are_known()).then(unread);
            };
            let stands = local.since(*since);
            return (stands >= STALE)
                .then(|| format!("takes no writes for {:.1} s: {why}", stands.as_secs_f64()));
        }
        if self.was_suspended(local) && self.context.last_error.is_none() {
            return None;
        }
        let refused = refused.map(|(_, why)| &**why);
        let why = self.context.last_error.as_deref().or(refused);
        let why = why.unwrap_or("no answer yet");
        let seen = self.context.clock.last_seen();
        let silence = seen.map(|seen| local.since(seen).as_secs_f64());
        let silence = silence.map_or_else(String::new, |s| format!("unavailable for {s:.1} s: "));
        let share = if self.is_on_fallback(local) {
            format!("; each of {} goes on with its share", self.members())
        } else {
            String::new()
        };
        Some(format!("{silence}{why}{share}"))
    }

    /// Keeps a state from an earlier run, for a key that the engine turns out not to hold.
    pub fn remember(&mut self, key: &Key, state: &[u8]) {
        if self.table.id_of(key).is_none() {
            self.remembered.insert(key.clone(), state.to_vec());
        }
    }

    /// Returns the states that have learned something since the last call.
    pub fn take_learned(&mut self) -> Vec<(Key, Vec<u8>)> {
        self.table.take_learned()
    }
}
