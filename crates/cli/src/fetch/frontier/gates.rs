//! Lines of lanes before keys that many of them share.

use std::collections::VecDeque;
use std::time::Duration;

use politely::core::Timestamp;

use super::{Frontier, LaneId};

/// The line before a key that many lanes share (a site, an address, the whole run).
///
/// Were each of its lanes scheduled by itself, all of them would be asked whenever one may leave.
/// So they stand in line, and a few at a time are asked.
#[derive(Default)]
pub(super) struct Gate {
    pub(super) line: VecDeque<LaneId>,
    /// Entries of the queue with another stamp are out of date.
    stamp: u32,
}

/// Numbers in the queue from here on are gates, not lanes.
pub(super) const GATES: u32 = 1 << 31;
/// Lanes of a gate that are asked at a time: one of them may leave, the others cost 0.3 us each.
const LET_IN: usize = 32;
/// If all that were let in may leave, this much later come the next.
const LET_IN_EVERY: Duration = Duration::from_millis(1);

impl Frontier {
    pub(super) fn let_in(&mut self, number: u32, stamp: u32, now: Timestamp) {
        let gate = &mut self.gates[number as usize];
        if gate.stamp != stamp {
            return;
        }
        let few = gate.line.len().min(LET_IN);
        let lanes: Vec<LaneId> = gate.line.drain(..few).collect();
        // Should one of them be turned away, its answer says when the next may try.
        self.schedule_gate(number, now + LET_IN_EVERY);
        for id in lanes {
            self.lanes[id as usize].in_line = false;
            self.schedule(id, now);
        }
    }

    pub(super) fn schedule_gate(&mut self, number: u32, at: Timestamp) {
        let gate = &mut self.gates[number as usize];
        if gate.line.is_empty() {
            return;
        }
        gate.stamp = gate.stamp.wrapping_add(1);
        self.due.push(at, (GATES + number, gate.stamp));
    }
}
