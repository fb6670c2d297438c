//! The mechanisms of the law, and a switch for each.
//!
//! `politely simulate held-out --law discover,discover-without-windows,…` shows the effect of
//! each mechanism.

use serde::{Deserialize, Serialize};

/// The constants of [`Discover`](super::Discover).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscoverConfig {
    /// The distance between the rate and the learned ceiling, as a share of the ceiling. Default
    /// 0.01.
    pub margin: f64,
    /// A mechanism that is switched off, to measure its effect. Default none.
    pub without: Option<Mechanism>,
}

impl Default for DiscoverConfig {
    fn default() -> Self {
        Self {
            margin: 0.01,
            without: None,
        }
    }
}

/// A mechanism of the law. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// Learns the length and count of a window from its blocks.
    Windows,
    /// Returns from a block at the pace at which sent requests leave the window, instead of in
    /// doublings.
    Replay,
    /// Sends canaries where windows of round lengths end, instead of at growing intervals alone.
    Rounds,
    /// Limits probes by a budget.
    Budget,
    /// Tests the result of a probe in a trial.
    Verify,
    /// Tells a cap on requests in flight from a rate.
    Slots,
    /// Lowers the cap in flight when latency shows a queue.
    Queue,
    /// Tells random refusals from a limit.
    Noise,
    /// Follows the quotas that the server announces.
    Quota,
    /// Keeps the ceiling through an outage or a brown-out.
    Outage,
}

impl Mechanism {
    /// All mechanisms with their names.
    pub const ALL: [(&str, Self); 10] = [
        ("windows", Self::Windows),
        ("replay", Self::Replay),
        ("rounds", Self::Rounds),
        ("budget", Self::Budget),
        ("verify", Self::Verify),
        ("slots", Self::Slots),
        ("queue", Self::Queue),
        ("noise", Self::Noise),
        ("quota", Self::Quota),
        ("outage", Self::Outage),
    ];
}
