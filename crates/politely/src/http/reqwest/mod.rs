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
mod middleware;
mod redirect;

use reqwest::redirect::Policy;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

use crate::http::attempts::Attempts;

pub use decode::Decode;
pub use http1::Http1Fallback;
pub use middleware::PoliteMiddleware;
pub use redirect::Redirects;

/// Creates a client that sends through a [`crate::Limiter`], or through [`Attempts`] with further
/// settings. If the process has not installed a TLS provider (`rustls::crypto::CryptoProvider`),
/// ring is used.
///
/// # Errors
/// Fails if TLS or the resolver's configuration cannot be set up.
pub fn client(attempts: impl Into<Attempts>) -> reqwest::Result<ClientWithMiddleware> {
    client_with(reqwest::Client::builder, attempts)
}

/// Creates a [`client`] with its own settings: time-outs, proxies, user agent. Its redirect policy
/// is replaced.
///
/// `settings` is called twice, because a second client uses HTTP/1.1 only ([`Http1Fallback`]). The
/// two clients share a cookie store if `settings` gives both the same one
/// ([`reqwest::ClientBuilder::cookie_provider`]).
///
/// # Errors
/// Fails like [`client`].
pub fn client_with(
    settings: impl Fn() -> reqwest::ClientBuilder,
    attempts: impl Into<Attempts>,
) -> reqwest::Result<ClientWithMiddleware> {
    // This workspace's reqwest comes without a provider. If the process uses another provider, it
    // is installed by now, and this call has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let builder = lenient(settings()).redirect(Policy::none());
        // `Decode` undoes more names and lists, and it never returns an unknown coding as a page.
        builder.no_gzip().no_brotli().no_deflate().no_zstd()
    };
    Ok(ClientBuilder::new(builder().build()?)
        .with(Redirects)
        .with(PoliteMiddleware::new(attempts))
        .with(Decode)
        .with(Http1Fallback::new(builder().http1_only().build()?))
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
