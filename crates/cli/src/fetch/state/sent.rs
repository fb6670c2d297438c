//! `sent.log` in the state folder: the events that `politely.redb` does not hold yet. With it, a
//! process that is killed and started again in a loop stays polite.
//!
//! A request is recorded before it leaves, with what its keys spent of their declared limits. A
//! key's state after a refusal or failure is recorded before the key's next request leaves. Each
//! event is one `write`. Nothing is flushed to the disk itself. A record is
//! `length u16 · crc32 u32 · kind u8 · time u64 · key length u16 · key · state`, little-endian. The
//! first record that is not whole ends the file. About once a second the states are stored in
//! `politely.redb`, and the records before that are dropped.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use politely::Snapshot;
use politely::core::Timestamp;
use politely::core::host::Host;
use politely::core::key::Key;

/// The size of the length and the checksum.
const HEAD: usize = 6;
const SENT: u8 = b'S';
const LEARNED: u8 = b'L';
const SPENT: u8 = b'P';

/// The open journal.
pub(crate) struct SentLog {
    path: PathBuf,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    /// The length of the whole records, in bytes.
    len: u64,
    /// Whether records from before the last rotation are still needed.
    has_old: bool,
    /// Keys with records since the last rotation.
    keys: HashSet<Key>,
    buffer: Vec<u8>,
}

/// A key's last state in an earlier process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The time of its last request, in microseconds since 1970.
    pub(crate) newest_us: u64,
    /// Its state after the last refusal or failure.
    pub(crate) state: Option<Vec<u8>>,
    /// The quantities that it spent of its declared limits.
    pub(crate) spent: Option<Vec<u8>>,
}

impl Known {
    /// Returns when the last request left.
    pub(crate) fn newest(&self, now: Timestamp) -> Timestamp {
        // The clock may have been set back.
        Timestamp::from_micros(self.newest_us).min(now)
    }

    /// Returns the newer of the journal's state and `kept`.
    pub(crate) fn state_or(&mut self, kept: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match (self.state.take(), kept) {
            (Some(own), Some(kept)) if Host::written_at(&kept) > Host::written_at(&own) => {
                Some(kept)
            }
            (Some(own), _) => Some(own),
            (None, kept) => kept,
        }
    }
}

