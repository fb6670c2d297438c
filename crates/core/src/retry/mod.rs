//! What becomes of a refused request?
//!
//! Two things can be wrong with an attempt, and they want different answers. *Refused* (`RateLimited`): the
//! server is well and the page is still there, we were too fast. The request goes back to its key's queue,
//! where hold and pace decide when it leaves, and nobody counts it as a failure. *Failed*: the request alone
//! waits out a [`Backoff`], so many times, and only as long as the [`Budget`]s of its key and of the process
//! can afford it. [`Policy::decide`] tells them apart.

mod backoff;
mod budget;
mod policy;

pub use backoff::{Backoff, InvalidBackoff, Jitter};
pub use budget::{Account, Budget, BudgetRule, InvalidBudget, withdraw};
pub use policy::{Attempt, Bonus, GiveUpReason, Methods, Next, Policy, Refusals};
