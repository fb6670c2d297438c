//! Bodies on their way. They stream: a part is read from one side when the other side takes it.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use politely::layer::Replay;

use super::problem::Problem;

type Polled = Poll<Option<Result<Frame<Bytes>, hyper::Error>>>;
pub(super) type BoxError = Box<dyn Error + Send + Sync>;
/// The body of an answer.
pub(super) type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// The longest body that is kept to be sent again, in bytes. Waiting requests hold it in memory.
const KEPT_MAX: u64 = 256 << 10;

/// The body of a request.
pub(super) enum Sent {
    /// A short body, which came before the request waits.
    Kept(Option<Bytes>, Option<HeaderMap>),
    /// A body whose beginning is read while its request waits, and the rest when it is sent.
    Stream(Stream),
}

/// A body that two sides read: the wait, so that a caller that leaves is noticed, then the request.
#[derive(Clone)]
pub(super) struct Stream(Arc<Mutex<Early>>);

struct Early {
    body: Incoming,
    /// The part that was read during the wait.
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
    is_whole: bool,
    is_sent: bool,
    is_broken: bool,
}

/// Copies bodies that are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept;

/// Why a request was not sent whole.
#[derive(Debug, thiserror::Error)]
#[error("the caller broke off its request")]
pub(super) struct CallerGone;

/// Returns a body with these bytes.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Answer {
    let never = |never: std::convert::Infallible| match never {};
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

impl Stream {
    fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(Early {
            body,
            bytes: BytesMut::new(),
            trailers: None,
            is_whole: false,
            is_sent: false,
            is_broken: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Early> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the caller broke off its body. The host is not at fault then.
    pub(super) fn is_broken(&self) -> bool {
        self.lock().is_broken
    }

    /// Reads up to [`KEPT_MAX`] until the request is sent. Returns only if the body breaks off.
    pub(super) async fn breaks_off(&self) {
        poll_fn(|cx| self.lock().poll_early(cx)).await;
    }
}

impl Early {
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_sent && !self.is_whole && (self.bytes.len() as u64) < KEPT_MAX {
            match ready!(self.poll_rest(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(part) => self.bytes.extend_from_slice(&part),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Some(Err(_)) => return Poll::Ready(()),
                None => {}
            }
        }
        Poll::Pending
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Polled {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.is_whole |= frame.is_none();
        self.is_broken |= matches!(frame, Some(Err(_)));
        Poll::Ready(frame)
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Polled {
        self.is_sent = true;
        if !self.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.bytes.split().freeze()))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if self.is_whole {
            return Poll::Ready(None);
        }
        self.poll_rest(cx)
    }
}

impl Sent {
    /// Keeps the body of `request` if it is short, so that it can be sent again.
    pub(super) async fn of(request: Request<Incoming>) -> Result<Request<Self>, Problem> {
        let (mut head, body) = request.into_parts();
        let length = body.size_hint().exact();
        let body = if length.is_some_and(|length| length <= KEPT_MAX) {
            let kept = body.collect().await;
            let kept = kept.map_err(|_| Problem::bad("the body of the request broke off"))?;
            let trailers = kept.trailers().cloned();
            Self::Kept(Some(kept.to_bytes()), trailers)
        } else {
            if length.is_none() {
                // hyper sends a GET or HEAD without a body unless its coding is stated.
                head.headers.remove(CONTENT_LENGTH);
                let chunked = HeaderValue::from_static("chunked");
                head.headers.insert(TRANSFER_ENCODING, chunked);
            }
            Self::Stream(Stream::new(body))
        };
        Ok(Request::from_parts(head, body))
    }
}

impl Replay<Sent> for Kept {
    fn replay(body: &Sent) -> Option<Sent> {
        match body {
            Sent::Kept(bytes, trailers) => Some(Sent::Kept(bytes.clone(), trailers.clone())),
            Sent::Stream(stream) => {
                let early = stream.lock();
                let kept =
                    || Sent::Kept(Some(early.bytes.clone().freeze()), early.trailers.clone());
                (early.is_whole && !early.is_sent).then(kept)
            }
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        Poll::Ready(match self.get_mut() {
            Self::Kept(bytes, trailers) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                let frame = bytes.map(Frame::data);
                frame
                    .or_else(|| trailers.take().map(Frame::trailers))
                    .map(Ok)
            }
            Self::Stream(stream) => ready!(stream.lock().poll_sent(cx)),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Kept(bytes, trailers) => {
                bytes.as_ref().is_none_or(Bytes::is_empty) && trailers.is_none()
            }
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Kept(bytes, _) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Stream(stream) => {
                let early = stream.lock();
                let rest = early.body.size_hint().exact();
                let all = rest.map(|rest| rest + early.bytes.len() as u64);
                all.map(SizeHint::with_exact).unwrap_or_default()
            }
        }
    }
}
