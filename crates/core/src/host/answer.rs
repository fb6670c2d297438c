//! Acquire requests to a key, and its answers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::crawl_delay::CrawlDelay;
use crate::Timestamp;
use crate::budget::UnitCosts;
use crate::gate::{HoldReason, LeaseId, Rate};
use crate::signal::{Alike, Report, Signal};

/// The furthest that a departure of a shared key is granted ahead, and the longest run. The process
/// that keeps the state may lose its last grants (P7 in docs/reference/promises.md), so this bounds
/// how many it can lose.
pub const HORIZON: Duration = Duration::from_secs(2);

/// An acquire request.
#[derive(Clone, Debug, PartialEq)]
pub struct AcquireRequest {
    /// Consecutive departure slots, at least 1. Each becomes a permit of its own.
    pub slots: u16,
    /// How far ahead a reservation may start. Zero allows only a start now.
    pub horizon: Duration,
    /// Tokens that the request costs, at least 1. A request that costs more than 1 is granted one
    /// slot.
    pub cost: u16,
    /// Bytes that the request will send. They are charged to the byte budget at once.
    pub bytes: u64,
    /// The estimated costs in named units, such as tokens. [`crate::signal::Report::used`] corrects
    /// them. A request that states some is granted one slot.
    pub units: UnitCosts,
    /// Whether another key learns from the outcome, and this key is only a limit of the request.
    pub is_limit_only: bool,
    /// Whether the requests wait in a queue of the caller, which sends them one after another. A
    /// learned cap in flight then binds only after a refusal or in a pause. A cap that is declared,
    /// or set for the key by an operator, always binds.
    pub is_queued: bool,
    /// The Crawl-delay that the caller read in the host's robots.txt. The request respects it, and
    /// it applies to the key once the request is granted. A request that waits changes nothing.
    pub crawl_delay: Option<CrawlDelay>,
}

impl AcquireRequest {
    /// Returns a request for one departure, which may start up to `horizon` ahead.
    #[must_use]
    pub fn within(horizon: Duration) -> Self {
        Self {
            horizon,
            ..Self::default()
        }
    }

    /// Returns whether this is the default: one departure now, of cost 1 and nothing else.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        let Self {
            slots: 1,
            horizon: Duration::ZERO,
            cost: 1,
            bytes: 0,
            units,
            is_limit_only: false,
            is_queued: false,
            crawl_delay: None,
        } = self
        else {
            return false;
        };
        units.is_empty()
    }

    /// Returns the refund of its first permit if that does not leave.
    #[must_use]
    pub fn unused(&self) -> Unused {
        Unused {
            cost: self.cost.max(1),
            bytes: self.bytes,
        }
    }
}

/// The refund of a permit whose request did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Tokens.
    pub cost: u16,
    /// Bytes of the byte budget.
    pub bytes: u64,
}

impl Unused {
    /// Returns the refund of each permit of a run, the last permit first, because only the newest
    /// tokens can be returned.
    pub fn of_run(self, first: LeaseId, slots: u16) -> impl Iterator<Item = (LeaseId, Self)> {
        first.run(slots).rev().map(move |lease| {
            let bytes = if lease == first { self.bytes } else { 0 };
            (lease, Self { bytes, ..self })
        })
    }
}

impl Default for AcquireRequest {
    fn default() -> Self {
        Self {
            slots: 1,
            horizon: Duration::ZERO,
            cost: 1,
            bytes: 0,
            units: UnitCosts::NONE,
            is_limit_only: false,
            is_queued: false,
            crawl_delay: None,
        }
    }
}

/// The answer to an acquire request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// The request may leave.
    Granted(Grant),
    /// The request may not leave yet.
    Wait(Wait),
}

/// A run of permits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The lease of the first permit. The ids of the others follow it one by one.
    pub lease: LeaseId,
    /// Permits granted: at most the number asked for, the free slots, and the departures within
    /// [`HORIZON`].
    pub slots: u16,
    /// When the first may leave.
    pub start: Timestamp,
    /// The present rate, requests per second.
    pub rate: f64,
    /// The refund of the first permit if it does not leave. The others have the same one, without
    /// the bytes.
    pub unused: Unused,
}

impl Grant {
    /// Returns the time between one start and the next.
    pub fn interval(&self) -> Duration {
        Rate::per_second(self.rate).interval()
    }
}

/// Why a request must wait, and when to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Acquire again at this time, or when a report of this key comes, whichever is first.
    pub at: Timestamp,
    /// The first gate that is closed.
    pub reason: Reason,
}

