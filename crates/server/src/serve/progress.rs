//! A stream whose writes fail when the peer reads no bytes for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Wraps a stream. Its timer runs only while a write waits for the peer.
pub(super) struct Progress<S> {
    stream: S,
    limit: Duration,
    /// The time-out of the current wait for the peer.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Progress<S> {
    /// Wraps `stream`. Each wait for the peer to read bytes lasts at most `limit`.
    pub(super) const fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            stalled: None,
        }
    }

    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let limit = self.limit;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read its answer",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Progress<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Progress<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.within(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_fails_the_write() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let began = tokio::time::Instant::now();
        let written = Progress::new(ours, LIMIT).write_all(&[0; 100]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= LIMIT && began.elapsed() < LIMIT * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_served_to_the_end() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let reading = tokio::spawn(async move {
            let mut read = 0;
            while read < 100 {
                tokio::time::sleep(LIMIT / 2).await;
                read += theirs.read(&mut [0; 8]).await.unwrap();
            }
        });
        let mut ours = Progress::new(ours, LIMIT);
        ours.write_all(&[0; 100]).await.unwrap();
        reading.await.unwrap();
    }
}
