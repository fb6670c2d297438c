//! The coordinator's state folder.
//!
//! | state | file | kept |
//! | --- | --- | --- |
//! | learned states of keys | `politely.redb` | within half a second |
//! | holds, operators' settings, configuration | `politely.redb` | on disk when the call returns |
//! | granted permits | `permits.journal` | written to the system when the call returns |
//!
//! With [`Durability::Power`], granted permits are on disk as well when the call returns.
//!
//! Every value has a version and a checksum. Damaged values are set aside and logged in one line,
//! and never cause a panic. A database that was emptied, removed or rolled back is refused:
//! `politely.state` and the journal record that there was one.
//!
//! After [`Store::open`], failed writes are counted, logged once and repeated.
//! [`Store::last_error`] reports them.

mod archive;
mod commit;
mod count;
mod journal;
mod marker;
mod quiet;
mod record;
mod saved;
mod seal;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use commit::{Batch, Committer};
use count::Counts;
use journal::Journal;
use politely::core::Timestamp;
use politely::{Snapshot, UnitCosts};
use record::Departed;
use seal::Versioned;
use tables::Tables;

pub use archive::{ArchiveError, Found, backup, check, restore};
pub use commit::KeepError;
pub use count::Counters;
pub use record::Granted;

/// The most permits of a call that shares its write with others. In a larger call, the records
/// cost more than the write.
const TOGETHER_MAX: usize = 8;
/// The length at which a journal is replaced, in bytes. Two journals may exist at a time.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// The shortest time between two files of the journal. After it, the key states in the database
/// include what the older file records about keys.
const REPLACE_EVERY: Duration = Duration::from_secs(3);

/// Bits for the versions of one start. The versions of each start are higher than all before it.
const BOOT_SHIFT: u32 = 40;

/// The failure that a granted permit survives in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process. Permits are written to the system, without an fsync per call.
    #[default]
    Kill,
    /// A power loss too. Each call that grants, renews or ends permits waits for an fsync.
    /// Concurrent calls share it.
    Power,
}

/// The coordinator's state folder. Calls take it by reference. Dropping it closes it.
pub struct Store {
    folder: PathBuf,
    boot: u64,
    tables: Arc<Tables>,
    journal: Arc<Journal>,
    counts: Arc<Counts>,
    committer: Committer,
}

/// The state that earlier runs left, except the states of keys. [`Store::for_each_key`] reads
/// those.
#[derive(Debug)]
pub struct Kept {
    /// The number of times that this folder was opened, this time included.
    pub boot: u64,
    /// The configuration that was kept last.
    pub config: Option<Vec<u8>>,
    /// Permits that had not ended, in no order. Some may be past their leases, because the store
    /// has no clock.
    pub live: Vec<Granted<'static>>,
    /// The latest start of a permit per key, in microseconds, also of permits that have ended. It
    /// reaches back as far as the journal, which is several seconds at least. A key's learned state
    /// may lack these starts.
    pub newest: HashMap<String, u64>,
    /// The quantities that each key had spent of its declared limits at its last grant, as the
    /// bytes of [`Limiter::spent`](politely::Limiter::spent). A key's learned state may lack a part
    /// of them.
    pub spent: HashMap<String, Vec<u8>>,
    /// Bytes of the journal that were cut off or skipped as damaged, for example half a record
    /// after a kill or a power loss.
    pub damaged: u64,
}

