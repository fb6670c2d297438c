//! Connections beyond a cap: each is answered with the reason and closed.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// The most connections that are answered at a time. More are closed without an answer.
const TOLD_MAX: usize = 64;
/// The time for the peer to read the answer.
const TELL_TIME: Duration = Duration::from_secs(1);

/// Tells peers why their connections are refused.
pub(super) struct Refusals(Arc<Semaphore>);

impl Refusals {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(TOLD_MAX)))
    }

    /// Answers 503 with `detail`, in a task of its own. A TLS connection is closed without an
    /// answer, because its peer could not read a plain one.
    pub(super) fn refuse(&self, stream: TcpStream, detail: String, secure: bool) {
        let Ok(place) = Arc::clone(&self.0).try_acquire_owned() else {
            return;
        };
        if secure {
            return;
        }
        tokio::spawn(async move {
            let _ = tokio::time::timeout(TELL_TIME, tell(stream, &detail)).await;
            drop(place);
        });
    }
}

async fn tell(mut stream: TcpStream, detail: &str) -> std::io::Result<()> {
    let body = serde_json::json!({
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": detail,
    });
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
         retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing a socket with unread bytes resets the connection, and the peer would lose the answer.
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}
