//! Bodies on their way. They stream: a part is read from one side when the other side takes it.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use politely::layer::Replay;

use super::problem::Problem;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;
/// The body of an answer.
pub(super) type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// The longest body that is kept to be sent again, in bytes. Waiting requests hold it in memory.
const KEPT_MAX: u64 = 256 << 10;

/// The body of a request.
pub(super) enum Sent {
    /// A short body, which came before the request waits.
    Kept(Option<Bytes>, Option<HeaderMap>),
    /// A body that is read when its request has been sent.
    Stream(Incoming, Broken),
}

/// Whether the caller broke off its body. The host is not at fault then.
#[derive(Clone, Debug, Default)]
pub(super) struct Broken(Arc<AtomicBool>);

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

impl Broken {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Sent {
    /// Keeps the body of `request` if it is short, so that it can be sent again.
    pub(super) async fn of(request: Request<Incoming>) -> Result<Request<Self>, Problem> {
        let (head, body) = request.into_parts();
        let length = body.size_hint().exact();
        let body = if length.is_some_and(|length| length <= KEPT_MAX) {
            let kept = body.collect().await;
            let kept = kept.map_err(|_| Problem::bad("the body of the request broke off"))?;
            let trailers = kept.trailers().cloned();
            Self::Kept(Some(kept.to_bytes()), trailers)
        } else {
            Self::Stream(body, Broken::default())
        };
        Ok(Request::from_parts(head, body))
    }
}

impl Replay<Sent> for Kept {
    fn replay(body: &Sent) -> Option<Sent> {
        match body {
            Sent::Kept(bytes, trailers) => Some(Sent::Kept(bytes.clone(), trailers.clone())),
            Sent::Stream(..) => None,
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Poll::Ready(match self.get_mut() {
            Self::Kept(bytes, trailers) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                let frame = bytes.map(Frame::data);
                frame
                    .or_else(|| trailers.take().map(Frame::trailers))
                    .map(Ok)
            }
            Self::Stream(body, broken) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if matches!(frame, Some(Err(_))) {
                    broken.0.store(true, Ordering::Relaxed);
                }
                frame
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Kept(bytes, trailers) => {
                bytes.as_ref().is_none_or(Bytes::is_empty) && trailers.is_none()
            }
            Self::Stream(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Kept(bytes, _) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Stream(body, _) => body.size_hint(),
        }
    }
}
