//! What the coordinator keeps in its state folder, and how soon.
//!
//! | what | where | kept |
//! | --- | --- | --- |
//! | what was learned about a key | `politely.redb` | within half a second |
//! | holds, operator settings, configuration | `politely.redb` | on disk before the call returns |
//! | permits out | `permits.journal` | in the system's hands before the call returns: survives kill -9, not a power loss |
//!
//! Only [`Store::open`] fails for good. A disk that refuses to write afterwards costs what would have been kept: it is counted,
//! said in the log once, and tried again.

mod commit;
mod count;
mod journal;
mod record;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use commit::{Batch, Committer};
use count::Counts;
use journal::Journal;
use tables::Tables;

pub use commit::KeepError;
pub use count::Counters;
pub use record::Granted;

/// A journal longer than this is begun anew; two of them may lie there.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// … but not sooner than this: what the older one knows of keys must be in their states by then.
const REPLACE_EVERY: Duration = Duration::from_secs(3);

/// The coordinator's state folder. Shared by reference; dropping it closes it.
pub struct Store {
    folder: PathBuf,
    tables: Arc<Tables>,
    journal: Arc<Journal>,
    counts: Arc<Counts>,
    committer: Committer,
}

/// What earlier runs left. The states of keys are asked for with [`Store::for_each_key`].
#[derive(Debug)]
pub struct Kept {
    /// How many times this folder was opened, this time included.
    pub boot: u64,
    /// The configuration last kept.
    pub config: Option<Vec<u8>>,
    /// Permits that were out, in no order. Some may be past their leases; the store knows no clock.
    pub live: Vec<Granted<'static>>,
    /// Per key, the latest start of its permits, also of those that are gone, as far back as the journal reaches: several
    /// seconds at least. Starts that a key's learned state does not know yet are among them.
    pub newest: HashMap<String, u64>,
    /// Bytes cut off the journal, because a power loss or a killed write left half a record.
    pub damaged: u64,
}

/// Why a folder cannot be used. One line each.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read or written.
    #[error("{}: {why}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// A running coordinator has it.
    #[error("{}: in use by another coordinator", path.display())]
    InUse {
        /// The file that is locked.
        path: PathBuf,
    },
    /// It is of a version this one does not know.
    #[error("{}: written by another version of politely (format {format}); use another state folder", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says its format is.
        format: String,
    },
    /// Somebody else's file has this name.
    #[error("{}: {why}; use another state folder", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// It is ours, and damaged.
    #[error("{}: {why}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What redb says.
        why: Box<redb::Error>,
    },
}

impl OpenError {
    fn io(path: &Path, why: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            why,
        }
    }
}

impl Store {
    /// Opens or makes the store in `dir`, which is made too, and keeps other coordinators out of it.
    pub fn open(dir: &Path) -> Result<(Self, Kept), OpenError> {
        Self::open_with(dir, JOURNAL_BYTES_MAX, REPLACE_EVERY)
    }

    fn open_with(
        dir: &Path,
        journal_bytes_max: u64,
        replace_every: Duration,
    ) -> Result<(Self, Kept), OpenError> {
        if dir.exists() && !dir.is_dir() {
            return Err(OpenError::NotOurs {
                path: dir.to_owned(),
                why: "is a file, and a folder is needed".to_owned(),
            });
        }
        crate::private::folder(dir).map_err(|why| OpenError::io(dir, why))?;
        // First, because its lock guards the journal too.
        let (tables, start) = Tables::open(&dir.join("politely.redb"))?;
        let counts = Arc::new(Counts::default());
        let (journal, mut found) = Journal::open(dir, journal_bytes_max, &counts)?;
        if found.damaged > 0 {
            tracing::warn!("permits.journal: cut off {} damaged bytes", found.damaged);
        }
        let (tables, journal) = (Arc::new(tables), Arc::new(journal));
        let ends = (tables.clone(), journal.clone(), counts.clone());
        let committer =
            Committer::start(ends, replace_every).map_err(|why| OpenError::io(dir, why))?;
        let kept = Kept {
            boot: start.boot,
            config: start.config,
            newest: std::mem::take(&mut found.newest),
            damaged: found.damaged,
            live: found.into_live(),
        };
        let store = Self {
            folder: dir.to_owned(),
            tables,
            journal,
            counts,
            committer,
        };
        Ok((store, kept))
    }

    /// The state folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Calls `each` with every key and its state, in the keys' order. Transactions wait meanwhile only if one failed.
    pub fn for_each_key(&self, each: impl FnMut(&str, &[u8])) -> Result<(), redb::Error> {
        self.tables.for_each_key(each)
    }

    /// Keeps these states within half a second. The newest state of a key counts, whichever call it came with; an empty one
    /// forgets the key.
    pub fn learned(&self, states: impl IntoIterator<Item = (String, Vec<u8>)>) {
        self.committer.learned(states);
    }

    /// Keeps these states now: `Ok` when they, or newer ones, are on disk. Calls at the same time share a transaction.
    /// An empty state forgets the key. A call that is dropped takes nothing back.
    pub fn keep_now(
        &self,
        states: Vec<(String, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), KeepError>> + use<> {
        self.commit(Batch {
            states: states.into_iter().collect(),
            config: None,
        })
    }

    /// Keeps the configuration: `Ok` when it, or a newer one, is on disk.
    pub fn keep_config(
        &self,
        config: Vec<u8>,
    ) -> impl Future<Output = Result<(), KeepError>> + use<> {
        self.commit(Batch {
            states: BTreeMap::new(),
            config: Some(config),
        })
    }

    /// Queued at the call, not at the first poll: the order of calls is the order of states.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), KeepError>> + use<> {
        let kept = self.committer.now(batch);
        async { kept.await.unwrap_or(Err(KeepError::Closed)) }
    }

    /// These permits are out, and those of `gone` no longer: to be told before the answer leaves. One write, which survives
    /// the process.
    pub fn granted(&self, permits: &[Granted<'_>], gone: &[u64]) {
        self.journal.granted(permits, gone, &self.counts);
    }

    /// These permits are out no longer: reported, cancelled or expired. Those unknown are passed over.
    pub fn gone(&self, permits: &[u64]) {
        self.journal.gone(permits, &self.counts);
    }

    /// The leases of these permits now end so many milliseconds after their starts. Those unknown are passed over.
    pub fn renewed(&self, permits: &[(u64, u32)]) {
        self.journal.renewed(permits, &self.counts);
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let (journal_bytes, live) = self.journal.size();
        Counters {
            journal_bytes,
            permits_live: live as u64,
            ..self.counts.read()
        }
    }

    /// Of the last writes, some failed: what they were to keep is not on disk.
    pub fn is_failing(&self) -> bool {
        self.counts.is_failing()
    }

    /// Writes all that waits, to the disk itself. What is told afterwards is not kept. Blocks.
    pub fn close(&self) {
        self.committer.close();
        self.counts.journaled(&self.journal.sync());
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}
