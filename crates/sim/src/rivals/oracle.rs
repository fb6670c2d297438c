//! The oracle: a client that knows the limit and stays 1 % below it.
//!
//! It sends at 0.99 of the true long-run rate, evenly spaced: N/W for windows, the current step for
//! steps, the lowest of a rate that wanders, the remainder of a shared one, the tightest of
//! several. Where slots are the limit, it has as many in flight. Where there is no limit, it has
//! none. A ban above a rate is a limit too. It knows nothing of outages. Uncoordinated workers take
//! equal parts.

use politely_core::{Rng, Timestamp};
use politely_target::model::{FaultSpec, LimitSpec};

use super::pace::Pace;
use crate::client::{Answer, Client, Reply};
use crate::scenario::Scenario;

const MARGIN: f64 = 0.99;

/// A limit's long run: requests per second, and in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Truth {
    rate: f64,
    slots: u32,
}

const UNLIMITED: Truth = Truth {
    rate: f64::INFINITY,
    slots: u32::MAX,
};

impl Truth {
    fn of(limit: &LimitSpec, now: Timestamp) -> Self {
        let rate = |rate: f64| Self { rate, ..UNLIMITED };
        match limit {
            LimitSpec::TokenBucket { rate: r, .. } | LimitSpec::Leaky { rate: r, .. } => rate(*r),
            LimitSpec::FixedWindow {
                count, window_s, ..
            }
            | LimitSpec::SlidingLog { count, window_s }
            | LimitSpec::SlidingCounter { count, window_s } => rate(f64::from(*count) / window_s),
            LimitSpec::ConcurrencyReject { slots } | LimitSpec::ConcurrencyQueue { slots, .. } => {
                Self {
                    slots: *slots,
                    ..UNLIMITED
                }
            }
            LimitSpec::All { of } => (of.iter())
                .map(|limit| Self::of(limit, now))
                .fold(UNLIMITED, Self::tightest),
            LimitSpec::Steps { at } => (at.iter())
                .rfind(|(from, _)| *from <= now.as_secs_f64())
                .map_or(UNLIMITED, |(_, limit)| Self::of(limit, now)),
            // For a rate that wanders, the rate that always holds.
            LimitSpec::Walk { low, .. } | LimitSpec::Day { low, .. } => rate(*low),
            LimitSpec::Shared {
                others_per_s, of, ..
            } => {
                let whole = Self::of(of, now);
                Self {
                    rate: (whole.rate - others_per_s).max(0.01),
                    ..whole
                }
            }
            LimitSpec::None {} => UNLIMITED,
        }
    }

    const fn tightest(self, other: Self) -> Self {
        Self {
            rate: self.rate.min(other.rate),
            slots: if self.slots < other.slots {
                self.slots
            } else {
                other.slots
            },
        }
    }
}

#[derive(Debug)]
pub(super) struct Oracle {
    limit: LimitSpec,
    ban: f64,
    clients: u32,
    in_flight: u32,
    pace: Pace,
}

impl Oracle {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let ban = (scenario.faults.iter())
            .filter_map(|fault| match fault {
                FaultSpec::Block { above_rps, .. } => Some(*above_rps),
                _ => None,
            })
            .fold(f64::INFINITY, f64::min);
        Self {
            limit: scenario.limit.clone(),
            ban,
            clients: if scenario.coordinated {
                1
            } else {
                scenario.workers
            },
            in_flight: 0,
            pace: Pace::default(),
        }
    }

    fn truth(&self, now: Timestamp) -> Truth {
        let truth = Truth::of(&self.limit, now);
        Truth {
            rate: MARGIN * truth.rate.min(self.ban) / f64::from(self.clients),
            slots: (truth.slots / self.clients).max(1),
        }
    }
}

impl Client for Oracle {
    fn ask(&mut self, now: Timestamp) -> Answer {
        let truth = self.truth(now);
        if self.in_flight >= truth.slots {
            return Answer::AfterReply;
        }
        let answer = self.pace.ask(now, truth.rate);
        if let Answer::Go(_) = answer {
            self.in_flight += 1;
        }
        answer
    }

    fn hear(&mut self, _now: Timestamp, _reply: &Reply, _rng: &mut Rng) {
        self.in_flight -= 1;
    }

    fn rate(&self, now: Timestamp) -> Option<f64> {
        let rate = self.truth(now).rate;
        rate.is_finite().then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: u32 = u32::MAX;

    #[test]
    fn the_long_run_of_each_kind() {
        let at = |json: &str, s: f64| {
            let limit: LimitSpec = serde_json::from_str(json).unwrap();
            let truth = Truth::of(&limit, Timestamp::from_secs_f64(s));
            (truth.rate, truth.slots)
        };
        for (json, truth) in [
            (
                r#"{"kind":"token_bucket","rate":10,"burst":5}"#,
                (10.0, ANY),
            ),
            (
                r#"{"kind":"fixed_window","count":600,"window_s":60,"aligned":true}"#,
                (10.0, ANY),
            ),
            (
                r#"{"kind":"sliding_log","count":5,"window_s":10}"#,
                (0.5, ANY),
            ),
            (r#"{"kind":"leaky","rate":2,"queue":5}"#, (2.0, ANY)),
            (
                r#"{"kind":"concurrency_queue","slots":4,"queue":9}"#,
                (f64::INFINITY, 4),
            ),
            (r#"{"kind":"none"}"#, (f64::INFINITY, ANY)),
            (
                r#"{"kind":"all","of":[{"kind":"concurrency_reject","slots":4},
                {"kind":"sliding_counter","count":60,"window_s":60},{"kind":"token_bucket","rate":10,"burst":5}]}"#,
                (1.0, 4),
            ),
        ] {
            assert_eq!(at(json, 0.0), truth, "{json}");
        }
        let steps = r#"{"kind":"steps","at":[[0,{"kind":"token_bucket","rate":10,"burst":10}],
            [600,{"kind":"token_bucket","rate":5,"burst":5}]]}"#;
        assert_eq!(at(steps, 599.0), (10.0, ANY));
        assert_eq!(at(steps, 600.0), (5.0, ANY));
    }
}
