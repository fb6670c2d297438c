//! The interface to an engine: a place that stores values by name and changes one atomically.
//!
//! A shared key lives in one *cell* of an engine that people already run, such as Redis. Sharing
//! needs four things of the engine: reading cells, a compare-and-set on the version of a cell, a
//! heartbeat that returns the engine's clock, and notices of changes where the engine has them.
//! An engine may also name its settings that lose acknowledged writes.
//! Pacing, leases, holds and laws are not the engine's business. Every process computes them
//! itself, from the same bytes.
//!
//! An adapter implements [`Engine`] and knows nothing else of this crate. The caller batches the
//! calls and limits their time. It finds out what a restarted engine may have lost. It polls now
//! and then in case a notice is lost, and subscribes again after a subscription failed or ended. It
//! decides when the settings are read.
//!
//! | engine | where |
//! | --- | --- |
//! | [`Memory`](crate::Memory): one process, for tests and simulations | this crate |
//! | Redis and Valkey | the crate `politely-redis` |
//! | `PostgreSQL` | the crate `politely-postgres` |
//! | `ZooKeeper` | the crate `politely-zookeeper` |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;

/// The future answer of an engine.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The callback for what an engine sends without being asked.
pub type OnNotice = Arc<dyn Fn(Notice) + Send + Sync>;

/// A store of cells. The first 16 bytes of a value are its [`Version`].
///
/// Several calls may be in flight at once. A call that fails may have been carried out all the
/// same, so its caller reads the cell afterwards. No call may block a thread. The caller drops a
/// call after one second and counts it as failed.
pub trait Engine: Send + Sync + 'static {
    /// Returns the values of `cells`, `None` for a cell that does not exist. There is one result
    /// per cell, in order.
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>>;

    /// Changes each cell if it still has the expected version. There is one result per write, in
    /// order.
    ///
    /// The writes are independent of one another, and all names differ.
    fn compare_and_set(&self, writes: Vec<Write>)
    -> Pending<'_, Vec<Result<Written, EngineError>>>;

    /// Returns the engine's time, the id of its run, and the value of the cell `epoch`.
    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>>;

    /// Sets the callback for notices. It is called once, before all other methods.
    ///
    /// The engine calls `on_notice` with the changes of subscribed cells ([`Write::notify`]) and
    /// with the end of a subscription. A notice may be about this node's own write, and it may come
    /// late, twice or not at all.
    fn listen(&self, on_notice: OnNotice);

    /// Subscribes to the cells in `more` and ends the subscriptions to the cells in `less`.
    ///
    /// An engine without notices does nothing. After an error or [`Notice::Unheard`] the caller
    /// subscribes to all its cells again.
    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>>;

    /// Returns the engine's settings that may lose acknowledged writes, as they are now. An engine
    /// that has no such settings returns none.
    fn risks(&self) -> Pending<'_, Result<Vec<Risk>, EngineError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// A setting of an engine that may lose acknowledged writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risk {
    /// When writes are lost.
    pub severity: Severity,
    /// One line: the server, the setting with its value, what it loses, and what to do.
    pub text: String,
}

/// When a setting of an engine loses acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// While the engine runs.
    Critical,
    /// At a restart or a power failure, or at no known time because the engine hides the setting.
    Warning,
}

/// A message that an engine sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A subscribed cell was written.
    Written {
        /// The name of the cell.
        cell: String,
        /// The new value of the cell.
        value: Vec<u8>,
    },
    /// A subscription ended. No notice of the cell comes until it is subscribed to again.
    Unheard {
        /// The name of the cell, `None` if all subscriptions ended.
        cell: Option<String>,
    },
}

/// The version of a value. It distinguishes two values of one cell and is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub [u8; Self::LEN]);

impl Version {
    /// The length of a version in bytes.
    pub const LEN: usize = 16;

    /// Returns the version of `value`, `None` if the value is too short to have one.
    pub fn of(value: &[u8]) -> Option<Self> {
        value.first_chunk().copied().map(Self)
    }
}

/// A change of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The name of the cell.
    pub cell: Arc<str>,
    /// The version that the cell must have now. `None`: the cell must not exist.
    pub expected: Option<Version>,
    /// The whole value with that version, if the writer knows it. Some engines compare whole
    /// values.
    pub before: Option<Arc<[u8]>>,
    /// The new value. It begins with its version.
    pub value: Vec<u8>,
    /// The engine may delete the cell if it is not changed for this long.
    pub keep: Duration,
    /// Whether the engine sends a notice to the subscribers of the cell.
    pub notify: bool,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The cell was changed.
    Done,
    /// The cell had another version. This is its value, `None` if it does not exist.
    Conflict(Option<Vec<u8>>),
}

/// The engine's answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The engine's clock.
    pub time: Timestamp,
    /// The id of the engine's run. It changes after a restart and after a failover, either of which
    /// may lose writes.
    pub run: u64,
    /// The value of the cell that the heartbeat names.
    pub epoch: Option<Vec<u8>>,
}

/// An engine did not answer, or it refused. It may have carried out the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);
