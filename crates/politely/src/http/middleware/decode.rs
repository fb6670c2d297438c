//! Content codings of a reqwest client, requested and undone as in [`mod@crate::coding`].

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{Extensions, HeaderValue};
use http_body::Frame;
use reqwest::{Body, Request, Response};
use reqwest_middleware::{Middleware, Next, Result};

use crate::http::coding::{ACCEPTED, CodingError, Codings, Decoder, Flow};

use super::polite::keep_url;

/// A middleware that requests the codings that this crate can undo, and undoes them. Put it last,
/// so that the other middlewares see decoded bodies. The client must not decode by itself
/// (`no_gzip()` and the like).
///
/// A request with its own `Accept-Encoding` or with a `Range` is not changed, and neither is its
/// response. A response in an unknown coding keeps its head; reading its body is an error. The
/// decoded length has no bound: the reader stops where it wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decode;

#[async_trait]
impl Middleware for Decode {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let is_own = request.headers().contains_key(ACCEPT_ENCODING)
            || request.headers().contains_key(http::header::RANGE);
        let is_head = *request.method() == http::Method::HEAD;
        if is_own {
            return next.run(request, extensions).await;
        }
        let accepted = HeaderValue::from_static(ACCEPTED);
        request.headers_mut().insert(ACCEPT_ENCODING, accepted);
        let response = next.run(request, extensions).await?;
        let codings = Codings::of(response.headers());
        if is_head || codings.as_ref().is_ok_and(Codings::is_identity) {
            return Ok(response);
        }
        let url = response.url().clone();
        let mut response = http::Response::from(response);
        // These headers describe the encoded bytes.
        response.headers_mut().remove(CONTENT_ENCODING);
        response.headers_mut().remove(CONTENT_LENGTH);
        let decoder = codings.map(|codings| Decoder::new(&codings, u64::MAX));
        let response = response.map(|inner| {
            Body::wrap(Decoded {
                inner,
                decoder: Some(decoder),
                ready: BytesMut::new(),
                waiting: Bytes::new(),
            })
        });
        Ok(keep_url(response, url).into())
    }
}

/// A body without its codings.
struct Decoded {
    inner: Body,
    /// The decoder; `None` after the end.
    decoder: Option<std::result::Result<Decoder, CodingError>>,
    ready: BytesMut,
    /// Bytes that have arrived and are not decoded yet.
    waiting: Bytes,
}

/// Number of bytes that are decoded at once. It is small, so that one slice unpacks to little more
/// than a page.
const SLICE: usize = 1024;
/// Maximum number of bytes that one slice may unpack to; more is not a page.
const READY_MAX: usize = 64 << 20;

type BoxError = Box<dyn Error + Send + Sync>;

impl http_body::Body for Decoded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let decoder = match &mut this.decoder {
                None => return Poll::Ready(None),
                Some(Err(unknown)) => {
                    let error = unknown.clone();
                    this.decoder = None;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(decoder)) => decoder,
            };
            let ready = &mut this.ready;
            let mut take = |part: &[u8]| {
                ready.extend_from_slice(part);
                ready.len() <= READY_MAX
            };
            let decoded = if this.waiting.is_empty() {
                match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                    Some(Err(error)) => {
                        this.decoder = None;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    // Trailers describe the encoded bytes too.
                    Some(Ok(frame)) => {
                        this.waiting = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    None => {
                        let ended = decoder.end(&mut take);
                        this.decoder = None;
                        ended
                    }
                }
            } else {
                let slice = this.waiting.split_to(this.waiting.len().min(SLICE));
                decoder.push(&slice, &mut take)
            };
            let decoded = match decoded {
                Ok(Flow::Enough) => Err(CodingError::TooLong),
                decoded => decoded,
            };
            match decoded {
                Err(error) => {
                    this.decoder = None;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Ok(Flow::Over) => this.decoder = None,
                Ok(_) => {}
            }
            if !this.ready.is_empty() {
                let part = this.ready.split().freeze();
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
        }
    }
}
