//! What hosts do besides limiting: fail at random, go down, block.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::SpecError;
use super::ban::{Ban, BanAnswer};
use super::build::secs;

/// A fault as a town or scenario file writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultSpec {
    /// A share of the accepted requests fails with `status`, independently. It stands for no limit,
    /// even if the status is 429. Also written `flaky`.
    #[serde(alias = "flaky")]
    Noise {
        /// 0 to 1.
        share: f64,
        /// The answer's status.
        status: u16,
    },
    /// Every request is answered with `status` for a while.
    Outage {
        /// Seconds since the host's start.
        from_s: f64,
        /// Seconds since the host's start.
        to_s: f64,
        /// The answer's status.
        status: u16,
    },
    /// Every connection is closed without an answer for a while.
    Reset {
        /// Seconds since the host's start.
        from_s: f64,
        /// Seconds since the host's start.
        to_s: f64,
    },
    /// No request is answered for a while. The client's own time-out ends it.
    Silence {
        /// Seconds since the host's start.
        from_s: f64,
        /// Seconds since the host's start.
        to_s: f64,
    },
    /// More than `above_rps` requests in a second, of all clients together, make every answer a
    /// block page for `for_s` seconds.
    Block {
        /// Requests in any second; at least 1.
        above_rps: f64,
        /// Seconds.
        for_s: f64,
    },
    /// More than `refusals` refusals within a minute, of all clients together, ban every client for
    /// `for_s` seconds. Each further ban is twice as long, up to a day.
    Ban {
        /// Requests; 1 to 1 million.
        refusals: u32,
        /// The first ban in seconds.
        for_s: f64,
        /// The answer during the ban.
        #[serde(default)]
        answer: BanAnswer,
    },
    /// Overload: for a while requests take longer, and a share of the accepted ones fails with
    /// `status` after the same time. Also written `brown_out`.
    #[serde(alias = "brown_out")]
    Brownout {
        /// Seconds since the host's start.
        from_s: f64,
        /// Seconds since the host's start.
        to_s: f64,
        /// Service times are multiplied by this; 1 to 1000.
        slower: f64,
        /// 0 to 1.
        share: f64,
        /// The status of the failing answers.
        #[serde(default = "unavailable")]
        status: u16,
    },
}

const fn unavailable() -> u16 {
    503
}

/// A block with its state: the last arrivals, as many as fit under the rate, and its end.
#[derive(Clone, Debug)]
pub(super) struct Block {
    above: usize,
    lasts: Duration,
    arrivals: VecDeque<Timestamp>,
    until: Timestamp,
}

impl Block {
    /// Counts an arrival; true if it meets the block page. Arrivals during the block count towards
    /// the rate after it, but do not prolong it.
    pub(super) fn arrive(&mut self, now: Timestamp) -> bool {
        if self.arrivals.len() > self.above {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now);
        if now < self.until {
            return true;
        }
        // With `above + 1` arrivals kept, the oldest being younger than a second is one too many.
        let too_many = self.arrivals.len() > self.above
            && self
                .arrivals
                .front()
                .is_some_and(|&oldest| now.since(oldest) < Duration::from_secs(1));
        if too_many {
            self.until = now + self.lasts;
        }
        too_many
    }
}

/// What a host that is down does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Answers with this status.
    Status(u16),
    /// Closes the connection.
    Reset,
    /// Never answers.
    Silence,
}

/// A fault with its state.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Noise {
        share: f64,
        status: u16,
    },
    Outage {
        from: Timestamp,
        to: Timestamp,
        answer: Outage,
    },
    Block(Block),
    Ban(Ban),
    Brownout {
        from: Timestamp,
        to: Timestamp,
        slower: f64,
        share: f64,
        status: u16,
    },
}

fn check_share(share: f64) -> Result<f64, SpecError> {
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(SpecError::new("share", "0 to 1", share))
    }
}

fn check_status(status: u16) -> Result<u16, SpecError> {
    if (200..=599).contains(&status) {
        Ok(status)
    } else {
        Err(SpecError::new("status", "200 to 599", status))
    }
}

