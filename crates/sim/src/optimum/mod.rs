//! The exact offline optimum: the requests that an all-knowing client has accepted.
//!
//! It sends each request at the first instant at which the host accepts it. No client can beat that
//! for any rate limit here, because a later request never leaves room for more (see
//! [`politely_target::best_time`]). It knows the limit's phase, its walk and its day, the end of an
//! outage, and the rate above which it is blocked. It is never refused, so it is never banned. It
//! differs from taking everything it can in two ways:
//!
//! * Slots in a brown-out. A request that begins shortly before the end holds its slot for long
//!   after it. If it would end later than one begun at the end, it waits for the end. This is exact
//!   for slots alone.
//! * Other clients. Requests that they would have had accepted without us are theirs ([`room`]). A
//!   client that takes these from them is above the optimum.
//!
//! Slots are held for the mean service time. Failures of accepted requests, by noise or a
//! brown-out, are not the client's fault and are not deducted.

#[cfg(test)]
mod brute_tests;
mod room;

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;
use politely_target::model::FaultSpec;

use self::room::{Room, Word};
use crate::scenario::{Demand, Scenario};

/// A time of trouble.
struct Spell {
    from: Timestamp,
    to: Timestamp,
    /// The factor of service times; unused in an outage.
    slower: f64,
}

impl Spell {
    fn new(from_s: f64, to_s: f64, slower: f64) -> Self {
        // Rounded as the host rounds.
        let at = |secs: f64| Timestamp::from_micros((secs * 1e6).round() as u64);
        Self {
            from: at(from_s),
            to: at(to_s),
            slower,
        }
    }

    fn covers(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.to
    }
}

/// The host's times of trouble and its service time.
struct Service {
    mean: Duration,
    outages: Vec<Spell>,
    brownouts: Vec<Spell>,
}

impl Service {
    fn new(scenario: &Scenario) -> Self {
        let (mut outages, mut brownouts) = (Vec::new(), Vec::new());
        for fault in &scenario.faults {
            match *fault {
                FaultSpec::Outage { from_s, to_s, .. }
                | FaultSpec::Reset { from_s, to_s }
                | FaultSpec::Silence { from_s, to_s } => {
                    outages.push(Spell::new(from_s, to_s, 1.0));
                }
                FaultSpec::Brownout {
                    from_s,
                    to_s,
                    slower,
                    ..
                } => brownouts.push(Spell::new(from_s, to_s, slower)),
                FaultSpec::Noise { .. } | FaultSpec::Block { .. } | FaultSpec::Ban { .. } => {}
            }
        }
        Self {
            mean: scenario.service.mean(),
            outages,
            brownouts,
        }
    }

    /// Returns the first instant from `now` on without an outage.
    fn up(&self, mut now: Timestamp) -> Timestamp {
        while let Some(outage) = self.outages.iter().find(|outage| outage.covers(now)) {
            now = outage.to;
        }
        now
    }

    /// Returns how long a request takes that arrives at `now`.
    fn takes(&self, now: Timestamp) -> Duration {
        let mut micros = self.mean.as_micros() as f64;
        for brownout in &self.brownouts {
            if brownout.covers(now) {
                micros *= brownout.slower;
            }
        }
        Duration::from_micros(micros as u64)
    }

    /// Returns the end of a brown-out, if a request that waits for it frees its slot sooner than
    /// one at `now`.
    fn better_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = (self.brownouts.iter())
            .filter(|brownout| brownout.covers(now))
            .map(|brownout| brownout.to);
        ends.filter(|&to| now + self.takes(now) > to + self.takes(to))
            .min()
    }
}

/// The ends of requests in order. They hardly ever overtake each other, so a queue is faster than a
/// heap.
#[derive(Default)]
struct Ends(VecDeque<Timestamp>);

impl Ends {
    fn push(&mut self, at: Timestamp) {
        let mut place = self.0.len();
        while place > 0 && self.0[place - 1] > at {
            place -= 1;
        }
        self.0.insert(place, at);
    }

    fn next(&self) -> Option<Timestamp> {
        self.0.front().copied()
    }

    /// Removes one request that has ended by `now`, and returns whether there was one.
    fn ended(&mut self, now: Timestamp) -> bool {
        let ended = self.next().is_some_and(|at| at <= now);
        if ended {
            self.0.pop_front();
        }
        ended
    }
}

/// Returns when the best client's requests are accepted, until the run's end or its last page.
pub(crate) fn accepted(scenario: &Scenario, phase: Duration) -> Vec<Timestamp> {
    let end = Timestamp::from_secs_f64(scenario.duration_s);
    let service = Service::new(scenario);
    let mut room = Room::new(scenario, phase, end);
    let network = Duration::from_micros((scenario.rtt_ms * 1e3) as u64);
    let connections = scenario.demand.connections() as usize;
    let pages = match scenario.demand {
        Demand::Greedy { .. } => usize::MAX,
        Demand::Pages { count, .. } => count as usize,
    };
    let (mut times, mut now) = (Vec::new(), Timestamp::from_micros(1));
    let (mut in_slots, mut under_way) = (Ends::default(), Ends::default());
    while times.len() < pages {
        now = service.up(now);
        while in_slots.ended(now) {
            room.depart(now);
        }
        while under_way.ended(now) {}
        if under_way.0.len() >= connections {
            // Without a limit, the connections bound the requests.
            now = under_way.next().unwrap_or(now);
            continue;
        }
        if now > end {
            break;
        }
        match room.check(now) {
            Word::Go { after } => {
                if room.has_slots()
                    && let Some(later) = service.better_at(now)
                    && later <= end
                {
                    now = later;
                    continue;
                }
                room.take(now);
                let done = now + after + service.takes(now);
                if room.has_slots() {
                    in_slots.push(done);
                }
                under_way.push(done + network);
                times.push(now);
            }
            Word::NotBefore(at) => now = at.max(now + Duration::from_micros(1)),
            Word::NoSlot => {
                let Some(next) = in_slots.next() else {
                    break;
                };
                now = now.max(next);
            }
        }
    }
    times
}
