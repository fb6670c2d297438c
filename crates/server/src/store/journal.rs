//! `permits.journal`: which permits are out, written with one `write` before each answer, so that a kill -9 forgets no
//! permit a worker holds. With [`Durability::Power`] an fsync follows each write; calls that wait
//! at the same time share it. With [`Durability::Kill`] there is none: after a power loss the
//! workers' permits are past their leases.
//!
//! It also names the database's last transaction, so that a database that went back to an older
//! state is noticed. Damage in the middle costs the damaged records alone: those behind it are
//! found by their checksums.
//!
//! Once large, a new file begins with the live permits, and the full one stays as `permits.journal.old` until the next
//! time: when a key's last permit was granted is known for longer than its learned state takes to be kept, though that
//! permit is gone. What is in memory for a live permit is its number and where it was written: 17 bytes.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::count::Counts;
use super::record::{self, Granted, HEADER, Header, Reader, Record};
use super::{Durability, OpenError};

type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::RandomState>;

pub(super) struct Journal {
    path: PathBuf,
    /// A file longer than this is replaced.
    bytes_max: u64,
    durability: Durability,
    open: Mutex<Open>,
    /// What an fsync has covered: the file's number and length.
    synced: Mutex<(u64, u64)>,
}

struct Open {
    file: Arc<File>,
    /// How many files there were since the start.
    number: u64,
    /// Transactions of the database.
    commits: u64,
    /// Bytes that are whole records.
    len: u64,
    /// Half a record may lie behind `len`, which would hide all later ones.
    torn: bool,
    /// Bytes the file began with, for permits of the file before.
    carried: u64,
    /// Where each live permit was last written.
    live: Map<u64, u64>,
    buffer: Vec<u8>,
}

/// What the files of earlier runs say.
#[derive(Default)]
pub(super) struct Found {
    /// Permits granted and not gone, with where in its file each was last written.
    live: Map<u64, (u64, Granted<'static>)>,
    /// Per key, the latest start granted.
    pub(super) newest: HashMap<String, u64>,
    /// Transactions of the database.
    pub(super) commits: u64,
    /// Bytes cut off or skipped.
    pub(super) damaged: u64,
    /// There was no journal, or an empty one.
    pub(super) is_new: bool,
    /// Files that are damaged in the middle.
    broken: Vec<PathBuf>,
}

impl Found {
    pub(super) fn live_len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn into_live(self) -> Vec<Granted<'static>> {
        self.live.into_values().map(|(_, permit)| permit).collect()
    }
}

/// Where a permit lies that is only in the file before.
const BEFORE: u64 = u64::MAX;

