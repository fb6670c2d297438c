//! Calls over HTTP, with TLS if the URL begins with `https`.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::RemoteError;
use super::call::{Call, Reply, Transport, Trouble};
use super::places::Places;
use crate::wire::{self, Answer, RefusedCode};

/// The timeout of an answer, in addition to the time for which the call may be held open.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The timeout for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// The interval of TCP keepalive probes, and the number of probes without an answer that ends a
/// connection.
const KEEPALIVE: (Duration, u32) = (Duration::from_secs(5), 2);
/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 16 << 20;
/// The longest Retry-After of a coordinator that is followed.
const BUSY_MAX: Duration = Duration::from_mins(1);

/// The addresses of the coordinators, and the client that calls them.
#[derive(Clone)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    places: Arc<Places>,
    headers: HeaderMap,
}

impl Http {
    /// Creates the transport for one coordinator, or for several separated by commas.
    pub(super) fn new(
        urls: &str,
        token: Option<&str>,
        ca: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        if urls.contains(',') && urls.split(',').any(|url| url.trim().is_empty()) {
            let why = "a URL is missing beside a comma";
            return Err(RemoteError::Url(urls.to_owned(), why.to_owned()));
        }
        let places = Places::new(urls.split(',').map(base).collect::<Result<_, _>>()?);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut bearer = bearer.map_err(|_| RemoteError::Token)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let tls = tls(ca)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        tcp.set_keepalive(Some(KEEPALIVE.0));
        tcp.set_keepalive_interval(Some(KEEPALIVE.0));
        tcp.set_keepalive_retries(Some(KEEPALIVE.1));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            client,
            places: Arc::new(places),
            headers,
        })
    }

    /// Makes one call below `base`. The coordinator may wait for `held` before it answers.
    async fn send(
        &self,
        base: &str,
        method: Method,
        path: String,
        body: Vec<u8>,
        held: Duration,
    ) -> Result<Bytes, Trouble> {
        let wrong = |why: &dyn std::fmt::Display| Trouble::Wrong(why.to_string());
        let uri: Uri = format!("{base}{path}").parse().map_err(|why| wrong(&why))?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        let answer = async {
            let response = self
                .client
                .request(request)
                .await
                .map_err(|why| away(&why))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await;
            let body = body
                .map_err(|why| Trouble::Away(why.to_string()))?
                .to_bytes();
            judge(head.status, &head.headers, body)
        };
        let limited = tokio::time::timeout(held + ANSWER_TIME, answer).await;
        limited.unwrap_or_else(|_| Err(Trouble::Away("no answer in time".to_owned())))
    }
}

impl Transport for Http {
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, Trouble>> + Send + 'static {
        let post = |path: &str, body| (Method::POST, path.to_owned(), body, Duration::ZERO);
        let (method, path, body, held) = match call {
            Call::Exchange(call, _) => {
                let held = Duration::from_millis(u64::from(call.wait_ms));
                (Method::POST, "/exchange".to_owned(), json(call), held)
            }
            Call::Renew(call, _) => post("/renew", json(call)),
            Call::Cancel(call) => post("/cancel", json(call)),
            Call::Patch(key, patch) => {
                let path = format!("/keys/{}", escaped(key.as_str()));
                (Method::PATCH, path, json(patch), Duration::ZERO)
            }
        };
        let answers = match call {
            Call::Exchange(..) => |body: &Bytes| read(body).map(Reply::Exchanged),
            Call::Renew(..) => |body: &Bytes| read(body).map(Reply::Renewed),
            Call::Cancel(_) | Call::Patch(..) => |_: &Bytes| Ok(Reply::Done),
        };
        let http = self.clone();
        async move {
            let (place, base) = http.places.current();
            let answer = http.send(base, method, path, body, held).await;
            let mut reply = answer.and_then(|body| answers(&body));
            if is_leaving(&reply) && http.places.leave(place) {
                // The Retry-After concerns only the coordinator that sent it.
                if let Err(trouble @ Trouble::Busy(_)) = &mut reply {
                    *trouble = Trouble::Away(trouble.to_string());
                }
            }
            reply
        }
    }
}

