//! One binary for all integration tests.

mod attempts;
mod examples;
mod failures;
mod redirects;
#[path = "../../examples/common/server.rs"]
mod server;
mod stats;
mod support;
mod ways_in;
