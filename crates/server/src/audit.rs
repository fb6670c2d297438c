//! The audit log of operators' changes, in memory and in the state folder if there is one.
//!
//! The folder holds `audit.log` with one JSON object per line, and `audit.log.old` with the older
//! lines. The coordinator serves the newest 10,000 changes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use politely_api::wire::{AuditChange, AuditPage, AuditQuery};
use tokio::time::Instant;

use crate::often::Often;
use crate::private;

/// The number of changes that are served.
const KEPT: usize = 10_000;
/// The length at which a new file is begun, in bytes.
const BYTES_MAX: u64 = 8 << 20;
/// The largest and default number of changes on one page.
const PAGE_MAX: u32 = 1_000;
const PAGE: u32 = 100;

const FILE: &str = "audit.log";
const OLD: &str = "audit.log.old";

/// The audit log of one coordinator.
pub(crate) struct Audit {
    state: Mutex<State>,
    log: Often,
}

struct State {
    /// The changes, oldest first.
    changes: VecDeque<AuditChange>,
    next: u64,
    disk: Option<Disk>,
    is_durable: bool,
}

struct Disk {
    folder: PathBuf,
    /// `None` after a write failed.
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
    /// Lines that are not on disk yet.
    owed: Vec<u8>,
}

impl Audit {
    /// Opens the log of the state folder, or a log in memory. Damaged lines are skipped.
    pub(crate) fn open(folder: Option<&Path>) -> Self {
        Self::open_with(folder, BYTES_MAX)
    }

    fn open_with(folder: Option<&Path>, bytes_max: u64) -> Self {
        let mut changes = VecDeque::new();
        if let Some(folder) = folder {
            for name in [OLD, FILE] {
                if let Err(why) = read(&folder.join(name), &mut changes) {
                    tracing::error!("cannot read {name}: {why}; its changes are not served");
                }
            }
        }
        let next = changes.back().map_or(1, |change| change.id + 1);
        let disk = folder.map(|folder| Disk {
            folder: folder.to_owned(),
            file: None,
            bytes: 0,
            bytes_max,
            owed: Vec::new(),
        });
        Self {
            state: Mutex::new(State {
                changes,
                next,
                is_durable: disk.is_some(),
                disk,
            }),
            log: Often::default(),
        }
    }

    /// Records `change` under a new id. Blocks until it is on disk. A failed write is repeated with
    /// the next change.
    pub(crate) fn record(&self, mut change: AuditChange) {
        let mut state = self.state.lock();
        change.id = state.next;
        state.next += 1;
        let written = state.disk.as_mut().map(|disk| disk.write(&change));
        if let Some(written) = written {
            state.is_durable = written.is_ok();
            if let Err(why) = written
                && let Some(count) = self.log.note(Instant::now())
            {
                tracing::error!(
                    "cannot write {FILE}: {why} ({count} changes); make room on the disk"
                );
            }
        }
        if state.changes.len() >= KEPT {
            state.changes.pop_front();
        }
        state.changes.push_back(change);
    }

    /// Returns the changes that match `query`.
    pub(crate) fn page(&self, query: AuditQuery) -> AuditPage {
        let state = self.state.lock();
        let before = query.before.unwrap_or(u64::MAX);
        let most = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
        let newest = state.changes.iter().rev();
        let mut found = newest.filter(|change| change.id < before);
        let changes: Vec<_> = found.by_ref().take(most).cloned().collect();
        let next = found.next().and(changes.last().map(|last| last.id));
        AuditPage {
            changes,
            next,
            durable: state.is_durable,
        }
    }
}

impl Disk {
    fn write(&mut self, change: &AuditChange) -> io::Result<()> {
        serde_json::to_writer(&mut self.owed, change)?;
        self.owed.push(b'\n');
        let written = self.append();
        if written.is_err() {
            self.file = None;
        }
        // Lines that cannot be written are dropped beyond this length, so that a full disk does not
        // fill the memory.
        if written.is_ok() || self.owed.len() as u64 > self.bytes_max {
            self.owed.clear();
        }
        written
    }