impl SentLog {
    /// Opens or makes the journal in `dir`. Returns the state of earlier processes by key.
    pub(crate) fn open(dir: &Path) -> io::Result<(Self, HashMap<String, Known>)> {
        let path = dir.join(super::SENT);
        let mut known = HashMap::new();
        let has_old = match fs::read(old(&path)) {
            Ok(bytes) => {
                replay(&bytes, &mut known);
                true
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => false,
            Err(why) => return Err(why),
        };
        let mut file = open_at(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let len = replay(&bytes, &mut known) as u64;
        file.set_len(len)?;
        let open = Mutex::new(Open {
            file,
            len,
            has_old,
            keys: HashSet::new(),
            buffer: Vec::new(),
        });
        Ok((Self { path, open }, known))
    }

    /// Records that a request that names `keys` is about to leave at `now`. `spent` returns what a
    /// key spent of its declared limits, if it has any.
    ///
    /// # Errors
    /// Returns an error if the record could not be written. The request must not leave then.
    pub(crate) fn sent(
        &self,
        keys: &[Key],
        now: Timestamp,
        spent: impl Fn(&Key) -> Option<Snapshot>,
    ) -> io::Result<()> {
        self.record(keys, |buffer| {
            for key in keys {
                seal(buffer, SENT, now.as_micros(), key.as_str(), &[]);
            }
            enter_spent(buffer, keys, now, spent);
        })
    }

    /// Records what a request that named `keys` spent, after it was settled. `spent` is as for
    /// [`Self::sent`].
    ///
    /// # Errors
    /// Returns an error if the record could not be written.
    pub(crate) fn settled(
        &self,
        keys: &[Key],
        now: Timestamp,
        spent: impl Fn(&Key) -> Option<Snapshot>,
    ) -> io::Result<()> {
        self.record(keys, |buffer| enter_spent(buffer, keys, now, spent))
    }

    /// Records that `key` was refused, or that a request of it failed. `state` is its learned
    /// state.
    ///
    /// # Errors
    /// Returns an error if the record could not be written.
    pub(crate) fn learned(&self, key: &Key, state: &[u8], now: Timestamp) -> io::Result<()> {
        self.record(std::slice::from_ref(key), |buffer| {
            seal(buffer, LEARNED, now.as_micros(), key.as_str(), state);
        })
    }

    /// Counts `key` among the keys with records: its state is not in `politely.redb` yet.
    pub(crate) fn touch(&self, key: Key) {
        self.lock().keys.insert(key);
    }

    /// Begins a new file. Returns the keys whose states must be in `politely.redb` before
    /// [`Self::forget_old`] is called.
    ///
    /// # Errors
    /// Returns an error if the file could not be replaced. The file then continues to grow.
    pub(crate) fn rotate(&self) -> io::Result<HashSet<Key>> {
        let open = &mut *self.lock();
        if !open.has_old && open.len > 0 {
            fs::rename(&self.path, old(&self.path))?;
            let file = open_at(&self.path);
            if file.is_err() {
                // The present file stays the journal.
                fs::rename(old(&self.path), &self.path)?;
            }
            (open.file, open.len, open.has_old) = (file?, 0, true);
        }
        Ok(std::mem::take(&mut open.keys))
    }

    /// Removes the older records, because the states of all their keys are in `politely.redb`.
    pub(crate) fn forget_old(&self) {
        let open = &mut *self.lock();
        // If the file stays, the next start takes a moment longer.
        if open.has_old && fs::remove_file(old(&self.path)).is_ok() {
            open.has_old = false;
        }
    }

    /// Writes the records of `keys` that `enter` adds, if there are any. The lock is held from the
    /// first record on, so the last record of a key is the newest.
    fn record(&self, keys: &[Key], enter: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let open = &mut *self.lock();
        open.buffer.clear();
        enter(&mut open.buffer);
        if open.buffer.is_empty() {
            return Ok(());
        }
        open.append(keys)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Writes the buffer, which holds records of `keys`.
    fn append(&mut self, keys: &[Key]) -> io::Result<()> {
        for key in keys {
            if !self.keys.contains(key) {
                self.keys.insert(key.clone());
            }
        }
        if let Err(why) = self.file.write_all(&self.buffer) {
            // Half a record would hide all later ones.
            let _ = self.file.set_len(self.len);
            return Err(why);
        }
        self.len += self.buffer.len() as u64;
        Ok(())
    }
}

/// Appends a record of what each of `keys` spent of its declared limits.
fn enter_spent(
    buffer: &mut Vec<u8>,
    keys: &[Key],
    now: Timestamp,
    spent: impl Fn(&Key) -> Option<Snapshot>,
) {
    for key in keys {
        if let Some(spent) = spent(key) {
            seal(buffer, SPENT, now.as_micros(), key.as_str(), &spent);
        }
    }
}

fn open_at(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
}

fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Appends a record. A record that is too long is left out: keys and states are much shorter.
fn seal(bytes: &mut Vec<u8>, kind: u8, time_us: u64, key: &str, state: &[u8]) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEAD]);
    bytes.push(kind);
    bytes.extend_from_slice(&time_us.to_le_bytes());
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(state);
    let body = &bytes[start + HEAD..];
    let Ok(len) = u16::try_from(body.len()) else {
        bytes.truncate(start);
        return;
    };
    let sum = crc32fast::hash(body);
    bytes[start..start + 2].copy_from_slice(&len.to_le_bytes());
    bytes[start + 2..start + HEAD].copy_from_slice(&sum.to_le_bytes());
}

/// Adds the content of the whole records at the beginning of `bytes` to `known`. Returns their
/// length.
fn replay(bytes: &[u8], known: &mut HashMap<String, Known>) -> usize {
    let mut rest = bytes;
    while let Some((record, after)) = record(rest) {
        rest = after;
        let Record {
            kind,
            time_us,
            key,
            state,
        } = record;
        if !known.contains_key(key) {
            known.insert(key.to_owned(), Known::default());
        }
        let Some(known) = known.get_mut(key) else {
            continue;
        };
        match kind {
            SENT => known.newest_us = known.newest_us.max(time_us),
            SPENT => known.spent = Some(state.to_vec()),
            _ => known.state = Some(state.to_vec()),
        }
    }
    bytes.len() - rest.len()
}

