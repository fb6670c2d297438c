//! The connections of callers: HTTP/1.1 and HTTP/2 without TLS.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::caller::Caller;
use super::forward::Proxy;
use crate::service_manager;

/// The time for a request's head.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes.
const HEAD_MAX: u32 = 64 << 10;
/// The bytes that a caller may send on one HTTP/2 stream before they are passed on.
const STREAM_WINDOW: u32 = 512 << 10;
/// The time for requests in flight when the proxy ends.
const FINISH_TIME: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, because no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Answers requests until `ended`. Then waiting requests end at once, and those in flight have
/// [`FINISH_TIME`].
pub(super) async fn serve(
    listener: TcpListener,
    proxy: Arc<Proxy>,
    ended: impl Future<Output = ()>,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .keep_alive_interval(Some(HEAD_TIME));
    let connections = GracefulShutdown::new();
    let mut ended = pin!(ended);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut ended => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // The parts of a stream must not wait for an acknowledgement of the part before.
        let _ = stream.set_nodelay(true);
        let Ok(own) = stream.local_addr() else {
            continue;
        };
        let proxy = Arc::clone(&proxy);
        let service = service_fn(move |request: Request<Incoming>| {
            let proxy = Arc::clone(&proxy);
            // hyper keeps the memory of the future as long as the connection.
            Box::pin(async move { Ok::<_, Infallible>(proxy.answer(request, own).await) })
        });
        let caller = Caller::new(stream);
        let stream = TokioIo::new(caller.clone());
        let connection = builder.serve_connection_with_upgrades(stream, service);
        let connection = connections.watch(connection.into_owned());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // An error closes the connection, and the caller needs no other notice.
                _ = connection => {}
                () = caller.left() => {}
            }
        });
    }
    service_manager::tell_stopping();
    drop(listener);
    proxy.limiter.close();
    let _ = timeout(FINISH_TIME, connections.shutdown()).await;
    proxy.limiter.flush(FINISH_TIME).await;
}
