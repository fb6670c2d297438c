//! The transport of requests: hyper's own pooled client over one route, direct or through a proxy.
//!
//! It tolerates the malformed header lines that browsers tolerate.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, PROXY_AUTHORIZATION,
    USER_AGENT,
};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpInfo, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use politely::attempts::{Unprocessed, unprocessed};
use politely::coding::ACCEPTED;
use politely_api::client::transport::target;
use tokio::time::{Instant, timeout_at};
use tower::Service;

use super::answer::Wire;
use super::call::Call;
use super::connection::{Noted, Use};
use super::proxy::{Proxy, Route};
use super::resolver::{Resolver, Tcp};
use super::trust;
use super::words::innermost;
use crate::config::Settings;
use crate::exit::Wrong;
use crate::fetch::warc::SentHead;

/// One transport, with the connections it keeps.
pub(super) struct Way {
    client: Client<Connector, Full<Bytes>>,
    /// The header fields of every request.
    headers: HeaderMap,
    proxy: Option<Arc<Proxy>>,
    /// Whether answers have the head of their request.
    records: bool,
}

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The head of an answer, and its connection.
pub(super) struct Head {
    pub(super) answer: Response<Incoming>,
    /// The address of the host. A proxy knows it alone.
    pub(super) address: Option<IpAddr>,
    /// How long it took to connect, if the connection is new.
    pub(super) connect: Option<Duration>,
}

