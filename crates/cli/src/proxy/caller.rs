//! The connection of a caller, whose end is noticed while bytes of further requests are unread.
//!
//! hyper reads no further request before the first is answered, so it does not see that a caller
//! left who had sent several. The system tells the end of a connection apart from its bytes.

use std::io;
use std::net::{Shutdown, TcpStream as StdStream};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

#[derive(Clone)]
pub(super) struct Caller(Arc<TcpStream>);

impl Caller {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Waits until the caller sends no more, whatever of it was read.
    pub(super) async fn left(&self) {
        // The end of a connection is part of this interest, and bytes to read are not.
        let _ = self.0.ready(Interest::PRIORITY).await;
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buffer) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(parts) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // tokio shuts down only a stream that it owns alone.
        let copy = self.0.as_fd().try_clone_to_owned().map(StdStream::from);
        Poll::Ready(copy.and_then(|stream| stream.shutdown(Shutdown::Write)))
    }
}
