//! Clients that keep declared limits, against servers that enforce them.
//!
//! Each client is told the same limits. The server aligns its windows by a clock of its own. A
//! request reaches the server a little later than it leaves, and not always equally later. So a
//! client that counts the server's windows by its own clock is refused at their boundaries, and a
//! client that leaves too much room wastes the rest.
//!
//! ```text
//!   study    the cases and the table       keeper      what a client is; ours
//!   run      the event loop                server      the limits as the server counts them
//!   fixed_window, moving_window, usage_router          clients of other projects
//! ```
//!
//! Tokens are known after the answer. The client states an estimate that is ten times too large or
//! too small.

mod fixed_window;
mod keeper;
mod moving_window;
mod run;
mod server;
mod study;
mod usage_router;

pub use study::{KeptLimits, study};
