//! What workers write down while they work, one JSON object a line: a killed worker's file says
//! what it had done.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// A permit came.
    Granted,
    /// It was not used: its time was over when its holder looked.
    Stale,
    /// The request was given up because the lease ended.
    Aborted,
    /// The page is here.
    Got,
    /// The coordinator has heard what came of the permit.
    Heard,
    /// The coordinator had heard it before, or does not know the permit any more.
    HeardLate,
    /// The page will not be requested again.
    GivenUp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// By the machine's clock, which all processes share.
    pub(crate) at_us: u64,
    pub(crate) what: What,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) permit: String,
    #[serde(default)]
    pub(crate) status: u16,
}

/// A worker's file.
pub(crate) struct Notes(File);

impl Notes {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(file.expect("the worker's file can be written"))
    }

    /// In one write, so that a kill leaves the line or none.
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
    // A last line without an end is being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

/// Microseconds since 1970.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}
