//! The decoder of the content coding `br` (RFC 7932).

use std::io;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use compression_codecs::DecodeV2;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Decodes one stream of Brotli.
pub(super) struct BrotliDecoder(Box<State>);

impl BrotliDecoder {
    pub(super) fn new() -> Self {
        let alloc = StandardAlloc::default;
        Self(Box::new(State::new(alloc(), alloc(), alloc())))
    }

    /// Decodes from `input` into `output`, as far as both reach.
    fn advance(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> io::Result<BrotliResult> {
        let (bytes, room) = (input.unwritten(), output.initialize_unwritten());
        let (mut bytes_left, mut room_left) = (bytes.len(), room.len());
        let (mut read, mut written) = (0, 0);
        let result = BrotliDecompressStream(
            &mut bytes_left,
            &mut read,
            bytes,
            &mut room_left,
            &mut written,
            room,
            &mut 0,
            &mut self.0,
        );
        if matches!(result, BrotliResult::ResultFailure) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        input.advance(read);
        output.advance(written);
        Ok(result)
    }
}

impl DecodeV2 for BrotliDecoder {
    fn reinit(&mut self) -> io::Result<()> {
        *self = Self::new();
        Ok(())
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> io::Result<bool> {
        let result = self.advance(input, output)?;
        Ok(matches!(result, BrotliResult::ResultSuccess))
    }

    fn flush(&mut self, output: &mut WriteBuffer<'_>) -> io::Result<bool> {
        let result = self.advance(&mut PartialBuffer::new(&[]), output)?;
        Ok(!matches!(result, BrotliResult::NeedsMoreOutput))
    }

    fn finish(&mut self, output: &mut WriteBuffer<'_>) -> io::Result<bool> {
        match self.advance(&mut PartialBuffer::new(&[]), output)? {
            BrotliResult::ResultSuccess => Ok(true),
            BrotliResult::NeedsMoreOutput => Ok(false),
            // The stream ends in the middle.
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
