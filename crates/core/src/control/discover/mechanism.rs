//! What the law is made of, and the switch for each.
//!
//! `politely simulate held-out --law discover,discover-without-windows,…` shows what each is worth.

use serde::{Deserialize, Serialize};

/// The constants of [`Discover`](super::Discover).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscoverConfig {
    /// How far below the learned ceiling it rides. Default 0.01.
    pub margin: f64,
    /// Switches a mechanism off, to see what it is worth. Default none.
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

/// What the law is made of; each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// Learning a window from its blocks.
    Windows,
    /// Coming back from a window's end as what was sent leaves it, instead of by doublings.
    Replay,
    /// Asking again where windows end, instead of at ever longer intervals.
    Rounds,
    /// Paying for probes, and waiting longer after each that found nothing.
    Budget,
    /// A second look after a probe that got far.
    Verify,
    /// Telling a cap on requests at once from a rate.
    Slots,
    /// Fewer at once when latency shows a queue.
    Queue,
    /// Telling noise from limits.
    Noise,
    /// Believing what the server announces.
    Quota,
    /// Keeping the ceiling through an outage.
    Outage,
}

impl Mechanism {
    /// All of them, by name.
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
