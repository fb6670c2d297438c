//! The types that synchronize threads, imported in one place.
//!
//! `tests/shuttle.rs` compiles the registry, the queues and the limiter again with the types of
//! shuttle. It then runs interleavings that a stress test seldom meets.

use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;

/// Sleeps for `length`. This is the only function of the crate that waits for time to pass.
#[expect(
    clippy::disallowed_methods,
    reason = "waiting is what this crate adds to the core"
)]
pub(crate) async fn sleep(length: Duration) {
    tokio::time::sleep(length).await;
}
