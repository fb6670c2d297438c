//! A host without its socket.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::fault::Fault;
use super::{FaultSpec, Limit, LimitSpec, Service, SpecError, Verdict};

/// What a host does with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What the limit said. An accepted request takes `service` once it runs, and ends with `noise` for a
    /// status if that is set.
    Limit {
        /// The limit's verdict.
        verdict: Verdict,
        /// Time in the slot.
        service: Duration,
        /// The status of a random failure.
        noise: Option<u16>,
    },
    /// The block page, with status 403. The limit was not asked.
    Blocked,
    /// The host is down; the limit was not asked.
    Down {
        /// The answer's status.
        status: u16,
    },
}

/// A host without its socket: a limit, its faults and its service times. Same seed, same answers.
#[derive(Clone, Debug)]
pub struct LimitedHost {
    limit: Limit,
    faults: Vec<Fault>,
    service: Service,
    rng: Rng,
}

impl LimitedHost {
    /// A fresh host.
    pub fn new(
        limit: &LimitSpec,
        faults: &[FaultSpec],
        service: Service,
        rng: Rng,
    ) -> Result<Self, SpecError> {
        service.validate()?;
        let faults = faults
            .iter()
            .map(FaultSpec::build)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            limit: limit.build()?,
            faults,
            service,
            rng,
        })
    }

    /// A request arrives: an outage answers before a block, a block before the limit.
    pub fn arrive(&mut self, now: Timestamp) -> Answer {
        let mut blocked = false;
        let mut down = None;
        let mut noise = None;
        for fault in &mut self.faults {
            match fault {
                Fault::Outage { from, to, status } if *from <= now && now < *to => {
                    down = Some(*status);
                }
                Fault::Outage { .. } => {}
                Fault::Block(block) => blocked |= block.arrive(now),
                Fault::Noise { share, status } => {
                    if self.rng.unit() < *share {
                        noise = Some(*status);
                    }
                }
            }
        }
        if let Some(status) = down {
            return Answer::Down { status };
        }
        if blocked {
            return Answer::Blocked;
        }
        let verdict = self.limit.arrive(now);
        let service = if verdict.accepted() {
            self.service.sample(&mut self.rng)
        } else {
            Duration::ZERO
        };
        Answer::Limit {
            verdict,
            service,
            noise: noise.filter(|_| verdict.accepted()),
        }
    }

    /// The limit, to depart from, to abandon, to announce.
    pub const fn limit_mut(&mut self) -> &mut Limit {
        &mut self.limit
    }
}
