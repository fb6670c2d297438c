//! The codec of a shared key's cell: the state of the key, its last writers and the nodes in line.
//!
//! | bytes | content |
//! | --- | --- |
//! | 16 | the version: the writer and the writer's sequence number |
//! | 1 | the layout, [`LAYOUT`] |
//! | any | the fields of [`Head`] (postcard) |
//! | any | the length of the state (postcard) and the state ([`Host::snapshot`]) |
//! | any | the time when the cell was made, in microseconds of shared time (postcard) |
//! | any | additions of a later version of this crate, carried along unread |
//!
//! A cell of an early version has no time of creation.

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{Host, RestoreError};
use serde::{Deserialize, Serialize};

use crate::engine::Version;

/// The number of this layout. A node does not write to a cell of another layout.
const LAYOUT: u8 = 1;
/// The number of remembered writers, about 8 bytes each. The writer with the oldest write is
/// forgotten first.
const WRITERS_MAX: usize = 64;

/// The id of one process that shares keys. A process draws a new one when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// The decoded value of one key's cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The fields that sharing adds to the state.
    pub head: Head,
    /// The state of the key.
    pub host: Host,
    /// The shared time when the cell was made. It differs for a cell that is made again after a
    /// loss.
    pub(crate) born: Timestamp,
    /// The additions of a later version.
    tail: Vec<u8>,
}

/// The fields that sharing adds to a key's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The number of writes since the cell was made.
    pub(crate) commits: u64,
    /// The number of the engine's epoch at the last write.
    pub(crate) epoch: u32,
    /// The last sequence number of each writer. The latest writer is last.
    writers: Vec<(NodeId, u64)>,
    /// The nodes that wait for this key, in order.
    pub line: Vec<NodeId>,
}

/// The reason why a cell cannot be decoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// Another version of this crate wrote the cell.
    #[error("the cell has layout {0} and this version reads layout {LAYOUT}; upgrade this process")]
    Layout(u8),
    /// The bytes do not have the announced structure.
    #[error("the cell is damaged; delete it")]
    Damaged,
    /// The value is too short to be a cell.
    #[error("the value is not a cell; another program uses this name, so choose another prefix")]
    Strange,
    /// The state inside the cell cannot be restored.
    #[error(transparent)]
    State(#[from] RestoreError),
}

/// The last write of one node, as far as the record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWrite {
    /// The sequence number of its last write.
    Number(u64),
    /// The node never wrote.
    None,
    /// Too many other nodes wrote since.
    Unknown,
}

impl Record {
    pub(crate) fn new(host: Host) -> Self {
        Self {
            head: Head::default(),
            host,
            born: Timestamp::ZERO,
            tail: Vec::new(),
        }
    }

    /// Decodes `value`. Also returns the later of `now` and the latest time that the state
    /// contains.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if `value` is not a record of this layout.
    pub fn decode(
        value: &[u8],
        now: Timestamp,
        config: &Config,
    ) -> Result<(Self, Timestamp), RecordError> {
        let rest = value.get(Version::LEN..).ok_or(RecordError::Strange)?;
        let (&layout, rest) = rest.split_first().ok_or(RecordError::Damaged)?;
        if layout != LAYOUT {
            return Err(RecordError::Layout(layout));
        }
        let damaged = |_| RecordError::Damaged;
        let (head, rest): (Head, _) = postcard::take_from_bytes(rest).map_err(damaged)?;
        let (state, tail): (&[u8], _) = postcard::take_from_bytes(rest).map_err(damaged)?;
        let (host, at) = Host::thaw(state, now, config)?;
        let (born, tail) = postcard::take_from_bytes(tail).unwrap_or((Timestamp::ZERO, tail));
        let record = Self {
            head,
            host,
            born,
            tail: tail.to_vec(),
        };
        Ok((record, at))
    }

    /// Encodes the record as the write `number` of `writer`, and notes that write in the head.
    ///
    /// # Panics
    ///
    /// Never: every field has a serialised form.
    pub fn encode(&mut self, writer: NodeId, number: u64) -> Vec<u8> {
        self.head.commits += 1;
        self.head.note_write(writer, number);
        let version = version(writer, number, self.head.epoch);
        let mut value = Vec::with_capacity(512);
        value.extend(version.0);
        value.push(LAYOUT);
        let value = postcard::to_extend(&self.head, value).expect("writing to a Vec cannot fail");
        let state = self.host.snapshot();
        let value =
            postcard::to_extend(state.as_slice(), value).expect("writing to a Vec cannot fail");
        let mut value =
            postcard::to_extend(&self.born, value).expect("writing to a Vec cannot fail");
        value.extend(&self.tail);
        value
    }

    /// Returns whether a node other than `me` waits for the key.
    pub(crate) fn others_wait(&self, me: NodeId) -> bool {
        self.head.line.iter().any(|other| *other != me)
    }
}

impl Head {
    fn note_write(&mut self, writer: NodeId, number: u64) {
        self.writers.retain(|(other, _)| *other != writer);
        if self.writers.len() >= WRITERS_MAX {
            self.writers.remove(0);
        }
        self.writers.push((writer, number));
    }

    /// Takes the writers of `lost`, the head of a lost cell that this one replaces.
    ///
    /// The writers may still hold leases, but this cell contains none of their writes.
    pub(crate) fn replace_lost(&mut self, lost: &Self) {
        let writers = lost.writers.iter();
        self.writers = writers.map(|(writer, _)| (*writer, 0)).collect();
    }

    /// Returns whether `me` is the only writer so far.
    pub(crate) fn is_only_writer(&self, me: NodeId) -> bool {
        self.writers.iter().all(|(other, _)| *other == me)
    }

    pub(crate) fn last_write(&self, writer: NodeId) -> LastWrite {
        let mut writers = self.writers.iter();
        match writers.find(|(other, _)| *other == writer) {
            Some((_, number)) => LastWrite::Number(*number),
            None if self.writers.len() < WRITERS_MAX => LastWrite::None,
            None => LastWrite::Unknown,
        }
    }
}

fn version(writer: NodeId, number: u64, epoch: u32) -> Version {
    let mut bytes = [0; Version::LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..12].copy_from_slice(&writer.0.to_le_bytes());
    bytes[12..].copy_from_slice(&epoch.to_le_bytes());
    Version(bytes)
}
