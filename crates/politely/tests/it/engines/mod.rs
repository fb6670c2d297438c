//! The requirements on every engine ([`suite`]), and the behaviour of each engine under its own
//! faults.

mod suite;

use std::sync::Arc;

use politely::Clock;
use politely::cells::{Engine, EngineError, Memory, Version, Write, Written};

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zookeeper")]
mod zookeeper;

/// A running engine to which clients can connect. Dropping it stops the engine and deletes its
/// cells.
pub(crate) trait Running {
    /// Returns a new client of the same cells.
    fn client(&self) -> Arc<dyn Engine>;

    /// Deletes all cells.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
        allow(dead_code, reason = "memory is made anew")
    )]
    fn empty(&self);
}

impl Running for Memory {
    fn client(&self) -> Arc<dyn Engine> {
        Arc::new(self.clone())
    }

    fn empty(&self) {
        unreachable!("one is made for each test");
    }
}

suite::engines! {
    memory: each Memory::new(Clock::system()),
}

/// Returns the value of a cell: its version, then `about`.
pub(crate) fn value(version: u8, about: &[u8]) -> Vec<u8> {
    [&[version; Version::LEN], about].concat()
}

/// Returns a write without a notice, to a cell that is kept for long.
pub(crate) fn write(cell: &str, expected: Option<u8>, value: Vec<u8>) -> Write {
    Write {
        cell: cell.into(),
        expected: expected.map(|version| Version([version; Version::LEN])),
        before: None,
        value,
        keep: std::time::Duration::from_mins(10),
        notify: false,
    }
}

/// Writes one cell.
pub(crate) async fn set(engine: &dyn Engine, write: Write) -> Result<Written, EngineError> {
    let mut results = engine.compare_and_set(vec![write]).await;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Reads one cell.
pub(crate) async fn read(engine: &dyn Engine, cell: &str) -> Result<Option<Vec<u8>>, EngineError> {
    let mut results = engine.read(vec![cell.into()]).await;
    assert_eq!(results.len(), 1);
    results.remove(0)
}
