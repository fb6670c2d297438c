//! One connection, from its first byte to its end.
//!
//! | a connection whose peer | is closed after |
//! | --- | --- |
//! | sends no head, or half of one | [`HEAD_TIME`] |
//! | reads no byte of its answers | [`WRITE_TIME`] |
//! | keeps HTTP/2 open without a call | [`IDLE_TIME`] |

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::Version;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncRead, AsyncWrite};

use super::outbox::Outbox;
use crate::api::{Gate, Peer, Wrong};

/// The time for a request's head, and for a TLS handshake.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time for the peer to read more bytes of its answers.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(20);
/// The time for which an HTTP/2 connection is kept without a call.
const IDLE_TIME: Duration = Duration::from_mins(2);
/// The most streams that a peer may reset before their calls begin. Beyond it the connection ends.
/// A worker with 200 calls, the most at a time, may cancel all of them at once.
const PENDING_RESETS_MAX: usize = 400;
/// The bytes that a peer may send on one HTTP/2 stream before the call reads them.
const STREAM_WINDOW: u32 = 512 << 10;
/// The same for all streams of a connection. h2 ends a connection with `ENHANCE_YOUR_CALM` if
/// frames below 256 bytes that were not read yet lack half of this size to 256 bytes each: some
/// 100,000 messages of a URL each. A stream that is full of messages of 11 bytes stays below it.
const CONNECTION_WINDOW: u32 = 48 << 20;
/// The most bytes of answers that one HTTP/2 connection may leave unread.
const UNSENT_MAX: u64 = 16 << 20;

/// The protocol of the requests that arrived on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Heard {
    Nothing,
    Http1,
    Http2,
}

/// Answers the calls of one connection until it ends.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: IpAddr,
    gate: Arc<Gate>,
    watcher: Watcher,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .http2()
        .timer(TokioTimer::new())
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(Some(HEAD_TIME));
    let heard = Arc::new(AtomicU8::new(Heard::Nothing as u8));
    let outbox = Outbox::new();
    let peer = Arc::new(Peer::new(address));
    let service = service_fn({
        let (heard, outbox) = (Arc::clone(&heard), Arc::clone(&outbox));
        move |request: Request<Incoming>| {
            let (gate, peer) = (Arc::clone(&gate), Arc::clone(&peer));
            let is_http2 = request.version() == Version::HTTP_2;
            let said = if is_http2 { Heard::Http2 } else { Heard::Http1 };
            heard.store(said as u8, Ordering::Relaxed);
            let outbox = is_http2.then(|| Arc::clone(&outbox));
            async move { Ok::<_, Infallible>(answer(&gate, &peer, request, outbox).await) }
        }
    });
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    // An error closes the connection, and the peer needs no other notice.
    tokio::select! {
        _ = watcher.watch(connection) => {}
        () = abandoned(&heard, &outbox) => {}
    }
}

async fn answer(
    gate: &Gate,
    peer: &Peer,
    request: Request<Incoming>,
    http2: Option<Arc<Outbox>>,
) -> Response {
    let Some(outbox) = http2 else {
        return gate.answer(peer, request).await;
    };
    let open = outbox.open();
    let response = if outbox.bytes() > UNSENT_MAX {
        Wrong::busy("too many answers of this connection wait to be read").into_response()
    } else {
        gate.answer(peer, request).await
    };
    open.follow(response)
}

/// Waits until the connection is abandoned. Once an HTTP/1 request has arrived, the time-outs of
/// hyper and of [`super::progress`] apply instead.
async fn abandoned(heard: &AtomicU8, outbox: &Outbox) {
    loop {
        tokio::time::sleep(HEAD_TIME).await;
        let said = heard.load(Ordering::Relaxed);
        if said == Heard::Nothing as u8 {
            return;
        }
        if said == Heard::Http1 as u8 {
            std::future::pending::<()>().await;
        }
        if outbox.is_stalled(WRITE_TIME) || outbox.is_idle(IDLE_TIME) {
            return;
        }
    }
}
