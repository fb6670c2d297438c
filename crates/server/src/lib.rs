//! The coordinator.
