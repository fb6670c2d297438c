//! The journal `permits.journal`, which records granted permits that have not ended.
//!
//! Each call's records are written before its answer is sent, so that a kill -9 forgets no permit
//! that a worker holds. Calls that are ready at the same time share a `write`: each enters its
//! records, lets the others enter theirs, and the first that goes on writes all of them. With
//! [`Durability::Power`] an fsync follows each write, and concurrent calls share it. With
//! [`Durability::Kill`] there is no fsync, because after a power loss the workers' permits are past
//! their leases.
//!
//! A key's latest departure is recorded with what the key has spent of its declared limits. So a
//! restart knows both, even if the key's learned state is older.
//!
//! The journal also records the number of the database's last transaction. So a database that was
//! rolled back to an older state is noticed. Damage in the middle of the file affects only the
//! damaged records. Later records are found by their checksums.
//!
//! A large journal is replaced: a new file begins with the live permits, and the full file becomes
//! `permits.journal.old` until the next replacement. So the start of a key's last permit is known
//! for long enough, even if the permit has ended: a key's learned state is kept sooner. In memory,
//! a live permit takes 17 bytes, for its number and its place in the file.

mod replay;

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use politely::UnitCosts;

use super::count::Counts;
use super::record::{self, Departed, Granted, HEADER, Reader, Record};
use super::{Durability, OpenError};
use replay::{BEFORE, Found, replay};

type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::RandomState>;

pub(super) struct Journal {
    path: PathBuf,
    /// The length at which the file is replaced, in bytes.
    bytes_max: u64,
    durability: Durability,
    open: Mutex<Open>,
    /// The end of what the last fsync covered, as the number of the file and its length.
    synced: Mutex<(u64, u64)>,
}

struct Open {
    file: Arc<File>,
    /// The number of replacements since the start.
    number: u64,
    /// The number of the database's transactions.
    commits: u64,
    /// The length of the whole records, in bytes.
    len: u64,
    /// Whether half a record may follow `len`. It would hide all later records.
    torn: bool,
    /// The length of the file when it was begun, with the permits of the previous file, in bytes.
    carried: u64,
    /// The place of each live permit's last record.
    live: Map<u64, u64>,
    /// Records that are not written yet.
    buffer: Vec<u8>,
    /// The granted permits among these records.
    entered: Vec<u64>,
    /// Tells the calls that entered these records whether they were written.
    written: Arc<OnceLock<bool>>,
}

/// Records of a call that [`Journal::finish`] writes, unless another call has written them.
#[must_use]
pub(super) struct Entered {
    written: Arc<OnceLock<bool>>,
    /// Why a record could not be made.
    refused: Option<io::Error>,
}

impl Journal {
    /// Opens or creates the journal in `dir` and reads its records.
    pub(super) fn open(
        dir: &Path,
        bytes_max: u64,
        durability: Durability,
        counts: &Counts,
    ) -> Result<(Self, Found), OpenError> {
        let path = dir.join("permits.journal");
        let old = with(&path, ".old");
        let io = |path: &Path, why| OpenError::io(path, why);
        let there = |path: &Path| path.try_exists().map_err(|why| io(path, why));
        let mut found = Found::default();
        if there(&old)? {
            if there(&path)? {
                replay(&old, &mut found)?;
                for (at, _) in found.live.values_mut() {
                    *at = BEFORE;
                }
            } else {
                // The process was killed between the two renames of a replacement.
                fs::rename(&old, &path).map_err(|why| io(&old, why))?;
            }
        }
        let size = fs::metadata(&path).map_or(0, |file| file.len());
        found.is_new = size == 0;
        let (file, len) = replay(&path, &mut found)?;
        let live = found.live.iter().map(|(&permit, &(at, _))| (permit, at));
        let journal = Self {
            bytes_max,
            durability,
            synced: Mutex::new((0, 0)),
            open: Mutex::new(Open {
                file: Arc::new(file),
                number: 0,
                commits: found.commits,
                len,
                torn: false,
                carried: 0,
                live: live.collect(),
                buffer: Vec::new(),
                entered: Vec::new(),
                written: Arc::default(),
            }),
            path,
        };
        // The new file lacks permits of the previous one only if a power loss destroyed its
        // beginning.
        let stranded = found.live.values().filter(|(at, _)| *at == BEFORE);
        let stranded: Vec<_> = stranded.map(|(_, permit)| permit.clone()).collect();
        journal.granted(&stranded, &[], counts);
        journal.set_aside(&found.broken, &old)?;
        Ok((journal, found))
    }

    /// Keeps a file that is damaged in the middle under another name, and begins a new file with
    /// the live permits.
    fn set_aside(&self, broken: &[PathBuf], old: &Path) -> Result<(), OpenError> {
        if broken.is_empty() {
            return Ok(());
        }
        if broken.contains(&self.path) {
            let replaced = self.open.lock().replace(&self.path);
            replaced.map_err(|why| OpenError::io(&self.path, why))?;
        }
        let aside = with(&self.path, ".damaged");
        fs::rename(old, &aside).map_err(|why| OpenError::io(old, why))?;
        tracing::error!(
            "{} is damaged; what could be read is in use, the damaged file is {}: remove it when \
             it is not needed",
            broken[0].display(),
            aside.display()
        );
        Ok(())
    }

