//! Answers over HTTP/1 that their callers never read: the permits in them are taken back. For
//! HTTP/2 see `serve/streams.rs`.
//!
//! A caller that gives up closes its connection. Three signs show that an answer was not read:
//!
//! - The connection ends before the answer is made and written.
//! - The peer resets the connection. A system does so when a socket is closed with unread data, or
//!   when data arrives after that.
//! - A write fails.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::coordinator::{Coordinator, Number};
use crate::watch::Worker;

/// The time after which an answer counts as read. A later reset is taken for the end of an idle
/// connection.
const UNREAD_WITHIN: Duration = Duration::from_secs(5);
/// The time for the peer to close its end when a connection closes after an answer.
const LINGER: Duration = Duration::from_secs(1);

/// The permits that one answer grants.
#[derive(Clone)]
pub(crate) struct Granted(Arc<Grants>);

struct Grants {
    coordinator: Coordinator,
    worker: Arc<Worker>,
    numbers: Vec<Number>,
}

impl Granted {
    /// Returns the permits of an answer, or `None` for an answer without permits.
    pub(crate) fn new(
        coordinator: &Coordinator,
        worker: Arc<Worker>,
        numbers: Vec<Number>,
    ) -> Option<Self> {
        let coordinator = coordinator.clone();
        (!numbers.is_empty()).then(|| {
            Self(Arc::new(Grants {
                coordinator,
                worker,
                numbers,
            }))
        })
    }

    /// Takes the permits back, as far as they have not ended.
    pub(crate) fn take_back(&self) {
        let grants = &self.0;
        let numbers = grants.numbers.iter().copied();
        grants.coordinator.take_back(&grants.worker, numbers);
    }
}

/// The permits of the last answer on a connection, until the answer is known to have been read.
#[derive(Default)]
pub(crate) struct Unread {
    last: Mutex<Option<(Instant, Granted)>>,
    is_reset: AtomicBool,
}

impl Unread {
    /// Notes that an answer is about to be written.
    pub(crate) fn answered(&self, granted: Option<Granted>) {
        *self.last.lock() = granted.map(|granted| (Instant::now(), granted));
    }

    /// Notes that the peer has sent its next request, and so has read the last answer.
    pub(crate) fn read(&self) {
        *self.last.lock() = None;
    }

    /// Notes the end of the connection, and takes unread permits back. `failed` is true if the
    /// connection did not end in an orderly way.
    pub(crate) fn ended(&self, failed: bool) {
        let last = self.last.lock().take();
        if let Some((at, granted)) = last
            && (failed || self.is_reset.load(Ordering::Relaxed))
            && at.elapsed() < UNREAD_WITHIN
        {
            granted.take_back();
        }
    }

    /// Returns whether the peer reset the connection.
    pub(crate) fn is_reset(&self) -> bool {
        self.is_reset.load(Ordering::Relaxed)
    }

    fn is_open(&self) -> bool {
        self.last.lock().is_some() && !self.is_reset.load(Ordering::Relaxed)
    }
}

/// A socket that notes whether its peer reset it.
pub(crate) struct Watched {
    stream: TcpStream,
    unread: Arc<Unread>,
    linger: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream) -> (Self, Arc<Unread>) {
        let unread = Arc::<Unread>::default();
        let watched = Self {
            stream,
            unread: Arc::clone(&unread),
            linger: None,
        };
        (watched, unread)
    }

    fn note<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = done {
            self.unread.is_reset.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Waits until the peer has closed its end, which shows whether it read the last answer.
    fn poll_peer_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = (self.linger).get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if linger.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut scratch = [0; 512];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *self).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = read
            && buffer.filled().len() == before
            && buffer.remaining() > 0
            && !matches!(self.stream.take_error(), Ok(None))
        {
            // The peer closed its end first, and then reset the connection when later data arrived.
            self.unread.is_reset.store(true, Ordering::Relaxed);
        }
        self.note(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            let shut = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
            let shut = self.note(Poll::Ready(shut));
            if !self.unread.is_open() {
                return shut;
            }
        }
        ready!(self.poll_peer_closed(cx));
        Poll::Ready(Ok(()))
    }
}
