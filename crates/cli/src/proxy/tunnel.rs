//! Connections whose bytes pass unseen: CONNECT, and WebSocket after its handshake.
//!
//! To the layer, a CONNECT is a request: it takes a permit of its host, and what the host sends is
//! the body of its response. So the slot stays taken until the connection ends, and byte budgets
//! are charged.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, Uri};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use politely::attempts::PacedBody;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::body::{Answer, BoxError};
use super::guard::Guard;
use super::upstream::CONNECT_MAX;

/// The bytes of a host that are passed on at once.
const PART: usize = 16 << 10;

/// The way to the host of a CONNECT, in the extensions of its response.
#[derive(Clone)]
pub(super) struct Upload(Arc<Mutex<Option<OwnedWriteHalf>>>);

struct Received(OwnedReadHalf);

/// Connects to the host of `uri`.
pub(super) async fn dial(guard: &Guard, uri: &Uri) -> Result<Response<Answer>, BoxError> {
    let port = uri.port_u16().unwrap_or(443);
    let addresses = guard.addresses(uri.host().unwrap_or_default()).await?;
    let with_port = addresses.into_iter().map(|ip| SocketAddr::new(ip, port));
    let with_port: Vec<_> = with_port.collect();
    let stream = timeout(CONNECT_MAX, TcpStream::connect(&with_port[..])).await??;
    stream.set_nodelay(true)?;
    let (from_host, to_host) = stream.into_split();
    let mut response = Response::new(Received(from_host).map_err(Into::into).boxed_unsync());
    let upload = Upload(Arc::new(Mutex::new(Some(to_host))));
    response.extensions_mut().insert(upload);
    Ok(response)
}

/// Passes the bytes of a CONNECT, until both sides have ended or one has failed.
pub(super) async fn pass(caller: OnUpgrade, upload: Upload, mut body: PacedBody<Answer>) {
    let to_host = upload
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let (Ok(caller), Some(mut to_host)) = (caller.await, to_host) else {
        return;
    };
    let (mut from_caller, mut to_caller) = tokio::io::split(TokioIo::new(caller));
    let up = async {
        tokio::io::copy(&mut from_caller, &mut to_host).await?;
        to_host.shutdown().await
    };
    let down = async {
        while let Some(frame) = body.frame().await {
            if let Ok(part) = frame.map_err(io::Error::other)?.into_data() {
                to_caller.write_all(&part).await?;
            }
        }
        to_caller.shutdown().await
    };
    // An error ends the connection, and both sides see its end.
    let _ = tokio::try_join!(up, down);
}

/// Passes the bytes of two connections that go on with another protocol.
pub(super) async fn join(caller: OnUpgrade, host: OnUpgrade) {
    if let (Ok(caller), Ok(host)) = (caller.await, host.await) {
        let (mut caller, mut host) = (TokioIo::new(caller), TokioIo::new(host));
        let _ = tokio::io::copy_bidirectional(&mut caller, &mut host).await;
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut part = [0; PART];
        let mut read = ReadBuf::new(&mut part);
        let result = ready!(Pin::new(&mut self.0).poll_read(cx, &mut read));
        Poll::Ready(match (result, read.filled()) {
            (Err(why), _) => Some(Err(why)),
            (Ok(()), []) => None,
            (Ok(()), bytes) => Some(Ok(Frame::data(Bytes::copy_from_slice(bytes)))),
        })
    }
}
