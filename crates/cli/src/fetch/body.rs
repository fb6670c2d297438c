//! A body as it comes: unpacked, counted, kept or saved.
//!
//! It is never held whole (unless asked for, as for robots.txt), so a body without end costs nothing but its
//! allowance, and one that unpacks to gigabytes is dropped at the same mark: what counts is its size decoded,
//! and it is decoded 32 KB at a time.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use super::save::Saving;
use crate::exit::io_words;

/// Where the parts of a body go as they come.
pub(super) enum Intake {
    Plain(Sink),
    Gzip {
        decoder: Box<MultiGzDecoder<Sink>>,
        /// Something came; of nothing at all, some servers say that it is gzip.
        any: bool,
    },
}

/// What is done with the decoded bytes.
pub(super) struct Sink {
    /// More than this is too much.
    bytes_max: u64,
    /// So much of the beginning is kept.
    start_max: usize,
    saving: Option<Saving>,
    pub(super) bytes: u64,
    pub(super) start: Vec<u8>,
    /// Why no more is taken.
    pub(super) enough: Option<Enough>,
}

/// Why no more of a body is taken.
pub(super) enum Enough {
    TooLong,
    NotSaved(String),
}

impl Intake {
    /// Into `sink`, unpacked first if it is `gzip`.
    pub(super) fn new(gzip: bool, sink: Sink) -> Self {
        if gzip {
            let decoder = Box::new(MultiGzDecoder::new(sink));
            let any = false;
            Self::Gzip { decoder, any }
        } else {
            Self::Plain(sink)
        }
    }

    /// Takes another part; returns whether more is wanted. An error: it cannot be unpacked.
    pub(super) fn push(&mut self, part: &[u8]) -> io::Result<bool> {
        let (taken, sink) = match self {
            Self::Plain(sink) => (sink.write_all(part), sink),
            Self::Gzip { decoder, any } => {
                *any |= !part.is_empty();
                (decoder.write_all(part), decoder.get_mut())
            }
        };
        if sink.enough.is_some() {
            return Ok(false);
        }
        taken.map(|()| true)
    }

    /// The body has ended. An error: in the middle, as its packing says.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let ended = match self {
            Self::Gzip { decoder, any: true } => decoder.try_finish(),
            _ => Ok(()),
        };
        let sink = self.sink();
        if sink.enough.is_some() {
            return Ok(());
        }
        // Whether cut off or with a wrong checksum: another try may bring it whole.
        ended.map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, "gzip ends too early"))?;
        if let Some(Err(why)) = sink.saving.take().map(Saving::finish) {
            sink.enough = Some(Enough::not_saved(&why));
        }
        Ok(())
    }

    pub(super) fn sink(&mut self) -> &mut Sink {
        match self {
            Self::Plain(sink) => sink,
            Self::Gzip { decoder, .. } => decoder.get_mut(),
        }
    }
}

impl Sink {
    /// Takes `bytes_max` bytes and keeps the first `start_max` of them.
    pub(super) fn new(bytes_max: u64, start_max: usize, saving: Option<Saving>) -> Self {
        Self {
            bytes_max,
            start_max,
            saving,
            bytes: 0,
            start: Vec::new(),
            enough: None,
        }
    }
}

impl Enough {
    fn not_saved(why: &io::Error) -> Self {
        Self::NotSaved(format!("not saved: {}", io_words(why)))
    }
}

impl Write for Sink {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        // A decoder that is dropped tries to get rid of what it still has.
        if self.enough.is_none() {
            self.bytes += part.len() as u64;
            let room = self.start_max.saturating_sub(self.start.len());
            self.start.extend_from_slice(&part[..part.len().min(room)]);
            if self.bytes > self.bytes_max {
                self.enough = Some(Enough::TooLong);
            } else if let Some(Err(why)) = self.saving.as_mut().map(|saving| saving.push(part)) {
                self.enough = Some(Enough::not_saved(&why));
            }
        }
        if self.enough.is_some() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_packed_body_comes_out_whole_however_it_is_cut() {
        let text = b"one host, one limit. ".repeat(1000);
        // Two members are one body.
        let both = [packed(&text), packed(b"the end")].concat();
        for part in [1, 7, 1000, both.len()] {
            let mut intake = Intake::new(true, Sink::new(u64::MAX, usize::MAX, None));
            for part in both.chunks(part) {
                assert!(intake.push(part).unwrap());
            }
            intake.end().unwrap();
            assert_eq!(intake.sink().start, [&text[..], b"the end"].concat());
        }
    }

    #[test]
    fn a_bomb_is_dropped_within_a_block_of_its_allowance() {
        let mut intake = Intake::new(true, Sink::new(100_000, 10, None));
        assert!(!intake.push(&packed(&vec![0; 50_000_000])).unwrap());
        let sink = intake.sink();
        assert!(matches!(sink.enough, Some(Enough::TooLong)));
        assert!(sink.bytes <= 100_000 + 32 * 1024, "{}", sink.bytes);
        assert_eq!(sink.start.len(), 10);
    }

    #[test]
    fn a_torn_packing_is_told_and_nothing_at_all_is_fine() {
        let whole = packed(b"a page");
        let mut intake = Intake::new(true, Sink::new(u64::MAX, 0, None));
        intake.push(&whole[..whole.len() - 3]).unwrap();
        let torn = intake.end().unwrap_err();
        assert_eq!(torn.kind(), io::ErrorKind::UnexpectedEof);
        let mut intake = Intake::new(true, Sink::new(u64::MAX, 0, None));
        assert!(intake.push(b"").unwrap());
        intake.end().unwrap();
    }
}
