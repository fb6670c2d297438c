//! What a host has room for: its limit, the rate above which it blocks, and what belongs to others.
//!
//! Others who share a limit are served first, though they may come later: whatever they would have got without
//! us is theirs, and a request of ours is right only if every later one of theirs is still accepted. Taking
//! each first right instant is the optimum for buckets, logs and aligned windows: a request moved to an
//! earlier right instant leaves the room after its old one as it was or larger. (For windows that begin with the
//! first request it is right, but others' requests move with ours, and it may not be the most.)

use std::time::Duration;

use politely_core::Timestamp;
use politely_target::model::{FaultSpec, Limit, LimitSpec, Verdict};

use crate::scenario::Scenario;

/// May a request be sent?
pub(super) enum Word {
    /// It is accepted, and begins `after` this long.
    Go {
        /// From the arrival to the start of the work.
        after: Duration,
    },
    /// Not before this.
    NotBefore(Timestamp),
    /// Not before another is done.
    NoSlot,
}

pub(super) struct Room {
    limit: Limit,
    has_slots: bool,
    /// Whoever wants no block stays below its rate. Of ours only: a block does not see who shares a limit.
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
            // Any later one before it would displace it as well.
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
        // Nobody queues: who would have to waits outside.
        let _ = self.limit.depart(now);
    }
}

/// The requests of others that are accepted if we send none, in order of time.
struct Theirs {
    times: Vec<Timestamp>,
    /// How many have arrived.
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

    /// Of two at one instant, ours is first.
    fn serve_before(&mut self, now: Timestamp, limit: &mut Limit) {
        while let Some(&at) = self.times.get(self.served)
            && at < now
        {
            let accepted = serve(limit, at);
            debug_assert!(accepted, "displaced at {at:?}");
            self.served += 1;
        }
    }

    /// When the first of theirs would be refused if one of ours is accepted `now`.
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

/// A request that is accepted holds no slot: limits that are shared have none.
fn serve(limit: &mut Limit, at: Timestamp) -> bool {
    let accepted = limit.arrive(at).accepted();
    if accepted {
        let _ = limit.depart(at);
    }
    accepted
}
