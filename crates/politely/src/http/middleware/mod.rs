//! Integration with reqwest: a middleware for an existing client, and a complete client.
//!
//! [`client`] is complete: it is a [`ClientWithMiddleware`] with reqwest's usual request builder.
//! It paces, classifies, reports, retries and follows redirects, each hop at its own host's pace.
//!
//! [`PoliteMiddleware`] is for an existing client. A reqwest client that follows redirects by
//! itself does so below the middleware, so hops to other hosts would not be paced. Give such a
//! client `redirect::Policy::none()` and put [`Redirects`] outside, as [`client_with`] does.
//!
//! The body is streamed and decoded ([`Decode`]). A [`reqwest::Response`] keeps its URL and its
//! extensions. Malformed header lines that browsers tolerate are tolerated ([`lenient`]). After
//! `HTTP_1_1_REQUIRED`, a complete client continues with HTTP/1.1 ([`Http1Fallback`]). A
//! request's body is sent again only if reqwest can clone it: bytes and texts, not streams.
//!
//! The time-out of a reqwest client bounds one attempt, from its sending to the end of its body.
//! Waiting for a permit does not count. To bound a whole request, wrap the call in
//! [`tokio::time::timeout`]; dropping the call is safe.
//!
//! For attempts, retries, cancellation and fairness, see [`mod@crate::attempts`].

mod decode;
mod http1;
mod polite;
mod redirect;

use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use rustls::crypto::CryptoProvider;
use rustls_platform_verifier::BuilderVerifierExt;

use crate::http::attempts::Attempts;

pub use decode::Decode;
pub use http1::Http1Fallback;
pub use polite::PoliteMiddleware;
pub use redirect::Redirects;

/// Creates a client that sends through a [`crate::Limiter`], or through [`Attempts`] with further
/// settings.
///
/// Its TLS uses the provider that the process has installed (`rustls::crypto::CryptoProvider`), or
/// ring. It installs no provider itself. It trusts the authorities of this machine.
///
/// ```standalone_crate
/// use politely::Limiter;
///
/// let client = politely::middleware::client(Limiter::builder().rate(10.0).build()?)?;
/// # assert!(rustls::crypto::CryptoProvider::get_default().is_none());
/// # drop(client);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if the authorities of this machine or the resolver's configuration cannot be read.
pub fn client(attempts: impl Into<Attempts>) -> Result<ClientWithMiddleware, ClientError> {
    if CryptoProvider::get_default().is_some() {
        return Ok(client_with(reqwest::Client::builder, attempts)?);
    }
    let all = reqwest::Client::builder().tls_backend_preconfigured(tls(&[b"h2", b"http/1.1"])?);
    let http1 = reqwest::Client::builder().tls_backend_preconfigured(tls(&[b"http/1.1"])?);
    Ok(assemble(all, http1, attempts)?)
}

/// Why [`client`] failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The authorities of this machine cannot be read.
    #[error("cannot read the certificate authorities of this machine: {0}; set SSL_CERT_FILE")]
    Authorities(#[from] rustls::Error),
    /// The client cannot be built.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
}

/// Returns a TLS configuration with ring that offers `protocols`.
fn tls(protocols: &[&[u8]]) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Creates a [`client`] with its own settings: time-outs, proxies, user agent. Its redirect policy
/// is replaced.
///
/// `settings` is called twice, because a second client uses HTTP/1.1 only ([`Http1Fallback`]). The
/// two clients share a cookie store if `settings` gives both the same one
/// (`reqwest::ClientBuilder::cookie_provider`).
///
/// Its TLS is that of `settings`. If your dependency on reqwest has the feature
/// `rustls-no-provider`, install a provider before this call, or give the builder a configuration
/// with `tls_backend_preconfigured`.
///
/// # Errors
/// Fails if TLS or the resolver's configuration cannot be set up.
///
/// # Panics
/// In reqwest, if there is no TLS provider.
pub fn client_with(
    settings: impl Fn() -> reqwest::ClientBuilder,
    attempts: impl Into<Attempts>,
) -> reqwest::Result<ClientWithMiddleware> {
    assemble(settings(), settings(), attempts)
}

/// Assembles a client from the builder of its clients for all versions and for HTTP/1.1.
fn assemble(
    all: reqwest::ClientBuilder,
    http1: reqwest::ClientBuilder,
    attempts: impl Into<Attempts>,
) -> reqwest::Result<ClientWithMiddleware> {
    let complete = |builder| {
        let builder = lenient(builder).redirect(Policy::none());
        // `Decode` undoes more names and lists, and it never returns an unknown coding as a page.
        builder.no_gzip().no_brotli().no_deflate().no_zstd()
    };
    Ok(ClientBuilder::new(complete(all).build()?)
        .with(Redirects)
        .with(PoliteMiddleware::new(attempts))
        .with(Decode)
        .with(Http1Fallback::new(complete(http1).http1_only().build()?))
        .build())
}

/// Maximum number of header fields in a response. Browsers and curl have higher bounds or none.
const HEADER_FIELDS_MAX: usize = 1000;
/// Maximum size of an HTTP/2 response's header fields, in bytes, as in Chromium.
const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// Makes a client accept responses that violate HTTP's grammar in ways that browsers and curl
/// tolerate.
///
/// Folded header lines are joined (RFC 9112, section 5.2). A blank before the colon is dropped.
/// Lines without a colon or with control characters are skipped. Up to 1,000 header fields are
/// read, where hyper's default is 100.
pub fn lenient(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_headers(HEADER_FIELDS_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
}
