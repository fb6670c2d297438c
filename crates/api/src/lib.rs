//! The HTTP API of the coordinator, `politely serve`: the bodies of its calls, and a client.
//!
//! A worker in any language acquires a permit before each request and reports its outcome
//! afterwards. Both sides of a call use the types of [`wire`], so a field exists in one place.
//!
//! # One call, from a worker to the coordinator and back
//!
//! 1. A worker fills an [`Exchange`](wire::Exchange): reports of requests that ended, and acquire
//!    requests for the next ones (`wire/reports.rs`, `wire/permits.rs`).
//! 2. `Client::exchange` sends it to the coordinator that answered last (`client/mod.rs`).
//! 3. The coordinator reads the same type. It answers with an [`Exchanged`](wire::Exchanged). An
//!    error of the whole call is a [`Problem`](wire::Problem).
//! 4. If the coordinator does not answer, or is shutting down, the client moves on to the next
//!    (`client/coordinators.rs`). The worker makes the call again with the same ids.
//!
//! # Files
//!
//! | file | its part |
//! | --- | --- |
//! | `wire/permits.rs`, `wire/reports.rs` | bodies of workers |
//! | `wire/admin.rs`, `wire/audit.rs` | bodies of operators: keys, configuration, events, changes |
//! | `wire/frontier.rs`, `wire/frontier_admin.rs` | bodies of the frontier's calls |
//! | `wire/change.rs` | a field of a patch: keep, set, or take back |
//! | `wire/absent.rs`, `wire/whole.rs` | defaults of absent fields; whole numbers that came as floats |
//! | `client/` | one HTTP client for workers and operators (feature `client`, on by default) |
//!
//! # What is not here
//!
//! This crate decides nothing about limits and keeps no state of a worker.
//!
//! - To limit the requests of a Rust program, use `politely::Limiter` with its feature
//!   `coordinator`. It batches calls, renews leases and keeps reports while the coordinator is
//!   unavailable.
//! - To see how the coordinator answers a call, read `politely-server`: `api/calls.rs` answers
//!   `acquire`.
//! - For a worker in another language, read `docs/reference/coordinator.md`, or
//!   `/api/v1/openapi.json` of a coordinator. Its schemas come from this crate's feature `openapi`.

#[cfg(feature = "client")]
pub mod client;
pub mod wire;
