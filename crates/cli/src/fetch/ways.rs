//! The ways out: directly, or through a proxy.
//!
//! The direct way is hyper's own pooled client with the connector reqwest would give it: reqwest around it costs
//! as much CPU time per page as all of HTTP (measured: 6 of 20 us). Proxies are rare and have many dialects;
//! those stay with reqwest.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::net::TcpStream;
use tower_service::Service;
use url::Url;

use super::client::innermost;
use crate::config::Settings;
use crate::exit::Wrong;

/// One way out, with the connections it keeps.
pub(super) enum Way {
    Direct {
        client: Box<Client<Connector, Empty<Bytes>>>,
        /// What every request says.
        headers: HeaderMap,
    },
    Proxied(reqwest::Client),
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A body as it comes, not yet unpacked.
pub(super) type Coming = Either<Incoming, reqwest::Body>;

/// A connection that takes longer to be made is not worth its slot.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A peer that went away silently is noticed by probes this far apart ...
const KEEPALIVE: Duration = Duration::from_secs(15);
/// ... when so many had no answer.
const KEEPALIVE_PROBES: u32 = 3;

impl Way {
    /// Through `proxy`, or directly; up to `keep` idle connections per host.
    pub(super) fn new(
        settings: &Settings,
        proxy: Option<&str>,
        keep: usize,
    ) -> Result<Self, Wrong> {
        let wrong = |why: &dyn Error| Wrong::no_client(&innermost(why));
        let connect_max = settings.timeout.min(CONNECT_MAX);
        if let Some(proxy) = proxy {
            let client = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(&settings.user_agent)
                .connect_timeout(connect_max)
                .pool_max_idle_per_host(keep)
                .no_gzip()
                .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, GZIP)]))
                .no_proxy();
            let client = reqwest::Proxy::all(proxy).and_then(|proxy| client.proxy(proxy).build());
            return client.map(Self::Proxied).map_err(|why| wrong(&why));
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
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(keep)
            .build(Connector { inner, connect_max });
        let client = Box::new(client);
        let agent = HeaderValue::from_str(&settings.user_agent).map_err(|why| wrong(&why))?;
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("*/*")),
            (ACCEPT_ENCODING, GZIP),
            (USER_AGENT, agent),
        ]);
        Ok(Self::Direct { client, headers })
    }

    /// Sends a GET for `url`; returns once the answer's head is there.
    pub(super) async fn get(&self, url: &Url) -> Result<Response<Coming>, BoxError> {
        match self {
            Self::Direct { client, headers } => {
                let mut request = Request::new(Empty::new());
                *request.uri_mut() = url.as_str().parse::<Uri>()?;
                *request.headers_mut() = headers.clone();
                if !url.username().is_empty() || url.password().is_some() {
                    *request.uri_mut() = without_login(url).as_str().parse()?;
                    request.headers_mut().insert(AUTHORIZATION, login(url)?);
                }
                Ok(client.request(request).await?.map(Either::Left))
            }
            Self::Proxied(client) => {
                let response: Response<reqwest::Body> =
                    client.get(url.clone()).send().await?.into();
                Ok(response.map(Either::Right))
            }
        }
    }
}

const GZIP: HeaderValue = HeaderValue::from_static("gzip");

fn without_login(url: &Url) -> Url {
    let mut url = url.clone();
    // These fail only for URLs without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// Basic authentication (RFC 7617) with what `url` says.
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

/// The next part of `body`; `None` at its end.
pub(super) async fn next(body: &mut Coming) -> Result<Option<Bytes>, BoxError> {
    while let Some(frame) = body.frame().await {
        // Anything else is trailers.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Looks the name up, connects and shakes hands, all of it within a time.
#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    connect_max: Duration,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.inner.call(to);
        let connect_max = self.connect_max;
        Box::pin(async move {
            tokio::time::timeout(connect_max, connecting)
                .await
                .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
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
