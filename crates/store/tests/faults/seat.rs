//! The place of one process: its node, its clock, and its calls in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use politely_core::Timestamp;

use super::dice::{Dice, MS, Micros};
use super::world::Event;
use politely_store::{Node, Ticket};

/// The subject of a call.
#[derive(Debug)]
pub(super) enum Call {
    Heartbeat(Timestamp),
    Writes(Vec<Arc<str>>),
    Reads(Vec<Arc<str>>),
    Watch,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "independent faults of a process"
)]
pub(super) struct Seat {
    /// The number of processes at this place so far. A message to an earlier one is dropped.
    pub(super) life: u32,
    pub(super) node: Node,
    pub(super) alive: bool,
    pub(super) frozen: bool,
    /// Whether the process is killed when its next write is made.
    pub(super) doomed: bool,
    /// Whether the process's task that talks to the engine has ended.
    pub(super) stopped: bool,
    /// The events that wait while the process is frozen.
    pub(super) held: Vec<Event>,
    pub(super) cut: bool,
    /// The requests that it sent while it was cut off.
    pub(super) backlog: Vec<u64>,
    pub(super) under_way: usize,
    pub(super) calls: BTreeMap<u64, Call>,
    /// The times since when writes of cells are in doubt.
    pub(super) doubts: BTreeMap<Arc<str>, Micros>,
    /// The callers by their tickets.
    pub(super) waits: BTreeMap<Ticket, usize>,
    /// The number of its last timer. Earlier timers are ignored.
    pub(super) timer: u64,
    /// The earliest arrival on an ordered connection.
    pub(super) sent: Micros,
    pub(super) answered: Micros,
    origin: u64,
    born: Micros,
    ppm: i64,
}

impl Seat {
    pub(super) fn new(node: Node, life: u32, born: Micros, dice: &mut Dice) -> Self {
        Self {
            life,
            node,
            alive: true,
            frozen: false,
            doomed: false,
            stopped: false,
            held: Vec::new(),
            cut: false,
            backlog: Vec::new(),
            under_way: 0,
            calls: BTreeMap::new(),
            doubts: BTreeMap::new(),
            waits: BTreeMap::new(),
            timer: 0,
            sent: 0,
            answered: 0,
            origin: dice.span(MS, 1 << 50),
            born,
            ppm: dice.around_zero(super::dice::DRIFT_PPM),
        }
    }

    /// Returns its own clock at `now`.
    pub(super) const fn local(&self, now: Micros) -> Timestamp {
        let passed = (now - self.born).cast_signed();
        let passed = passed + passed * self.ppm / 1_000_000;
        Timestamp::from_micros(self.origin + passed.cast_unsigned())
    }

    /// Returns when its own clock first shows `local`.
    pub(super) fn when(&self, local: Timestamp) -> Micros {
        let passed = local.as_micros().saturating_sub(self.origin).min(1 << 50);
        let passed = passed.cast_signed();
        let mut at = self.born + (passed - passed * self.ppm / 1_000_000).max(0) as u64;
        while self.local(at) < local {
            at += 1;
        }
        at
    }
}