    /// Records that `permits` were granted and that those of `gone` have ended. Returns `false` if
    /// that failed.
    pub(super) fn granted(&self, permits: &[Granted<'_>], gone: &[u64], counts: &Counts) -> bool {
        self.finish(self.enter(permits, gone), counts)
    }

    /// Enters the records of [`Journal::granted`] without writing them.
    pub(super) fn enter(&self, permits: &[Granted<'_>], gone: &[u64]) -> Entered {
        let open = &mut *self.open.lock();
        open.take_out(gone);
        let mut refused = None;
        for permit in permits {
            let at = open.len + open.buffer.len() as u64;
            match record::granted(&mut open.buffer, permit) {
                Ok(()) => {
                    open.live.insert(permit.permit, at);
                    open.entered.push(permit.permit);
                }
                Err(why) => refused = Some(why),
            }
        }
        Entered {
            written: Arc::clone(&open.written),
            refused,
        }
    }

    /// Enters the latest departures of keys. They are written with the next record.
    pub(super) fn enter_departed(&self, departed: &[Departed<'_>], counts: &Counts) {
        let open = &mut *self.open.lock();
        for key in departed {
            let entered = record::departed(&mut open.buffer, key);
            if entered.is_err() {
                counts.journaled(&entered);
            }
        }
    }

    /// Writes all entered records.
    pub(super) fn write(&self, counts: &Counts) {
        let mut open = self.open.lock();
        if open.append(counts) {
            self.secure(open, counts);
        }
    }

    /// Writes all entered records, unless another call has written those of `entered`. Returns
    /// `false` if that failed.
    pub(super) fn finish(&self, entered: Entered, counts: &Counts) -> bool {
        let mut open = self.open.lock();
        let written = match entered.written.get() {
            Some(&written) => written,
            None => open.append(counts),
        };
        if let Some(why) = entered.refused {
            counts.journaled(&Err(why));
            return false;
        }
        written && self.secure(open, counts)
    }

    /// Records that permits have ended. Skips permits that the journal does not know.
    pub(super) fn gone(&self, permits: &[u64], counts: &Counts) {
        self.open.lock().take_out(permits);
        self.write(counts);
    }

    /// Records the new leases of permits, in milliseconds after their starts. A lease never becomes
    /// shorter, because two calls may come in the wrong order. Skips permits that have ended.
    pub(super) fn renewed(&self, permits: &[(u64, u32)], counts: &Counts) {
        self.revise(permits, counts, |known, &lease_ms| Granted {
            lease_ms: lease_ms.max(known.lease_ms),
            ..known
        });
    }

    /// Records what permits used so far, in place of their estimates, and writes all entered
    /// records. Skips permits that have ended.
    pub(super) fn corrected(&self, permits: &[(u64, UnitCosts)], counts: &Counts) {
        self.revise(permits, counts, |known, used| Granted {
            units: known.units.corrected(used),
            ..known
        });
    }

    fn revise<T>(
        &self,
        permits: &[(u64, T)],
        counts: &Counts,
        revised: impl for<'a> Fn(Granted<'a>, &T) -> Granted<'a>,
    ) {
        let mut locked = self.open.lock();
        let open = &mut *locked;
        // The records of these permits are read from the file. Other entered records are written
        // together with the new ones.
        let is_entered = |(permit, _): &(u64, T)| open.entered.contains(permit);
        if permits.iter().any(is_entered) {
            open.append(counts);
        }
        match open.revisions(permits, revised) {
            Ok(places) => {
                if open.append(counts) {
                    open.live.extend(places);
                    self.secure(locked, counts);
                }
            }
            failed => counts.journaled(&failed.map(drop)),
        }
    }

    /// Records the number of transactions again, to test whether the disk accepts writes.
    pub(super) fn probe(&self, counts: &Counts) {
        let commits = self.open.lock().commits;
        self.committed(commits, counts);
    }

    /// Records the number of the database's transactions.
    pub(super) fn committed(&self, commits: u64, counts: &Counts) {
        let open = &mut *self.open.lock();
        open.commits = commits;
        record::committed(&mut open.buffer, commits);
        open.append(counts);
    }

    /// Waits for an fsync of the last write, if the journal must survive a power loss. One fsync
    /// serves all calls that wrote before it.
    fn secure(&self, open: MutexGuard<'_, Open>, counts: &Counts) -> bool {
        if self.durability == Durability::Kill {
            return true;
        }
        let (number, len) = (open.number, open.len);
        drop(open);
        let mut synced = self.synced.lock();
        if *synced >= (number, len) {
            return true;
        }
        let (file, now) = {
            let open = self.open.lock();
            (Arc::clone(&open.file), (open.number, open.len))
        };
        let result = file.sync_data();
        if result.is_ok() {
            *synced = now;
        }
        counts.journaled(&result);
        result.is_ok()
    }

    /// Replaces the file if it is full. Returns whether it was full. A failure is counted, and the
    /// old file grows further.
    pub(super) fn replace_if_full(&self, counts: &Counts) -> bool {
        let open = &mut *self.open.lock();
        // The file must at least double before it is replaced. Otherwise a new file could be full
        // at once.
        let full = open.len > self.bytes_max.max(2 * open.carried);
        if full {
            open.append(counts);
            let replaced = open
                .replace(&self.path)
                .and_then(|()| match self.durability {
                    Durability::Kill => Ok(()),
                    Durability::Power => {
                        open.file.sync_all()?;
                        sync_folder(&self.path)
                    }
                });
            counts.replaced(replaced);
        }
        full
    }

    /// Calls fsync for the written records.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.open.lock().file.sync_data()
    }

    /// Returns the length of the file in bytes, and the number of live permits.
    pub(super) fn size(&self) -> (u64, usize) {
        let open = self.open.lock();
        (open.len, open.live.len())
    }
}

impl Open {
    /// Appends the ends of those of `permits` that are live to the buffer.
    fn take_out(&mut self, permits: &[u64]) {
        for &permit in permits {
            if self.live.remove(&permit).is_some() {
                record::gone(&mut self.buffer, permit);
            }
        }
    }