impl FaultSpec {
    /// Returns when the host answers nobody: the seconds of its begin and end.
    pub const fn outage(&self) -> Option<(f64, f64)> {
        match *self {
            Self::Outage { from_s, to_s, .. }
            | Self::Reset { from_s, to_s }
            | Self::Silence { from_s, to_s } => Some((from_s, to_s)),
            _ => None,
        }
    }

    pub(super) fn build(&self) -> Result<Fault, SpecError> {
        Ok(match *self {
            Self::Noise { share, status } => Fault::Noise {
                share: check_share(share)?,
                status: check_status(status)?,
            },
            Self::Outage {
                from_s,
                to_s,
                status,
            } => {
                let (from, to) = span(from_s, to_s)?;
                let answer = Outage::Status(check_status(status)?);
                Fault::Outage { from, to, answer }
            }
            Self::Reset { from_s, to_s } => {
                let (from, to) = span(from_s, to_s)?;
                let answer = Outage::Reset;
                Fault::Outage { from, to, answer }
            }
            Self::Silence { from_s, to_s } => {
                let (from, to) = span(from_s, to_s)?;
                let answer = Outage::Silence;
                Fault::Outage { from, to, answer }
            }
            Self::Block { above_rps, for_s } => {
                // The upper bound limits the block's memory to 8 bytes per arrival.
                if !(1.0..=1e6).contains(&above_rps) {
                    return Err(SpecError::new("above_rps", "1 to 1000000", above_rps));
                }
                Fault::Block(Block {
                    above: above_rps as usize,
                    lasts: secs("for_s", for_s)?,
                    arrivals: VecDeque::new(),
                    until: Timestamp::ZERO,
                })
            }
            Self::Ban {
                refusals,
                for_s,
                answer,
            } => {
                if !(1..=1_000_000).contains(&refusals) {
                    return Err(SpecError::new("refusals", "1 to 1000000", refusals));
                }
                Fault::Ban(Ban::new(refusals, secs("for_s", for_s)?, answer))
            }
            Self::Brownout {
                from_s,
                to_s,
                slower,
                share,
                status,
            } => {
                if !(1.0..=1_000.0).contains(&slower) {
                    return Err(SpecError::new("slower", "1 to 1000", slower));
                }
                let (from, to) = span(from_s, to_s)?;
                Fault::Brownout {
                    from,
                    to,
                    slower,
                    share: check_share(share)?,
                    status: check_status(status)?,
                }
            }
        })
    }
}

/// Returns when a fault begins and ends.
fn span(from_s: f64, to_s: f64) -> Result<(Timestamp, Timestamp), SpecError> {
    let (from, to) = (secs("from_s", from_s)?, secs("to_s", to_s)?);
    if to < from {
        return Err(SpecError::new("to_s", "no less than from_s", to_s));
    }
    Ok((Timestamp::ZERO + from, Timestamp::ZERO + to))
}

#[cfg(test)]
mod tests {
    use politely_core::Rng;

    use super::*;
    use crate::model::{Answer, LimitSpec, LimitedHost, Service, Verdict};

    fn host(faults: &[FaultSpec]) -> LimitedHost {
        LimitedHost::new(&LimitSpec::None {}, faults, Service::default(), Rng::new(1)).unwrap()
    }

    fn ms(at: u64) -> Timestamp {
        Timestamp::from_micros(at * 1000)
    }

    #[test]
    fn a_block_starts_with_the_first_request_too_many_and_ends_on_time() {
        let mut host = host(&[FaultSpec::Block {
            above_rps: 3.0,
            for_s: 5.0,
        }]);
        let blocked: Vec<bool> = [0, 400, 800, 1000, 1200, 6199, 6200]
            .map(|at| host.arrive(ms(at)) == Answer::Blocked)
            .to_vec();
        // 1000 is a second after 0, so three in its second; 1200 makes four of 400, 800, 1000,
        // 1200.
        assert_eq!(blocked, [false, false, false, false, true, true, false]);
    }

    #[test]
    fn an_outage_has_a_beginning_and_an_end() {
        let mut host = host(&[FaultSpec::Outage {
            from_s: 1.0,
            to_s: 2.0,
            status: 503,
        }]);
        let status = Answer::Down(Outage::Status(503));
        let down = [999, 1000, 1999, 2000].map(|at| host.arrive(ms(at)) == status);
        assert_eq!(down, [false, true, true, false]);
    }

