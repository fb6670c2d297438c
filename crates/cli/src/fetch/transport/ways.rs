//! The transports of requests: directly, or through a proxy.
//!
//! The direct transport is hyper's own pooled client, with the connector that reqwest would give
//! it. Reqwest around it costs as much CPU time per page as all of HTTP (measured: 6 of 20 us).
//! Proxies are rare and have many dialects, so they use reqwest. Both tolerate the malformed header
//! lines that browsers tolerate, with the same settings.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use politely::attempts::{Unprocessed, unprocessed};
use politely::coding::ACCEPTED;
use rustls_platform_verifier::ConfigVerifierExt;
use tower_service::Service;
use url::Url;

use super::client::innermost;
use super::connection::{Noted, Use};
use crate::config::Settings;
use crate::exit::Wrong;

/// One transport, with the connections it keeps.
pub(super) enum Way {
    Direct {
        client: Box<Client<Connector, Empty<Bytes>>>,
        /// The header fields of every request.
        headers: HeaderMap,
    },
    Proxied {
        client: reqwest::Client,
        /// Whether the client keeps connections, so that one of them may be stale.
        keeps: bool,
    },
}

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a transport has no answer.
pub(super) struct Lost {
    pub(super) why: BoxError,
    /// Whether the error allows to repeat the request at once. A closed connection counts only if
    /// it was kept.
    pub(super) unprocessed: Option<Unprocessed>,
}

/// The versions of HTTP that a transport uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Versions {
    All,
    /// HTTP/1.1 only, for origins that answered `HTTP_1_1_REQUIRED`.
    Http1,
}

/// A body as it arrives, still encoded.
pub(super) type Coming = Either<Incoming, reqwest::Body>;

/// The maximum time to connect. A slower connection is not worth its slot.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The time between two probes of an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The number of unanswered probes after which the connection counts as lost.
const KEEPALIVE_PROBES: u32 = 3;
/// The maximum number of header fields of one answer; hyper's default is 100.
const HEADER_FIELDS_MAX: usize = 1000;
/// The maximum size of an answer's head, in bytes, as in Chromium.
const HEAD_MAX: u32 = 256 * 1024;

impl Way {
    /// Returns a transport through `proxy`, or directly, with up to `keep` idle connections per
    /// host.
    pub(super) fn new(
        settings: &Settings,
        proxy: Option<&str>,
        keep: usize,
        versions: Versions,
    ) -> Result<Self, Wrong> {
        let wrong = |why: &dyn Error| Wrong::no_client(&innermost(why));
        let connect_max = settings.timeout.min(CONNECT_MAX);
        if let Some(proxy) = proxy {
            let accepted = HeaderValue::from_static(ACCEPTED);
            let mut client = politely::middleware::lenient(reqwest::Client::builder())
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(&settings.user_agent)
                .connect_timeout(connect_max)
                .pool_max_idle_per_host(keep)
                .no_gzip()
                .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, accepted)]))
                .no_proxy();
            if versions == Versions::Http1 {
                client = client.http1_only();
            }
            let client = reqwest::Proxy::all(proxy).and_then(|proxy| client.proxy(proxy).build());
            let client = client.map_err(|why| wrong(&why))?;
            let keeps = keep > 0;
            return Ok(Self::Proxied { client, keeps });
        }
        let tls = rustls::ClientConfig::with_platform_verifier().map_err(|why| wrong(&why))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_max));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        let inner = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        let inner = match versions {
            Versions::All => inner.enable_all_versions().wrap_connector(tcp),
            Versions::Http1 => inner.enable_http1().wrap_connector(tcp),
        };
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(keep)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_ignore_invalid_headers_in_responses(true)
            .http1_max_headers(HEADER_FIELDS_MAX)
            .http1_max_buf_size(HEAD_MAX as usize)
            .http2_max_header_list_size(HEAD_MAX)
            .build(Connector { inner, connect_max });
        let client = Box::new(client);
        let agent = HeaderValue::from_str(&settings.user_agent).map_err(|why| wrong(&why))?;
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("*/*")),
            (ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED)),
            (USER_AGENT, agent),
        ]);
        Ok(Self::Direct { client, headers })
    }

    /// Sends a GET for `url` with `cookies`. Returns when the head of the answer has arrived.
    pub(super) async fn get(
        &self,
        url: &Url,
        cookies: Option<HeaderValue>,
    ) -> Result<Response<Coming>, Lost> {
        match self {
            Self::Direct { client, headers } => {
                let mut request = request(url, headers, cookies).map_err(Lost::before)?;
                let connection = capture_connection(&mut request);
                match client.request(request).await {
                    Ok(answer) => {
                        if let Some(used) = answer.extensions().get::<Use>() {
                            used.answered();
                        }
                        Ok(answer.map(Either::Left))
                    }
                    Err(why) => {
                        let unprocessed = unprocessed(&why);
                        let mut noted = http::Extensions::new();
                        if let Some(connected) = &*connection.connection_metadata() {
                            connected.get_extras(&mut noted);
                        }
                        let stale = noted.get().is_some_and(Use::is_stale);
                        let closed = Some(Unprocessed::Closed);
                        Err(Lost {
                            unprocessed: unprocessed.filter(|_| stale || unprocessed != closed),
                            why: why.into(),
                        })
                    }
                }
            }
            Self::Proxied { client, keeps } => {
                let mut request = client.get(url.clone());
                if let Some(cookies) = cookies {
                    request = request.header(COOKIE, cookies);
                }
                match request.send().await {
                    Ok(answer) => Ok(Response::from(answer).map(Either::Right)),
                    Err(why) => {
                        let unprocessed = unprocessed(&why);
                        let closed = Some(Unprocessed::Closed);
                        Err(Lost {
                            unprocessed: unprocessed.filter(|_| *keeps || unprocessed != closed),
                            why: why.into(),
                        })
                    }
                }
            }
        }
    }
}

