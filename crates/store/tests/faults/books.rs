//! The record of a schedule from which the checks decide.

use super::dice::Micros;
use super::locker::{Fenced, LockHeld};

/// A request at the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) key: usize,
    pub(super) who: usize,
    pub(super) at: Micros,
    /// The delay of the request after its permit allowed it, by its process's own clock.
    pub(super) late: Micros,
    /// The time of the grant.
    pub(super) granted: Micros,
    pub(super) end: Micros,
    /// The time for which the engine had answered no process.
    pub(super) away: Micros,
}

/// A Retry-After that was reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) key: usize,
    pub(super) by: (usize, u32),
    pub(super) told: u64,
    pub(super) at: Micros,
    pub(super) length: Micros,
    /// The time when the engine had it.
    pub(super) committed: Option<Micros>,
}

/// Grants that the engine forgot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) key: usize,
    pub(super) at: Micros,
    pub(super) grants: u64,
}

/// A time with two masters. These clients still reach the old one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) clients: u64,
    pub(super) from: Micros,
    pub(super) until: Micros,
}

/// All records that the checks need.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    pub(super) arrivals: Vec<Arrival>,
    pub(super) held: Vec<Held>,
    pub(super) losses: Vec<Loss>,
    pub(super) splits: Vec<Split>,
    pub(super) clock_sets: Vec<Micros>,
    /// The processes that were killed, frozen or cut off, and when.
    pub(super) gone: Vec<(usize, Micros)>,
    pub(super) commits: Vec<Micros>,
    /// The longest time for which a write was in doubt.
    pub(super) doubt: Micros,
    pub(super) granted: u64,
    /// Holds that operators know to be in the engine.
    pub(super) acknowledged: u64,
    pub(super) reported: u64,
    pub(super) cancelled: u64,
    pub(super) abandoned: u64,
    pub(super) lease_over: u64,
    pub(super) faults_left: usize,
    pub(super) quiet_since: Micros,
    /// The fencing numbers in the order in which sessions saw them.
    pub(super) fencing: Vec<Fenced>,
    pub(super) locks_held: Vec<LockHeld>,
    pub(super) wrongs: Vec<String>,
}

impl Books {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            commits: vec![0; keys],
            ..Self::default()
        }
    }

    pub(super) fn wrong(&mut self, what: String) {
        self.wrongs.push(what);
    }

    pub(super) fn committed(&mut self, key: usize, by: (usize, u32), built: u64, now: Micros) {
        self.commits[key] = now;
        for held in &mut self.held {
            if held.key == key && held.by == by && held.told < built {
                held.committed.get_or_insert(now);
            }
        }
    }

    pub(super) fn held(
        &mut self,
        key: usize,
        by: (usize, u32),
        told: u64,
        at: Micros,
        length: Micros,
    ) {
        self.held.push(Held {
            key,
            by,
            told,
            at,
            length,
            committed: None,
        });
    }

    pub(super) fn lost(&mut self, key: usize, grants: u64, at: Micros) {
        self.losses.push(Loss { key, at, grants });
        for held in &mut self.held {
            if held.key == key {
                held.committed.get_or_insert(Micros::MAX);
            }
        }
    }

    pub(super) fn parted(&mut self, clients: u64, from: Micros, until: Micros) {
        self.splits.push(Split {
            clients,
            from,
            until,
        });
    }

    pub(super) fn clock_set(&mut self, at: Micros) {
        self.clock_sets.push(at);
    }

    pub(super) fn fenced(&mut self, seen: Fenced) {
        self.fencing.push(seen);
    }

    pub(super) fn in_doubt(&mut self, length: Micros) {
        self.doubt = self.doubt.max(length);
    }

    pub(super) fn someone_gone(&mut self, who: usize, at: Micros) {
        self.gone.push((who, at));
    }
}
