//! The coordinator.

pub mod store;
