//! HTTP below the [`Client`](super::Client). Other senders of a coordinator's host use it too.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::uri::InvalidUri;
use http::{HeaderValue, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str as decode;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use url::{Position, Url};

use super::ClientError;

/// The interval of TCP keepalive probes, and the number of probes without an answer that ends a
/// connection.
const KEEPALIVE: (Duration, u32) = (Duration::from_secs(5), 2);

/// An HTTP client that keeps connections.
pub type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Returns an HTTP/1.1 client that trusts this machine's authorities and those of the file `ca`.
/// A connection may take `connect_time`.
///
/// # Errors
/// Certificates cannot be read.
pub fn pool(ca: Option<&Path>, connect_time: Duration) -> Result<Pool, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_time));
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.0));
    tcp.set_keepalive_retries(Some(KEEPALIVE.1));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls(ca)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build(connector))
}

/// Returns a TLS configuration that trusts this machine's authorities and those of the file `ca`.
fn tls(ca: Option<&Path>) -> Result<ClientConfig, ClientError> {
    let wrong = |why: rustls::Error| ClientError::Tls(why.to_string());
    let own = match ca {
        None => Vec::new(),
        Some(file) => CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|why| ClientError::Tls(format!("{}: {why}", file.display())))?,
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

/// Returns the target of a request for `url`, and the Basic authentication (RFC 7617) with the user
/// and password of `url`, if it has any.
///
/// # Errors
/// The URL is not a URI.
pub fn target(url: &Url) -> Result<(Uri, Option<HeaderValue>), InvalidUri> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok((url.as_str().parse()?, None));
    }
    let without = [
        &url[..Position::BeforeUsername],
        &url[Position::BeforeHost..],
    ]
    .concat();
    let mut pair: Vec<u8> = decode(url.username()).collect();
    pair.push(b':');
    pair.extend(decode(url.password().unwrap_or_default()));
    let login = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)));
    // Base64 is valid in a header.
    let mut login = login.ok();
    if let Some(login) = &mut login {
        login.set_sensitive(true);
    }
    Ok((without.parse()?, login))
}

/// Returns the text of the innermost cause of `error`, which is the most specific one, and advice.
pub fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let why = innermost.to_string();
    let why = match why.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => why,
    };
    let advice = advice(&why);
    why + advice
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_a_url_becomes_a_header() {
        let target = |url| target(&Url::parse(url).unwrap()).unwrap();
        // The pair of RFC 7617, section 2.
        let (uri, login) = target("http://Aladdin:open%20sesame@a.example:81/x?y#z");
        let login = login.unwrap();
        assert_eq!(login, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(login.is_sensitive());
        assert_eq!(uri, "http://a.example:81/x?y");
        let (uri, login) = target("http://a.example/@");
        assert_eq!(
            (uri.to_string().as_str(), login),
            ("http://a.example/@", None)
        );
    }
}
