//! The room of a host: its limit, the rate above which it blocks, and the share of other clients.
//!
//! Other clients of a shared limit are served first, even if they come later: requests that they
//! would have had accepted without us are theirs. A request of ours is right only if every later
//! one of theirs is still accepted. Taking each first right instant is the optimum for buckets,
//! logs and aligned windows, because a request moved to an earlier right instant leaves at least
//! the same room after its old one. For windows that begin with the first request it is right but
//! may not be the most, because others' requests move with ours.

use std::time::Duration;

use politely_core::Timestamp;
use politely_target::model::{FaultSpec, Limit, LimitSpec, Verdict};

use crate::scenario::Scenario;

/// The answer to the question whether a request may be sent.
pub(super) enum Word {
    /// It is accepted, and begins after this delay.
    Go {
        /// From the arrival to the start of the work.
        after: Duration,
    },
    /// The request may leave at this time.
    NotBefore(Timestamp),
    /// The request waits until another one has ended.
    NoSlot,
}

pub(super) struct Room {
    limit: Limit,
    has_slots: bool,
    /// A client that avoids a block stays below its rate. Only our requests count: a block does not
    /// see other clients.
    blocks: Vec<Limit>,
    theirs: Option<Theirs>,
}

impl Room {
    /// # Panics
    /// If the scenario was not validated.
    pub(super) fn new(scenario: &Scenario, phase: Duration, end: Timestamp) -> Self {
        let built = |spec: &LimitSpec| spec.build().expect("the scenario was validated");
        let mut limit = built(&scenario.limit);
        limit.shift(phase);
        let mut theirs = None;
        if let Limit::Shared(shared) = &limit {
            theirs = Some(Theirs::new(shared.of(), shared.others(), end));
            limit = shared.of().clone();
        }
        let blocks = (scenario.faults.iter())
            .filter_map(|fault| match fault {
                FaultSpec::Block { above_rps, .. } => Some(built(&LimitSpec::SlidingLog {
                    count: *above_rps as u32,
                    window_s: 1.0,
                })),
                _ => None,
            })
            .collect();
        Self {
            has_slots: limit.has_slots(),
            limit,
            blocks,
            theirs,
        }
    }

    pub(super) const fn has_slots(&self) -> bool {
        self.has_slots
    }

    pub(super) fn check(&mut self, now: Timestamp) -> Word {
        if let Some(theirs) = &mut self.theirs {
            theirs.serve_before(now, &mut self.limit);
        }
        let after = match self.limit.check(now) {
            Verdict::Serve { after } => after,
            Verdict::Refuse {
                retry_after: Some(wait),
            } => return Word::NotBefore(now + wait),
            Verdict::Queue { .. } | Verdict::Refuse { retry_after: None } => return Word::NoSlot,
        };
        for block in &mut self.blocks {
            if let Verdict::Refuse {
                retry_after: Some(wait),
            } = block.check(now)
            {
                return Word::NotBefore(now + wait);
            }
        }
        let displaced =
            (self.theirs.as_ref()).and_then(|theirs| theirs.displaced(now, &self.limit));
        match displaced {
            // Every request before that one would displace it as well.
            Some(at) => Word::NotBefore(at + Duration::from_micros(1)),
            None => Word::Go { after },
        }
    }

    pub(super) fn take(&mut self, now: Timestamp) {
        for limit in std::iter::once(&mut self.limit).chain(&mut self.blocks) {
            let _ = limit.arrive(now);
        }
    }

    pub(super) fn depart(&mut self, now: Timestamp) {
        // Nothing queues here: a request that would queue waits outside.
        let _ = self.limit.depart(now);
    }
}

/// The requests of other clients that are accepted if we send none, in order of time.
struct Theirs {
    times: Vec<Timestamp>,
    /// The number that have arrived.
    served: usize,
}

impl Theirs {
    fn new(limit: &Limit, others: impl Iterator<Item = Timestamp>, end: Timestamp) -> Self {
        let mut alone = limit.clone();
        let times = others
            .take_while(|at| *at <= end)
            .filter(|&at| serve(&mut alone, at))
            .collect();
        Self { times, served: 0 }
    }

    /// Serves other clients before `now`. Of two requests at one instant, ours is first.
    fn serve_before(&mut self, now: Timestamp, limit: &mut Limit) {
        while let Some(&at) = self.times.get(self.served)
            && at < now
        {
            let accepted = serve(limit, at);
            debug_assert!(accepted, "displaced at {at:?}");
            self.served += 1;
        }
    }

    /// Returns when the first of theirs would be refused if one of ours is accepted at `now`.
    fn displaced(&self, now: Timestamp, limit: &Limit) -> Option<Timestamp> {
        let (mut with, mut without) = (limit.clone(), limit.clone());
        serve(&mut with, now);
        for &at in &self.times[self.served..] {
            if !serve(&mut with, at) {
                return Some(at);
            }
            serve(&mut without, at);
            // From here on it makes no difference.
            if with == without {
                return None;
            }
        }
        None
    }
}

/// Serves a request. It holds no slot, because shared limits have none.
fn serve(limit: &mut Limit, at: Timestamp) -> bool {
    let accepted = limit.arrive(at).accepted();
    if accepted {
        let _ = limit.depart(at);
    }
    accepted
}
