//! The notes that workers write while they work, one JSON object per line. The file of a killed
//! worker shows its work until then.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// A permit was granted.
    Granted,
    /// The permit was not used, because it was too late when the worker read it.
    Stale,
    /// The request was aborted because the lease ended.
    Aborted,
    /// The page was received.
    Got,
    /// The coordinator accepted the report of the permit.
    Heard,
    /// The coordinator answered that the report was late: it had the report already, or does not
    /// know the permit.
    HeardLate,
    /// The page was given up.
    GivenUp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Time by the machine's clock, which all processes share, in microseconds since 1970.
    pub(crate) at_us: u64,
    pub(crate) what: What,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) permit: String,
    #[serde(default)]
    pub(crate) status: u16,
}

/// The file of a worker's notes.
pub(crate) struct Notes(File);

impl Notes {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(file.expect("the worker's file can be written"))
    }

    /// Writes one line in one call, so that a kill leaves the whole line or nothing.
    pub(crate) fn write(&self, what: What, url: &str, permit: &str, status: u16) {
        let note = Note {
            at_us: wall_us(),
            what,
            url: url.to_owned(),
            permit: permit.to_owned(),
            status,
        };
        let mut line = serde_json::to_string(&note).expect("a note is JSON");
        line.push('\n');
        (&self.0)
            .write_all(line.as_bytes())
            .expect("a note is written");
    }
}

pub(crate) fn read(path: &Path) -> Vec<Note> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // A last line without an end is still being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

/// Returns the time in microseconds since 1970.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}
