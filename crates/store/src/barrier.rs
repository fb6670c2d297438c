//! A mark in the order of events.

use std::sync::atomic::{AtomicBool, Ordering};

/// An event that changes nothing. Events of a key are written in order, so a written barrier means
/// that all events before it are written.
#[derive(Debug, Default)]
pub struct Barrier(AtomicBool);

impl Barrier {
    /// Returns whether the engine holds every event of the key that came before this one.
    pub fn is_written(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn confirm(&self) {
        self.0.store(true, Ordering::Release);
    }
}
