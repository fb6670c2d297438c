//! Streaming decoder for content codings, with bounded memory and bounded work.
//!
//! The codings form a chain of layers. Each layer decodes at most [`BLOCK`] bytes and passes them
//! to the next before it decodes more. A body that unpacks to gigabytes is therefore noticed within
//! one block of the limit.

use std::fmt;

use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::zstd::params::DParameter;
use compression_codecs::{DecodeV2, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};

use super::brotli::BrotliDecoder;
use super::{Coding, CodingError, Codings};

/// Number of bytes that a layer decodes at once.
const BLOCK: usize = 32 * 1024;
/// Largest window of a Zstandard frame, as a power of two (RFC 9659, section 3: 8 MiB).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Number of bytes that show whether a further gzip member or Zstandard frame follows.
const MAGIC: usize = 4;
/// Number of bytes by which a body between two layers may exceed the limit, because packed noise is
/// longer than the noise.
const BETWEEN_MARGIN: u64 = 64 * 1024;

/// The result of decoding a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// All bytes were decoded; more may follow.
    More,
    /// The caller's function wants no more bytes.
    Enough,
    /// The coding's stream has ended, and other bytes follow it. Every further byte is ignored.
    Over,
}

/// A decoder for the codings of one body.
pub struct Decoder {
    /// The layers; the first one takes the bytes from the wire.
    layers: Vec<Layer>,
}

/// A function that takes decoded bytes and returns whether it wants more.
type Take<'a> = dyn FnMut(&[u8]) -> bool + 'a;

impl Decoder {
    /// Creates a decoder for a body with `codings`. A body between two codings may be about
    /// `bytes_max` bytes long. The function that takes the decoded body bounds its length.
    pub fn new(codings: &Codings, bytes_max: u64) -> Self {
        let between_max = bytes_max
            .saturating_add(bytes_max / 16)
            .saturating_add(BETWEEN_MARGIN);
        let layers = codings.iter().rev();
        Self {
            layers: layers
                .map(|coding| Layer::new(coding, between_max))
                .collect(),
        }
    }

    /// Decodes a further `part` of the body and passes the decoded bytes to `take`, in blocks of at
    /// most 32 KiB.
    ///
    /// # Errors
    /// Fails if the bytes are damaged, or if a body between two codings is too long. The decoder
    /// cannot be used afterwards.
    pub fn push(&mut self, part: &[u8], take: &mut Take<'_>) -> Result<Flow, CodingError> {
        feed(&mut self.layers, part, take)
    }

