//! What the coordinator keeps in its state folder, and how soon.
//!
//! | what | where | kept |
//! | --- | --- | --- |
//! | what was learned about a key | `politely.redb` | within half a second |
//! | holds, operator settings, configuration | `politely.redb` | on disk before the call returns |
//! | permits out | `permits.journal` | in the system's hands before the call returns; on disk with [`Durability::Power`] |
//!
//! Every value has a version and a checksum. Damage is set aside and logged in one line; it never
//! panics. A database that was emptied, removed or rolled back is refused: `politely.state` and the
//! journal say that there was one.
//!
//! After [`Store::open`] a disk that refuses writes is counted, logged once and tried again;
//! [`Store::trouble`] says so.

mod archive;
mod commit;
mod count;
mod journal;
mod marker;
mod quiet;
mod record;
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
use politely::Snapshot;
use seal::Versioned;
use tables::Tables;

pub use archive::{ArchiveError, Found, backup, check, restore};
pub use commit::KeepError;
pub use count::Counters;
pub use record::Granted;

/// A journal longer than this is begun anew; two of them may lie there.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// The shortest time between two files of the journal: by then the states include what the older
/// one knows of keys.
const REPLACE_EVERY: Duration = Duration::from_secs(3);

/// Versions of one start; each start's are higher than all before it.
const BOOT_SHIFT: u32 = 40;

/// What an answer survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process. Permits are handed to the system, without an fsync per call.
    #[default]
    Kill,
    /// A power loss too. Each call that grants, renews or ends permits waits for an fsync; calls at
    /// the same time share it.
    Power,
}

/// The coordinator's state folder. Shared by reference; dropping it closes it.
pub struct Store {
    folder: PathBuf,
    boot: u64,
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
    /// A file of another program, or of another folder.
    #[error("{}: {why}; use another state folder", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// A file of this folder is damaged, empty or missing.
    #[error("{}: {why}; {advice}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What to do.
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
    /// Opens or makes the store in `dir`, which is made too, and keeps other coordinators out of it.
    ///
    /// # Errors
    /// The folder cannot be used, is in use, or is damaged.
    pub fn open(dir: &Path) -> Result<(Self, Kept), OpenError> {
        Self::open_for(dir, Durability::Kill)
    }

    /// [`Store::open`] with a choice of what an answer survives.
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
        // First, because its lock guards the journal too.
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

    /// The state folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Calls `each` with every key and its state, in the keys' order. Damaged states are set aside
    /// and logged in one line.
    ///
    /// # Errors
    /// The database cannot be read; one line.
    pub fn for_each_key(&self, each: impl FnMut(&str, &[u8])) -> Result<(), String> {
        let damaged = self.tables.for_each_key(each);
        let damaged = damaged.map_err(|why| format!("politely.redb: {why}"))?;
        if let Some(first) = damaged.first() {
            tracing::error!(
                "politely.redb: the states of {} keys are damaged and set aside, the first of \
                 {first:?}; they begin anew: set their limits and holds again",
                damaged.len()
            );
        }
        Ok(())
    }

    /// Keeps these states within half a second. Of two states of a key the one with the higher
    /// version stays, whichever call it came with.
    pub fn learned(&self, states: impl IntoIterator<Item = (String, Snapshot)>) {
        let states = states.into_iter();
        self.committer
            .learned(states.map(|(key, state)| (key, self.versioned(state))));
    }

    /// Keeps these states now: `Ok` when they, or newer ones, are on disk. Calls at the same time share a transaction.
    /// A call that is dropped takes nothing back.
    ///
    /// # Errors
    /// The disk refused; the states are tried again with the learned ones.
    pub fn keep_now(
        &self,
        states: Vec<(String, Snapshot)>,
    ) -> impl Future<Output = Result<(), KeepError>> + use<> {
        let states = states.into_iter();
        self.commit(Batch {
            states: states
                .map(|(key, state)| (key, self.versioned(state)))
                .collect(),
            config: None,
        })
    }

    /// Keeps the configuration: `Ok` when it, or a newer one, is on disk. Of two the one with the
    /// higher `version` stays; versions count from any number in each run.
    ///
    /// # Errors
    /// The disk refused; the configuration is tried again.
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

    /// Versions begin anew with each run, so the number of the run comes first.
    fn versioned(&self, snapshot: Snapshot) -> Versioned {
        Versioned {
            version: (self.boot << BOOT_SHIFT).saturating_add(snapshot.version),
            bytes: snapshot.state,
        }
    }

    /// Queued at the call, not at the first poll.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), KeepError>> + use<> {
        let kept = self.committer.now(batch);
        async { kept.await.unwrap_or(Err(KeepError::Closed)) }
    }

    /// These permits are out, and those of `gone` no longer: to be told before the answer leaves. One write, which survives
    /// the process. `false`: it failed, so the permits must not be used.
    #[must_use]
    pub fn granted(&self, permits: &[Granted<'_>], gone: &[u64]) -> bool {
        self.journal.granted(permits, gone, &self.counts)
    }

    /// These permits are out no longer: reported, cancelled or expired. Those unknown are passed over.
    pub fn gone(&self, permits: &[u64]) {
        self.journal.gone(permits, &self.counts);
    }

    /// The leases of these permits now end so many milliseconds after their starts. Those unknown are passed over.
    pub fn renewed(&self, permits: &[(u64, u32)]) {
        self.journal.renewed(permits, &self.counts);
    }

    /// What a new folder holds.
    #[cfg(test)]
    pub(crate) fn kept_for_test(&self) -> Kept {
        Kept {
            boot: self.boot,
            config: None,
            live: Vec::new(),
            newest: HashMap::new(),
            damaged: 0,
        }
    }

    /// From now on the journal takes no writes.
    #[cfg(test)]
    pub(crate) fn fail_journal(&self) {
        self.journal.fail();
    }

    /// The thread that commits panics.
    #[cfg(test)]
    pub(crate) fn kill_thread(&self) {
        self.committer.die();
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

    /// Returns why changes cannot be kept now, in one line.
    pub fn trouble(&self) -> Option<String> {
        self.counts.trouble()
    }

    /// Permits cannot be written down now.
    pub fn is_journal_failing(&self) -> bool {
        self.counts.is_journal_failing() || self.counts.has_died()
    }

    /// Finds out whether a journal that failed can be written again.
    pub fn try_journal_again(&self) {
        if self.counts.is_journal_failing() {
            self.journal.probe(&self.counts);
        }
    }

    /// The last writes failed, or the thread that writes has ended.
    pub fn is_failing(&self) -> bool {
        self.counts.is_failing()
    }

    /// Writes all that waits, to the disk itself. What is told afterwards is not kept. Blocks.
    pub fn close(&self) {
        self.committer.close();
        // A sync that succeeds does not say that earlier writes did.
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
