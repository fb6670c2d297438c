//! The body of a response, which holds its request's in-flight slots until it has arrived.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use politely_core::signal::BODY_SCANNED;

use crate::permit::{RENEW_PAUSE_MIN, RENEWALS};
use crate::slot::Slot;
use crate::sync::{sleep, timer};

/// The longest time that the start of a body is read before the response is judged. It bounds the
/// wait for a server that sends a refusal byte by byte.
const START_TAKES_MAX: Duration = Duration::from_secs(2);

/// A body that holds its request's in-flight slots. They are freed when the body ends, breaks or is
/// dropped.
///
/// The keys' byte budgets are charged with the bytes of this body. These are decoded bytes if the
/// client decodes. Estimated tokens are settled by the usage that passes.
pub struct PacedBody<B: Body> {
    inner: Pin<Box<B>>,
    /// Frames that were read ahead to tell block pages from refusals.
    ahead: VecDeque<Result<Frame<B::Data>, B::Error>>,
    slot: Option<Slot>,
    /// The time of the next renewal, once the body made its reader wait.
    renewal: Option<Pin<Box<tokio::time::Sleep>>>,
}

// The boxes are the only fields that are pinned, so moving `PacedBody` is sound.
impl<B: Body> Unpin for PacedBody<B> {}

impl<B: Body> Body for PacedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = &mut *self;
        let frame = if let Some(frame) = this.ahead.pop_front() {
            Some(frame)
        } else if let Poll::Ready(frame) = this.inner.as_mut().poll_frame(cx) {
            frame
        } else {
            this.renew_while_idle(cx);
            return Poll::Pending;
        };
        if let (Some(Ok(frame)), Some(slot)) = (&frame, &mut this.slot)
            && let Some(data) = frame.data_ref()
        {
            slot.read(data.chunk(), data.remaining());
        }
        if !matches!(frame, Some(Ok(_))) || this.is_end_stream() {
            this.slot = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead: u64 = self
            .ahead
            .iter()
            .flatten()
            .filter_map(Frame::data_ref)
            .map(|data| data.remaining() as u64)
            .sum();
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint.set_lower(inner.lower().saturating_add(ahead));
        hint
    }
}

impl<B: Body> PacedBody<B> {
    /// Renews the leases whenever a part of them has passed: an idle stream holds its slot.
    fn renew_while_idle(&mut self, cx: &mut Context<'_>) {
        let Some(slot) = &mut self.slot else { return };
        loop {
            if let Some(renewal) = &mut self.renewal
                && renewal.as_mut().poll(cx).is_pending()
            {
                return;
            }
            self.renewal = None;
            let Some(lasts) = slot.renew() else { return };
            let pause = (lasts / RENEWALS).max(RENEW_PAUSE_MIN);
            self.renewal = Some(Box::pin(timer(pause)));
        }
    }
}

impl<B: Body> fmt::Debug for PacedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedBody")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// A body whose beginning can be read before its response is judged.
pub(crate) struct Peeked<B: Body> {
    body: PacedBody<B>,
    start: Vec<u8>,
}

impl<B: Body> Peeked<B> {
    pub(crate) fn new(body: B) -> Self {
        Self {
            body: PacedBody {
                inner: Box::pin(body),
                ahead: VecDeque::new(),
                slot: None,
                renewal: None,
            },
            start: Vec::new(),
        }
    }

    /// Reads up to [`BODY_SCANNED`] bytes ahead, for at most [`START_TAKES_MAX`]. Cancel-safe.
    pub(crate) async fn read_start(&mut self) {
        tokio::select! {
            biased;
            () = self.read_ahead() => {}
            () = sleep(START_TAKES_MAX) => {}
        }
    }

    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    pub(crate) fn holding(mut self, slot: Slot) -> PacedBody<B> {
        // The body of a HEAD or a 304 is not read to its end. Some bodies report that they are
        // empty only through their size.
        let empty = self.body.is_end_stream() || self.body.size_hint().exact() == Some(0);
        self.body.slot = (!empty).then_some(slot);
        self.body
    }

    async fn read_ahead(&mut self) {
        while self.start.len() < BODY_SCANNED {
            let inner = &mut self.body.inner;
            let Some(frame) = std::future::poll_fn(|cx| inner.as_mut().poll_frame(cx)).await else {
                return;
            };
            if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                let room = BODY_SCANNED - self.start.len();
                let chunk = data.chunk();
                self.start
                    .extend_from_slice(&chunk[..chunk.len().min(room)]);
            }
            let broken = frame.is_err();
            self.body.ahead.push_back(frame);
            if broken {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::{Key, Limiter, Report, Signal};

    #[tokio::test]
    async fn a_body_looked_into_is_read_from_its_start() {
        let mut peeked = Peeked::new(Full::new(Bytes::from_static(b"hello")));
        peeked.read_start().await;
        assert_eq!(peeked.start(), b"hello");
        let limiter = Limiter::builder().build().unwrap();
        let key = Key::host("a.example").unwrap();
        let permit = limiter.acquire(&key).await.unwrap();
        let (_, slot) = permit.report_head(&Report::of(Signal::Ok));
        let in_flight = || limiter.explain(&key).unwrap().in_flight.0;
        let body = peeked.holding(slot);
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(in_flight(), 1, "the slot is held");
        let whole = body.collect().await.unwrap().to_bytes();
        assert_eq!(&whole[..], b"hello");
        assert_eq!(in_flight(), 0, "until the end");
    }

    #[tokio::test]
    async fn a_dropped_body_frees_its_slot() {
        let limiter = Limiter::builder().build().unwrap();
        let key = Key::host("a.example").unwrap();
        let permit = limiter.acquire(&key).await.unwrap();
        let (_, slot) = permit.report_head(&Report::of(Signal::Ok));
        drop(Peeked::new(Full::new(Bytes::from_static(b"hello"))).holding(slot));
        let tally = limiter.explain(&key).unwrap().tally;
        assert_eq!((tally.granted, tally.reported, tally.live), (1, 1, 0));
    }

    #[tokio::test]
    async fn an_empty_body_holds_nothing() {
        let limiter = Limiter::builder().build().unwrap();
        let key = Key::host("a.example").unwrap();
        let permit = limiter.acquire(&key).await.unwrap();
        let (_, slot) = permit.report_head(&Report::of(Signal::Ok));
        let body: PacedBody<http_body_util::Empty<Bytes>> =
            Peeked::new(http_body_util::Empty::new()).holding(slot);
        assert_eq!(limiter.explain(&key).unwrap().in_flight.0, 0);
        drop(body);
    }

    struct Dripping;

    impl Body for Dripping {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_idle_for_longer_than_its_lease_keeps_its_slot() {
        let clock = crate::Clock::tokio();
        let limiter = Limiter::builder().clock(clock).build().unwrap();
        let key = Key::host("a.example").unwrap();
        let permit = limiter.acquire(&key).await.unwrap();
        let (_, slot) = permit.report_head(&Report::of(Signal::Ok));
        let mut body = Peeked::new(Dripping).holding(slot);
        let hour = Duration::from_hours(1);
        let idle = tokio::time::timeout(hour, body.frame()).await;
        assert!(idle.is_err());
        let tally = || limiter.explain(&key).unwrap().tally;
        assert_eq!((tally().live, tally().expired), (1, 0));
        drop(body);
        assert_eq!((tally().live, tally().expired), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_never_ends_is_judged_all_the_same() {
        let mut peeked = Peeked::new(Dripping);
        peeked.read_start().await;
        assert_eq!(peeked.start(), b"");
    }
}
