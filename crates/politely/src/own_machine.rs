//! Whether the network of one worker is at fault, as far as its requests tell.
//!
//! A worker without a network meets time-outs and unknown names at all hosts. These say nothing
//! about the hosts, so no host learns from them, and no page's attempt is spent. The worker waits,
//! and one request every few seconds finds out whether a host answers again ([`Machine`]).

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::FixedState;
use politely_core::Timestamp;
use politely_core::fault::Machine;
use politely_core::fault::machine::Trouble;
use politely_core::key::Key;
use politely_core::signal::Failure;

use crate::sync::Mutex;

/// The number of hosts that are remembered as having answered.
const ANSWERED_MAX: usize = 64;

/// The state of one worker's network.
#[derive(Debug, Default)]
pub struct OwnMachine {
    is_paused: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    machine: Machine,
    /// Hosts that answered this worker, the last one at the end.
    answered: VecDeque<u32>,
}

impl OwnMachine {
    /// Handles the end of a request to the host of `key`: an answer, or a failure. Returns whether
    /// the worker's network is at fault.
    pub fn hear(&self, now: Timestamp, key: &Key, failure: Option<Failure>) -> bool {
        let host = FixedState::default().hash_one(key) as u32;
        let mut seen = self.seen.lock();
        let is_at_fault = match failure {
            None => {
                seen.answered(now, host);
                false
            }
            Some(Failure::Resolver) => seen.machine.failed(now, host, Trouble::Unresolved),
            Some(Failure::Timeout | Failure::Connect) if seen.answered.contains(&host) => {
                seen.machine.failed(now, host, Trouble::Silent)
            }
            Some(_) => false,
        };
        let is_paused = seen.machine.paused_since().is_some();
        self.is_paused.store(is_paused, Ordering::Relaxed);
        is_at_fault
    }

    /// Returns whether a request of the worker may leave. While it pauses, that is a probe.
    ///
    /// # Errors
    /// The time of the next probe.
    pub fn may_send(&self, now: Timestamp) -> Result<(), Timestamp> {
        if !self.is_paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.seen.lock().machine.may_send(now)
    }
}

impl Seen {
    fn answered(&mut self, now: Timestamp, host: u32) {
        self.machine.answered(now);
        if self.answered.contains(&host) {
            return;
        }
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back(host);
    }
}
