//! The journal of finished URLs. One `write` adds a record of fixed size as soon as the URL's
//! result line is out. So a kill -9 loses no URL that was reported as done.
//!
//! A record is the URL's spool offset, the length of the results file after its line, and a
//! checksum. On resume, a torn or wrong record and all records after it are cut. At most one URL
//! has a result line without a record. Its line is cut from the results as well, because the URL is
//! fetched again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// The size of a record: offset u64, results length u64 with the outcome in its top bit, checksum
/// u32; little-endian.
const RECORD: usize = 20;
/// The top bit of the length means that the URL failed.
const FAILED: u64 = 1 << 63;

/// The open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// The length of the whole records, in bytes.
    len: u64,
}

/// The content of an earlier run's journal.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// The spool offsets, ascending.
    offsets: Vec<u64>,
    pub(crate) fetched: u64,
    pub(crate) failed: u64,
    /// The length of the results file after the last record's line.
    pub(crate) results_len: u64,
    at: usize,
}

impl Finished {
    /// Returns whether the URL at `offset` is finished. Calls must have ascending offsets.
    pub(crate) fn has(&mut self, offset: u64) -> bool {
        while self.offsets.get(self.at).is_some_and(|&done| done < offset) {
            self.at += 1;
        }
        self.offsets.get(self.at) == Some(&offset)
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }
}

impl Journal {
    /// Opens or makes the journal at `path` and reads its content.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Finished)> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        let mut finished = Finished::default();
        let mut reader = io::BufReader::with_capacity(256 * 1024, &mut file);
        let (mut record, mut len) = ([0; RECORD], 0);
        while reader.read_exact(&mut record).is_ok() {
            let Some((offset, results)) = decode(&record) else {
                break;
            };
            finished.offsets.push(offset);
            if results & FAILED == 0 {
                finished.fetched += 1;
            } else {
                finished.failed += 1;
            }
            finished.results_len = results & !FAILED;
            len += RECORD as u64;
        }
        drop(reader);
        file.set_len(len)?;
        finished.offsets.sort_unstable();
        Ok((Self { file, len }, finished))
    }

    /// Records that the URL at `offset` is finished, and that the results have `results_len` bytes
    /// with its line.
    pub(crate) fn record(&mut self, offset: u64, results_len: u64, failed: bool) -> io::Result<()> {
        let record = encode(offset, results_len | if failed { FAILED } else { 0 });
        if let Err(why) = self.file.write_all(&record) {
            // Half a record would hide all later ones.
            let _ = self.file.set_len(self.len);
            return Err(why);
        }
        self.len += RECORD as u64;
        Ok(())
    }
}

fn encode(offset: u64, results: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&offset.to_le_bytes());
    record[8..16].copy_from_slice(&results.to_le_bytes());
    let sum = checksum(&record[..16]);
    record[16..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD]) -> Option<(u64, u64)> {
    let word = |at: usize| record[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    let sum = u32::from_le_bytes(record[16..].try_into().ok()?);
    if checksum(&record[..16]) == sum {
        Some((word(0)?, word(8)?))
    } else {
        None
    }
}

/// Returns the FNV-1a hash of 32 bits. It tells a torn or zeroed record from a whole one, and does
/// not protect against malice.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum: u32, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_finished_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("done.log");
        let (mut journal, _) = Journal::open(&path).unwrap();
        for (offset, failed) in [(30, false), (0, true), (12, false)] {
            journal.record(offset, offset + 1, failed).unwrap();
        }
        let (_, mut finished) = Journal::open(&path).unwrap();
        assert_eq!(
            (
                finished.len(),
                finished.fetched,
                finished.failed,
                finished.results_len
            ),
            (3, 2, 1, 13)
        );
        let found: Vec<bool> = [0, 5, 12, 20, 30, 31]
            .into_iter()
            .map(|offset| finished.has(offset))
            .collect();
        assert_eq!(found, [true, false, true, false, true, false]);
    }

    #[test]
    fn a_torn_or_zeroed_tail_is_cut_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("done.log");
        for tail in 0..RECORD * 2 {
            let mut bytes = encode(7, 70).to_vec();
            bytes.extend_from_slice(&encode(8, 80)[..tail.min(RECORD - 1)]);
            bytes.resize(bytes.len() + tail, 0);
            std::fs::write(&path, &bytes).unwrap();
            let (mut journal, finished) = Journal::open(&path).unwrap();
            assert_eq!(
                (finished.len(), finished.results_len),
                (1, 70),
                "tail {tail}"
            );
            journal.record(9, 90, false).unwrap();
            assert_eq!(Journal::open(&path).unwrap().1.len(), 2);
        }
    }
}
