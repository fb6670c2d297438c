//! Retries of failed and refused requests.
//!
//! An attempt can end badly in two ways, which need different answers. *Refused* (`RateLimited`):
//! the server is well and the page is still there, but the rate was too high. The request goes back
//! to its key's queue, where hold and pace decide when it leaves, and it does not count as a
//! failure. *Failed*: the request alone waits for a [`Backoff`]. It may do so a limited number of
//! times, and only while the [`Budget`]s of its key and of the process allow it. A failure of its
//! host does not count. [`Policy::judge`] tells whose fault it was, and [`Policy::decide`] what
//! follows.

mod attempt;
mod backoff;
mod budget;
mod policy;

pub use attempt::Attempt;
pub use backoff::{Backoff, InvalidBackoff, Jitter};
pub use budget::{Account, Budget, BudgetRule, InvalidBudget, withdraw};
pub use policy::{Bonus, GiveUpReason, Methods, Next, Policy, Refusals};
