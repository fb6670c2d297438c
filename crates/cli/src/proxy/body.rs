//! Bodies on their way. They stream: a part is read from one side when the other side takes it.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use politely::layer::Replay;
use tokio::time::{Sleep, sleep};

use super::problem::Problem;

type Polled = Poll<Option<Result<Frame<Bytes>, CallerGone>>>;
pub(super) type BoxError = Box<dyn Error + Send + Sync>;
/// The body of an answer.
pub(super) type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// The longest body that is kept to be sent again, in bytes. Waiting requests hold it in memory.
const KEPT_MAX: u64 = 256 << 10;
/// The longest pause of a caller in its body, until the request is answered.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The longest wait for a host to ask for an expected body. Some hosts never ask.
const ASKED_MAX: Duration = Duration::from_secs(1);

/// The body of a request.
pub(super) enum Sent {
    /// A short body, which came before the request waits.
    Kept(Option<Bytes>, Option<Box<HeaderMap>>),
    /// A body whose beginning is read while its request waits, and the rest when it is sent.
    Stream(Stream),
}

/// A body that two sides read: the wait, so that a caller that leaves is noticed, then the request.
#[derive(Clone)]
pub(super) struct Stream(Arc<Mutex<Early>>);

struct Early {
    /// The body, unless the host answered without it.
    body: Option<UnsyncBoxBody<Bytes, CallerGone>>,
    /// The part that was read during the wait.
    bytes: BytesMut,
    trailers: Option<Box<HeaderMap>>,
    is_whole: bool,
    is_sent: bool,
    is_answered: bool,
    broken: Option<CallerGone>,
    /// The end of the caller's pause.
    pause: Option<Pin<Box<Sleep>>>,
    expected: Expected,
}

/// The answer that a caller awaits before it sends its body (RFC 9110, section 10.1.1).
enum Expected {
    Nothing,
    /// The host is to ask for the body, within a time after the head was sent.
    Asking(Option<Pin<Box<Sleep>>>, Option<Waker>),
}

/// Copies bodies that are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept;

/// Why a request was not sent whole.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum CallerGone {
    #[error("the caller broke off its request")]
    Left,
    #[error("no byte of the request's body came for {} s", PAUSE_MAX.as_secs())]
    Slow,
}

/// Returns a body with these bytes.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Answer {
    let never = |never: std::convert::Infallible| match never {};
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

