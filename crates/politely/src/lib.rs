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
//! | [`middleware::PoliteMiddleware`] | `reqwest` | your own reqwest client |
//! | [`middleware::client`] | `reqwest` | a ready reqwest client; redirects are paced too |
//!
//! Processes and machines can share keys, and everything above works the same:
//!
//! - With the feature `coordinator`, `Limiter::builder().coordinator(url)` acquires permits from a
//!   `politely serve` (module `coordinator`).
//! - With the feature `redis`, `Limiter::builder().store(engine)` keeps the keys in Redis or Valkey
//!   ([`store`], [`cells`]). The features `postgres` and `zookeeper` do the same for `PostgreSQL`
//!   and `ZooKeeper`.
//!
//! Further features:
//!
//! - `robots` (on by default) reads robots.txt.
//! - `url` (part of the features that read URLs) makes keys of all spellings of hosts, and of
//!   registrable domains. Without it, keys are made of plain ASCII hosts and addresses.
//! - `calendar` (on by default) declares limits per day, week or month of a time zone.
//! - `metrics` (on by default) sends numbers to a recorder, and `quanta` (on by default) reads the
//!   time faster.
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
//! - `Stats::emit` sends numbers to a `metrics` recorder.
//! - `tracing` has a span `politely.request` per attempt (`key`, `attempt`, `waited_ms`, `status`,
//!   `signal`). It has debug events for holds, congestion events and requests given up.
//!
//! The folder `examples/` has an example for each.
//!
//! # Where to look in the sources
//!
//! | question | answer |
//! | --- | --- |
//! | What happens on a 429? | [`mod@attempts`] reports it and tries again; [`core::host::Host::report`] holds the key and lowers its rate |
//! | Where is a permit granted in this process? | `backend/local/mod.rs`; without waiting: `Local::pass` |
//! | Where is a permit granted over Redis? | [`Replica::serve` in `politely-store`](politely_store), called through `backend/store/` |
//! | Where is a permit granted with a coordinator? | the coordinator (crate `politely-server`); `backend/coordinator/` acquires from it |
//! | Where does the coordinator's API answer `acquire`? | `src/api/calls.rs` of `politely-server` |
//! | Which file implements a method of [`Limiter`]? | `backend/operations.rs` is the interface, with an implementation per backend |
//! | How is a permit given back? | `permit.rs` and `slot.rs`, and `backend/local/part.rs` for a key of this process |
//! | When is a page forbidden? | [`robots`] |
//!
//! [`core`] holds the state of a key and makes all decisions about it. This crate adds the parts
//! that need a clock, threads and a runtime.
//!
//! # What is not here
//!
//! - To fetch a list of URLs, or to limit a program in another language, use the binary `politely`
//!   (crate `politely-cli`): `fetch` and `serve`.
//! - For a queue of domains and pages, use `politely-frontier`.
//! - To make decisions without a runtime, use [`core`] alone.

mod backend;
mod clock;
mod departure;
mod error;
mod http;
mod labels;
mod leases;
mod limiter;
mod lock_guard;
mod locks;
mod own_machine;
mod permit;
mod recorder;
mod retries;
#[cfg(feature = "robots")]
pub mod robots;
mod saved_states;
mod slot;
mod snapshot;
mod stats;
mod sync;
mod to_outcome;

#[cfg(feature = "coordinator")]
pub use self::backend::coordinator;
pub use self::backend::local::registry::Full;
pub use self::backend::local::waiters::Arrival;
pub use self::backend::store::{self, cells};
#[cfg(any(feature = "tower", feature = "reqwest"))]
pub use self::http::attempts;
#[cfg(feature = "coding")]
pub use self::http::coding;
#[cfg(feature = "tower")]
pub use self::http::layer;
#[cfg(feature = "reqwest")]
pub use self::http::middleware;
#[cfg(feature = "url")]
pub use self::http::redirect;
pub use clock::{Clock, wall_clock};
pub use error::{AcquireError, Keys, MissingLabel, Refusal, RefusalReason, SetError, Unsupported};
pub use labels::Labels;
pub use limiter::{Builder, Limiter};
#[cfg(feature = "policy")]
pub use limiter::{Plan, RequestView, Share};
pub use lock_guard::LockGuard;
pub use locks::{Claimed, LockError, LockRequest, LockView};
pub use own_machine::OwnMachine;
pub use permit::Permit;
pub use politely_core as core;
pub use politely_core::budget::{
    DeclaredLimit, DeclaredLimits, LimitError, UnitCosts, UnitError, UnitName,
};
pub use politely_core::config::Config;
pub use politely_core::host::{
    AcquireRequest, CrawlDelay, Directions, Explanation, OperatorNumbers, Reason,
};
pub use politely_core::key::Key;
pub use politely_core::signal::{Failure, Outcome, Report, Signal};
#[cfg(feature = "policy")]
pub use politely_policy as policy;
pub use retries::Retries;
pub use saved_states::{SavedStates, Unreadable};
pub use slot::Slot;
pub use snapshot::{Earlier, Recovery, Snapshot};
pub use stats::{Commits, Stats};
pub use to_outcome::ToOutcome;

/// Compiles the code of the README as tests.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