    fn append(&mut self) -> io::Result<()> {
        let path = self.folder.join(FILE);
        if self.bytes > self.bytes_max {
            self.file = None;
            std::fs::rename(&path, self.folder.join(OLD))?;
        }
        if self.file.is_none() {
            let mut file = private::append(&path)?;
            self.bytes = file.seek(SeekFrom::End(0))?;
            if self.bytes > 0 {
                // A killed process may have left half a line, so the next entry begins on a line of
                // its own.
                file.write_all(b"\n")?;
            }
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.write_all(&self.owed)?;
        file.sync_data()?;
        self.bytes += self.owed.len() as u64;
        Ok(())
    }
}

fn read(path: &Path, changes: &mut VecDeque<AuditChange>) -> io::Result<()> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut text)?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(change) = serde_json::from_slice::<AuditChange>(line)
            // A line can occur twice after a write that failed half-way.
            && changes.back().is_none_or(|last| last.id < change.id)
        {
            if changes.len() >= KEPT {
                changes.pop_front();
            }
            changes.push_back(change);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str) -> AuditChange {
        AuditChange {
            key: Some(key.to_owned()),
            ..AuditChange::default()
        }
    }

    fn keys(page: &AuditPage) -> Vec<&str> {
        let keys = page.changes.iter().map(|change| change.key.as_deref());
        keys.map(Option::unwrap_or_default).collect()
    }

    fn query(before: Option<u64>, limit: u32) -> AuditQuery {
        AuditQuery {
            before,
            limit: Some(limit),
        }
    }

    #[test]
    fn the_newest_come_first_and_a_cursor_leads_to_the_rest() {
        let audit = Audit::open(None);
        for key in ["a", "b", "c"] {
            audit.record(change(key));
        }
        let first = audit.page(query(None, 2));
        assert_eq!((keys(&first), first.next), (vec!["c", "b"], Some(2)));
        let last = audit.page(query(first.next, 2));
        assert_eq!((keys(&last), last.next), (vec!["a"], None));
        assert!(!last.durable, "there is no state folder");
        for _ in 0..KEPT {
            audit.record(change("d"));
        }
        assert_eq!(audit.state.lock().changes.len(), KEPT);
    }

    #[test]
    fn a_state_folder_keeps_them_and_damage_costs_its_line_only() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Audit::open(Some(folder.path()));
        let audit = open();
        audit.record(change("a"));
        audit.record(change("b"));
        assert!(audit.page(query(None, 9)).durable);
        drop(audit);
        let file = folder.path().join(FILE);
        let mut text = std::fs::read(&file).unwrap();
        text.extend(b"{\"id\":9");
        std::fs::write(&file, text).unwrap();
        open().record(change("c"));
        let page = open().page(query(None, 9));
        assert_eq!(keys(&page), ["c", "b", "a"]);
        assert_eq!(page.changes[0].id, 3);
    }

    #[test]
    fn two_files_are_all_that_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open_with(Some(folder.path()), 1_000);
        for i in 0..200 {
            audit.record(change(&i.to_string()));
        }
        for name in [FILE, OLD] {
            let length = std::fs::metadata(folder.path().join(name)).unwrap().len();
            assert!(length < 2_000, "{name}: {length}");
        }
        let page = Audit::open(Some(folder.path())).page(query(None, 1));
        assert_eq!(keys(&page), ["199"]);
    }

    #[test]
    fn a_disk_that_refuses_is_said_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let (state, file) = (
            folder.path().join("state"),
            folder.path().join("state/audit.log"),
        );
        let audit = Audit::open(Some(&state));
        audit.record(change("a"));
        assert!(!audit.page(query(None, 9)).durable);
        std::fs::create_dir(&state).unwrap();
        audit.record(change("b"));
        assert!(audit.page(query(None, 9)).durable && file.exists());
        assert_eq!(
            keys(&Audit::open(Some(&state)).page(query(None, 9))),
            ["b", "a"]
        );
    }
}