/// Why a key waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The next departure slot is later.
    Pace,
    /// All in-flight slots are taken.
    InFlight,
    /// The byte budget is in debt.
    Bytes,
    /// A declared limit has no room.
    Budget,
    /// A hold is in force.
    Hold(HoldReason),
    /// A hold is in force that is longer than `hold_max`.
    Parked(HoldReason),
    /// The breaker is open, or its probe is under way.
    Breaker,
    /// The host shows block pages.
    Quarantine,
    /// The engine that keeps the key's state is unavailable. A [`crate::host::Host`] never answers
    /// this; the caller of the engine does.
    Unavailable,
    /// The key's cell in the engine cannot be decoded by this version. A [`crate::host::Host`]
    /// never answers this.
    Unreadable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pace => f.write_str("pace"),
            Self::InFlight => f.write_str("in flight"),
            Self::Bytes => f.write_str("byte budget"),
            Self::Budget => f.write_str("budget"),
            Self::Hold(reason) => write!(f, "hold, {}", reason.as_str()),
            Self::Parked(reason) => write!(f, "parked, {}", reason.as_str()),
            Self::Breaker => f.write_str("breaker"),
            Self::Quarantine => f.write_str("quarantine"),
            Self::Unavailable => f.write_str("engine unavailable"),
            Self::Unreadable => f.write_str("its cell cannot be read"),
        }
    }
}

/// The effects of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they answer questions that do not depend on one another"
)]
pub struct Directions {
    /// When the key's hold ends. Nothing leaves before then; a time in the past means no hold.
    pub hold_until: Timestamp,
    /// The new rate, requests per second.
    pub rate: f64,
    /// Whether the report began a new congestion event.
    pub event: bool,
    /// Whether the report came after its lease had expired, or a second time. Such a report moves
    /// no rate.
    pub late: bool,
    /// Whether the failure counts against its URL only. The host's rate, breaker and hold then did
    /// not change.
    ///
    /// True for a plain 4xx, and for failures that [`crate::signal::Report::resource`] lets the
    /// host tell apart. The caller then delays this URL alone, by the report's Retry-After or by
    /// its own backoff, and goes on with other URLs. False for success, and for a failure that is
    /// evidence against the host.
    pub url_fault: bool,
    /// Whether the key ever served a request, as far as is known.
    pub has_served: bool,
    /// Whether the host is suspected of refusing everything.
    pub doubt: Doubt,
    /// How often the quarantine was opened since the host last served: 0 without one. Each further
    /// time, a request after a rest was refused.
    pub quarantines: u8,
}

/// The number of quarantines from which on a suspected host counts as one that blocks. It may be a
/// limit of minutes: it refused six proofs, over 126 s and more.
const QUARANTINES_REFUSED: u8 = 7;

impl Directions {
    /// Returns what the answer of `report` means. One that proved to be a limit of its host is a
    /// refusal, whatever its status says.
    pub fn meaning(&self, report: &Report) -> Signal {
        if self.doubt == Doubt::Limited && (report.odd().is_some() || report.is_error()) {
            Signal::RateLimited
        } else {
            report.signal
        }
    }

    /// Returns whether the answer of `report` may be a refusal of a suspected host, and the page
    /// should be requested again. Callers that compare answers by [`Alike::Of`] keep the page
    /// themselves.
    pub fn doubts(&self, report: &Report) -> bool {
        let is_suspected = matches!(self.doubt, Doubt::Suspected | Doubt::Checking);
        is_suspected && report.alike == Alike::Status && report.odd().is_some()
    }

    /// Returns whether a suspected host refused for so long that it counts as one that blocks.
    pub fn refuses_all(&self) -> bool {
        self.doubt == Doubt::Suspected && self.quarantines >= QUARANTINES_REFUSED
    }

    /// Returns the directions of a key whose state is not at hand: nothing leaves before
    /// `hold_until`, and nothing else is known.
    pub const fn unknown(hold_until: Timestamp) -> Self {
        Self {
            hold_until,
            rate: 0.0,
            event: false,
            late: false,
            url_fault: false,
            has_served: true,
            doubt: Doubt::None,
            quarantines: 0,
        }
    }
}

/// Whether a host is suspected of refusing everything, after a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doubt {
    /// The host is not suspected. Its answers mean what they say.
    #[default]
    None,
    /// The answer is like the ones before it, and may be a refusal. A later report tells: keep the
    /// page until then.
    Unclear,
    /// The host is suspected. The next request should be for a page that it served before. Keep the
    /// refused pages.
    Suspected,
    /// The host served a page that it had served before. The next request should be for a page that
    /// it refused. Keep the others.
    Checking,
    /// A limit of the host refused the pages. They can be requested again.
    Limited,
}
