//! Rate limits that many processes share, without I/O.
//!
//! Each shared key is one versioned record in a cell of an engine that people already run, such as
//! Redis. Every process ([`Node`]) computes permits itself, on its copy of the record, and writes
//! the result with a compare-and-set. A node that loses the race applies its changes to the
//! winner's record and tries again. No process leads, and the engine needs no code of this project.
//!
//! # One permit, from the caller to the engine and back
//!
//! 1. A caller asks: [`Node::acquire`] puts it into the queue of its key's replica
//!    (`replica/queue.rs`) and returns a [`Ticket`].
//! 2. The driver calls [`Node::poll_commands`]. The replica decides in `Replica::step`
//!    (`replica/step.rs`) whether it may write now.
//! 3. It grants from its copy of the record, in `Replica::serve` (`replica/line.rs`): **this is
//!    where a permit is granted over an engine**. The gates and laws are
//!    `politely_core::host::Host`. All grants and events of this moment become one [`Write`]
//!    (`replica/commit.rs`).
//! 4. The driver carries out the write through an [`Engine`] and passes the answer to
//!    [`Node::handle_write`]. If another node wrote first, the replica merges its record
//!    (`replica/merge.rs`) and goes back to step 2.
//! 5. Once the write is confirmed, the grant goes to its caller as a [`Reply`] of
//!    [`Node::poll_replies`] (`node/replies.rs`).
//! 6. The caller's outcome is an [`Event`] for [`Node::apply`]. It rides with the next write.
//!
//! # Files
//!
//! | file | its part |
//! | --- | --- |
//! | `engine.rs`, `memory.rs` | the interface to an engine; an engine in memory |
//! | `record.rs` | the bytes of a cell |
//! | `event.rs`, `held_lease.rs` | what changes a key; a lease as its holder knows it |
//! | `shared_clock/` | the time all nodes agree on, and whether the engine has lost writes |
//! | `replica/` | one key: phases, timers, queue, commit, merge |
//! | `node/` | all keys of a process: commands out, answers in |
//! | `tests/faults/` | ten thousand random schedules of faults in virtual time |
//!
//! # What is not here
//!
//! There is no I/O, no clock, no thread and no async runtime. A driver supplies the local time with
//! each call and carries out the commands. The driver for Tokio is in the crate `politely`
//! (`backend/store/driver.rs`), and the engine for Redis and Valkey is in `politely-redis`.
//!
//! To limit requests, use `politely::Limiter` and do not depend on this crate. To keep keys in
//! another store, implement [`Engine`]. To drive a [`Node`] from another runtime, read the
//! documentation of [`Node`] and follow `politely`'s driver.

mod barrier;
mod engine;
mod event;
mod held_lease;
mod memory;
mod node;
mod record;
mod replica;
mod shared_clock;

pub use self::barrier::Barrier;
pub use self::engine::{
    Engine, EngineError, Heartbeat, Notice, OnNotice, Pending, Risk, Severity, Version, Write,
    Written,
};
pub use self::event::Event;
pub use self::held_lease::{HeldLease, renewed_after, safe_length};
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
