//! A ban for too many refusals, as fail2ban's `maxretry`, with `bantime.increment`, which doubles.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

/// The span over which refusals are counted.
const COUNTED_OVER: Duration = Duration::from_mins(1);

/// Doubling stops at a day, unless the first ban is longer.
const DOUBLED_MAX: Duration = Duration::from_hours(24);

/// The answer to a banned client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanAnswer {
    /// The block page.
    #[default]
    Block,
    /// A refusal like the limit's. Its Retry-After, if the host sends one, is the ban's end.
    Refusal,
}

/// A ban with its state.
#[derive(Clone, Debug)]
pub(super) struct Ban {
    refusals: usize,
    lasts: Duration,
    pub(super) answer: BanAnswer,
    refused: VecDeque<Timestamp>,
    until: Timestamp,
}

impl Ban {
    pub(super) const fn new(refusals: u32, lasts: Duration, answer: BanAnswer) -> Self {
        Self {
            refusals: refusals as usize,
            lasts,
            answer,
            refused: VecDeque::new(),
            until: Timestamp::ZERO,
        }
    }

    /// Returns how much longer the ban lasts, if it does.
    pub(super) fn left(&self, now: Timestamp) -> Option<Duration> {
        (now < self.until).then(|| self.until.since(now))
    }

    /// Counts a refusal by the limit. The ban's own answers do not count, or it would never end.
    pub(super) fn refused(&mut self, now: Timestamp) {
        while (self.refused.front()).is_some_and(|&at| now.since(at) >= COUNTED_OVER) {
            self.refused.pop_front();
        }
        self.refused.push_back(now);
        if self.refused.len() > self.refusals {
            self.until = now + self.lasts;
            self.lasts = (self.lasts * 2).min(DOUBLED_MAX.max(self.lasts));
            self.refused.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use politely_core::Rng;

    use super::*;
    use crate::model::{Answer, FaultSpec, LimitSpec, LimitedHost, Service, Verdict};

    fn host(answer: BanAnswer) -> LimitedHost {
        let limit = LimitSpec::FixedWindow {
            count: 1,
            window_s: 30.0,
            aligned: true,
        };
        let ban = FaultSpec::Ban {
            refusals: 2,
            for_s: 600.0,
            answer,
        };
        LimitedHost::new(&limit, &[ban], Service::default(), Rng::new(1)).unwrap()
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn refused(answer: Answer) -> bool {
        matches!(
            answer,
            Answer::Limit {
                verdict: Verdict::Refuse { .. },
                ..
            }
        )
    }

    #[test]
    fn the_refusal_too_many_in_a_minute_starts_a_ban_and_the_next_is_twice_as_long() {
        let mut host = host(BanAnswer::Block);
        assert!(!refused(host.arrive(at(0))));
        for second in 1..=3 {
            assert!(refused(host.arrive(at(second))), "the third is still one");
        }
        for second in [4, 5, 6, 7, 602] {
            assert_eq!(host.arrive(at(second)), Answer::Blocked);
        }
        assert!(!refused(host.arrive(at(603))), "over on time, whoever came");
        for second in 604..=606 {
            assert!(refused(host.arrive(at(second))));
        }
        assert_eq!(host.arrive(at(1_805)), Answer::Blocked);
        assert_ne!(host.arrive(at(1_806)), Answer::Blocked);
    }

    #[test]
    fn refusals_further_apart_ban_nobody() {
        let mut host = host(BanAnswer::Block);
        for minute in 0..100 {
            assert!(!refused(host.arrive(at(minute * 60))));
            assert!(refused(host.arrive(at(minute * 60 + 1))));
            assert!(refused(host.arrive(at(minute * 60 + 2))));
        }
    }

    #[test]
    fn a_ban_that_refuses_says_when_it_ends() {
        let mut host = host(BanAnswer::Refusal);
        for second in 0..=3 {
            host.arrive(at(second));
        }
        let until = Verdict::Refuse {
            retry_after: Some(Duration::from_secs(593)),
        };
        let got = host.arrive(at(10));
        assert!(matches!(got, Answer::Limit { verdict, .. } if verdict == until));
    }

    #[test]
    fn bans_double_up_to_a_day() {
        let mut ban = Ban::new(1, Duration::from_mins(10), BanAnswer::Block);
        let mut now = Timestamp::ZERO;
        for _ in 0..20 {
            ban.refused(now);
            ban.refused(now);
            now = now + ban.left(now).unwrap();
        }
        ban.refused(now);
        ban.refused(now);
        assert_eq!(ban.left(now), Some(DOUBLED_MAX));
    }
}
