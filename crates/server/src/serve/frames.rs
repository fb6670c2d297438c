//! A stream that watches the frames of HTTP/2 in both directions.
//!
//! It changes nothing. On a connection of another protocol it compares the first bytes only.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::streams::Streams;

/// The first bytes of a client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Frame types (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
/// Flag of a DATA frame with padding. The coordinator never sends padding.
const PADDED: u8 = 8;

/// Wraps a stream and tells `streams` what its frames mean.
pub(super) struct Framed<S> {
    stream: S,
    streams: Arc<Streams>,
    /// The number of bytes of the preface so far, or `None` if the protocol is another one.
    preface: Option<usize>,
    read: Frames,
    written: Frames,
}

/// The head of a frame.
#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
}

/// The position within the frames of one direction.
#[derive(Default)]
struct Frames {
    head: [u8; 9],
    /// The number of bytes of the head so far.
    filled: usize,
    /// The current frame and the bytes of its payload to come.
    current: Option<(Head, usize)>,
    /// The payload so far, if it is of interest.
    payload: Option<Vec<u8>>,
}

impl Frames {
    /// Takes the next bytes. Calls `wants` at each head, to ask whether the payload is of interest,
    /// and `frame` at the end of each frame.
    fn feed(
        &mut self,
        mut bytes: &[u8],
        wants: impl Fn(&Head) -> bool,
        mut frame: impl FnMut(&Head, Option<&[u8]>),
    ) {
        loop {
            let Some((head, left)) = &mut self.current else {
                let count = bytes.len().min(self.head.len() - self.filled);
                let (part, rest) = bytes.split_at(count);
                self.head[self.filled..self.filled + count].copy_from_slice(part);
                self.filled += count;
                bytes = rest;
                if self.filled < self.head.len() {
                    return;
                }
                self.filled = 0;
                let head = Head::of(self.head);
                self.payload = wants(&head).then(|| Vec::with_capacity(head.length));
                self.current = Some((head, head.length));
                continue;
            };
            let (part, rest) = bytes.split_at(bytes.len().min(*left));
            if let Some(payload) = &mut self.payload {
                payload.extend_from_slice(part);
            }
            *left -= part.len();
            bytes = rest;
            if *left > 0 {
                return;
            }
            frame(head, self.payload.as_deref());
            self.current = None;
        }
    }
}

impl Head {
    fn of(bytes: [u8; 9]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
            length: u32::from_be_bytes([0, a, b, c]) as usize,
        }
    }
}

impl<S> Framed<S> {
    pub(super) fn new(stream: S, streams: Arc<Streams>) -> Self {
        Self {
            stream,
            streams,
            preface: Some(0),
            read: Frames::default(),
            written: Frames::default(),
        }
    }

    fn is_http2(&self) -> bool {
        self.preface == Some(PREFACE.len())
    }

    fn note_read(&mut self, mut bytes: &[u8]) {
        let Some(seen) = &mut self.preface else {
            return;
        };
        let expected = &PREFACE[*seen..];
        let count = expected.len().min(bytes.len());
        if bytes[..count] != expected[..count] {
            self.preface = None;
            return;
        }
        *seen += count;
        bytes = &bytes[count..];
        let streams = &self.streams;
        self.read.feed(
            bytes,
            |_| false,
            |head, _| match head.kind {
                HEADERS => streams.asked(),
                RST_STREAM => streams.reset(head.stream),
                _ => {}
            },
        );
    }

    fn note_written<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>, mut count: usize) {
        if !self.is_http2() {
            return;
        }
        let streams = &self.streams;
        for slice in slices {
            let part = &slice[..slice.len().min(count)];
            count -= part.len();
            self.written.feed(
                part,
                |head| head.kind == DATA && head.flags & PADDED == 0 && streams.is_waiting(),
                |head, payload| {
                    if let Some(payload) = payload {
                        streams.wrote(head.stream, payload);
                    }
                },
            );
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.note_read(&buffer.filled()[before..]);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.note_written(std::iter::once(bytes), count);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(count)) = written {
            self.note_written(slices.iter().map(|slice| &**slice), count);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_http2() {
            // HTTP/2 flushes only when its output is written.
            self.streams.flushed();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn frames_are_found_however_the_bytes_arrive() {
        let all = [
            frame(4, 0, b""),
            frame(DATA, 7, b"hello"),
            frame(RST_STREAM, 9, &[0, 0, 0, 8]),
            frame(DATA, 11, &[1; 300]),
        ]
        .concat();
        for size in [1, 2, 7, 9, 10, all.len()] {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for part in all.chunks(size) {
                frames.feed(
                    part,
                    |head| head.kind == DATA,
                    |head, payload| {
                        seen.push((head.kind, head.stream, payload.map(<[u8]>::to_vec)));
                    },
                );
            }
            let expected = [
                (4, 0, None),
                (DATA, 7, Some(b"hello".to_vec())),
                (RST_STREAM, 9, None),
                (DATA, 11, Some(vec![1; 300])),
            ];
            assert_eq!(seen, expected, "{size} bytes at a time");
        }
    }
}