/// Returns a TLS configuration that trusts this machine's authorities and those of the file `ca`.
fn tls(ca: Option<&Path>) -> Result<ClientConfig, RemoteError> {
    let wrong = |why: rustls::Error| RemoteError::Tls(why.to_string());
    let own = match ca {
        None => Vec::new(),
        Some(file) => CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|why| RemoteError::Tls(format!("{}: {why}", file.display())))?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new_with_extra_roots(own, Arc::clone(&provider)).map_err(wrong)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .dangerous() // required for a verifier that is not a list of authorities
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(config.with_no_client_auth())
}

/// Returns whether this coordinator cannot serve, and another might.
fn is_leaving(reply: &Result<Reply, Trouble>) -> bool {
    let closing = |answer: &Answer| {
        let Answer::Refused { code, .. } = answer else {
            return false;
        };
        *code == RefusedCode::Closing
    };
    match reply {
        Ok(Reply::Exchanged(said)) => said.acquire.iter().any(closing),
        Ok(_) | Err(Trouble::Wrong(_)) => false,
        Err(Trouble::Away(_) | Trouble::Busy(_)) => true,
    }
}

/// Returns the base URL of the API of the coordinator at `url`.
fn base(url: &str) -> Result<String, RemoteError> {
    let url = url.trim();
    let named = if url.is_empty() { "an empty URL" } else { url };
    let wrong = |why: &str| RemoteError::Url(named.to_owned(), why.to_owned());
    let parsed = Url::parse(url).map_err(|why| match why {
        url::ParseError::RelativeUrlWithoutBase => wrong("must begin with http:// or https://"),
        why => wrong(&why.to_string()),
    })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong("use http or https"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let named = parsed.host_str().unwrap_or_default().to_owned();
        let why = "a coordinator takes a token, no user and password";
        return Err(RemoteError::Url(named, why.to_owned()));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong("a coordinator's URL ends before any `?` or `#`"));
    }
    Ok(format!("{}/api/v1", parsed.as_str().trim_end_matches('/')))
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Trouble> {
    serde_json::from_slice(body)
        .map_err(|why| Trouble::Wrong(format!("its answer makes no sense: {why}")))
}

/// Returns the body of a successful answer, or the error that its status means.
fn judge(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Result<Bytes, Trouble> {
    if status.is_success() {
        return Ok(body);
    }
    if matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
    ) {
        let secs = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        return Err(Trouble::Busy(
            Duration::from_secs(secs.unwrap_or(1)).min(BUSY_MAX),
        ));
    }
    // A proxy in front of the coordinator may answer so while the coordinator starts.
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        return Err(Trouble::Away(status.to_string()));
    }
    let problem: Option<wire::Problem> = serde_json::from_slice(&body).ok();
    let detail = problem.map_or_else(String::new, |problem| format!(": {}", problem.detail));
    Err(Trouble::Wrong(format!("{status}{detail}")))
}

/// Returns the error with the text of its innermost cause, which is the most specific one.
fn away(error: &(dyn Error + 'static)) -> Trouble {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let why = innermost.to_string();
    let advice = advice(&why);
    Trouble::Away(why + advice)
}

/// Returns advice for a handshake error that will occur again.
fn advice(why: &str) -> &'static str {
    let known = [
        ("InvalidContentType", "; it speaks no TLS: say http://"),
        ("invalid HTTP version", "; it may speak TLS: say https://"),
        (
            "UnknownIssuer",
            "; name a file of whom to trust in SSL_CERT_FILE (docs/reference/coordinator.md)",
        ),
        (
            "CaUsedAsEndEntity",
            "; its certificate is an authority's: let it sign one for the coordinator",
        ),
    ];
    let advice = known.iter().find(|(said, _)| why.contains(said));
    advice.map_or("", |(_, advice)| advice)
}

/// Returns the key percent-encoded, as one segment of a path.
fn escaped(key: &str) -> String {
    use std::fmt::Write as _;
    key.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}
