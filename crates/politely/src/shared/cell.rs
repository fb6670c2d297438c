//! What a shared key's cell holds: the key's state, who wrote it last, and which coordinators wait.
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | the version: who wrote it, and their how manieth write |
//! | 1 | the layout, [`LAYOUT`] |
//! | … | the fields of [`Head`] (postcard), the length of the state, the state ([`Host::snapshot`]) |
//! | … | when the cell was made, in microseconds of shared time (postcard); none in an early version's |
//! | … | what a later version adds; carried along unread |

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{Host, RestoreError};
use serde::{Deserialize, Serialize};

use crate::cells::Version;

/// Another number is another layout: such a cell is left alone by who does not know it.
const LAYOUT: u8 = 1;
/// Writers remembered, about 8 bytes each; the one who has not written for longest is forgotten first.
const WRITERS: usize = 64;

/// Who shares keys: one process, drawn anew when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Who(pub(super) u32);

/// One shared key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) head: Head,
    pub(super) host: Host,
    /// When it was made, in shared time: one that is made again after a loss is another.
    pub(super) born: Timestamp,
    /// From a later version.
    tail: Vec<u8>,
}

/// What sharing adds to a key's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Writes since the cell was made.
    pub(super) commits: u64,
    /// The engine's epoch at the last of them.
    pub(super) epoch: u32,
    /// Whose last write was which, the latest last.
    writers: Vec<(Who, u64)>,
    /// Who waits for this key, in order.
    pub(super) line: Vec<Who>,
}

/// A cell that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum CellError {
    #[error("a cell of layout {0}, this is layout {LAYOUT}")]
    Layout(u8),
    #[error("a damaged cell")]
    Damaged,
    #[error("no cell: somebody else uses its name; use another prefix")]
    Strange,
    #[error(transparent)]
    State(#[from] RestoreError),
}

/// What is known of a writer's last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastWrite {
    Number(u64),
    /// It never wrote.
    None,
    /// There were too many other writers to remember.
    Unknown,
}

impl Cell {
    pub(super) fn new(host: Host) -> Self {
        Self {
            head: Head::default(),
            host,
            born: Timestamp::ZERO,
            tail: Vec::new(),
        }
    }

    /// The cell, and the time to go on from: the later of `now` and the latest it knows of.
    pub(super) fn decode(
        value: &[u8],
        now: Timestamp,
        config: &Config,
    ) -> Result<(Self, Timestamp), CellError> {
        let rest = value.get(Version::LEN..).ok_or(CellError::Strange)?;
        let (&layout, rest) = rest.split_first().ok_or(CellError::Damaged)?;
        if layout != LAYOUT {
            return Err(CellError::Layout(layout));
        }
        let damaged = |_| CellError::Damaged;
        let (head, rest): (Head, _) = postcard::take_from_bytes(rest).map_err(damaged)?;
        let (state, tail): (&[u8], _) = postcard::take_from_bytes(rest).map_err(damaged)?;
        let (host, at) = Host::thaw(state, now, config)?;
        let (born, tail) = postcard::take_from_bytes(tail).unwrap_or((Timestamp::ZERO, tail));
        let cell = Self {
            head,
            host,
            born,
            tail: tail.to_vec(),
        };
        Ok((cell, at))
    }

    /// Its bytes after `who` changed it for the `number`th time.
    ///
    /// # Panics
    /// Never: every field has a serialised form.
    pub(super) fn encode(&mut self, who: Who, number: u64) -> Vec<u8> {
        self.head.commits += 1;
        self.head.wrote(who, number);
        let version = version(who, number, self.head.epoch);
        let mut value = Vec::with_capacity(512);
        value.extend(version.0);
        value.push(LAYOUT);
        let value = postcard::to_extend(&self.head, value).expect("a Vec grows");
        let state = self.host.snapshot();
        let value = postcard::to_extend(state.as_slice(), value).expect("a Vec grows");
        let mut value = postcard::to_extend(&self.born, value).expect("a Vec grows");
        value.extend(&self.tail);
        value
    }

    /// Somebody but `who` waits.
    pub(super) fn others_wait(&self, who: Who) -> bool {
        self.head.line.iter().any(|other| *other != who)
    }
}

impl Head {
    fn wrote(&mut self, who: Who, number: u64) {
        self.writers.retain(|(other, _)| *other != who);
        if self.writers.len() >= WRITERS {
            self.writers.remove(0);
        }
        self.writers.push((who, number));
    }

    /// It is made anew: whoever wrote `lost` may have leases still, but nothing they wrote is in this one.
    pub(super) fn stands_in_for(&mut self, lost: &Self) {
        let writers = lost.writers.iter();
        self.writers = writers.map(|(who, _)| (*who, 0)).collect();
    }

    /// Nobody but `who` ever wrote here.
    pub(super) fn is_only(&self, who: Who) -> bool {
        self.writers.iter().all(|(other, _)| *other == who)
    }

    pub(super) fn last_write(&self, who: Who) -> LastWrite {
        let mut writers = self.writers.iter();
        match writers.find(|(other, _)| *other == who) {
            Some((_, number)) => LastWrite::Number(*number),
            None if self.writers.len() < WRITERS => LastWrite::None,
            None => LastWrite::Unknown,
        }
    }
}

fn version(who: Who, number: u64, epoch: u32) -> Version {
    let mut bytes = [0; Version::LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..12].copy_from_slice(&who.0.to_le_bytes());
    bytes[12..].copy_from_slice(&epoch.to_le_bytes());
    Version(bytes)
}
