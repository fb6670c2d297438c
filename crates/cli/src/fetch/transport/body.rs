//! Response bodies as they arrive: decoded, counted, and kept or saved.
//!
//! A body is never held whole, unless the caller asks for it, as for robots.txt. So an endless body
//! costs only its allowance. The allowance counts decoded bytes, and decoding works in steps of 32
//! KB. So a body that unpacks to gigabytes is dropped at the same mark.

use std::io::{self, Write as _};

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use politely::attempts::trouble_of;
use politely::coding::{CodingError, Codings, Decoder, Flow};
use politely::core::fault::machine::Trouble;
use politely::core::signal::Failure;

use super::content::Content;
use crate::exit::{io_words, is_no_room};
use crate::fetch::report::save::Saving;

/// Bytes after the end of a coding's stream that are read to keep the connection.
const IGNORED_MAX: u64 = 64 * 1024;

/// Decodes the parts of a body and passes them to a [`Sink`].
pub(super) struct Intake {
    decoder: Decoder,
    sink: Sink,
    /// Bytes that came after the end of the coding's stream.
    ignored: u64,
}

/// Counts the decoded bytes, and keeps or saves them.
pub(super) struct Sink {
    /// A body with more decoded bytes is too long.
    bytes_max: u64,
    /// The number of bytes kept from the beginning.
    start_max: usize,
    saving: Option<Saving>,
    /// The whole body, if it is read later.
    pub(super) content: Option<Content>,
    pub(super) bytes: u64,
    pub(super) start: Vec<u8>,
    /// Why the rest of the body is not read, if so.
    pub(super) enough: Option<Enough>,
}

/// The reason not to read the rest of a body.
pub(super) enum Enough {
    TooLong,
    NotSaved(String),
    /// It cannot be saved, because the disk is full.
    NoRoom(String),
    /// It cannot be saved, because this machine has no descriptor left.
    NoDescriptor(String),
}

/// Lists the transfer codings of a body after its content codings. Chunks are already undone.
pub(super) fn list_transfer_codings(headers: &mut HeaderMap) {
    let fields = headers.get_all(TRANSFER_ENCODING).iter();
    let coded = fields.filter(|field| !field.as_bytes().eq_ignore_ascii_case(b"chunked"));
    for field in coded.cloned().collect::<Vec<_>>() {
        headers.append(CONTENT_ENCODING, field);
    }
}

impl Intake {
    /// Returns an intake that removes `codings` and passes the body to `sink`.
    pub(super) fn new(codings: &Codings, sink: Sink) -> Self {
        Self {
            decoder: Decoder::new(codings, sink.bytes_max),
            sink,
            ignored: 0,
        }
    }

    /// Takes another part. Returns whether more is wanted. An error means that it cannot be
    /// decoded.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<bool, CodingError> {
        let sink = &mut self.sink;
        let flow = self.decoder.push(part, &mut |part| sink.take(part));
        Ok(match self.flow(flow)? {
            Flow::More => true,
            Flow::Enough => false,
            Flow::Over => {
                self.ignored += part.len() as u64;
                if self.ignored > IGNORED_MAX {
                    self.finish();
                    false
                } else {
                    true
                }
            }
        })
    }

    /// Ends the body. An error means that the body ended before its coding did.
    pub(super) fn end(&mut self) -> Result<(), CodingError> {
        let sink = &mut self.sink;
        let flow = self.decoder.end(&mut |part| sink.take(part));
        if self.flow(flow)? != Flow::Enough {
            self.finish();
        }
        Ok(())
    }

    /// Treats a body that is too long between two codings as too long.
    fn flow(&mut self, flow: Result<Flow, CodingError>) -> Result<Flow, CodingError> {
        match flow {
            Err(CodingError::TooLong) => {
                self.sink.enough = Some(Enough::TooLong);
                Ok(Flow::Enough)
            }
            flow => flow,
        }
    }

    fn finish(&mut self) {
        let saving = self.sink.saving.take();
        if let Some(Err(why)) = saving.map(Saving::finish) {
            self.sink.enough = Some(Enough::not_saved(&why));
        }
    }

    pub(super) fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }
}

