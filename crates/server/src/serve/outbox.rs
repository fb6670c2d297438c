//! Answers that an HTTP/2 peer has not read yet.
//!
//! A peer that opens no flow-control window does not block writes of the socket, so a time-out of
//! writes does not detect it. The outbox of a connection tracks each answer and each chunk that
//! waits for the peer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hashbrown::HashMap;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest chunk that is handed to HTTP/2 at a time, in bytes.
const CHUNK: usize = 16 << 10;

/// The data that waits for the peer of one connection.
pub(super) struct Outbox(Mutex<State>);

struct State {
    next: u64,
    /// The time at which each ticket was created.
    waiting: HashMap<u64, Instant, foldhash::fast::RandomState>,
    /// The bytes of all unfinished answers.
    bytes: u64,
    /// The number of unfinished calls and answers.
    open: usize,
    /// The time at which the last call or answer ended.
    idle_since: Instant,
}

/// An answer or a chunk that waits for the peer, until it is dropped.
struct Ticket {
    outbox: Arc<Outbox>,
    id: u64,
}

/// A call and its answer, until it is dropped.
pub(super) struct Open {
    outbox: Arc<Outbox>,
    bytes: u64,
}

impl Outbox {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            next: 0,
            waiting: HashMap::default(),
            bytes: 0,
            open: 0,
            idle_since: Instant::now(),
        })))
    }

    /// Returns the bytes of all answers that the peer has not read.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// Returns whether an answer or a chunk has waited for the peer for longer than `limit`.
    pub(super) fn is_stalled(&self, limit: Duration) -> bool {
        let state = self.0.lock();
        state.waiting.values().any(|since| since.elapsed() > limit)
    }

    /// Returns whether there was no call and no answer for longer than `limit`.
    pub(super) fn is_idle(&self, limit: Duration) -> bool {
        let state = self.0.lock();
        state.open == 0 && state.idle_since.elapsed() > limit
    }

    /// Registers a call.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.0.lock().open += 1;
        Open {
            outbox: Arc::clone(self),
            bytes: 0,
        }
    }

    fn ticket(self: &Arc<Self>) -> Ticket {
        let mut state = self.0.lock();
        let id = state.next;
        state.next += 1;
        state.waiting.insert(id, Instant::now());
        Ticket {
            outbox: Arc::clone(self),
            id,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.outbox.0.lock().waiting.remove(&self.id);
    }
}

impl Open {
    /// Tracks `response` until the peer has read it.
    pub(super) fn follow(mut self, response: Response) -> Response {
        let bytes = response.body().size_hint().lower();
        self.bytes = bytes;
        self.outbox.0.lock().bytes += bytes;
        let unread = Some(self.outbox.ticket());
        response.map(|body| {
            Body::new(Followed {
                body,
                rest: Bytes::new(),
                unread,
                open: self,
            })
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.outbox.0.lock();
        state.bytes = state.bytes.saturating_sub(self.bytes);
        state.open = state.open.saturating_sub(1);
        state.idle_since = Instant::now();
    }
}

/// An answer in chunks. The ticket of a chunk ends when HTTP/2 has sent the chunk.
struct Followed {
    body: Body,
    /// The part of the current frame that was not handed over yet.
    rest: Bytes,
    /// The ticket for the time in which HTTP/2 could ask for a chunk and does not.
    unread: Option<Ticket>,
    open: Open,
}

/// A chunk that HTTP/2 holds until it is sent.
struct Chunk {
    bytes: Bytes,
    _ticket: Ticket,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                // The answer waits for the coordinator, or has ended. Neither is the peer's fault.
                other => {
                    self.unread = None;
                    return other;
                }
            }
        }
        let length = self.rest.len().min(CHUNK);
        let bytes = self.rest.split_to(length);
        let outbox = Arc::clone(&self.open.outbox);
        let chunk = Chunk {
            bytes,
            _ticket: outbox.ticket(),
        };
        self.unread = Some(outbox.ticket());
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_is_seen_at_each_stage() {
        let outbox = Outbox::new();
        let response = Response::new(Body::from(vec![7; CHUNK + 1]));
        let mut body = outbox.open().follow(response).into_body();
        let stalls = async || {
            assert!(!outbox.is_stalled(LIMIT));
            tokio::time::advance(LIMIT * 2).await;
            outbox.is_stalled(LIMIT)
        };
        assert!(stalls().await, "nothing was asked for");
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), outbox.bytes()), (CHUNK, CHUNK as u64 + 1));
        assert!(stalls().await, "the first chunk was not sent");
        let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(first);
        assert_eq!(second.len(), 1);
        assert!(body.is_end_stream());
        drop(body);
        assert!(stalls().await, "the last chunk was not sent");
        drop(second);
        assert!(!stalls().await && outbox.is_idle(LIMIT));
        assert_eq!(outbox.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_without_news_does_not_stall() {
        let outbox = Outbox::new();
        let silent = futures_util::stream::pending::<Result<Bytes, axum::Error>>();
        let response = Response::new(Body::from_stream(silent));
        let mut body = outbox.open().follow(response).into_body();
        let asked = tokio::time::timeout(LIMIT * 2, body.frame()).await;
        assert!(asked.is_err() && !outbox.is_stalled(LIMIT));
        assert!(!outbox.is_idle(LIMIT), "the stream is open");
    }
}