    /// Writes the buffer. If the write failed, it left no record, and the permits in the buffer are
    /// not granted: returns `false`.
    fn append(&mut self, counts: &Counts) -> bool {
        if self.buffer.is_empty() {
            return true;
        }
        let written = self.write();
        counts.journaled(&written);
        self.buffer.clear();
        let entered = self.entered.drain(..);
        if written.is_err() {
            for permit in entered {
                self.live.remove(&permit);
            }
        } else {
            drop(entered);
        }
        let told = std::mem::take(&mut self.written);
        // The cell is new with each buffer, so it is empty.
        let _ = told.set(written.is_ok());
        written.is_ok()
    }

    fn write(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.len)?;
            self.torn = false;
        }
        if let Err(why) = (&*self.file).write_all(&self.buffer) {
            self.torn = self.file.set_len(self.len).is_err();
            return Err(why);
        }
        self.len += self.buffer.len() as u64;
        Ok(())
    }

    /// Appends revised records of the permits to the buffer. Returns the places of these records.
    fn revisions<T>(
        &mut self,
        permits: &[(u64, T)],
        revised: impl for<'a> Fn(Granted<'a>, &T) -> Granted<'a>,
    ) -> io::Result<Vec<(u64, u64)>> {
        let mut places = Vec::with_capacity(permits.len());
        for &(permit, ref news) in permits {
            let Some(&place) = self.live.get(&permit) else {
                continue;
            };
            (&*self.file).seek(SeekFrom::Start(place))?;
            let mut reader = Reader::new(&*self.file);
            let known = written_for(permit, &mut reader)?;
            places.push((permit, self.len + self.buffer.len() as u64));
            record::granted(&mut self.buffer, &revised(known, news))?;
        }
        Ok(places)
    }

    fn replace(&mut self, path: &Path) -> io::Result<()> {
        let (new, old) = (with(path, ".new"), with(path, ".old"));
        let mut places: Vec<_> = self
            .live
            .iter()
            .map(|(&permit, &at)| (at, permit))
            .collect();
        places.sort_unstable();
        let mut file = crate::private::read_append(&new)?;
        file.set_len(0)?;
        file.write_all(HEADER)?;
        let mut len = HEADER.len() as u64;
        let mut from = BufReader::with_capacity(256 * 1024, &*self.file);
        let mut at = from.seek(SeekFrom::Start(0))?;
        let mut buffer = Vec::new();
        for (place, permit) in &mut places {
            from.seek_relative((*place - at).cast_signed())?;
            let mut reader = Reader::new(&mut from);
            let permit = written_for(*permit, &mut reader)?;
            let now = len + buffer.len() as u64;
            record::granted(&mut buffer, &permit)?;
            at = *place + reader.whole();
            *place = now;
            if buffer.len() > 256 * 1024 {
                file.write_all(&buffer)?;
                len += buffer.len() as u64;
                buffer.clear();
            }
        }
        record::carried(&mut buffer);
        record::committed(&mut buffer, self.commits);
        file.write_all(&buffer)?;
        len += buffer.len() as u64;
        fs::rename(path, &old)?;
        if let Err(why) = fs::rename(&new, path) {
            // If this rename fails too, the next start repeats it.
            let _ = fs::rename(&old, path);
            return Err(why);
        }
        let live = places.into_iter().map(|(at, permit)| (permit, at));
        (self.live, self.file, self.len) = (live.collect(), Arc::new(file), len);
        self.number += 1;
        (self.torn, self.carried) = (false, len);
        Ok(())
    }
}

/// Reads the next record, which must be that of `permit`.
fn written_for<R: Read>(permit: u64, reader: &mut Reader<R>) -> io::Result<Granted<'_>> {
    match reader.record()? {
        Some(Record::Granted(granted)) if granted.permit == permit => Ok(granted),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the journal is not what was written to it",
        )),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests;
