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
    /// Records that the host of `key` answered.
    pub fn answered(&self, now: Timestamp, key: &Key) {
        let host = hash(key);
        let mut seen = self.seen.lock();
        seen.machine.answered(now);
        self.is_paused.store(false, Ordering::Relaxed);
        if seen.answered.contains(&host) {
            return;
        }
        if seen.answered.len() == ANSWERED_MAX {
            seen.answered.pop_front();
        }
        seen.answered.push_back(host);
    }

    /// Records that a request to the host of `key` failed, with what may be wrong with the worker's
    /// machine. Returns whether the machine is at fault, so the failure counts against nobody.
    pub fn failed(&self, now: Timestamp, key: &Key, trouble: Option<Trouble>) -> bool {
        let Some(trouble) = trouble else {
            return false;
        };
        let host = hash(key);
        let mut seen = self.seen.lock();
        let has_answered = seen.answered.contains(&host);
        let is_at_fault = seen.machine.failed(now, host, has_answered, trouble);
        let is_paused = seen.machine.paused_since().is_some();
        self.is_paused.store(is_paused, Ordering::Relaxed);
        is_at_fault
    }

    /// Returns whether a request of the worker to the host of `key` may leave. While it pauses,
    /// that is a probe.
    ///
    /// # Errors
    /// The time of the next probe.
    pub fn may_send(&self, now: Timestamp, key: &Key) -> Result<(), Timestamp> {
        if !self.is_paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut seen = self.seen.lock();
        let has_answered = seen.answered.contains(&hash(key));
        seen.machine.may_send(now, has_answered)
    }
}

fn hash(key: &Key) -> u32 {
    FixedState::default().hash_one(key) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    /// Returns whether the last of `troubles`, each of another host, is the machine's fault. All
    /// hosts answered before if `have_answered`.
    fn is_at_fault(have_answered: bool, troubles: &[Option<Trouble>]) -> bool {
        let machine = OwnMachine::default();
        let key = |number: usize| Key::host(&format!("h{number}.example")).unwrap();
        for host in 0..troubles.len() {
            if have_answered {
                machine.answered(at(0), &key(host));
            }
        }
        let failed = |(host, trouble): (usize, &Option<Trouble>)| {
            machine.failed(at(1), &key(host), *trouble)
        };
        troubles.iter().enumerate().map(failed).last().unwrap()
    }

    #[test]
    fn silence_of_three_hosts_that_answered_is_the_machines() {
        let silent = Some(Trouble::Silent);
        assert!(is_at_fault(true, &[silent; 3]));
        assert!(!is_at_fault(true, &[silent; 2]));
        assert!(!is_at_fault(false, &[silent; 9]), "they may not exist");
    }

    #[test]
    fn refused_connections_are_the_hosts_however_many() {
        assert!(!is_at_fault(true, &[None; 9]));
    }
}
