//! Limit yourself before a server has to.
//!
//! A [`Limiter`] gives leave to send, one [`Permit`] per request, and learns from what happened:
//!
//! ```
//! use politely::{Key, Limiter, Report, Signal};
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let limiter = Limiter::builder().build()?;
//! let key = Key::host("example.com")?;
//!
//! let permit = limiter.acquire(&key).await?; // waits until the host may be asked again
//! // … send the request …
//! permit.report(&Report::of(Signal::Ok));
//!
//! assert_eq!(limiter.stats().reported, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! The state of a key and everything decided about it lives in [`core`](politely_core); this crate adds
//! what needs a clock, threads and a runtime.

mod clock;
mod limiter;
mod permit;
mod registry;
#[cfg(feature = "robots")]
pub mod robots;
mod stats;
mod waiters;

pub use clock::Clock;
pub use limiter::{AcquireError, Builder, Keys, Limiter, Refusal, RefusalReason};
pub use permit::Permit;
pub use politely_core as core;
pub use politely_core::config::Config;
pub use politely_core::host::{Directions, Explanation, Reason};
pub use politely_core::key::Key;
pub use politely_core::signal::{Failure, Outcome, Report, Signal};
pub use stats::Stats;
