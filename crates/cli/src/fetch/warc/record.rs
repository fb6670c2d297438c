//! One record of a WARC file, as a gzip member of its own.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tempfile::SpooledTempFile;

use crate::fetch::request::random_uuid;

/// A record before its content is written.
pub(super) struct Record(Vec<u8>);

impl Record {
    pub(super) fn new(kind: &str, id: &str, at: Timestamp) -> Self {
        let mut record = Self(b"WARC/1.1\r\n".to_vec());
        record.field("WARC-Type", kind);
        record.field("WARC-Record-ID", id);
        record.field("WARC-Date", &at.to_string());
        record
    }

    /// Adds a field. A value never has a line end: URLs, dates and digests have none.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        self.0.extend(format!("{name}: {value}\r\n").as_bytes());
    }

    /// Writes the record with a head, and a body with its length.
    pub(super) fn write(
        mut self,
        out: &mut impl Write,
        head: &[u8],
        body: Option<(&mut SpooledTempFile, u64)>,
    ) -> io::Result<()> {
        let len = body.as_ref().map_or(0, |(_, len)| *len);
        self.field("Content-Length", &(head.len() as u64 + len).to_string());
        let mut member = GzEncoder::new(out, Compression::default());
        member.write_all(&self.0)?;
        member.write_all(b"\r\n")?;
        member.write_all(head)?;
        if let Some((body, len)) = body {
            let copied = io::copy(&mut body.take(len), &mut member)?;
            if copied < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        member.write_all(b"\r\n\r\n")?;
        member.finish().map(|_| ())
    }
}

/// Returns an id for a record.
pub(super) fn new_id() -> String {
    format!("<urn:uuid:{}>", random_uuid())
}

/// Returns a digest as other crawlers write it (RFC 4648, section 6). Its length is a multiple of
/// five, so there is no padding.
pub(super) fn base32(digest: &[u8; 20]) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let groups = digest.chunks(5).flat_map(|group| {
        let bits = group
            .iter()
            .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        (0..8).map(move |digit| char::from(DIGITS[(bits >> (35 - 5 * digit) & 31) as usize]))
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_rfc_4648_has_it() {
        let mut digest = *b"foobarfoobarfoobarfo";
        assert_eq!(base32(&digest), "MZXW6YTBOJTG633CMFZGM33PMJQXEZTP");
        digest = [0xff; 20];
        assert_eq!(base32(&digest), "7".repeat(32));
    }
}