impl Lost {
    /// Returns the error for a request that was not sent.
    fn before(why: BoxError) -> Self {
        Self {
            why,
            unprocessed: None,
        }
    }
}

fn request(
    url: &Url,
    headers: &HeaderMap,
    cookies: Option<HeaderValue>,
) -> Result<Request<Empty<Bytes>>, BoxError> {
    let mut request = Request::new(Empty::new());
    let uri = |url: &Url| url.as_str().parse::<Uri>();
    let unusable = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    *request.uri_mut() = uri(url).map_err(unusable)?;
    *request.headers_mut() = headers.clone();
    if !url.username().is_empty() || url.password().is_some() {
        *request.uri_mut() = uri(&without_login(url)).map_err(unusable)?;
        request.headers_mut().insert(AUTHORIZATION, login(url)?);
    }
    if let Some(cookies) = cookies {
        request.headers_mut().insert(COOKIE, cookies);
    }
    Ok(request)
}

fn without_login(url: &Url) -> Url {
    let mut url = url.clone();
    // These calls fail only for URLs without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// Returns the Basic authentication (RFC 7617) with the user and password of `url`.
fn login(url: &Url) -> Result<HeaderValue, BoxError> {
    use base64::Engine as _;
    use percent_encoding::percent_decode_str as decode;

    let mut pair: Vec<u8> = decode(url.username()).collect();
    pair.push(b':');
    pair.extend(decode(url.password().unwrap_or_default()));
    let pair = base64::engine::general_purpose::STANDARD.encode(pair);
    let mut value = HeaderValue::try_from(format!("Basic {pair}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the next part of `body`, or `None` at its end.
pub(super) async fn next(body: &mut Coming) -> Result<Option<Bytes>, BoxError> {
    while let Some(frame) = body.frame().await {
        // Any other frame is trailers.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Resolves the name, connects and shakes hands, all within a time.
#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    connect_max: Duration,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Noted>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.inner.call(to);
        let connect_max = self.connect_max;
        Box::pin(async move {
            let connected = tokio::time::timeout(connect_max, connecting).await;
            match connected {
                Ok(connected) => connected.map(Noted::new),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_the_url_becomes_a_header() {
        let url = Url::parse("http://Aladdin:open%20sesame@a.example:81/x").unwrap();
        // The pair of RFC 7617, section 2.
        let said = login(&url).unwrap();
        assert_eq!(said.to_str().unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(said.is_sensitive());
        assert_eq!(without_login(&url).as_str(), "http://a.example:81/x");
    }
}
