//! A connection that records whether it was used before, and whether an answer to the last request
//! has begun.
//!
//! A server may close a kept connection just when a request is on its way (RFC 9112, section
//! 9.3.1). Such a request is repeated. A request is a failure if a fresh connection loses it, or if
//! its answer has begun.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::proxy::Hop;
use super::repair::Repair;

/// The recorded state of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Use(Arc<Notes>);

#[derive(Debug, Default)]
struct Notes {
    /// An answer came over this connection.
    has_answered: AtomicBool,
    /// Bytes came after the last request, or part of it, was written.
    is_answering: AtomicBool,
    /// Bytes came at any time.
    has_spoken: AtomicBool,
    is_http2: bool,
    /// Time to look up the name, to connect and for TLS.
    connected_in: Duration,
}

impl Use {
    /// Records that the head of an answer came. Returns whether another one came before.
    pub(super) fn answered(&self) -> bool {
        self.0.has_answered.swap(true, Ordering::Relaxed)
    }

    /// Returns how long it took to connect.
    pub(super) fn connected_in(&self) -> Duration {
        self.0.connected_in
    }

    /// Returns whether a request that this connection lost met a stale connection.
    pub(super) fn is_stale(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is(&self.0.has_answered) && !is(&self.0.is_answering)
    }

    /// Returns whether the server chose HTTP/2 and sent nothing of it, not even its settings.
    pub(super) fn is_silent_http2(&self) -> bool {
        self.0.is_http2 && !self.0.has_spoken.load(Ordering::Relaxed)
    }

    fn note(&self, is_answering: bool) {
        self.0.is_answering.store(is_answering, Ordering::Relaxed);
    }
}

/// A connection and its recorded state.
pub(super) struct Noted {
    stream: TokioIo<MaybeHttpsStream<Hop>>,
    /// Whether requests are sent to a proxy that forwards them.
    is_forwarded: bool,
    used: Use,
    /// `None` for HTTP/2.
    repair: Option<Repair>,
    /// Repaired bytes for which the last read had no room.
    rest: VecDeque<u8>,
}

impl Noted {
    pub(super) fn new(
        stream: MaybeHttpsStream<Hop>,
        is_forwarded: bool,
        connected_in: Duration,
    ) -> TokioIo<Self> {
        let stream = TokioIo::new(stream);
        let is_http2 = stream.inner().connected().is_negotiated_h2();
        TokioIo::new(Self {
            stream,
            is_forwarded,
            used: Use(Arc::new(Notes {
                is_http2,
                connected_in,
                ..Notes::default()
            })),
            repair: (!is_http2).then(Repair::default),
            rest: VecDeque::new(),
        })
    }

    fn note_sent(&mut self) {
        self.used.note(false);
        if let Some(repair) = &mut self.repair {
            repair.sent();
        }
    }

    /// Moves bytes of the rest to `buffer`, as far as it has room.
    fn fill(&mut self, buffer: &mut ReadBuf<'_>) {
        let len = self.rest.len().min(buffer.remaining());
        let part: Vec<u8> = self.rest.drain(..len).collect();
        buffer.put_slice(&part);
    }

    fn stream(&mut self) -> Pin<&mut TokioIo<MaybeHttpsStream<Hop>>> {
        Pin::new(&mut self.stream)
    }
}

impl Connection for Noted {
    fn connected(&self) -> Connected {
        let connected = self.stream.inner().connected();
        connected.proxy(self.is_forwarded).extra(self.used.clone())
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.rest.is_empty() {
            self.fill(buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let mut read = self.stream().poll_read(cx, buffer);
        if self.repair.is_some()
            && let Poll::Ready(Err(why)) = &read
            && why.kind() == io::ErrorKind::UnexpectedEof
        {
            // Old servers end TLS without its last message. As curl does, take it for the end: a
            // body with a length or in chunks still has to be whole.
            read = Poll::Ready(Ok(()));
        }
        if buffer.filled().len() > before {
            self.used.note(true);
            self.used.0.has_spoken.store(true, Ordering::Relaxed);
            if let Some(repair) = &mut self.repair
                && let Some(repaired) = repair.repair(&mut buffer.filled_mut()[before..])
            {
                buffer.set_filled(before);
                if repaired.is_empty() {
                    // A read without bytes would be the end.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.rest = repaired.into();
                self.fill(buffer);
            }
        }
        read
    }
}

impl AsyncWrite for Noted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note_sent();
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note_sent();
        self.stream().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
