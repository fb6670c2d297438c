//! The gates that a request passes before it may leave.
//!
//! There are five gates, and each one is a small state of its own. [`Pace`] limits how often
//! requests leave. [`Leases`] limits how many are in flight. [`Hold`] lets nothing leave before a
//! time. [`Breaker`] exists twice: one stops a key whose host fails, the other is the quarantine of
//! a host that shows block pages. [`crate::host::Host`] checks them in order.

mod breaker;
mod first_end;
mod hold;
mod leases;
mod pace;

pub use breaker::{Breaker, BreakerConfig};
pub(crate) use first_end::FirstEnd;
pub(crate) use hold::{HOLD_JITTER, jittered};
pub use hold::{Hold, HoldReason};
pub use leases::{Expired, Lease, LeaseId, Leases, Tally};
pub(crate) use pace::lesser;
pub use pace::{Pace, Rate, Refill, grace};
