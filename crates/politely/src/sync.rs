//! The types that synchronize threads, imported in one place.
//!
//! `tests/shuttle.rs` compiles the registry, the queues and the limiter again with the types of
//! shuttle. It then runs interleavings that a stress test seldom meets.

use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;

/// Sleeps for `length`. This and [`timer`] are the only functions of the crate that wait for time
/// to pass.
pub(crate) async fn sleep(length: Duration) {
    timer(length).await;
}

/// Returns a future that ends after `length`. Outside of a Tokio runtime this panics at once.
#[expect(
    clippy::disallowed_methods,
    reason = "waiting is what this crate adds to the core"
)]
pub(crate) fn timer(length: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(length)
}
