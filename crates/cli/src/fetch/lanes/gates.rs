//! Gates: queues of lanes for keys that many lanes share.

use std::collections::VecDeque;
use std::time::Duration;

use politely::core::Timestamp;

use super::{LaneId, Lanes};

/// The queue of lanes for a key that many lanes share (a site, an address, the whole run).
///
/// If each lane were scheduled by itself, all of them would be asked whenever one may leave. So
/// they wait in a queue, and a few at a time are asked.
#[derive(Default)]
pub(super) struct Gate {
    pub(super) line: VecDeque<LaneId>,
    /// Queue entries with another stamp are out of date.
    stamp: u32,
}

/// Numbers in the queue from here on are gates, not lanes.
pub(super) const GATES: u32 = 1 << 31;
/// The number of a gate's lanes that are asked at a time. One of them may leave, and each of the
/// others costs 0.3 µs.
const LET_IN: usize = 32;
/// The time until the next lanes are asked, if all that were asked may leave.
const LET_IN_EVERY: Duration = Duration::from_millis(1);

impl Lanes {
    pub(super) fn let_in(&mut self, number: u32, stamp: u32, now: Timestamp) {
        let gate = &mut self.gates[number as usize];
        if gate.stamp != stamp {
            return;
        }
        let few = gate.line.len().min(LET_IN);
        let lanes: Vec<LaneId> = gate.line.drain(..few).collect();
        // This schedule assumes that all these lanes may leave. If the limits refuse one, the
        // refusal sets a later time.
        self.schedule_gate(number, now + LET_IN_EVERY);
        for id in lanes {
            self.all[id as usize].in_line = false;
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
