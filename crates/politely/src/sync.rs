//! What threads meet at, named in one place.
//!
//! `tests/shuttle.rs` compiles the registry, the lines and the limiter a second time with shuttle's types in
//! place of these, and goes through interleavings that a stress test seldom meets.

use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;

/// The one place where this crate waits for time to pass.
#[expect(
    clippy::disallowed_methods,
    reason = "waiting is what this crate adds to the core"
)]
pub(crate) async fn sleep(length: Duration) {
    tokio::time::sleep(length).await;
}
