//! What threads meet at, named in one place.
//!
//! `tests/shuttle.rs` compiles the registry, the lines and the limiter a second time with shuttle's types in
//! place of these, and goes through interleavings that a stress test seldom meets.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;
