//! `once.log` in the state folder: requests that must not be sent twice, and may have arrived.
//!
//! Such a request is entered before it leaves. It is taken out when it may leave again, because it
//! was refused, or when its page is finished. A run that continues after a kill ends the pages that
//! are still in it. Each change is one `write` of a line, `+` or `-` and the request's number.
//! The file is not flushed to the disk.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::exit::io_words;
use crate::fetch::engine::Engine;
use crate::fetch::lanes::pending::Pending;

/// The length of a line: a sign, 32 digits, and its end.
const LINE_LEN: usize = 34;
/// The length from which on an empty list begins a new file, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// The open list.
pub(crate) struct OnceLog {
    /// Requests of earlier processes that may have arrived.
    doubted: HashSet<u128>,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    len: u64,
    /// The requests in the list.
    entered: HashSet<u128>,
}

impl OnceLog {
    /// Opens or makes the list in `dir`.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(super::ONCE);
        let mut open = OpenOptions::new();
        let mut file = open.read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut entered = HashSet::new();
        let mut len = 0;
        for line in bytes.chunks_exact(LINE_LEN) {
            match read(line) {
                Some((true, id)) => _ = entered.insert(id),
                Some((false, id)) => _ = entered.remove(&id),
                // A line that was not written whole ends the list.
                None => break,
            }
            len += LINE_LEN as u64;
        }
        file.set_len(len)?;
        Ok(Self {
            doubted: entered.clone(),
            open: Mutex::new(Open { file, len, entered }),
        })
    }

    /// Returns whether an earlier process may have sent the request.
    fn doubts(&self, id: u128) -> bool {
        self.doubted.contains(&id)
    }

    fn enter(&self, id: u128) -> io::Result<()> {
        let open = &mut *self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.entered.insert(id);
        open.append('+', id)
    }

    fn take_out(&self, id: u128) -> io::Result<()> {
        let open = &mut *self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.entered.remove(&id) {
            return Ok(());
        }
        if open.entered.is_empty() && open.len > LEN_MAX {
            open.len = 0;
            return open.file.set_len(0);
        }
        open.append('-', id)
    }
}

impl Open {
    fn append(&mut self, sign: char, id: u128) -> io::Result<()> {
        let line = format!("{sign}{id:032x}\n");
        if let Err(why) = self.file.write_all(line.as_bytes()) {
            // Half a line would hide all later ones.
            let _ = self.file.set_len(self.len);
            return Err(why);
        }
        self.len += LINE_LEN as u64;
        Ok(())
    }
}

fn read(line: &[u8]) -> Option<(bool, u128)> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let is_entered = match text.as_bytes().first()? {
        b'+' => true,
        b'-' => false,
        _ => return None,
    };
    Some((is_entered, u128::from_str_radix(&text[1..], 16).ok()?))
}

impl Engine {
    /// Returns whether an earlier process may have sent the request of `pending`, which must not be
    /// sent twice.
    pub(crate) fn was_sent(&self, pending: &Pending) -> bool {
        let once = self.once.as_ref().zip(pending.once_id());
        once.is_some_and(|(once, id)| once.doubts(id))
    }

    /// Records that the request of `pending` is about to leave, if it must not be sent twice.
    /// Returns `false` if that failed: the request must not leave.
    pub(crate) fn write_once(&self, pending: &Pending) -> bool {
        match (&self.once, pending.once_id()) {
            (Some(once), Some(id)) => self.wrote_once(&once.enter(id)),
            _ => true,
        }
    }

    /// Records that the request of `pending` may be sent, or that its page is finished.
    pub(crate) fn forget_once(&self, pending: &Pending) {
        if let (Some(once), Some(id)) = (&self.once, pending.once_id()) {
            self.wrote_once(&once.take_out(id));
        }
    }

    fn wrote_once(&self, written: &io::Result<()>) -> bool {
        if let Err(why) = written {
            self.state_failed(&io_words(why));
        }
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_flight_at_a_kill_are_doubted() {
        let dir = tempfile::tempdir().unwrap();
        let log = OnceLog::open(dir.path()).unwrap();
        for id in 1..=3 {
            log.enter(id).unwrap();
        }
        log.take_out(2).unwrap();
        assert!(
            !log.doubts(1),
            "its own requests are none of an earlier process"
        );
        drop(log);
        let path = dir.path().join(super::super::ONCE);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..LINE_LEN {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let log = OnceLog::open(dir.path()).unwrap();
            let doubted = [1, 2, 3].map(|id| log.doubts(id));
            assert_eq!(doubted, [true, cut > 0, true], "{cut}");
            log.enter(4).unwrap();
            assert!(OnceLog::open(dir.path()).unwrap().doubts(4), "{cut}");
        }
    }
}