    /// Ends the body and passes the rest to `take`.
    ///
    /// # Errors
    /// Fails like [`push`](Self::push), or if the body ended before its coding's stream did.
    pub fn end(&mut self, take: &mut Take<'_>) -> Result<Flow, CodingError> {
        for first in 0..self.layers.len() {
            let Some((layer, rest)) = self.layers[first..].split_first_mut() else {
                break;
            };
            if layer.end(rest, take)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codings = self.layers.iter().map(|layer| layer.coding);
        f.debug_list().entries(codings).finish()
    }
}

fn feed(layers: &mut [Layer], part: &[u8], take: &mut Take<'_>) -> Result<Flow, CodingError> {
    match layers.split_first_mut() {
        None if part.is_empty() || take(part) => Ok(Flow::More),
        None => Ok(Flow::Enough),
        Some((layer, rest)) => layer.push(part, rest, take),
    }
}

struct Layer {
    coding: Coding,
    state: State,
    /// Number of bytes that this layer may still produce, if another layer follows.
    between_left: u64,
    /// The output buffer; empty until the first byte arrives.
    block: Box<[u8]>,
}

enum State {
    /// The layer has too few bytes to choose a codec.
    Begin(Held),
    /// The layer is in the middle of a stream.
    Within(Box<dyn DecodeV2 + Send + Sync>),
    /// A stream has ended. The layer holds the first bytes after it.
    Between(Box<dyn DecodeV2 + Send + Sync>, Held),
    /// The bytes after the stream are not another stream.
    Over,
}

/// The first few bytes of a stream.
#[derive(Clone, Copy, Default)]
struct Held {
    bytes: [u8; MAGIC],
    len: usize,
}

impl Held {
    /// Moves bytes from `part` until this holds `want`; returns whether it does.
    fn fill(&mut self, part: &mut &[u8], want: usize) -> bool {
        let moved = want.saturating_sub(self.len).min(part.len());
        self.bytes[self.len..self.len + moved].copy_from_slice(&part[..moved]);
        self.len += moved;
        *part = &part[moved..];
        self.len >= want
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Layer {
    fn new(coding: Coding, between_left: u64) -> Self {
        Self {
            coding,
            state: State::Begin(Held::default()),
            between_left,
            block: Box::default(),
        }
    }

    fn push(
        &mut self,
        mut part: &[u8],
        rest: &mut [Self],
        take: &mut Take<'_>,
    ) -> Result<Flow, CodingError> {
        while !part.is_empty() {
            match &mut self.state {
                State::Begin(held) => {
                    if !held.fill(&mut part, self.coding.bytes_to_choose()) {
                        return Ok(Flow::More);
                    }
                    let held = *held;
                    self.block = vec![0; BLOCK].into();
                    self.state = State::Within(self.coding.codec(held.bytes()));
                    match self.decode(held.bytes(), rest, take)? {
                        (Flow::More, _) => {}
                        (flow, _) => return Ok(flow),
                    }
                }
                State::Within(_) => {
                    let (flow, left) = self.decode(part, rest, take)?;
                    if flow != Flow::More {
                        return Ok(flow);
                    }
                    part = &part[part.len() - left..];
                }
                State::Between(_, held) => {
                    let filled = held.fill(&mut part, MAGIC);
                    let held = *held;
                    if !self.coding.may_go_on(held.bytes()) {
                        self.state = State::Over;
                    } else if filled {
                        self.go_on()?;
                        match self.decode(held.bytes(), rest, take)? {
                            (Flow::More, _) => {}
                            (flow, _) => return Ok(flow),
                        }
                    }
                }
                State::Over => return Ok(Flow::Over),
            }
        }
        // Another stream may follow a part that ends together with a stream.
        Ok(if matches!(self.state, State::Over) {
            Flow::Over
        } else {
            Flow::More
        })
    }

    /// Begins the next member or frame.
    fn go_on(&mut self) -> Result<(), CodingError> {
        if let State::Between(mut codec, _) = std::mem::replace(&mut self.state, State::Over) {
            let begun = codec.reinit();
            begun.map_err(|_| CodingError::Damaged(self.coding))?;
            self.state = State::Within(codec);
        }
        Ok(())
    }

    /// Decodes `part` up to the end of the stream; returns how many of its bytes are left.
    fn decode(
        &mut self,
        part: &[u8],
        rest: &mut [Self],
        take: &mut Take<'_>,
    ) -> Result<(Flow, usize), CodingError> {
        let mut input = PartialBuffer::new(part);
        let damaged = CodingError::Damaged(self.coding);
        loop {
            let State::Within(codec) = &mut self.state else {
                return Ok((Flow::More, input.unwritten().len()));
            };
            let mut output = WriteBuffer::new_initialized(&mut self.block);
            let before = input.written_len();
            let is_in = !input.unwritten().is_empty();
            let result = if is_in {
                codec.decode(&mut input, &mut output)
            } else {
                // A block may have been too small for the output of the last bytes.
                codec.flush(&mut output)
            };
            let done = result.map_err(|_| damaged.clone())?;
            let (made, is_full) = (output.written_len(), output.has_no_spare_space());
            if is_in && made == 0 && !done && input.written_len() == before {
                // No codec makes a call without progress. A codec that did would loop for ever.
                return Err(damaged);
            }
            let flow = self.pass_on(made, rest, take)?;
            if is_in && done {
                self.ended();
            }
            if flow != Flow::More {
                return Ok((flow, 0));
            }
            if input.unwritten().is_empty() && !is_full {
                return Ok((Flow::More, 0));
            }
        }
    }

    /// Passes the first `made` bytes of the block to the next layer.
    fn pass_on(
        &mut self,
        made: usize,
        rest: &mut [Self],
        take: &mut Take<'_>,
    ) -> Result<Flow, CodingError> {
        if !rest.is_empty() {
            let left = self.between_left.checked_sub(made as u64);
            self.between_left = left.ok_or(CodingError::TooLong)?;
        }
        feed(rest, &self.block[..made], take)
    }

    fn ended(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Within(codec) if matches!(self.coding, Coding::Gzip | Coding::Zstd) => {
                State::Between(codec, Held::default())
            }
            _ => State::Over,
        };
    }

    fn end(&mut self, rest: &mut [Self], take: &mut Take<'_>) -> Result<Flow, CodingError> {
        let cut_off = CodingError::CutOff(self.coding);
        match &self.state {
            State::Begin(held) if held.len > 0 => return Err(cut_off),
            State::Begin(_) | State::Between(..) | State::Over => return Ok(Flow::More),
            State::Within(_) => {}
        }
        loop {
            let State::Within(codec) = &mut self.state else {
                return Ok(Flow::More);
            };
            let mut output = WriteBuffer::new_initialized(&mut self.block);
            let done = codec.finish(&mut output).map_err(|_| cut_off.clone())?;
            let made = output.written_len();
            let flow = self.pass_on(made, rest, take)?;
            if done {
                self.state = State::Over;
            }
            if flow == Flow::Enough {
                return Ok(flow);
            }
            if !done && made == 0 {
                return Err(cut_off);
            }
        }
    }
}

impl Coding {
    /// Returns the number of bytes that are needed to choose the stream's codec: for deflate, the
    /// two bytes of a zlib header.
    const fn bytes_to_choose(self) -> usize {
        match self {
            Self::Deflate => 2,
            _ => 1,
        }
    }

