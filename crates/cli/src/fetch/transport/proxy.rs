//! Connections to hosts: directly, or through an HTTP or SOCKS5 proxy.

use std::error::Error;
use std::future::{Future, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use politely_api::client::transport::target;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tower::{Service, service_fn};
use url::Url;

use super::resolver::{Resolver, Tcp};
use super::ways::BoxError;
use crate::config::Resolve;

/// A connection to a host or to a proxy, below the TLS with the host.
pub(super) type Hop = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A failure between this process and the host of a request, at the proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("no connection to the proxy")]
    Unreachable(#[source] BoxError),
    #[error("no TLS with the proxy")]
    Tls(#[source] BoxError),
    /// The proxy ended the handshake, or its answer is malformed.
    #[error("no handshake with the proxy")]
    Handshake(#[source] BoxError),
    #[error("the proxy wants a valid login ({0}), as in --proxy http://USER:PASSWORD@HOST")]
    Login(String),
    #[error("the proxy refused: {0}")]
    Refused(String),
    /// A refusal that may be for this host only, by a rule of the proxy.
    #[error("the proxy refused: {0}")]
    HostRefused(String),
    /// The proxy works and reports a failure of the host.
    #[error("the proxy cannot reach the host: {0}")]
    HostUnreachable(String),
}

impl ProxyError {
    /// Returns the [`ProxyError`] that `error` is, or that is one of its causes.
    pub(super) fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        error.downcast_ref().or_else(|| Self::find(error.source()?))
    }

    /// Returns the error for the text of an error of [`SocksV5`], whose type is private.
    fn socks(text: &str) -> Self {
        let text = text.strip_prefix("SOCKS error: ").unwrap_or(text);
        match text {
            "network unreachable" | "host unreachable" | "connection refused" | "ttl expired" => {
                Self::HostUnreachable(text.to_owned())
            }
            "server does not support user/pass authentication" | "credentials not accepted" => {
                Self::Login("SOCKS5".to_owned())
            }
            "io error during SOCKS handshake" | "failed parsing server response" => broken(text),
            "connection not allowed" => Self::HostRefused(text.to_owned()),
            _ => Self::Refused(text.to_owned()),
        }
    }
}

/// A proxy of `--proxy`.
pub(super) struct Proxy {
    url: Url,
    /// The login of an HTTP proxy.
    pub(super) login: Option<HeaderValue>,
    agent: HeaderValue,
    address: Uri,
    connector: HttpsConnector<Tcp>,
    resolver: Resolver,
    /// The maximum time to connect to the proxy.
    connect_max: Duration,
}

impl Proxy {
    pub(super) fn new(
        url: &str,
        agent: HeaderValue,
        tcp: Tcp,
        tls: ClientConfig,
        connect_max: Duration,
        resolver: Resolver,
    ) -> Result<Self, BoxError> {
        let url = Url::parse(url)?;
        let (scheme, port) = match url.scheme() {
            "http" => ("http", 80),
            "https" => ("https", 443),
            _ => ("http", 1080),
        };
        let host = url.host_str().ok_or("the URL of the proxy has no host")?;
        let port = url.port().unwrap_or(port);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        Ok(Self {
            login: target(&url)?.1,
            agent,
            address: format!("{scheme}://{host}:{port}").parse()?,
            connector: connector.https_or_http().enable_http1().wrap_connector(tcp),
            connect_max,
            resolver,
            url,
        })
    }

    /// Returns whether requests for `to` are sent to the proxy itself, with the whole URL.
    pub(super) fn forwards(&self, to: &Uri) -> bool {
        !self.is_socks() && to.scheme() != Some(&Scheme::HTTPS)
    }

    fn is_socks(&self) -> bool {
        self.url.scheme().starts_with("socks")
    }

    /// Connects to the proxy until `deadline`, and through it to the host of `to`.
    async fn connect(&self, to: &Uri, deadline: Instant) -> Result<Hop, BoxError> {
        if self.forwards(to) {
            return Ok(self.reach(deadline).await?);
        }
        let is_https = to.scheme() == Some(&Scheme::HTTPS);
        let host = to.host().unwrap_or_default();
        let port = to.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let mut authority = format!("{host}:{port}");
        if self.url.scheme() == "socks5" {
            let found = self.resolver.lookup(host.trim_matches(['[', ']'])).await?;
            let found = found.first().ok_or("failed to lookup address")?;
            authority = SocketAddr::new(*found, port).to_string();
        }
        let hop = self.reach(deadline).await?;
        let hop = if self.is_socks() {
            self.socks5(hop, &authority).await
        } else {
            self.tunnel(hop, &authority).await
        };
        Ok(hop?)
    }

    /// Connects to the proxy.
    async fn reach(&self, deadline: Instant) -> Result<Hop, ProxyError> {
        let connecting = self.connector.clone().call(self.address.clone());
        match timeout_at(deadline, connecting).await {
            Ok(Ok(hop)) => Ok(hop),
            // The errors of TCP have a type of hyper.
            Ok(Err(why)) if why.is::<io::Error>() => Err(ProxyError::Tls(why)),
            Ok(Err(why)) => Err(ProxyError::Unreachable(why)),
            Err(_) => {
                let why = io::Error::from(io::ErrorKind::TimedOut);
                Err(ProxyError::Unreachable(why.into()))
            }
        }
    }

    /// Asks the SOCKS5 proxy at the other end of `hop` for a connection to `authority`.
    async fn socks5(&self, hop: Hop, authority: &str) -> Result<Hop, ProxyError> {
        let to = Uri::try_from(format!("http://{authority}")).map_err(broken)?;
        let mut hop = Some(hop);
        let reached = service_fn(move |_| ready(hop.take().ok_or(io::ErrorKind::NotConnected)));
        let mut socks = SocksV5::new(self.address.clone(), reached);
        if self.login.is_some() {
            let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let password = self.url.password().unwrap_or_default();
            socks = socks.with_auth(decoded(self.url.username()), decoded(password));
        }
        let hop = socks.call(to).await;
        hop.map_err(|why| ProxyError::socks(&why.to_string()))
    }

    /// Opens a tunnel to `authority` through the HTTP proxy at the other end of `hop`.
    async fn tunnel(&self, hop: Hop, authority: &str) -> Result<Hop, ProxyError> {
        let request = Request::connect(authority).header(HOST, authority);
        let request = request.header(USER_AGENT, &self.agent);
        let mut request = request.body(Empty::<Bytes>::new()).map_err(broken)?;
        let login = self.login.clone();
        let headers = request.headers_mut();
        headers.extend(login.map(|login| (PROXY_AUTHORIZATION, login)));
        // As lenient as with hosts.
        let mut lenient = http1::Builder::new();
        lenient
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true);
        let (mut sender, mut connection) = lenient.handshake(hop).await.map_err(broken)?;
        let mut answer = Box::pin(sender.send_request(request));
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = poll_fn(|cx| connection.poll_without_shutdown(cx)) => answer.await,
        };
        let answer = answer.map_err(broken)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(connection.into_parts().io);
        }
        let reason = answer.extensions().get::<ReasonPhrase>();
        let usual = status.canonical_reason().unwrap_or_default().as_bytes();
        let reason = reason.map_or(usual, ReasonPhrase::as_bytes);
        let said = format!("{} {}", status.as_u16(), reason.escape_ascii());
        Err(match status.as_u16() {
            407 => ProxyError::Login(said),
            502..=504 => ProxyError::HostUnreachable(said),
            // These tell of too many requests, not of a host.
            408 | 429 => ProxyError::Refused(said),
            400..=499 => ProxyError::HostRefused(said),
            _ => ProxyError::Refused(said),
        })
    }
}

