//! A host without its socket.

use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::fault::{Fault, Outage};
use super::{BanAnswer, FaultSpec, Limit, LimitSpec, Service, SpecError, Verdict};

/// What a host does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The limit's verdict. An accepted request takes `service` once it runs, and ends with the
    /// status `noise` if that is set.
    Limit {
        /// The limit's verdict.
        verdict: Verdict,
        /// Time in the slot.
        service: Duration,
        /// The status of a random failure.
        noise: Option<u16>,
    },
    /// The block page, with status 403. The limit was not consulted.
    Blocked,
    /// The host is down. The limit was not consulted.
    Down(Outage),
}

/// A host without its socket: a limit, its faults and its service times. The same seed gives the
/// same answers.
#[derive(Clone, Debug)]
pub struct LimitedHost {
    limit: Limit,
    faults: Vec<Fault>,
    service: Service,
    rng: Rng,
}

impl LimitedHost {
    /// Creates a fresh host.
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

    /// Handles an arriving request. An outage answers before a block or ban, and those before the
    /// limit.
    pub fn arrive(&mut self, now: Timestamp) -> Answer {
        let mut blocked = false;
        let mut down = None;
        let mut noise = None;
        let mut banned = None;
        let mut slower = 1.0;
        for fault in &mut self.faults {
            match fault {
                Fault::Outage { from, to, answer } if *from <= now && now < *to => {
                    down = Some(*answer);
                }
                Fault::Outage { .. } => {}
                Fault::Block(block) => blocked |= block.arrive(now),
                Fault::Ban(ban) => match (ban.left(now), ban.answer) {
                    (None, _) => {}
                    (Some(_), BanAnswer::Block) => blocked = true,
                    (left, BanAnswer::Refusal) => banned = banned.max(left),
                },
                Fault::Brownout {
                    from,
                    to,
                    slower: factor,
                    share,
                    status,
                } => {
                    if *from <= now && now < *to {
                        slower *= *factor;
                        if self.rng.unit() < *share {
                            noise = Some(*status);
                        }
                    }
                }
                Fault::Noise { share, status } => {
                    if self.rng.unit() < *share {
                        noise = Some(*status);
                    }
                }
            }
        }
        if let Some(outage) = down {
            return Answer::Down(outage);
        }
        if blocked {
            return Answer::Blocked;
        }
        if banned.is_some() {
            return Answer::Limit {
                verdict: Verdict::Refuse {
                    retry_after: banned,
                },
                service: Duration::ZERO,
                noise: None,
            };
        }
        let verdict = self.limit.arrive(now);
        let service = if verdict.accepted() {
            let micros = self.service.sample(&mut self.rng).as_micros();
            Duration::from_micros((micros as f64 * slower) as u64)
        } else {
            for fault in &mut self.faults {
                if let Fault::Ban(ban) = fault {
                    ban.refused(now);
                }
            }
            Duration::ZERO
        };
        Answer::Limit {
            verdict,
            service,
            noise: noise.filter(|_| verdict.accepted()),
        }
    }

    /// Returns the limit, for departures, abandoned requests and announcements.
    pub const fn limit_mut(&mut self) -> &mut Limit {
        &mut self.limit
    }
}
