//! Sharing protocol.

mod engine;
mod event;
mod held_lease;
mod memory;
mod node;
mod record;
mod replica;
mod shared_clock;

pub use self::engine::{
    Engine, EngineError, Heartbeat, Notice, OnNotice, Pending, Version, Write, Written,
};
pub use self::event::Event;
pub use self::held_lease::HeldLease;
pub use self::memory::{Memory, TimeSource};
pub use self::node::{Commands, Counts, Grant, Node, NodeOptions, Reply, Ticket, cell_name};
pub use self::record::NodeId;
pub use self::shared_clock::HEARTBEAT_EVERY;

/// Internals for this project's own tests. They may change without notice.
#[doc(hidden)]
pub mod testing {
    pub use crate::record::{Head, Record};
    pub use crate::replica::CROWD;
    pub use crate::replica::fallback::LASTS as FALLBACK_MAX;
}