    fn codec(self, start: &[u8]) -> Box<dyn DecodeV2 + Send + Sync> {
        match self {
            Self::Gzip => Box::new(GzipDecoder::new()),
            Self::Deflate if has_zlib_header(start) => Box::new(ZlibDecoder::new()),
            Self::Deflate => Box::new(DeflateDecoder::new()),
            Self::Brotli => Box::new(BrotliDecoder::new()),
            Self::Zstd => Box::new(ZstdDecoder::new_with_params(&[DParameter::window_log_max(
                ZSTD_WINDOW_LOG_MAX,
            )])),
        }
    }

    /// Returns whether `next`, after the end of a stream, may begin another one.
    fn may_go_on(self, next: &[u8]) -> bool {
        match self {
            // ID1, ID2, CM, and the reserved flags (RFC 1952, section 2.3.1).
            Self::Gzip => {
                next.iter().zip([0x1f, 0x8b, 8]).all(|(a, b)| *a == b)
                    && next.get(3).is_none_or(|flags| flags & 0xe0 == 0)
            }
            // A frame or a skippable frame (RFC 8878, sections 3.1.1 and 3.1.2).
            Self::Zstd => {
                let begins = |magic: [u8; 4]| next.iter().zip(magic).all(|(a, b)| *a == b);
                let first = next.first().copied().unwrap_or_default();
                begins([0x28, 0xb5, 0x2f, 0xfd]) || begins([first & 0x0f | 0x50, 0x2a, 0x4d, 0x18])
            }
            Self::Deflate | Self::Brotli => false,
        }
    }
}

/// Returns whether `start` is a zlib header (RFC 1950, section 2.2). No encoder begins raw deflate
/// with these bytes: as the head of a stored block they would have padding that is not zero.
fn has_zlib_header(start: &[u8]) -> bool {
    matches!(start, [method, flags, ..]
        if method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes([*method, *flags]) % 31 == 0)
}