fn broken(why: impl Into<BoxError>) -> ProxyError {
    ProxyError::Handshake(why.into())
}

/// The way to the host of a request, below its TLS.
#[derive(Clone)]
pub(super) enum Route {
    /// Also the addresses that replace those of names.
    Direct(Tcp, Arc<[Resolve]>),
    Proxied(Arc<Proxy>),
}

impl Service<Uri> for Route {
    type Response = Hop;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Hop, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self {
            Self::Direct(tcp, rules) => {
                let connecting = tcp.call(resolved(to, rules));
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Self::Proxied(proxy) => {
                let proxy = Arc::clone(proxy);
                // It is before the end of the time for the whole connection.
                let deadline = Instant::now() + proxy.connect_max;
                Box::pin(async move { proxy.connect(&to, deadline).await })
            }
        }
    }
}

/// Returns `to` with the address of the first rule that covers it in place of its host.
fn resolved(to: Uri, rules: &[Resolve]) -> Uri {
    let default_port = if to.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let port = to.port_u16().unwrap_or(default_port);
    let host = to.host().unwrap_or_default();
    let Some(rule) = rules.iter().find(|rule| rule.covers(host, port)) else {
        return to;
    };
    let address = SocketAddr::new(rule.address, port);
    let scheme = to.scheme_str().unwrap_or("http");
    format!("{scheme}://{address}/").parse().unwrap_or(to)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::call::{Body, Call};
    use super::super::ways::{Versions, Way};
    use super::*;
    use crate::config::{Knobs, Settings};

    fn way(proxy: &str) -> Way {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let timeout = Some("1s".parse().unwrap());
        let knobs = Knobs {
            timeout,
            ..Knobs::default()
        };
        let settings = Settings::checked(knobs).unwrap();
        let way = Way::new(
            &settings,
            Some(proxy),
            1,
            Versions::All,
            &Resolver::default(),
        );
        way.ok().unwrap()
    }

    async fn error(way: &Way) -> BoxError {
        let url = Url::parse("https://a.example/").unwrap();
        let call = Call {
            method: &http::Method::GET,
            url: &url,
            headers: &http::HeaderMap::new(),
            content: &Bytes::new(),
            may_repeat: true,
            body: Body::Count,
            is_once: false,
            needs_start: false,
            reads_links: false,
        };
        way.call(call, None).await.err().unwrap().why
    }

    /// Asserts the error of a request for each case: the answers of the proxy, one for each
    /// message, before it ends the connection, and the beginning of the error's `Debug` form.
    async fn assert_errors(scheme: &str, cases: &'static [(&'static [&'static [u8]], &str)]) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("{scheme}{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for (answers, _) in cases {
                let (mut stream, _) = listener.accept().await.unwrap();
                for answer in *answers {
                    let _ = stream.read(&mut [0; 1000]).await.unwrap();
                    stream.write_all(answer).await.unwrap();
                }
            }
        });
        let way = way(&proxy);
        for (_, expected) in cases {
            let error = error(&way).await;
            let found = ProxyError::find(&*error).expect("an error of a proxy");
            let found = format!("{found:?}");
            assert!(found.starts_with(expected), "{expected}: {error:?}");
        }
    }

    #[tokio::test]
    async fn each_failure_of_an_http_proxy_has_its_type() {
        assert_errors(
            "http://",
            &[
                (
                    &[b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"],
                    "Login(\"407 Proxy Authentication Required\")",
                ),
                (
                    &[b"HTTP/1.0 403 Not there\r\nContent-Length: 9\r\n\r\n"],
                    "HostRefused(\"403 Not there\")",
                ),
                (
                    &[b"HTTP/1.1 429 Too Many Requests\r\n\r\n"],
                    "Refused(\"429 Too Many Requests\")",
                ),
                (
                    &[b"HTTP/1.1 502 Bad Gateway\r\n\r\n"],
                    "HostUnreachable(\"502 Bad Gateway\")",
                ),
                (&[b"SSH-2.0-OpenSSH_9\r\n"], "Handshake("),
                (&[b""], "Handshake("),
            ],
        )
        .await;
    }

    #[tokio::test]
    async fn each_failure_of_a_socks5_proxy_has_its_type() {
        assert_errors(
            "socks5h://",
            &[
                (&[b"\x05\xff"], "Login(\"SOCKS5\")"),
                (
                    &[b"\x05\0", b"\x05\x02\0\x01\0\0\0\0\0\0"],
                    "HostRefused(\"connection not allowed\")",
                ),
                (
                    &[b"\x05\0", b"\x05\x05\0\x01\0\0\0\0\0\0"],
                    "HostUnreachable(\"connection refused\")",
                ),
                (&[b"HTTP/1.1 400 Bad Request\r\n\r\n"], "Handshake("),
                (&[b""], "Handshake("),
            ],
        )
        .await;
        let refused: &[(&[&[u8]], _)] = &[(&[b"\x05\x02", b"\x01\x01"], "Login(\"SOCKS5\")")];
        assert_errors("socks5h://user:wrong@", refused).await;
    }

    #[tokio::test]
    async fn the_time_to_connect_includes_each_handshake() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for scheme in ["http", "socks5h", "https"] {
            let error = error(&way(&format!("{scheme}://{address}"))).await;
            let failure = politely::attempts::failure_of(&*error);
            assert_eq!(failure, Some(politely::Failure::Timeout), "{error:?}");
            // The proxy may have waited for the host, except in the handshake of its own TLS.
            let found = ProxyError::find(&*error);
            let is_own = matches!(found, Some(ProxyError::Unreachable(_)));
            assert_eq!(is_own, scheme == "https", "{error:?}");
        }
    }
}
