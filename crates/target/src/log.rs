//! Every request a host saw, if somebody wants them all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use politely_core::Timestamp;
use serde::{Deserialize, Serialize};

/// What becomes of the single requests. The judge's counters are kept in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// Nothing more: memory is bounded.
    #[default]
    Counters,
    /// Kept in memory for [`crate::Target::entries`], about 64 bytes each: for tests.
    Memory,
    /// Written to this file, one JSON object a line.
    File(PathBuf),
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Accepted by the limit and answered.
    Accepted,
    /// Refused by the limit.
    Refused,
    /// Given the block page.
    Blocked,
    /// Failed at random or in an outage.
    Failed,
    /// Accepted, but its client left before the answer.
    Left,
}

/// One request. Times are microseconds since the target's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When its head had been read.
    pub arrived_us: u64,
    /// When its answer was handed to the socket, or its client's leaving noticed.
    pub departed_us: u64,
    /// What happened.
    pub kind: Kind,
    /// The answer's status.
    pub status: u16,
    /// N of `/page/N`.
    pub page: Option<u32>,
    /// How long it was told to stay away.
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

    /// A full disk must not stop the server; the loss shows at [`Self::flush`].
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
