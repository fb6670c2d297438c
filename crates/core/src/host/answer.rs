//! What a key is asked, and what it answers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::gate::{HoldReason, LeaseId, Rate};

/// Nothing that several share is promised further ahead than this, and no run goes on for longer: whoever keeps the state may forget
/// what it promised (P7).
pub const HORIZON: Duration = Duration::from_secs(2);

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// Consecutive departure slots wanted; each becomes a permit of its own. At least 1.
    pub slots: u16,
    /// A reservation may start this far ahead; zero: now or not at all.
    pub horizon: Duration,
    /// Tokens it costs. At least 1; one that costs more is granted one slot.
    pub cost: u16,
    /// Bytes it will send, charged to the byte budget at once.
    pub bytes: u64,
    /// Another key learns from the outcome; this key is only a limit of the request.
    pub is_limit_only: bool,
}

impl Ask {
    /// One departure, which may start so far ahead.
    #[must_use]
    pub fn within(horizon: Duration) -> Self {
        Self {
            horizon,
            ..Self::default()
        }
    }

    /// What its first permit gives back if it does not leave.
    #[must_use]
    pub fn unused(self) -> Unused {
        Unused {
            cost: self.cost.max(1),
            bytes: self.bytes,
        }
    }
}

/// What a permit gives back whose request did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Tokens.
    pub cost: u16,
    /// Of the byte budget.
    pub bytes: u64,
}

impl Unused {
    /// What each permit of a run gives back, the last first: only the newest tokens can be given back.
    pub fn of_run(self, first: LeaseId, slots: u16) -> impl Iterator<Item = (LeaseId, Self)> {
        first.run(slots).rev().map(move |lease| {
            let bytes = if lease == first { self.bytes } else { 0 };
            (lease, Self { bytes, ..self })
        })
    }
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            slots: 1,
            horizon: Duration::ZERO,
            cost: 1,
            bytes: 0,
            is_limit_only: false,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// It may leave.
    Granted(Grant),
    /// Not now.
    Wait(Wait),
}

/// A run of permits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The first permit's lease; the others' ids follow it one by one.
    pub lease: LeaseId,
    /// Permits granted: as many as asked for, or as many as are free in flight and leave within [`HORIZON`].
    pub slots: u16,
    /// When the first may leave.
    pub start: Timestamp,
    /// The present rate, requests per second.
    pub rate: f64,
    /// What the first gives back if it does not leave; the others the same, without the bytes.
    pub unused: Unused,
}

impl Grant {
    /// Between one start and the next.
    pub fn interval(&self) -> Duration {
        Rate::per_second(self.rate).interval()
    }
}

/// Why not now, and when to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Ask again at this time, or when a report of this key comes, whichever is first.
    pub at: Timestamp,
    /// What is in the way.
    pub reason: Reason,
}

/// What keeps a key waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The next departure slot is later.
    Pace,
    /// All in-flight slots are taken.
    InFlight,
    /// The byte budget is in debt.
    Bytes,
    /// A hold.
    Hold(HoldReason),
    /// A hold longer than the user's ceiling.
    Parked(HoldReason),
    /// The breaker is open or its probe under way.
    Breaker,
    /// The host blocks us.
    Quarantine,
    /// The engine that keeps the key's state is away. Never a [`crate::host::Host`]'s answer: whoever asks the
    /// engine for its state gives it.
    Away,
    /// What the engine keeps for the key is no state that this version can read. Never a [`crate::host::Host`]'s answer.
    Unreadable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pace => f.write_str("pace"),
            Self::InFlight => f.write_str("in flight"),
            Self::Bytes => f.write_str("byte budget"),
            Self::Hold(reason) => write!(f, "hold, {}", reason.as_str()),
            Self::Parked(reason) => write!(f, "parked, {}", reason.as_str()),
            Self::Breaker => f.write_str("breaker"),
            Self::Quarantine => f.write_str("quarantine"),
            Self::Away => f.write_str("engine away"),
            Self::Unreadable => f.write_str("its cell cannot be read"),
        }
    }
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Directions {
    /// Nothing leaves for this key before then; in the past: nothing is in the way.
    pub hold_until: Timestamp,
    /// Requests per second from now on.
    pub rate: f64,
    /// The report began a new congestion event.
    pub event: bool,
    /// It came after its lease had expired, or a second time: it moved no rate.
    pub late: bool,
    /// The failure counts against its URL only: the host's rate, breaker and hold did not change.
    ///
    /// True for a plain 4xx, and for what [`crate::signal::Report::resource`] lets the host tell apart.
    /// The caller puts off this URL alone, by the report's Retry-After or by its own backoff, and goes
    /// on with other URLs. False for success, and for a failure that is evidence against the host.
    pub url_fault: bool,
}