impl Sink {
    /// Returns a sink for `bytes_max` bytes that keeps the first `start_max` of them.
    pub(super) fn new(bytes_max: u64, start_max: usize, saving: Option<Saving>) -> Self {
        Self {
            bytes_max,
            start_max,
            saving,
            content: None,
            bytes: 0,
            start: Vec::new(),
            enough: None,
        }
    }

    /// Keeps the whole body as well.
    pub(super) fn with_content(mut self, content: Option<Content>) -> Self {
        self.content = content;
        self
    }

    /// Takes decoded bytes. Returns whether more are wanted.
    fn take(&mut self, part: &[u8]) -> bool {
        self.bytes += part.len() as u64;
        let room = self.start_max.saturating_sub(self.start.len());
        self.start.extend_from_slice(&part[..part.len().min(room)]);
        let kept = self.content.as_mut().map(|content| content.write_all(part));
        if let Some(Err(why)) = kept {
            self.enough = Some(Enough::not_saved(&why));
        } else if self.bytes > self.bytes_max {
            self.enough = Some(Enough::TooLong);
        } else if let Some(Err(why)) = self.saving.as_mut().map(|saving| saving.push(part)) {
            self.enough = Some(Enough::not_saved(&why));
        }
        self.enough.is_none()
    }
}

impl Enough {
    pub(super) fn not_saved(why: &io::Error) -> Self {
        if is_no_room(why) {
            return Self::NoRoom(io_words(why));
        }
        if trouble_of(why, Failure::Connect) == Some(Trouble::OutOfDescriptors) {
            return Self::NoDescriptor(io_words(why));
        }
        Self::NotSaved(format!("not saved: {}", io_words(why)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http::HeaderValue;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn intake(codings: &'static str, sink: Sink) -> Intake {
        let value = HeaderValue::from_static(codings);
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
        Intake::new(&Codings::of(&headers).unwrap(), sink)
    }

    #[test]
    fn a_bomb_is_dropped_within_a_block_of_its_allowance() {
        let bomb = packed(&vec![0; 50_000_000]);
        for (codings, bomb) in [("gzip", bomb.clone()), ("gzip, gzip", packed(&bomb))] {
            let mut intake = intake(codings, Sink::new(100_000, 10, None));
            assert!(!intake.push(&bomb).unwrap());
            let sink = intake.sink();
            assert!(matches!(sink.enough, Some(Enough::TooLong)));
            assert!(sink.bytes <= 100_000 + 32 * 1024, "{}", sink.bytes);
            assert_eq!(sink.start.len(), 10);
        }
    }

    #[test]
    fn what_follows_a_page_is_read_a_little_and_then_no_further() {
        let mut intake = intake("gzip", Sink::new(u64::MAX, 100, None));
        assert!(
            intake
                .push(&[&packed(b"a page")[..], b"rubbish"].concat())
                .unwrap()
        );
        assert!(intake.push(&[0; 1000]).unwrap());
        assert!(!intake.push(&vec![0; IGNORED_MAX as usize]).unwrap());
        assert_eq!(intake.sink().start, b"a page");
        assert!(intake.sink().enough.is_none());
    }

    #[test]
    fn a_torn_packing_is_told_and_nothing_at_all_is_fine() {
        let whole = packed(b"a page");
        let mut torn = intake("gzip", Sink::new(u64::MAX, 0, None));
        torn.push(&whole[..whole.len() - 3]).unwrap();
        assert!(matches!(torn.end(), Err(CodingError::CutOff(_))));
        let mut none = intake("gzip", Sink::new(u64::MAX, 0, None));
        assert!(none.push(b"").unwrap());
        none.end().unwrap();
    }
}
