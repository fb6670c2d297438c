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
//! A client that should need no further code takes one of the ready ways in:
//!
//! | way in | feature | for |
//! | --- | --- | --- |
//! | [`Limiter::acquire`] | | one's own client: wait, send, report |
//! | [`Limiter::try_acquire`] | | one's own scheduler: ask, and turn to another host meanwhile |
//! | [`layer::PoliteLayer`] | `tower` | any tower service from `http::Request` to `http::Response` |
//! | [`reqwest::PoliteMiddleware`] | `reqwest` | a reqwest client of one's own |
//! | [`mod@reqwest`]`::client` | `reqwest` | a reqwest client, ready, redirects paced too |
//!
//! Hosts can be shared with other processes and machines, and everything above works the same: with the feature `coordinator`,
//! `Limiter::builder().coordinator(url)` asks a `politely serve` (module `remote`); with the feature `redis`,
//! `Limiter::builder().store(engine)` keeps keys in Redis or Valkey ([`shared`], [`cells`]). `robots` (on by default) reads
//! robots.txt; `coding` (part of `reqwest` and `robots`) undoes content codings ([`mod@coding`]); `wire` has the bodies of the coordinator's API, `openapi` their schemas.
//!
//! The three ready ones pace, classify, report and retry by one law, told in [`mod@attempts`]. What all of
//! them do can be watched: [`Limiter::explain`] (why does this key wait?), [`Stats::emit`] (numbers for a
//! `metrics` recorder), and `tracing`: a span `politely.request` per attempt (`key`, `attempt`, `waited_ms`,
//! `status`, `signal`), and debug events for holds, congestion events and requests given up. There is an
//! example for each in `examples/`.
//!
//! The state of a key and everything decided about it lives in [`core`]; this crate adds
//! what needs a clock, threads and a runtime.

mod asked;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub mod attempts;
mod birth;
#[cfg(any(feature = "tower", feature = "reqwest", feature = "wire"))]
mod budgets;
pub mod cells;
mod clock;
#[cfg(feature = "coding")]
pub mod coding;
mod elsewhere;
mod index;
#[cfg(feature = "tower")]
pub mod layer;
mod limiter;
mod permit;
pub mod redirect;
mod registry;
#[cfg(feature = "coordinator")]
pub mod remote;
#[cfg(feature = "reqwest")]
pub mod reqwest;
#[cfg(feature = "robots")]
pub mod robots;
pub mod shared;
mod slab;
mod snapshot;
mod stats;
mod sync;
mod waiters;
#[cfg(feature = "wire")]
pub mod wire;

pub use asked::{AcquireError, Keys, Refusal, RefusalReason, SetError, Unsupported};
#[cfg(any(feature = "tower", feature = "reqwest", feature = "wire"))]
pub use budgets::Budgets;
pub use clock::{Clock, wall_clock};
pub use limiter::{Builder, Limiter};
pub use permit::{Permit, Slot};
pub use politely_core as core;
pub use politely_core::config::Config;
pub use politely_core::host::{Ask, CrawlDelay, Directions, Explanation, OperatorNumbers, Reason};
pub use politely_core::key::Key;
pub use politely_core::signal::{Failure, Outcome, Report, Signal};
pub use registry::Full;
pub use snapshot::Snapshot;
pub use stats::{Commits, Stats};
pub use waiters::Turn;

/// The README's code is compiled as ours is.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
