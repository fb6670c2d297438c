//! The bound on hosts under way: further hosts stand in line until one of these is done or rests.

use std::collections::HashSet;
use std::time::Duration;

use politely::core::Timestamp;

use super::gates::Gate;
use super::lane::Next;
use super::{LaneId, Lanes};

/// A host that sends nothing for longer is not under way, so one that is down or holds its requests
/// back stops no other.
const REST: Duration = Duration::from_secs(5);
/// The gate of the hosts that may not begin yet.
const GATE: u32 = 0;

/// The hosts under way, and the most that may be.
#[derive(Default)]
pub(super) struct UnderWay {
    most: Option<u32>,
    lanes: HashSet<LaneId>,
}

impl Lanes {
    /// Bounds the number of hosts under way at once.
    pub(crate) fn bounded(mut self, most: Option<u32>) -> Self {
        self.under_way.most = most;
        if most.is_some() {
            self.gates.push(Gate::default());
        }
        self
    }

    /// Returns whether lane `id` may go on with `next`. If it may not begin yet, it stands in line.
    pub(super) fn may_begin(&mut self, id: LaneId, next: &Next) -> bool {
        let Some(most) = self.under_way.most else {
            return true;
        };
        let begins = matches!(
            next,
            Next::Resolve | Next::AskRobots | Next::Fill | Next::Page
        );
        if !begins || self.under_way.lanes.contains(&id) {
            return true;
        }
        if self.under_way.lanes.len() < most as usize {
            return self.under_way.lanes.insert(id);
        }
        if !std::mem::replace(&mut self.all[id as usize].in_line, true) {
            self.gates[GATE as usize].line.push_back(id);
        }
        false
    }

    /// Lets a further host begin if lane `id` has nothing to send before `at`.
    pub(super) fn rests(&mut self, id: LaneId, at: Timestamp, now: Timestamp) {
        let is_idle = self.all[id as usize].in_flight == 0;
        if is_idle && at > now + REST && self.under_way.lanes.remove(&id) {
            self.schedule_gate(GATE, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{add, at, lane, page, policy, sent, take};
    use super::super::{Lane, Refused, Take};
    use super::*;

    /// Returns three hosts with two pages each, of which at most `most` are under way.
    fn three_hosts(most: u32) -> Lanes {
        let mut lanes = Lanes::new(false, policy()).bounded(Some(most));
        for host in ["a", "b", "c"] {
            let id = lane(&mut lanes, &format!("http://{host}.example/"));
            for number in [1, 2] {
                add(
                    &mut lanes,
                    id,
                    page(&format!("http://{host}.example/"), number),
                    at(0.0),
                );
            }
        }
        lanes
    }

    #[test]
    fn no_more_hosts_are_under_way_than_allowed() {
        let mut lanes = three_hosts(2);
        for _ in 0..4 {
            let (id, _) = sent(take(&mut lanes, at(0.0)));
            assert!(id < 2, "lane {id}");
        }
        assert!(matches!(take(&mut lanes, at(0.0)), Take::Wait(_)));
        // The second page of the first host is still in flight.
        lanes.came_back(0, at(1.0));
        assert!(matches!(take(&mut lanes, at(1.0)), Take::Wait(_)));
        lanes.came_back(0, at(2.0));
        assert_eq!(sent(take(&mut lanes, at(2.0))).0, 2);
    }

    #[test]
    fn a_host_that_rests_lets_another_begin() {
        let mut lanes = three_hosts(1);
        let rests = |lane: &Lane| match lane.name() {
            "a.example" => Err(Refused::At(at(60.0))),
            _ => Ok(()),
        };
        let mut order = Vec::new();
        let mut now = at(0.0);
        while order.len() < 4 {
            match lanes.take(now, rests) {
                Take::Send(job) => {
                    order.push(job.lane);
                    lanes.came_back(job.lane, now);
                }
                Take::Wait(Some(until)) => now = until,
                _ => panic!("nothing to send after {order:?}"),
            }
        }
        order.sort_unstable();
        assert_eq!(order, [1, 1, 2, 2]);
        assert!(now < at(5.0), "{now:?}");
    }
}
