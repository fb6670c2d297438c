//! The groups of workers that divide a key by weight, and a request's place among them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::key::Key;

use crate::backend::local::waiters::Arrival;
use crate::policy::{FairQueue, Weights};

/// The most keys whose shares are counted. Beyond it, all of them begin anew.
const KEYS_MAX: usize = 1 << 16;

/// The queues of keys whose rule has shares.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<HashMap<Key, FairQueue>>);

/// A request's place among the groups of its rule. Dropping it gives the place up, unless the
/// request was granted or keeps its place.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    key: Key,
    group: String,
    weight: u32,
    cost: u16,
    arrival: Arrival,
    is_used: AtomicBool,
}

impl Shares {
    pub(super) fn enter(
        self: &Arc<Self>,
        key: &Key,
        weights: &Weights,
        consumer: &str,
        cost: u16,
        now: Timestamp,
    ) -> Share {
        let (group, weight) = weights.group_of(consumer);
        let mut queues = self.0.lock();
        if queues.len() >= KEYS_MAX && !queues.contains_key(key) {
            queues.clear();
        }
        let new = || FairQueue::new(now.as_micros());
        let queue = queues.entry(key.clone()).or_insert_with(new);
        let tag = queue.enter(group, weight, cost);
        Share {
            shares: Arc::clone(self),
            key: key.clone(),
            group: group.to_owned(),
            weight,
            cost,
            arrival: Arrival::from_micros(tag),
            is_used: AtomicBool::new(false),
        }
    }
}

impl Share {
    /// Returns the request's place in the queue of its key.
    pub const fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Notes that the request was granted.
    pub fn granted(&self) {
        self.keep();
        if let Some(queue) = self.shares.0.lock().get_mut(&self.key) {
            queue.left(self.arrival.as_micros());
        }
    }

    /// Notes that the request will be asked for again with the same arrival.
    pub fn keep(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !*self.is_used.get_mut()
            && let Some(queue) = self.shares.0.lock().get_mut(&self.key)
        {
            queue.give_back(&self.group, self.weight, self.cost);
        }
    }
}
