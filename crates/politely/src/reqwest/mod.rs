//! With reqwest: a middleware for a client that is there, and a client made ready.
//!
//! [`client`] is the whole of it: a [`ClientWithMiddleware`] with reqwest's usual request builder that paces,
//! classifies, reports, retries and follows redirects, each hop at its own host's pace.
//!
//! [`PoliteMiddleware`] is for a client of one's own. A reqwest client that follows redirects by itself does
//! so below the middleware, unseen: hops to other hosts would not be paced. So give it
//! `redirect::Policy::none()` and put [`Redirects`] outside, as [`client_with`] does.
//!
//! The body streams through, without its content codings ([`Decode`]); a [`reqwest::Response`] keeps its URL, and its
//! extensions. Malformed header lines that browsers tolerate are tolerated ([`lenient`]). A request's body is sent again
//! only if reqwest can clone it: bytes and texts, not streams.
//!
//! The time-out of a reqwest client bounds one attempt from its sending to its body's end; waiting for a
//! permit does not count. One request's whole patience is the caller's: wrap the call in
//! [`tokio::time::timeout`], dropping it is safe.
//!
//! What an attempt is, what is sent again, cancellation and fairness: [`mod@crate::attempts`].

mod decode;
mod middleware;
mod redirect;

use reqwest::redirect::Policy;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

use crate::attempts::Attempts;

pub use decode::Decode;
pub use middleware::PoliteMiddleware;
pub use redirect::Redirects;

/// A client that sends by a [`crate::Limiter`], or by [`Attempts`] with more to say. Where the process has not chosen a
/// provider for TLS (`rustls::crypto::CryptoProvider`), it is ring.
///
/// # Errors
/// TLS or the resolver's configuration cannot be set up.
pub fn client(attempts: impl Into<Attempts>) -> reqwest::Result<ClientWithMiddleware> {
    client_with(reqwest::Client::builder(), attempts)
}

/// [`client`] with settings of one's own: time-outs, proxies, user agent. Its redirect policy is replaced.
///
/// # Errors
/// As [`client`].
pub fn client_with(
    builder: reqwest::ClientBuilder,
    attempts: impl Into<Attempts>,
) -> reqwest::Result<ClientWithMiddleware> {
    // The reqwest of this workspace comes without one; whoever prefers another has installed it by now.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = lenient(builder).redirect(Policy::none());
    // `Decode` undoes more names and lists, and no unknown coding passes for a page.
    let client = client
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .build()?;
    Ok(ClientBuilder::new(client)
        .with(Redirects)
        .with(PoliteMiddleware::new(attempts))
        .with(Decode)
        .build())
}

/// Header fields of one response that are read; browsers and curl have no or higher bounds.
const HEADER_FIELDS_MAX: usize = 1000;
/// Bytes of an HTTP/2 response's header fields that are read: what Chromium reads.
const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// Makes a client read responses that break HTTP's grammar in ways that browsers and curl tolerate.
///
/// Folded header lines are joined (RFC 9112, section 5.2). A blank before the colon is dropped. Lines without a colon or with control
/// characters are passed over. Up to 1,000 header fields are read, where hyper's default is 100.
pub fn lenient(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_headers(HEADER_FIELDS_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
}
