//! The integration tests of this crate, built as a single binary.
#![allow(
    clippy::duplicate_mod,
    reason = "examples are modules here, and each brings the server along"
)]

mod attempts;
mod engines;
mod examples;
mod failures;
mod fast_host;
mod http_oddities;
mod limiter_bound;
mod limiter_keys;
mod limiter_line;
mod limiter_saved;
mod limiter_threads;
mod locks;
mod permit;
#[cfg(feature = "policy")]
mod policy;
mod redirects;
#[cfg(feature = "policy")]
mod scopes;
#[path = "../../examples/common/server.rs"]
mod server;
mod stats;
mod support;
mod terms;
mod traces;
#[cfg(feature = "policy")]
mod usage;
mod ways_in;