impl Stream {
    fn new<B>(body: B, is_expected: bool) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        Self(Arc::new(Mutex::new(Early {
            body: Some(body.map_err(|_| CallerGone::Left).boxed_unsync()),
            bytes: BytesMut::new(),
            trailers: None,
            is_whole: false,
            is_sent: false,
            is_answered: false,
            broken: None,
            pause: None,
            expected: if is_expected {
                Expected::Asking(None, None)
            } else {
                Expected::Nothing
            },
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Early> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the caller broke off its body. The host is not at fault then.
    pub(super) fn broken(&self) -> Option<CallerGone> {
        self.lock().broken
    }

    /// Returns whether the body is sent only when it is asked for.
    pub(super) fn is_expected(&self) -> bool {
        matches!(self.lock().expected, Expected::Asking(..))
    }

    /// Reads up to [`KEPT_MAX`] until the request is sent. Returns only if the body breaks off.
    pub(super) async fn breaks_off(&self) -> CallerGone {
        if self.is_expected() {
            // A body that is still to be asked for is not read before its request may leave.
            return std::future::pending().await;
        }
        poll_fn(|cx| match self.lock().poll_early(cx) {
            Poll::Ready(Err(gone)) => Poll::Ready(gone),
            _ => Poll::Pending,
        })
        .await
    }

    /// Lets an expected body pass, since the host asked for it.
    pub(super) fn ask(&self) {
        let before = std::mem::replace(&mut self.lock().expected, Expected::Nothing);
        if let Expected::Asking(_, Some(waker)) = before {
            waker.wake();
        }
    }

    /// Notes that the host answered. A body that was not asked for is never sent.
    pub(super) fn answered(&self) {
        let mut early = self.lock();
        early.is_answered = true;
        if matches!(early.expected, Expected::Asking(..)) {
            early.body = None;
        }
    }
}

impl Early {
    /// Reads until the body is whole, or as long as is kept.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallerGone>> {
        while !self.is_sent && !self.is_whole && (self.bytes.len() as u64) < KEPT_MAX {
            match ready!(self.poll_rest(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(part) => self.bytes.extend_from_slice(&part),
                    Err(frame) => self.trailers = frame.into_trailers().ok().map(Box::new),
                },
                Some(Err(gone)) => return Poll::Ready(Err(gone)),
                None => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(body) = &mut self.body else {
            return Poll::Pending;
        };
        let polled = Pin::new(body).poll_frame(cx);
        if polled.is_pending() && !self.is_answered {
            let pause = || Box::pin(sleep(PAUSE_MAX));
            ready!(self.pause.get_or_insert_with(pause).as_mut().poll(cx));
            self.broken = Some(CallerGone::Slow);
            return Poll::Ready(Some(Err(CallerGone::Slow)));
        }
        let frame = ready!(polled);
        self.pause = None;
        self.is_whole |= frame.is_none();
        if let Some(Err(gone)) = &frame {
            self.broken = Some(*gone);
        }
        Poll::Ready(frame)
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Polled {
        self.is_sent = true;
        if let Expected::Asking(asked, waker) = &mut self.expected {
            *waker = Some(cx.waker().clone());
            let asked = asked.get_or_insert_with(|| Box::pin(sleep(ASKED_MAX)));
            ready!(asked.as_mut().poll(cx));
            self.expected = Expected::Nothing;
        }
        if !self.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.bytes.split().freeze()))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        if self.is_whole {
            return Poll::Ready(None);
        }
        self.poll_rest(cx)
    }
}

impl Sent {
    /// Keeps the body of `request` if it is short, so that it can be sent again. An expected body
    /// is not kept, since it comes after the request has left.
    pub(super) async fn of<B>(
        request: Request<B>,
        is_expected: bool,
    ) -> Result<Request<Self>, Problem>
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let (mut head, body) = request.into_parts();
        let length = body.size_hint().exact();
        let stream = Stream::new(body, is_expected);
        if !is_expected && length.is_some_and(|length| length <= KEPT_MAX) {
            let whole = poll_fn(|cx| stream.lock().poll_early(cx)).await;
            whole.map_err(|gone| Problem::of(&gone.into()))?;
            let mut early = stream.lock();
            let kept = Self::Kept(Some(early.bytes.split().freeze()), early.trailers.take());
            return Ok(Request::from_parts(head, kept));
        }
        if length.is_none() {
            // hyper sends a GET or HEAD without a body unless its coding is stated.
            head.headers.remove(CONTENT_LENGTH);
            let chunked = HeaderValue::from_static("chunked");
            head.headers.insert(TRANSFER_ENCODING, chunked);
        }
        Ok(Request::from_parts(head, Self::Stream(stream)))
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
    type Error = CallerGone;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        Poll::Ready(match self.get_mut() {
            Self::Kept(bytes, trailers) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                let frame = bytes.map(Frame::data);
                frame
                    .or_else(|| trailers.take().map(|trailers| Frame::trailers(*trailers)))
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
                let rest = early
                    .body
                    .as_ref()
                    .and_then(|body| body.size_hint().exact());
                let all = rest.map(|rest| rest + early.bytes.len() as u64);
                all.map(SizeHint::with_exact).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of one part, which never ends.
    struct Stalled(Option<Bytes>, u64);

    impl Body for Stalled {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let part = self.0.take().map(|part| Some(Ok(Frame::data(part))));
            part.map_or(Poll::Pending, Poll::Ready)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.1)
        }
    }

    fn stalled(length: u64) -> Request<Stalled> {
        Request::new(Stalled(Some(Bytes::from_static(b"abc")), length))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_pauses_for_a_minute_ends_its_request() {
        let short = Sent::of(stalled(10), false).await;
        assert!(short.is_err());
        let long = Sent::of(stalled(KEPT_MAX + 1), false).await.unwrap();
        let Sent::Stream(stream) = long.into_body() else {
            panic!("it is too long to be kept")
        };
        assert!(matches!(stream.breaks_off().await, CallerGone::Slow));
        assert!(stream.broken().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_pause_once_its_request_is_answered() {
        let long = Sent::of(stalled(KEPT_MAX + 1), false).await.unwrap();
        let Sent::Stream(stream) = long.into_body() else {
            panic!("it is too long to be kept")
        };
        stream.answered();
        let mut body = Sent::Stream(stream);
        assert!(body.frame().await.unwrap().is_ok());
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, body.frame()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_expected_body_waits_until_it_is_asked_for_or_for_a_second() {
        for asks in [true, false] {
            let request = Sent::of(stalled(10), true).await.unwrap();
            let Sent::Stream(stream) = request.into_body() else {
                panic!("an expected body is not kept")
            };
            let mut body = Sent::Stream(stream.clone());
            let early = tokio::time::timeout(ASKED_MAX / 2, body.frame()).await;
            assert!(early.is_err());
            if asks {
                stream.ask();
            }
            let came = tokio::time::timeout(ASKED_MAX, body.frame()).await;
            assert!(came.unwrap().unwrap().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_expected_body_is_not_sent_to_a_host_that_answered() {
        let request = Sent::of(stalled(10), true).await.unwrap();
        let Sent::Stream(stream) = request.into_body() else {
            panic!("an expected body is not kept")
        };
        stream.answered();
        let mut body = Sent::Stream(stream);
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, body.frame()).await.is_err());
    }
}
