//! Declared limits: at most a quantity of a unit in a window, for example `1000/h` or
//! `10000/day@UTC`.
//!
//! A key has any number of them beside its learned pace. A request leaves when all of them have
//! room. A new window starts full, and its first requests may leave in one burst. In windows of up
//! to ten seconds the requests after such a burst leave evenly. A declared limit is never learned
//! and never raised by success.
//!
//! | part | the question that it answers |
//! | --- | --- |
//! | [`DeclaredLimit`], [`DeclaredLimits`] | What did an operator declare? |
//! | `notation` | How is a limit written? |
//! | `rolling` | What was spent in the last seconds or hours? |
//! | `calendar` | What was spent since midnight? |
//! | [`UnitCosts`] | What does a request cost, apart from itself? |
//! | `spent` | Which limit of a key has no room, and until when? |

mod calendar;
mod declared;
mod log;
mod notation;
mod rolling;
mod spent;
#[cfg(test)]
mod strict_server_tests;
mod unit;

pub use calendar::{Period, Zone};
pub use declared::{DeclaredLimit, DeclaredLimits, LimitError, LimitUnit, LimitWindow};
pub use notation::understood_as;
pub use spent::Remainder;
pub(crate) use spent::{Cost, Spent};
pub use unit::{AMOUNT_MAX, UNITS_MAX, UnitCosts, UnitError, UnitName};
