//! The departures of a permit: the times at which its requests may leave.

use politely_core::Timestamp;
use politely_core::gate::Rate;
use politely_core::host::Unused;

/// When the requests of a permit may leave, and what they cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) start: Timestamp,
    /// The rate of the first key, in requests per second.
    pub(crate) rate: f64,
    pub(crate) slots: u16,
    // The fields of `Unused` stand here one by one. As a struct they would take more room.
    pub(crate) cost: u16,
    pub(crate) bytes: u64,
    /// Whether the request may have left. Its token then stays spent.
    pub(crate) sent: bool,
    /// Whether all keys granted the permit. It then counts in the statistics of the first key.
    pub(crate) given: bool,
    /// Whether a key could not grant the permit when it was first asked.
    pub(crate) has_waited: bool,
}

impl Departure {
    #[inline(always)]
    pub(crate) const fn new(start: Timestamp, rate: f64, slots: u16, unused: Unused) -> Self {
        Self {
            start,
            rate,
            slots,
            cost: unused.cost,
            bytes: unused.bytes,
            sent: false,
            given: true,
            has_waited: false,
        }
    }

    /// Returns what the first departure gives back if it does not leave.
    pub(crate) const fn unused(&self) -> Unused {
        Unused {
            cost: self.cost,
            bytes: self.bytes,
        }
    }

    /// Returns the `i`th departure of the run. Only the first one gives bytes back.
    pub(crate) fn nth(&self, i: u16) -> Self {
        Self {
            start: self.start + Rate::per_second(self.rate).interval() * u32::from(i),
            slots: 1,
            bytes: if i == 0 { self.bytes } else { 0 },
            ..*self
        }
    }
}
