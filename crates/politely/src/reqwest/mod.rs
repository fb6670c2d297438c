//! With reqwest: a middleware for a client that is there, and a client made ready.
//!
//! [`client`] is the whole of it: a [`ClientWithMiddleware`] with reqwest's usual request builder that paces,
//! classifies, reports, retries and follows redirects, each hop at its own host's pace.
//!
//! [`PoliteMiddleware`] is for a client of one's own. A reqwest client that follows redirects by itself does
//! so below the middleware, unseen: hops to other hosts would not be paced. So give it
//! `redirect::Policy::none()` and put [`Redirects`] outside, as [`client_with`] does.
//!
//! Body and headers stream through untouched; a [`reqwest::Response`] keeps its URL, and its extensions. A
//! request's body is sent again only if reqwest can clone it: bytes and texts, not streams.
//!
//! The time-out of a reqwest client bounds one attempt from its sending to its body's end; waiting for a
//! permit does not count. One request's whole patience is the caller's: wrap the call in
//! [`tokio::time::timeout`], dropping it is safe.
//!
//! What an attempt is, what is sent again, cancellation and fairness: [`mod@crate::attempts`].

mod middleware;
mod redirect;

use reqwest::redirect::Policy;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

use crate::attempts::Attempts;

pub use middleware::PoliteMiddleware;
pub use redirect::{HOPS_MAX, RedirectError, Redirects};

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
    let client = builder.redirect(Policy::none()).build()?;
    Ok(ClientBuilder::new(client)
        .with(Redirects)
        .with(PoliteMiddleware::new(attempts))
        .build())
}