/// A record as it is read.
struct Record<'a> {
    kind: u8,
    time_us: u64,
    key: &'a str,
    state: &'a [u8],
}

/// Returns the first record of `bytes`, and the bytes after it.
fn record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let (body, after) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (&kind, body) = body.split_first()?;
    let (time, body) = body.split_first_chunk::<8>()?;
    let (key_len, body) = body.split_first_chunk::<2>()?;
    let (key, state) = body.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
    let key = std::str::from_utf8(key).ok()?;
    let record = Record {
        kind,
        time_us: u64::from_le_bytes(*time),
        key,
        state,
    };
    Some((record, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::host(name).unwrap()
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn unlimited(_: &Key) -> Option<Snapshot> {
        None
    }

    fn spends(quantity: u8) -> impl Fn(&Key) -> Option<Snapshot> {
        move |_| {
            Some(Snapshot {
                version: 0,
                state: vec![quantity],
            })
        }
    }

    #[test]
    fn what_left_and_what_was_learned_is_known_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let (log, known) = SentLog::open(dir.path()).unwrap();
        assert!(known.is_empty());
        log.sent(&[key("a"), key("b")], at(5), spends(3)).unwrap();
        log.learned(&key("a"), b"state", at(6)).unwrap();
        log.sent(&[key("a")], at(7), spends(4)).unwrap();
        let (_, known) = SentLog::open(dir.path()).unwrap();
        let a = Known {
            newest_us: 7,
            state: Some(b"state".to_vec()),
            spent: Some(vec![4]),
        };
        assert_eq!((&known["a"], known["b"].newest_us), (&a, 5));
        assert_eq!(known["a"].newest(at(6)), at(6), "the clock was set back");
    }

    #[test]
    fn records_are_dropped_only_after_their_states_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = SentLog::open(dir.path()).unwrap();
        log.sent(&[key("a")], at(1), unlimited).unwrap();
        assert_eq!(log.rotate().unwrap(), HashSet::from([key("a")]));
        log.sent(&[key("b")], at(2), unlimited).unwrap();
        let names = |log: &HashMap<String, Known>| {
            let mut names: Vec<_> = log.keys().cloned().collect();
            names.sort();
            names
        };
        let (_, known) = SentLog::open(dir.path()).unwrap();
        assert_eq!(names(&known), ["a", "b"]);
        // The commit failed, so the next rotation must not replace a file that is still needed.
        assert_eq!(log.rotate().unwrap(), HashSet::from([key("b")]));
        let (_, known) = SentLog::open(dir.path()).unwrap();
        assert_eq!(names(&known), ["a", "b"]);
        log.forget_old();
        let (_, known) = SentLog::open(dir.path()).unwrap();
        assert_eq!(names(&known), ["b"]);
    }

    #[test]
    fn a_torn_or_zeroed_tail_is_cut_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(super::super::SENT);
        let (mut whole, mut torn) = (Vec::new(), Vec::new());
        seal(&mut whole, SENT, 7, "a", &[]);
        seal(&mut torn, LEARNED, 8, "b", b"state");
        for cut in 0..torn.len() {
            for zeros in [0, 1, 30] {
                let mut bytes = [&whole[..], &torn[..cut]].concat();
                bytes.resize(bytes.len() + zeros, 0);
                if cut == torn.len() - 1 && zeros > 0 {
                    // The cut byte may have been a zero.
                    continue;
                }
                fs::write(&path, &bytes).unwrap();
                let (log, known) = SentLog::open(dir.path()).unwrap();
                assert_eq!(known.len(), 1, "cut {cut}, {zeros} zeros");
                log.sent(&[key("c")], at(9), unlimited).unwrap();
                assert_eq!(SentLog::open(dir.path()).unwrap().1.len(), 2);
            }
        }
    }
}
