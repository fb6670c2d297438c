//! What is wrong with a call: RFC 9457 problem documents.

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use politely::wire::{Error, Problem};

/// A problem with this status; `field` is the path of what is wrong in the body.
pub(crate) fn problem(status: StatusCode, detail: impl Into<String>, field: Option<String>) -> Response {
    let problem = Problem {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or("error").to_owned(),
        status: status.as_u16(),
        detail: detail.into(),
        field,
    };
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let json = HeaderValue::from_static("application/problem+json");
    (status, [(header::CONTENT_TYPE, json)], body).into_response()
}

/// A field that says what cannot be done.
pub(crate) fn invalid(error: Error) -> Response {
    problem(StatusCode::UNPROCESSABLE_ENTITY, error.detail, Some(error.field))
}

/// More than there is room for: come again.
pub(crate) fn busy(detail: &str) -> Response {
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, detail, None);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

pub(crate) async fn not_found(uri: Uri) -> Response {
    problem(StatusCode::NOT_FOUND, format!("there is no {}", uri.path()), None)
}

pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not take {method}", uri.path());
    problem(StatusCode::METHOD_NOT_ALLOWED, detail, None)
}
