//! Limits the requests of a client before a server has to.
//!
//! A [`Limiter`] grants one [`Permit`] per request, and learns from the reported outcomes:
//!
//! ```
//! use politely::{Key, Limiter};
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let limiter = Limiter::builder().build()?;
//! # let send = async || http::Response::builder().status(200).body(());
//!
//! let permit = limiter.acquire(&Key::host("example.com")?).await?; // waits for the host's turn
//! let response = send().await?; // sends the request with any HTTP client
//! let slot = permit.report_response(&response); // the host's limit is learned from this
//! drop(slot); // the body has arrived
//!
//! assert_eq!(limiter.stats().reported, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! If the limits are known, the builder takes them:
//! `Limiter::builder().rate(10.0).burst(5).in_flight(4)`.
//!
//! The following entry points exist. The last three need no further code:
//!
//! | entry point | feature | for |
//! | --- | --- | --- |
//! | [`Limiter::acquire`] | | your own client: wait, send, report |
//! | [`Limiter::try_acquire`] | | your own scheduler: ask, and turn to another host meanwhile |
//! | [`layer::PoliteLayer`] | `tower` | a tower service from `http::Request` to `http::Response` |
//! | [`reqwest::PoliteMiddleware`] | `reqwest` | your own reqwest client |
//! | [`mod@reqwest`]`::client` | `reqwest` | a ready reqwest client; redirects are paced too |
//!
//! Processes and machines can share keys, and everything above works the same:
//!
//! - With the feature `coordinator`, `Limiter::builder().coordinator(url)` acquires permits from a
//!   `politely serve` (module `remote`).
//! - With the feature `redis`, `Limiter::builder().store(engine)` keeps the keys in Redis or Valkey
//!   ([`shared`], [`cells`]).
//!
//! Further features:
//!
//! - `robots` (on by default) reads robots.txt.
//! - `coding` (part of `reqwest` and `robots`) decodes content codings ([`mod@coding`]).
//!
//! The bodies of the coordinator's API are in the crate `politely-api`.
//!
//! The last three entry points pace, classify, report and retry by the same rules. [`mod@attempts`]
//! describes the rules.
//!
//! Three interfaces show what a limiter does:
//!
//! - [`Limiter::explain`] returns why a key waits.
//! - [`Stats::emit`] sends numbers to a `metrics` recorder.
//! - `tracing` has a span `politely.request` per attempt (`key`, `attempt`, `waited_ms`, `status`,
//!   `signal`). It has debug events for holds, congestion events and requests given up.
//!
//! The folder `examples/` has an example for each.
//!
//! [`core`] holds the state of a key and makes all decisions about it. This crate adds the parts
//! that need a clock, threads and a runtime.

mod asked;
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub mod attempts;
mod birth;
mod budgets;
pub mod cells;
mod clock;
#[cfg(feature = "coding")]
pub mod coding;
mod departure;
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
mod to_outcome;
mod waiters;

pub use asked::{AcquireError, Keys, Refusal, RefusalReason, SetError, Unsupported};
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
pub use to_outcome::ToOutcome;
pub use waiters::Turn;

/// Compiles the code of the README as tests.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
