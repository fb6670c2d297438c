//! Where the states of shared keys live: versioned cells of an engine that people already run.
//!
//! An [`Engine`] stores values by name and changes one only if it is still what the writer last saw. That is all that
//! sharing asks of it: pacing, leases, holds and laws stay in [`crate::core`], and every process computes them itself.
//!
//! | engine | file |
//! | --- | --- |
//! | [`Memory`]: one process, for tests and simulations | `memory.rs` |
//! | `redis::Redis`: Redis or Valkey (feature `redis`) | `redis/` |

mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;

pub use memory::Memory;

/// What an engine will have answered.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// Who is told what an engine says unasked.
pub type OnNotice = Arc<dyn Fn(Notice) + Send + Sync>;

/// What stores cells. A value's first 16 bytes are its [`Version`].
///
/// Calls may come several at a time. A call that fails may have been carried out all the same: whoever made it looks.
/// Nothing may block a thread. A call that takes longer than a second is dropped, and counts as failed.
///
/// An adapter needs to know no more than its engine: whoever uses it batches calls, limits their time, finds out what a new run may have
/// lost, looks by itself now and then where notices are lost, and watches again where watching failed or ended.
pub trait Engine: Send + Sync + 'static {
    /// What the cells hold; `None` for those that are not there. One result each, in order.
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>>;

    /// Changes cells, each only if it still has the version it is expected to have. One result each, in order; they are
    /// independent of one another, and all names differ.
    fn compare_and_set(&self, writes: Vec<Write>)
    -> Pending<'_, Vec<Result<Written, EngineError>>>;

    /// The engine's time, whose run it is, and what the cell `epoch` holds.
    fn pulse(&self, epoch: Arc<str>) -> Pending<'_, Result<Pulse, EngineError>>;

    /// From now on `hear` is called with what others write to watched cells and ask to be told of ([`Write::notify`]), and with
    /// what ends that. It may be called with our own writes as well, late, twice or not at all. Called once, before all else.
    fn listen(&self, hear: OnNotice);

    /// Which cells to hear of, from now on, and which no more. An engine that never can does nothing. After an error or
    /// [`Notice::Unheard`] it will be told again which cells to hear of, all of them.
    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>>;
}

/// What an engine says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// What a watched cell holds now.
    Written {
        /// Its name.
        cell: String,
        /// What it holds.
        value: Vec<u8>,
    },
    /// From now on nothing is heard of a cell that may be watched, until it is watched again.
    Unheard {
        /// Its name; `None`: of no cell at all.
        cell: Option<String>,
    },
}

/// What tells two values of one cell apart: never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub [u8; Self::LEN]);

impl Version {
    /// Bytes it has.
    pub const LEN: usize = 16;

    /// Of a value; `None` for what is too short to have one.
    pub fn of(value: &[u8]) -> Option<Self> {
        value.first_chunk().copied().map(Self)
    }
}

/// A change of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its name.
    pub cell: Arc<str>,
    /// What it must have now; `None`: it must not be there.
    pub expected: Option<Version>,
    /// All that it held when it had that version, if the writer knows: some engines compare whole values.
    pub before: Option<Arc<[u8]>>,
    /// What it will hold. Begins with its version.
    pub value: Vec<u8>,
    /// It may be forgotten if nobody changes it for so long.
    pub keep: Duration,
    /// Those who watch the cell are told.
    pub notify: bool,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is done.
    Done,
    /// The cell had another version: this is what it holds.
    Conflict(Option<Vec<u8>>),
}

/// How an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Its clock.
    pub time: Timestamp,
    /// Another number, another run: it was started again, or another server stands in for it, so that writes may be lost.
    pub run: u64,
    /// What the cell asked for holds.
    pub epoch: Option<Vec<u8>>,
}

/// An engine did not answer, or said no. What it was asked may have been done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);
