//! The router of `litellm` with `usage-based-routing-v2` and one deployment (litellm 1.110.2,
//! `router_strategy/lowest_tpm_rpm_v2.py`).
//!
//! It counts requests and tokens per minute of the clock in UTC. A deployment is chosen if
//! `tokens + input <= tpm`, and if it has no requests this minute or `requests + 1 < rpm`. Requests
//! count before the call; tokens count after the answer, in the minute of the answer. Without a
//! deployment the call fails with a Retry-After of 60 s, which the router sleeps, with up to 0.75 s
//! of jitter, before it tries again.
//!
//! `input` is its own count of the prompt's tokens; here it is the estimate. It has no other
//! windows than minutes. After a 429 of the provider it sleeps the Retry-After up to 60 s; a longer
//! one is replaced by 0.5 s doubled per attempt, at most 8 s.

use std::time::Duration;

use politely_core::budget::{DeclaredLimit, DeclaredLimits, LimitUnit, LimitWindow};
use politely_core::{Rng, Timestamp};

use super::keeper::{Keeper, Reply};

const MINUTE: Duration = Duration::from_mins(1);
const JITTER_SECONDS: f64 = 0.75;
const DELAY: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(8);
/// Keeps the doubling in range.
const REFUSALS_MAX: u32 = 16;

pub(super) struct UsageRouter {
    rpm: Option<u64>,
    tpm: Option<u64>,
    minute: u64,
    /// Requests of this minute; `None` before the first.
    requests: Option<u64>,
    tokens: u64,
    /// A sleep of the router is jittered, and [`Keeper::ask`] has no random numbers.
    rng: Rng,
}

impl UsageRouter {
    /// Returns `None` if the limits have other windows than minutes.
    pub(super) fn new(limits: &DeclaredLimits) -> Option<Self> {
        let is_minute = |limit: &DeclaredLimit| *limit.window() == LimitWindow::Rolling(MINUTE);
        if !limits.windows().iter().all(is_minute) {
            return None;
        }
        let per_minute = |is_tokens: bool| {
            let mut limits = limits.windows().iter();
            limits.find_map(|limit| {
                let is_named = matches!(limit.unit(), LimitUnit::Named(_));
                (is_named == is_tokens).then_some(limit.quantity())
            })
        };
        Some(Self {
            rpm: per_minute(false),
            tpm: per_minute(true),
            minute: 0,
            requests: None,
            tokens: 0,
            rng: Rng::new(1),
        })
    }

    /// Forgets the counters of an earlier minute.
    fn follow_clock(&mut self, now: Timestamp) {
        let minute = now.as_micros() / MINUTE.as_micros() as u64;
        if minute != self.minute {
            (self.minute, self.requests, self.tokens) = (minute, None, 0);
        }
    }

    fn is_chosen(&self, input: u64) -> bool {
        let has_tokens = self.tpm.is_none_or(|tpm| self.tokens + input <= tpm);
        let requests = self.requests.zip(self.rpm);
        has_tokens && requests.is_none_or(|(requests, rpm)| requests + 1 < rpm)
    }
}

fn jittered(sleep: Duration, rng: &mut Rng) -> Duration {
    sleep + Duration::from_secs_f64(rng.between(0.0, JITTER_SECONDS))
}

impl Keeper for UsageRouter {
    fn ask(&mut self, now: Timestamp, _: usize, estimate: u64) -> Result<u64, Timestamp> {
        self.follow_clock(now);
        if !self.is_chosen(estimate) {
            return Err(now + jittered(MINUTE, &mut self.rng));
        }
        self.requests = Some(self.requests.unwrap_or(0) + 1);
        Ok(0)
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng) -> Duration {
        self.follow_clock(now);
        self.tokens += reply.tokens.unwrap_or(0);
        let Some(told) = reply.retry_after else {
            return Duration::ZERO;
        };
        let doubled = DELAY * (1 << (reply.refusals - 1).min(REFUSALS_MAX));
        jittered(
            if told <= MINUTE {
                told
            } else {
                doubled.min(DELAY_MAX)
            },
            rng,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn router() -> UsageRouter {
        UsageRouter::new(&"500/min; 200k tokens/min".parse().unwrap()).unwrap()
    }

    /// Results of the package's `_return_potential_deployments` for a deployment of 500 requests
    /// and 200,000 tokens a minute.
    #[test]
    fn the_published_choices() {
        for (tokens, input, requests, is_chosen) in [
            (0, 400, None, true),
            (0, 400, Some(498), true),
            (0, 400, Some(499), false),
            (199_600, 400, Some(10), true),
            (199_601, 400, Some(10), false),
            (0, 200_001, None, false),
        ] {
            let mut router = router();
            (router.tokens, router.requests) = (tokens, requests);
            assert_eq!(
                router.is_chosen(input),
                is_chosen,
                "{tokens} {input} {requests:?}"
            );
        }
    }

    #[test]
    fn tokens_in_flight_do_not_count_and_a_minute_of_the_clock_forgets_all() {
        let mut router = router();
        assert!((0..499).all(|_| router.ask(at(59), 0, 2_000).is_ok()));
        let wait = router.ask(at(59), 0, 2_000).unwrap_err();
        assert!(wait >= at(119) && wait < at(120), "{wait}");
        assert!(router.ask(at(60), 0, 2_000).is_ok());
    }

    #[test]
    fn a_long_retry_after_is_replaced() {
        let rng = &mut Rng::new(1);
        let mut sleep = |told, refusals| {
            let reply = Reply {
                ticket: 0,
                tokens: None,
                retry_after: Some(Duration::from_secs(told)),
                refusals,
            };
            router().hear(at(1), &reply, rng).as_secs_f64()
        };
        assert!((60.0..60.75).contains(&sleep(60, 1)));
        assert!((1.0..1.75).contains(&sleep(61, 2)));
        assert!((8.0..8.75).contains(&sleep(61, 30)));
    }
}