impl Journal {
    /// Opens or makes the journal in `dir` and reads what it says.
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
                // Killed between the two renames of a replacement.
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
            }),
            path,
        };
        // There are some only if a power loss took what was carried over.
        let stranded = found.live.values().filter(|(at, _)| *at == BEFORE);
        let stranded: Vec<_> = stranded.map(|(_, permit)| permit.clone()).collect();
        journal.granted(&stranded, &[], counts);
        journal.set_aside(&found.broken, &old)?;
        Ok((journal, found))
    }

    /// Files that are damaged in the middle are kept under another name, and the live permits begin
    /// a new one.
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

    /// These permits are out, and those of `gone` no longer. `false`: that is not written down.
    pub(super) fn granted(&self, permits: &[Granted<'_>], gone: &[u64], counts: &Counts) -> bool {
        let mut locked = self.open.lock();
        let open = &mut *locked;
        open.buffer.clear();
        open.take_out(gone);
        let mut refused = None;
        for permit in permits {
            let at = open.len + open.buffer.len() as u64;
            match record::granted(&mut open.buffer, permit) {
                Ok(()) => {
                    open.live.insert(permit.permit, at);
                }
                Err(why) => refused = Some(why),
            }
        }
        let mut written = open.append(counts);
        if !written {
            for permit in permits {
                open.live.remove(&permit.permit);
            }
        }
        if let Some(why) = refused {
            counts.journaled(&Err(why));
            written = false;
        }
        written && self.secure(locked, counts)
    }

    /// These permits are out no longer. Those the journal does not know are passed over.
    pub(super) fn gone(&self, permits: &[u64], counts: &Counts) {
        let mut open = self.open.lock();
        open.buffer.clear();
        open.take_out(permits);
        if open.append(counts) {
            self.secure(open, counts);
        }
    }

    /// The leases of these permits now end so many milliseconds after their starts, unless they end
    /// later already: two calls may come in the wrong order. Those not out are passed over.
    pub(super) fn renewed(&self, permits: &[(u64, u32)], counts: &Counts) {
        let mut locked = self.open.lock();
        let open = &mut *locked;
        open.buffer.clear();
        match open.renewals(permits) {
            Ok(places) => {
                if open.append(counts) {
                    open.live.extend(places);
                    self.secure(locked, counts);
                }
            }
            failed => counts.journaled(&failed.map(drop)),
        }
    }

    /// Writes the number of transactions once more, to find out whether the disk takes it.
    pub(super) fn probe(&self, counts: &Counts) {
        let commits = self.open.lock().commits;
        self.committed(commits, counts);
    }

    /// The database has so many transactions now.
    pub(super) fn committed(&self, commits: u64, counts: &Counts) {
        let open = &mut *self.open.lock();
        open.commits = commits;
        open.buffer.clear();
        record::committed(&mut open.buffer, commits);
        open.append(counts);
    }

    /// Waits for an fsync of what was written, where power losses matter. One call syncs for all
    /// that wrote before it.
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

    /// Begins a new file if this one is full. What goes wrong is counted, and the file grows on.
    pub(super) fn replace_if_full(&self, counts: &Counts) -> bool {
        let open = &mut *self.open.lock();
        // Twice what is live: otherwise each replacement would be full at once.
        let full = open.len > self.bytes_max.max(2 * open.carried);
        if full {
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

    /// From now on writes fail: the file is open for reading alone.
    #[cfg(test)]
    pub(super) fn fail(&self) {
        self.open.lock().file = Arc::new(File::open(&self.path).expect("it is there"));
    }

    /// Hands what was written to the disk itself.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.open.lock().file.sync_data()
    }

    /// Length of the file in bytes, and permits out.
    pub(super) fn size(&self) -> (u64, usize) {
        let open = self.open.lock();
        (open.len, open.live.len())
    }
}

impl Open {
    /// Puts the end of those that are out into the buffer.
    fn take_out(&mut self, permits: &[u64]) {
        for &permit in permits {
            if self.live.remove(&permit).is_some() {
                record::gone(&mut self.buffer, permit);
            }
        }
    }

    /// Writes the buffer. `false`: nothing of it is there.
    fn append(&mut self, counts: &Counts) -> bool {
        if self.buffer.is_empty() {
            return true;
        }
        let written = self.write();
        counts.journaled(&written);
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

    /// Puts the permits into the buffer once more, with their new leases, and says where they will lie.
    fn renewals(&mut self, permits: &[(u64, u32)]) -> io::Result<Vec<(u64, u64)>> {
        let mut places = Vec::with_capacity(permits.len());
        for &(permit, lease_ms) in permits {
            let Some(&place) = self.live.get(&permit) else {
                continue;
            };
            (&*self.file).seek(SeekFrom::Start(place))?;
            let mut reader = Reader::new(&*self.file);
            let known = written_for(permit, &mut reader)?;
            let renewed = Granted {
                lease_ms: lease_ms.max(known.lease_ms),
                ..known
            };
            places.push((permit, self.len + self.buffer.len() as u64));
            record::granted(&mut self.buffer, &renewed)?;
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
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&new)?;
        file.set_len(0)?;
        file.write_all(HEADER)?;
        let mut len = HEADER.len() as u64;
        let mut from = BufReader::with_capacity(256 * 1024, &*self.file);
        let mut at = from.seek(SeekFrom::Start(0))?;
        self.buffer.clear();
        for (place, permit) in &mut places {
            from.seek_relative((*place - at).cast_signed())?;
            let mut reader = Reader::new(&mut from);
            let permit = written_for(*permit, &mut reader)?;
            let now = len + self.buffer.len() as u64;
            record::granted(&mut self.buffer, &permit)?;
            at = *place + reader.whole();
            *place = now;
            if self.buffer.len() > 256 * 1024 {
                file.write_all(&self.buffer)?;
                len += self.buffer.len() as u64;
                self.buffer.clear();
            }
        }
        record::carried(&mut self.buffer);
        record::committed(&mut self.buffer, self.commits);
        file.write_all(&self.buffer)?;
        len += self.buffer.len() as u64;
        fs::rename(path, &old)?;
        if let Err(why) = fs::rename(&new, path) {
            // If this fails too, it is what the next start does.
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

/// The record of `permit`, which is the next.
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

/// Adds what the file at `path` says and cuts off what is no record at its end. A file that is not
/// there is made.
fn replay(path: &Path, found: &mut Found) -> Result<(File, u64), OpenError> {
    let io = |why| OpenError::io(path, why);
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(io)?;
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
        // Once in the life of a folder: an empty journal means that it was emptied.
        file.sync_data().map_err(io)?;
        whole = HEADER.len() as u64;
    }
    Ok((file, whole))
}

/// What lies behind the first damage.
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

    /// Reads all whole records and returns where in the file the last of them ends; where this
    /// began without any.
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
    /// Reads until there is no whole record. The reader begins at byte `offset` of its file.
    fn read<R: Read>(&mut self, reader: &mut Reader<R>, offset: u64) -> io::Result<()> {
        loop {
            let at = offset + reader.whole();
            match reader.record()? {
                Some(Record::Granted(granted)) => {
                    if let Some(newest) = self.newest.get_mut(&*granted.key) {
                        *newest = granted.start_us.max(*newest);
                    } else {
                        let key = granted.key.clone().into_owned();
                        self.newest.insert(key, granted.start_us);
                    }
                    self.live.insert(granted.permit, (at, granted.into_owned()));
                }
                Some(Record::Gone(permit)) => {
                    self.live.remove(&permit);
                }
                Some(Record::Committed(commits)) => self.commits = commits.max(self.commits),
                Some(Record::Carried) => self.live.retain(|_, (at, _)| *at != BEFORE),
                None => return Ok(()),
            }
        }
    }
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests;
