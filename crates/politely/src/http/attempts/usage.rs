//! Requests whose answers are read on their way: for their usage, or for rules about bodies.

use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Method};
use politely_core::budget::UnitCosts;
use politely_core::signal::UsageReader;

use super::Exchange;
use crate::limiter::Plan;
use crate::permit::Permit;

/// Returns whether the usage in the answer settles the `estimates` of a request.
///
/// If the body of its answer is read, a request that accepts content codings accepts none from now
/// on. A client that adds the field later decodes by itself.
pub(super) fn expect_body<X: Exchange>(
    request: &mut X::Request,
    plan: &Plan,
    permit: &Permit,
    estimates: &UnitCosts,
) -> bool {
    // A GET may return the usage of an earlier request.
    let is_new = *X::method(request) == Method::POST && permit.is_ruled_elsewhere();
    let reads_usage = is_new || UsageReader::corrects(estimates);
    let headers = X::headers_mut(request);
    if (reads_usage || plan.needs_bodies() || permit.needs_body())
        && headers.contains_key(ACCEPT_ENCODING)
    {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    reads_usage
}
