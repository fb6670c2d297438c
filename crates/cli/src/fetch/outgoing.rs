//! The parts of the next request of a page, a robots.txt or a proof.

use bytes::Bytes;
use http::HeaderMap;
use url::Url;

use super::engine::Engine;
use super::lanes::pending::{Pending, Purpose};
use super::request;
use super::site;
use super::transport::call::Body;

/// The size up to which a robots.txt is read (RFC 9309, 2.5: at least 500 KiB).
const ROBOTS_MAX: usize = 500 * 1024;

/// Returns the URL and the body of a request, or why its page ends without it.
pub(super) fn prepared(engine: &Engine, pending: &Pending) -> Result<(Url, Bytes), &'static str> {
    let url = pending.url().ok_or("the URL in the queue is damaged")?;
    if engine.was_sent(pending) {
        return Err(
            "it was in flight when an earlier run ended, may have been processed, and is not sent twice",
        );
    }
    let content = match &pending.page.request {
        Some(request) if !pending.is_rewritten => request.body(&engine.defaults),
        _ => Some(Bytes::new()),
    };
    let content = content.ok_or("--data or --data-file is not the one that it was added with")?;
    Ok((url, content))
}

/// Returns the fields of a request for `url`, and records whether it is conditional. A robots.txt
/// is requested without those of pages.
pub(super) fn headers(engine: &Engine, pending: &mut Pending, url: &Url) -> HeaderMap {
    if matches!(pending.purpose, Purpose::Robots(_)) {
        return HeaderMap::new();
    }
    let request = pending.page.request.as_deref();
    let defaults = &engine.defaults;
    let mut headers = request::headers(request, defaults, pending.is_rewritten, pending.is_away);
    let save = engine.settings.save.as_deref();
    // A page whose links are followed is needed itself.
    let is_read = pending.page.sitemap().is_some() || site::follows(engine, pending);
    let known = pending.known_validators().filter(|_| !is_read);
    pending.is_conditional = known.is_some_and(|known| known.apply(url, &mut headers, save));
    headers
}

/// Returns the use of a body of a page, or of a robots.txt or a proof.
pub(super) fn body<'a>(engine: &'a Engine, pending: &Pending) -> Body<'a> {
    match (&engine.settings.save, pending.purpose == Purpose::Page) {
        (_, true) if pending.page.sitemap().is_some() => Body::Read(site::SITEMAP_MAX),
        (_, false) => Body::Keep(ROBOTS_MAX),
        (Some(dir), true) => Body::Save(dir, pending.page.id()),
        (None, true) => Body::Count,
    }
}
