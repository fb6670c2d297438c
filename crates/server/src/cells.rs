//! Values in cells of the engine that all coordinators read and change.
//!
//! | bytes | content of a cell |
//! | --- | --- |
//! | 16 | the version: the writer and the number of its write |
//! | 1 | the layout, [`LAYOUT`] |
//! | 4 | CRC-32 of the rest, little-endian |
//! | rest | the content |
//!
//! A change reads the cell and writes with compare-and-set, again and again while others write.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use politely::cells::{Engine, EngineError, Version, Write, Written};

const LAYOUT: u8 = 3;
/// The time for a call of the engine. After that it counts as failed.
const CALL: Duration = Duration::from_secs(1);
/// The most attempts of a change while other coordinators write.
const TRIES: u32 = 16;
/// The lifetime of a cell that never expires in practice: a hundred years.
pub(crate) const FOREVER: Duration = Duration::from_hours(24 * 366 * 100);

/// Why a cell could not be read or changed. Each is one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CellError {
    #[error("the engine is unavailable: {0}")]
    Unavailable(#[from] EngineError),
    #[error("other coordinators change the cell {0:?} all the time")]
    Busy(Arc<str>),
    #[error("the cell {0:?} is damaged; delete it and set its content again")]
    Damaged(Arc<str>),
    #[error("the cell {0:?} has layout {1}, expected {LAYOUT}; run one version of politely")]
    Layout(Arc<str>, u8),
}

/// A writer of cells.
pub(crate) struct Cells {
    engine: Arc<dyn Engine>,
    writer: u64,
    writes: AtomicU64,
}

impl Cells {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            writer: RandomState::new().hash_one(std::process::id()),
            writes: AtomicU64::new(0),
        }
    }

    /// Returns the first half of the versions that it writes.
    pub(crate) const fn writer(&self) -> u64 {
        self.writer
    }

    /// Reads the values of `names`, in their order.
    pub(crate) async fn read_all(
        &self,
        names: Vec<Arc<str>>,
    ) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let read = tokio::time::timeout(CALL, self.engine.read(names)).await;
        read.map_err(|_| late())?.into_iter().collect()
    }

    pub(crate) async fn read(&self, name: &Arc<str>) -> Result<Option<Vec<u8>>, EngineError> {
        let values = self.read_all(vec![Arc::clone(name)]).await?;
        Ok(values.into_iter().next().flatten())
    }

    /// Changes the cell `name`, whose value was `before` when it was read last.
    ///
    /// `change` gets the present value and returns the new content, or `None` to leave the cell as
    /// it is. It is called again if another coordinator wrote meanwhile. Returns the value that the
    /// cell has in the end.
    pub(crate) async fn update<E: From<CellError>>(
        &self,
        name: &Arc<str>,
        mut before: Option<Vec<u8>>,
        keep: Duration,
        mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        for _ in 0..TRIES {
            let Some(content) = change(before.as_deref())? else {
                return Ok(before);
            };
            let value = self.seal(&content);
            let written = self.write(name, before, value.clone(), (keep, false)).await;
            match written.map_err(CellError::from)? {
                Written::Done => return Ok(Some(value)),
                Written::Conflict(found) => before = found,
            }
        }
        Err(CellError::Busy(Arc::clone(name)).into())
    }

    /// Writes `value` if the cell still holds `before`. Each reader of the engine is notified, if
    /// `notify` says so.
    pub(crate) async fn write(
        &self,
        name: &Arc<str>,
        before: Option<Vec<u8>>,
        value: Vec<u8>,
        (keep, notify): (Duration, bool),
    ) -> Result<Written, EngineError> {
        let write = Write {
            cell: Arc::clone(name),
            expected: before.as_deref().and_then(Version::of),
            before: before.map(Arc::from),
            value: value.clone(),
            keep,
            notify,
        };
        let written = tokio::time::timeout(CALL, self.engine.compare_and_set(vec![write])).await;
        let first = written.map_or_else(
            |_| Err(late()),
            |all| all.into_iter().next().unwrap_or_else(|| Err(late())),
        );
        match first {
            // A write without an answer may have succeeded.
            Err(why) => match self.read(name).await {
                Ok(Some(held)) if held == value => Ok(Written::Done),
                _ => Err(why),
            },
            written => written,
        }
    }

    /// Returns the value of a cell with this content.
    pub(crate) fn seal(&self, content: &[u8]) -> Vec<u8> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let mut value = Vec::with_capacity(Version::LEN + 5 + content.len());
        value.extend_from_slice(&self.writer.to_le_bytes());
        value.extend_from_slice(&number.to_le_bytes());
        value.push(LAYOUT);
        value.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
        value.extend_from_slice(content);
        value
    }
}

/// Returns the content of the cell `name`.
///
/// # Errors
/// The value is damaged, or of another layout.
pub(crate) fn unseal<'a>(name: &Arc<str>, value: &'a [u8]) -> Result<&'a [u8], CellError> {
    let damaged = || CellError::Damaged(Arc::clone(name));
    let rest = value.get(Version::LEN..).ok_or_else(damaged)?;
    let (&layout, rest) = rest.split_first().ok_or_else(damaged)?;
    if layout != LAYOUT {
        return Err(CellError::Layout(Arc::clone(name), layout));
    }
    let (sum, content) = rest.split_first_chunk().ok_or_else(damaged)?;
    if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return Err(damaged());
    }
    Ok(content)
}

fn late() -> EngineError {
    EngineError("no answer in 1 s".to_owned())
}

#[cfg(test)]
mod tests {
    use politely::Clock;
    use politely::cells::Memory;

    use super::*;

    #[tokio::test]
    async fn changes_of_two_coordinators_add_up() {
        let memory = Memory::new(Clock::system());
        let name: Arc<str> = "politely:test".into();
        let both = [(); 2].map(|()| Cells::new(Arc::new(memory.clone())));
        for i in 0..20 {
            // What was read is out of date for one of the two.
            let changed = both[i % 2].update::<CellError>(&name, None, FOREVER, |found| {
                let mut content = found.map_or_else(
                    || Ok(Vec::new()),
                    |value| unseal(&name, value).map(<[u8]>::to_vec),
                )?;
                content.push(i as u8);
                Ok(Some(content))
            });
            changed.await.unwrap();
        }
        let value = both[0].read(&name).await.unwrap().unwrap();
        assert_eq!(unseal(&name, &value).unwrap(), (0..20).collect::<Vec<u8>>());
    }

    #[test]
    fn no_damaged_value_is_read() {
        let cells = Cells::new(Arc::new(Memory::new(Clock::system())));
        let name: Arc<str> = "politely:test".into();
        let value = cells.seal(b"content");
        assert_eq!(unseal(&name, &value).unwrap(), b"content");
        for at in Version::LEN..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 1;
            assert!(unseal(&name, &damaged).is_err(), "byte {at}");
            assert!(unseal(&name, &value[..at]).is_err(), "cut at {at}");
        }
    }
}