    #[test]
    fn a_host_may_also_close_connections_or_stay_silent() {
        let (from_s, to_s) = (1.0, 2.0);
        for (fault, answer) in [
            (FaultSpec::Reset { from_s, to_s }, Outage::Reset),
            (FaultSpec::Silence { from_s, to_s }, Outage::Silence),
        ] {
            assert_eq!(fault.outage(), Some((1.0, 2.0)));
            let mut host = host(&[fault]);
            let down =
                [999, 1000, 1999, 2000].map(|at| host.arrive(ms(at)) == Answer::Down(answer));
            assert_eq!(down, [false, true, true, false], "{answer:?}");
        }
    }

    #[test]
    fn noise_hits_its_share_and_never_a_refused_request() {
        let flaky: FaultSpec =
            serde_json::from_str(r#"{"kind":"flaky","share":0.03,"status":500}"#).unwrap();
        let limit = LimitSpec::FixedWindow {
            count: 1,
            window_s: 0.002,
            aligned: true,
        };
        let mut host = LimitedHost::new(&limit, &[flaky], Service::default(), Rng::new(3)).unwrap();
        let (mut accepted, mut failed) = (0, 0);
        for at in 0..200_000 {
            match host.arrive(ms(at)) {
                Answer::Limit {
                    verdict: Verdict::Refuse { .. },
                    noise,
                    ..
                } => assert_eq!(noise, None),
                Answer::Limit { noise, .. } => {
                    (accepted, failed) = (accepted + 1, failed + i32::from(noise.is_some()));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(accepted, 100_000);
        assert!((2_800..3_200).contains(&failed), "{failed}");
    }

    const fn brownout(slower: f64, share: f64, status: u16) -> FaultSpec {
        FaultSpec::Brownout {
            from_s: 100.0,
            to_s: 200.0,
            slower,
            share,
            status,
        }
    }

    #[test]
    fn a_brownout_is_slow_and_fails_its_share_and_then_is_over() {
        let service = Service {
            mean_ms: 50.0,
            cv: 0.0,
        };
        let faults = [brownout(4.0, 0.2, 503)];
        let mut host =
            LimitedHost::new(&LimitSpec::None {}, &faults, service, Rng::new(5)).unwrap();
        let (mut slow, mut failed) = (0, 0);
        for at in (0..300_000).step_by(10) {
            let Answer::Limit { service, noise, .. } = host.arrive(ms(at)) else {
                panic!("no limit");
            };
            let during = (100_000..200_000).contains(&at);
            assert_eq!(service.as_millis(), if during { 200 } else { 50 });
            assert!(during || noise.is_none());
            (slow, failed) = (
                slow + i32::from(during),
                failed + i32::from(noise.is_some()),
            );
        }
        assert_eq!(slow, 10_000);
        assert!((1_850..2_150).contains(&failed), "{failed}");
    }

    #[test]
    fn bad_faults_are_refused() {
        for fault in [
            FaultSpec::Noise {
                share: 1.1,
                status: 500,
            },
            FaultSpec::Noise {
                share: 0.5,
                status: 99,
            },
            FaultSpec::Outage {
                from_s: -1.0,
                to_s: 0.0,
                status: 503,
            },
            FaultSpec::Outage {
                from_s: 9.0,
                to_s: 1.0,
                status: 503,
            },
            FaultSpec::Reset {
                from_s: 2.0,
                to_s: 1.0,
            },
            FaultSpec::Silence {
                from_s: f64::NAN,
                to_s: 1.0,
            },
            FaultSpec::Block {
                above_rps: 0.0,
                for_s: 1.0,
            },
            FaultSpec::Block {
                above_rps: 2.0,
                for_s: f64::NAN,
            },
            FaultSpec::Ban {
                refusals: 0,
                for_s: 1.0,
                answer: BanAnswer::Block,
            },
            FaultSpec::Ban {
                refusals: 1,
                for_s: -1.0,
                answer: BanAnswer::Block,
            },
            brownout(0.9, 0.5, 503),
            brownout(f64::NAN, 0.5, 503),
            brownout(2.0, 1.1, 503),
            brownout(2.0, 0.5, 99),
        ] {
            assert!(fault.build().is_err(), "{fault:?}");
        }
    }
}