impl Head {
    /// Returns how the answer to a request that `began` then came so far.
    pub(super) fn wire(&self, began: std::time::Instant) -> Wire {
        Wire {
            bytes: 0,
            version: self.answer.version(),
            address: self.address,
            connect: self.connect,
            total: began.elapsed(),
        }
    }
}

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
    /// HTTP/1.1 only, for origins that require it or whose HTTP/2 is malformed.
    Http1,
}

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
        resolver: &Resolver,
    ) -> Result<Self, Wrong> {
        let made = Self::made(settings, proxy, keep, versions, resolver);
        made.map_err(|why| Wrong::no_client(&innermost(&*why)))
    }

    fn made(
        settings: &Settings,
        proxy: Option<&str>,
        keep: usize,
        versions: Versions,
        resolver: &Resolver,
    ) -> Result<Self, BoxError> {
        let connect_max = settings.timeout.min(settings.connect.timeout);
        let agent = HeaderValue::from_str(&settings.user_agent)?;
        let tls = trust::tls(&settings.connect)?;
        let mut tcp = Tcp::new_with_resolver(resolver.clone());
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_max));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        let proxy = match proxy {
            None => None,
            Some(url) => {
                let (agent, tcp, tls) = (agent.clone(), tcp.clone(), tls.clone());
                let resolver = resolver.clone();
                Some(Arc::new(Proxy::new(
                    url,
                    agent,
                    tcp,
                    tls,
                    connect_max,
                    resolver,
                )?))
            }
        };
        let direct = || Route::Direct(tcp, settings.connect.resolve.clone().into());
        let route = proxy.clone().map_or_else(direct, Route::Proxied);
        let inner = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        let connector = Connector {
            inner: match versions {
                _ if settings.connect.is_http1 => inner.enable_http1().wrap_connector(route),
                Versions::All => inner.enable_all_versions().wrap_connector(route),
                Versions::Http1 => inner.enable_http1().wrap_connector(route),
            },
            proxy: proxy.clone(),
            connect_max,
        };
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(keep)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_ignore_invalid_headers_in_responses(true)
            // Some servers know header names only as curl and browsers write them.
            .http1_title_case_headers(true)
            .http1_max_headers(HEADER_FIELDS_MAX)
            .http1_max_buf_size(HEAD_MAX as usize)
            .http2_max_header_list_size(HEAD_MAX)
            .build(connector);
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("*/*")),
            (ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED)),
            (USER_AGENT, agent),
        ]);
        Ok(Self {
            client,
            headers,
            proxy,
            records: settings.warc.is_some(),
        })
    }

    /// Sends a request with `cookies`. Returns when the head of the answer has arrived.
    pub(super) async fn call(
        &self,
        call: Call<'_>,
        cookies: Option<HeaderValue>,
    ) -> Result<Head, Lost> {
        let mut request = self.request(call, cookies).map_err(Lost::before)?;
        let connection = capture_connection(&mut request);
        let sent = self.records.then(|| SentHead::of(&request));
        match self.client.request(request).await {
            Ok(mut answer) => {
                if let Some(sent) = sent {
                    answer.extensions_mut().insert(sent);
                }
                let was_kept = answer.extensions().get().is_some_and(Use::answered);
                if was_kept && answer.status() == StatusCode::MISDIRECTED_REQUEST {
                    // It is about the connection (RFC 9110, section 15.5.20).
                    return Err(Lost {
                        why: "421 Misdirected Request".into(),
                        unprocessed: Some(Unprocessed::Told),
                    });
                }
                let noted = answer.extensions().get::<Use>();
                let connect = noted.filter(|_| !was_kept).map(Use::connected_in);
                let info = answer.extensions().get::<HttpInfo>();
                let info = info.filter(|_| self.proxy.is_none());
                let address = info.map(|info| info.remote_addr().ip());
                Ok(Head {
                    answer,
                    address,
                    connect,
                })
            }
            Err(why) => {
                let unprocessed = unprocessed(&why);
                let mut noted = http::Extensions::new();
                if let Some(connected) = &*connection.connection_metadata() {
                    connected.get_extras(&mut noted);
                }
                let is = |state: fn(&Use) -> bool| noted.get().is_some_and(state);
                let unprocessed = match unprocessed {
                    Some(Unprocessed::Closed) if is(Use::is_silent_http2) => {
                        Some(Unprocessed::Http1Required)
                    }
                    Some(Unprocessed::Closed) if !is(Use::is_stale) => None,
                    unprocessed => unprocessed,
                };
                let why = why.into();
                Err(Lost { why, unprocessed })
            }
        }
    }

    fn request(
        &self,
        call: Call<'_>,
        cookies: Option<HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, BoxError> {
        let (to, login) =
            target(call.url).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let forwarder = self.proxy.as_ref().filter(|proxy| proxy.forwards(&to));
        let proxy_login = forwarder.and_then(|proxy| proxy.login.clone());
        let mut request = Request::new(Full::new(call.content.clone()));
        let headers = request.headers_mut();
        // RFC 9112, section 3.2, wants this field first. Over TLS it may not be HTTP/1.1.
        if to.scheme() == Some(&Scheme::HTTP)
            && let Some(authority) = to.authority()
        {
            headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
        }
        headers.extend(self.headers.clone());
        // These replace the ones above.
        headers.extend(call.headers.clone());
        if call.content.is_empty()
            && matches!(*call.method, Method::POST | Method::PUT | Method::PATCH)
        {
            // RFC 9110, section 8.6, wants it. hyper sets it only for a body.
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        headers.extend(login.map(|login| (AUTHORIZATION, login)));
        headers.extend(proxy_login.map(|login| (PROXY_AUTHORIZATION, login)));
        if let Some(cookies) = cookies {
            let given = headers.get(COOKIE);
            let joined = match given {
                Some(given) => [given.as_bytes(), b"; ", cookies.as_bytes()].concat(),
                None => cookies.as_bytes().to_vec(),
            };
            let mut joined = HeaderValue::from_bytes(&joined)?;
            joined.set_sensitive(given.is_some_and(HeaderValue::is_sensitive));
            headers.insert(COOKIE, joined);
        }
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = to;
        Ok(request)
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

/// Returns the next part of `body`, or `None` at its end, or when `until` has passed.
pub(super) async fn next(
    body: &mut Incoming,
    until: Option<Instant>,
) -> Result<Option<Bytes>, BoxError> {
    loop {
        let frame = match until {
            Some(until) => timeout_at(until, body.frame()).await.unwrap_or(None),
            None => body.frame().await,
        };
        let Some(frame) = frame else {
            return Ok(None);
        };
        // Any other frame is trailers.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Resolves the name, connects and shakes hands, all within a time.
#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<Route>,
    proxy: Option<Arc<Proxy>>,
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
        let is_forwarded = self.proxy.as_ref().is_some_and(|it| it.forwards(&to));
        let connecting = self.inner.call(to);
        let connect_max = self.connect_max;
        Box::pin(async move {
            let began = Instant::now();
            let connected = tokio::time::timeout(connect_max, connecting).await;
            let connected_in = began.elapsed();
            match connected {
                Ok(connected) => {
                    connected.map(|stream| Noted::new(stream, is_forwarded, connected_in))
                }
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}
