//! Reads the files that earlier runs left.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Map;
use crate::store::OpenError;
use crate::store::record::{self, Departed, Granted, HEADER, Header, Reader, Record};

/// The content of the files of earlier runs.
#[derive(Default)]
pub(in crate::store) struct Found {
    /// Permits that have not ended, each with the place of its last record.
    pub(super) live: Map<u64, (u64, Granted<'static>)>,
    /// The latest start that was granted, per key, in microseconds.
    pub(in crate::store) newest: HashMap<String, u64>,
    /// The quantities that each key spent of its declared limits, with their version.
    pub(in crate::store) spent: HashMap<String, (u64, Vec<u8>)>,
    /// The number of the database's transactions.
    pub(in crate::store) commits: u64,
    /// Bytes that were cut off or skipped.
    pub(in crate::store) damaged: u64,
    /// Whether there was no journal, or an empty one.
    pub(in crate::store) is_new: bool,
    /// Files that are damaged in the middle.
    pub(super) broken: Vec<PathBuf>,
}

impl Found {
    pub(in crate::store) fn live_len(&self) -> usize {
        self.live.len()
    }

    pub(in crate::store) fn into_live(self) -> Vec<Granted<'static>> {
        self.live.into_values().map(|(_, permit)| permit).collect()
    }
}

/// The place of a permit that is only in the previous file.
pub(super) const BEFORE: u64 = u64::MAX;

/// Adds the records of the file at `path` to `found`, and cuts off bytes at its end that are no
/// record. Creates the file if it does not exist.
pub(super) fn replay(path: &Path, found: &mut Found) -> Result<(File, u64), OpenError> {
    let io = |why| OpenError::io(path, why);
    let mut file = crate::private::read_append(path).map_err(io)?;
    let mut reader = Reader::new(BufReader::with_capacity(256 * 1024, &file));
    let header = reader.header().map_err(io)?;
    let mut whole = reader.whole();
    if whole > 0 {
        found.read(&mut reader, 0).map_err(io)?;
        whole = reader.whole();
    }
    let len = file.metadata().map_err(io)?.len();
    if len > whole {
        let rest = Rest::of(&file, whole).map_err(io)?;
        let end = match header {
            Header::Version(other) => {
                return Err(OpenError::Version {
                    path: path.to_owned(),
                    format: other.to_string(),
                });
            }
            Header::Foreign if record::find(&rest.bytes).is_none() => {
                return Err(OpenError::NotOurs {
                    path: path.to_owned(),
                    why: "not a journal of permits".to_owned(),
                });
            }
            _ => rest.salvage(found).map_err(io)?,
        };
        if end > whole {
            found.broken.push(path.to_owned());
        }
        whole = end;
        if len > whole {
            found.damaged += len - whole;
            file.set_len(whole).map_err(io)?;
        }
    }
    if whole == 0 {
        file.write_all(HEADER).map_err(io)?;
        // This fsync happens once per folder. After it, an empty journal shows that the file was
        // emptied.
        file.sync_data().map_err(io)?;
        whole = HEADER.len() as u64;
    }
    Ok((file, whole))
}

/// The bytes after the first damage of a file.
struct Rest {
    begins: u64,
    bytes: Vec<u8>,
}

impl Rest {
    fn of(mut file: &File, begins: u64) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(begins))?;
        file.read_to_end(&mut bytes)?;
        Ok(Self { begins, bytes })
    }

    /// Reads all whole records. Returns the place where the last of them ends, or the place of the
    /// damage if there are none.
    fn salvage(&self, found: &mut Found) -> io::Result<u64> {
        let mut end = 0;
        while let Some(skipped) = record::find(&self.bytes[end..]) {
            let at = end + skipped;
            found.damaged += skipped as u64;
            let mut reader = Reader::new(&self.bytes[at..]);
            found.read(&mut reader, self.begins + at as u64)?;
            end = at + reader.whole() as usize;
        }
        Ok(self.begins + end as u64)
    }
}

impl Found {
    /// Reads records until the next one is not whole. The reader begins at byte `offset` of its
    /// file.
    fn read<R: Read>(&mut self, reader: &mut Reader<R>, offset: u64) -> io::Result<()> {
        loop {
            let at = offset + reader.whole();
            match reader.record()? {
                Some(Record::Granted(granted)) => {
                    self.left(&granted.key, granted.start_us);
                    self.live.insert(granted.permit, (at, granted.into_owned()));
                }
                Some(Record::Gone(permit)) => {
                    self.live.remove(&permit);
                }
                Some(Record::Departed(departed)) => {
                    self.left(&departed.key, departed.start_us);
                    let Departed {
                        key,
                        version,
                        spent,
                        ..
                    } = departed;
                    let known = self.spent.get(&*key);
                    if !spent.is_empty() && known.is_none_or(|(known, _)| *known < version) {
                        let spent = (version, spent.into_owned());
                        self.spent.insert(key.into_owned(), spent);
                    }
                }
                Some(Record::Committed(commits)) => self.commits = commits.max(self.commits),
                Some(Record::Carried) => self.live.retain(|_, (at, _)| *at != BEFORE),
                None => return Ok(()),
            }
        }
    }

    fn left(&mut self, key: &str, start_us: u64) {
        if let Some(newest) = self.newest.get_mut(key) {
            *newest = start_us.max(*newest);
        } else {
            self.newest.insert(key.to_owned(), start_us);
        }
    }
}
