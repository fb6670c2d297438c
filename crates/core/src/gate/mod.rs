//! May this leave now?
//!
//! Five gates, each a small state of its own: [`Pace`] (how often), [`Leases`] (how many at once),
//! [`Hold`] (not before), and [`Breaker`] twice, once for a host in trouble and once, as the
//! quarantine, for a host that blocks us. [`crate::host::Host`] asks them in order.

mod breaker;
mod hold;
mod leases;
mod pace;

pub use breaker::{Breaker, BreakerConfig};
pub(crate) use hold::{HOLD_JITTER, jittered};
pub use hold::{Hold, HoldReason};
pub(crate) use leases::FirstEnd;
pub use leases::{Expired, Lease, LeaseId, Leases, Tally};
pub(crate) use pace::lesser;
pub use pace::{Pace, Rate, Refill, grace};