/// Why a folder cannot be used. Each error is one line.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or one of its files cannot be read or written.
    #[error("{}: {why}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A running coordinator uses the folder.
    #[error("{}: in use by another coordinator; stop it, or choose another folder with --state", path.display())]
    InUse {
        /// The file that is locked.
        path: PathBuf,
    },
    /// The file has a format that this version does not know.
    #[error("{}: written by another version of politely (format {format}); use another state folder", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The format in the file.
        format: String,
    },
    /// The file belongs to another program or to another folder.
    #[error("{}: {why}; use another state folder", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// A description of the file.
        why: String,
    },
    /// A file of this folder is damaged, empty or missing.
    #[error("{}: {why}; {advice}", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The damage.
        why: String,
        /// Advice to the operator.
        advice: &'static str,
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
    /// Opens or creates the store in `dir`, creates `dir` if needed, and locks it against other
    /// coordinators.
    ///
    /// # Errors
    /// The folder cannot be used, is in use, or is damaged.
    pub fn open(dir: &Path) -> Result<(Self, Kept), OpenError> {
        Self::open_for(dir, Durability::Kill)
    }

    /// Opens the store like [`Store::open`], with a choice of durability.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_for(dir: &Path, durability: Durability) -> Result<(Self, Kept), OpenError> {
        Self::open_with(dir, JOURNAL_BYTES_MAX, REPLACE_EVERY, durability)
    }

    fn open_with(
        dir: &Path,
        journal_bytes_max: u64,
        replace_every: Duration,
        durability: Durability,
    ) -> Result<(Self, Kept), OpenError> {
        if dir.exists() && !dir.is_dir() {
            return Err(OpenError::NotOurs {
                path: dir.to_owned(),
                why: "expected a directory, found a file".to_owned(),
            });
        }
        crate::private::folder(dir).map_err(|why| OpenError::io(dir, why))?;
        let is_new = marker::read(dir)?.is_none();
        crate::private::tighten(dir, !is_new).map_err(|why| OpenError::io(dir, why))?;
        // The database is opened first, because its lock guards the journal too.
        let (tables, start) = Tables::open(dir)?;
        let counts = Arc::new(Counts::default());
        let (journal, mut found) = Journal::open(dir, journal_bytes_max, durability, &counts)?;
        if found.is_new && !is_new {
            tracing::error!(
                "{}: permits.journal was missing or empty; permits that were out are forgotten",
                dir.display()
            );
        } else if found.damaged > 0 {
            tracing::warn!("permits.journal: skipped {} damaged bytes", found.damaged);
        }
        if found.commits > start.commits {
            return Err(OpenError::Damaged {
                path: tables::path(dir),
                why: format!(
                    "it is older than permits.journal (change {} of {}), so acknowledged changes \
                     are missing",
                    start.commits, found.commits
                ),
                advice: "restore a backup (politely state restore), or remove permits.journal to \
                         go on without them",
            });
        }
        let (tables, journal) = (Arc::new(tables), Arc::new(journal));
        let ends = (tables.clone(), journal.clone(), counts.clone());
        let committer =
            Committer::start(ends, replace_every).map_err(|why| OpenError::io(dir, why))?;
        let kept = Kept {
            boot: start.boot,
            config: start.config,
            newest: std::mem::take(&mut found.newest),
            spent: std::mem::take(&mut found.spent)
                .into_iter()
                .map(|(key, (_, spent))| (key, spent))
                .collect(),
            damaged: found.damaged,
            live: found.into_live(),
        };
        let store = Self {
            folder: dir.to_owned(),
            boot: start.boot,
            tables,
            journal,
            counts,
            committer,
        };
        Ok((store, kept))
    }

    /// Returns the state folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps the configuration. The future resolves to `Ok` when it, or a newer one, is on disk. Of
    /// two configurations, the higher `version` wins. The versions of each run may begin at any
    /// number.
    ///
    /// # Errors
    /// The disk refused. The configuration is written again later.
    pub fn keep_config(
        &self,
        config: Vec<u8>,
        version: u64,
    ) -> impl Future<Output = Result<(), KeepError>> + use<> {
        let state = Snapshot {
            version,
            state: config,
        };
        self.commit(Batch {
            states: BTreeMap::new(),
            config: Some(self.versioned(state)),
        })
    }

    /// Returns the state with a version that is unique over all runs: the run's number comes before
    /// the version within the run.
    fn versioned(&self, snapshot: Snapshot) -> Versioned {
        Versioned {
            version: (self.boot << BOOT_SHIFT).saturating_add(snapshot.version),
            bytes: snapshot.state,
        }
    }

    /// Queues `batch` at the call, not at the first poll.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), KeepError>> + use<> {
        let kept = self.committer.now(batch);
        async { kept.await.unwrap_or(Err(KeepError::Closed)) }
    }

    /// Records that `permits` were granted and that those of `gone` have ended. Call it before the
    /// answer is sent. The records are one write, which survives the end of the process. Returns
    /// `false` if the write failed, and the permits must not be used.
    #[must_use]
    pub fn granted(&self, permits: &[Granted<'_>], gone: &[u64]) -> bool {
        self.journal.granted(permits, gone, &self.counts)
    }

    /// Does the same as [`Store::granted`], with one write for all small calls that are ready at
    /// the same time. If the future is dropped, the permits may be recorded; record their end.
    pub async fn granted_with_others(&self, permits: &[Granted<'_>], gone: &[u64]) -> bool {
        let entered = self.journal.enter(permits, gone);
        if permits.len() <= TOGETHER_MAX {
            tokio::task::yield_now().await;
        }
        self.journal.finish(entered, &self.counts)
    }

    /// Enters the latest departures of keys, which the next write of the journal records. `spent`
    /// is the result of [`Limiter::spent`](politely::Limiter::spent), read after the grant.
    pub fn enter_departed<'a>(
        &self,
        departed: impl IntoIterator<Item = (&'a str, Timestamp, Option<Snapshot>)>,
    ) {
        let departed = departed.into_iter().map(|(key, start, spent)| {
            let spent = self.versioned(spent.unwrap_or_default());
            Departed {
                key: key.into(),
                start_us: start.as_micros(),
                version: spent.version,
                spent: spent.bytes.into(),
            }
        });
        let departed: Vec<_> = departed.collect();
        self.journal.enter_departed(&departed, &self.counts);
    }

    /// Records that permits were reported, cancelled or expired. Skips unknown permits.
    pub fn gone(&self, permits: &[u64]) {
        self.journal.gone(permits, &self.counts);
    }

    /// Records the new leases of permits, in milliseconds after their starts. Skips unknown
    /// permits.
    pub fn renewed(&self, permits: &[(u64, u32)]) {
        self.journal.renewed(permits, &self.counts);
    }

    /// Records what permits used so far, in place of their estimates, with all that was entered.
    /// Skips unknown permits.
    pub fn corrected(&self, permits: &[(u64, UnitCosts)]) {
        self.journal.corrected(permits, &self.counts);
    }

    /// Returns the counters since the store was opened.
    pub fn counters(&self) -> Counters {
        let (journal_bytes, live) = self.journal.size();
        Counters {
            journal_bytes,
            permits_live: live as u64,
            ..self.counts.read()
        }
    }

    /// Returns why changes cannot be kept now, in one line.
    pub fn last_error(&self) -> Option<String> {
        self.counts.last_error()
    }

    /// Returns whether permits cannot be recorded now.
    pub fn is_journal_failing(&self) -> bool {
        self.counts.is_journal_failing() || self.counts.has_died()
    }

    /// Tests whether a journal that failed can be written again.
    pub fn try_journal_again(&self) {
        if self.counts.is_journal_failing() {
            self.journal.probe(&self.counts);
        }
    }

    /// Returns whether the last writes failed, or the thread that writes has ended.
    pub fn is_failing(&self) -> bool {
        self.counts.is_failing()
    }

    /// Writes all queued states and waits until they are on disk. Later states are not kept.
    /// Blocks.
    pub fn close(&self) {
        self.committer.close();
        // Only a failure is noted, because a successful fsync does not mean that earlier writes
        // succeeded.
        if let failed @ Err(_) = self.journal.sync() {
            self.counts.journaled(&failed);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}
