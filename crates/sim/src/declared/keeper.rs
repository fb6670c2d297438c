//! What a client is here, and ours: core's host with budgets.

use std::collections::VecDeque;
use std::time::Duration;

use politely_core::budget::{DeclaredLimits, UnitCosts};
use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{AcquireRequest, Decision, Host};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};

/// The name of the unit in the declared limits.
const TOKENS: &str = "tokens";
/// How often the head of the queue asks again while an answer may return a slot or tokens. The
/// library asks after each answer.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// The number that [`Keeper::ask`] returned.
    pub(super) ticket: u64,
    /// The tokens that it used; `None` after a refusal.
    pub(super) tokens: Option<u64>,
    /// The Retry-After of a refusal.
    pub(super) retry_after: Option<Duration>,
    /// How many times this request was refused so far.
    pub(super) refusals: u32,
}

/// A client that keeps declared limits, for all connections.
pub(super) trait Keeper {
    /// Decides whether the request of a connection may leave now. Its estimate is in tokens.
    ///
    /// # Errors
    /// When the connection asks again.
    fn ask(&mut self, now: Timestamp, connection: usize, estimate: u64) -> Result<u64, Timestamp>;

    /// Learns the answer. Returns how long the connection sleeps before its next request.
    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng) -> Duration;
}

/// One key's state machine, driven as the library drives it: connections wait in a queue, and only
/// its head asks.
pub(super) struct Polite {
    host: Host,
    config: Config,
    queue: VecDeque<usize>,
    /// When the head of the queue asks again.
    head_asks: Timestamp,
    in_flight: u32,
}

impl Polite {
    /// Creates a key with the profile `api`, whose law finds what is not declared.
    pub(super) fn new(declared: DeclaredLimits, now: Timestamp) -> Self {
        let mut config = Config::api();
        config.declared = declared;
        Self {
            host: Host::new(&config, now),
            config,
            queue: VecDeque::new(),
            head_asks: now,
            in_flight: 0,
        }
    }
}

fn tokens(amount: u64) -> UnitCosts {
    UnitCosts::new([(TOKENS, amount)]).expect("a unit")
}

impl Keeper for Polite {
    fn ask(&mut self, now: Timestamp, connection: usize, estimate: u64) -> Result<u64, Timestamp> {
        let place = self.queue.iter().position(|waits| *waits == connection);
        let place = place.unwrap_or_else(|| {
            self.queue.push_back(connection);
            self.queue.len() - 1
        });
        if place > 0 {
            return Err(self.head_asks.max(now + ASK_AGAIN * place as u32));
        }
        let ask = AcquireRequest {
            units: if estimate > 0 {
                tokens(estimate)
            } else {
                UnitCosts::NONE
            },
            ..AcquireRequest::default()
        };
        match self.host.request(now, ask, &self.config) {
            Decision::Granted(grant) => {
                self.queue.pop_front();
                self.head_asks = now;
                self.in_flight += 1;
                Ok(grant.lease.0)
            }
            Decision::Wait(wait) => {
                self.head_asks = match self.in_flight {
                    0 => wait.at,
                    _ => wait.at.min(now + ASK_AGAIN),
                };
                Err(self.head_asks)
            }
        }
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng) -> Duration {
        self.in_flight -= 1;
        let signal = match reply.tokens {
            Some(_) => Signal::Ok,
            None => Signal::RateLimited,
        };
        let report = Report {
            retry_after: reply.retry_after,
            used: reply.tokens.map_or(UnitCosts::NONE, tokens),
            ..Report::of(signal)
        };
        let lease = LeaseId(reply.ticket);
        self.host.report(now, lease, &report, &self.config, rng);
        Duration::ZERO
    }
}
