//! The log of every request that a host received.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Where the single requests are recorded. The judge's counters are kept in every case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// Records no single requests, so memory is bounded.
    #[default]
    Counters,
    /// Keeps them in memory for [`crate::Target::entries`], about 64 bytes each. Meant for tests.
    Memory,
    /// Writes them to this file, one JSON object per line.
    File(PathBuf),
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The limit accepted it, and it was answered.
    Accepted,
    /// The limit refused it.
    Refused,
    /// It got the block page.
    Blocked,
    /// It failed at random or in an outage.
    Failed,
    /// The limit accepted it, but its client left before the answer.
    Left,
}

/// One request. Times are microseconds since the target's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When its head had been read.
    pub arrived_us: u64,
    /// When its answer was handed to the socket, or when the server noticed that its client had
    /// left.
    pub departed_us: u64,
    /// What happened.
    pub kind: Kind,
    /// The answer's status; 0 without an answer.
    pub status: u16,
    /// N of `/page/N`.
    pub page: Option<u32>,
    /// The hold that the answer announced.
    pub hold_ms: Option<u64>,
}

impl Entry {
    /// When its head had been read.
    pub const fn arrived(&self) -> Timestamp {
        Timestamp::from_micros(self.arrived_us)
    }
}

/// The file of [`Record::File`].
#[derive(Debug)]
pub(crate) struct LogFile(Mutex<BufWriter<File>>);

#[derive(Serialize)]
struct Line<'a> {
    host: &'a str,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl LogFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(BufWriter::new(File::create(path)?))))
    }

    /// Writes an entry. A full disk must not stop the server; [`Self::flush`] returns the error.
    pub(crate) fn write(&self, host: &str, entry: &Entry) {
        if let Ok(mut line) = serde_json::to_vec(&Line { host, entry }) {
            line.push(b'\n');
            let _ = self.0.lock().write_all(&line);
        }
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.0.lock().flush()
    }
}
