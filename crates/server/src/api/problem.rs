//! Errors of HTTP calls as RFC 9457 problem documents.

use std::collections::BTreeMap;

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use politely_api::wire::{Error, Problem};
use utoipa::IntoResponses;
use utoipa::openapi::{self, Ref, RefOr};

use crate::coordinator::NotSet;

/// The type of a problem document.
const PROBLEM: &str = "application/problem+json";

/// An error that fails a whole call.
#[derive(Debug)]
pub(crate) struct Wrong {
    status: StatusCode,
    detail: String,
    field: Option<String>,
}

impl Wrong {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            field: None,
        }
    }

    /// Returns a 503: the coordinator cannot take the call now.
    pub(crate) fn busy(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// Returns a 429: the caller is at one of its caps.
    pub(crate) fn capped(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    #[cfg(test)]
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// Sets the path of the wrong field in the body.
    pub(crate) fn field(mut self, path: impl Into<String>) -> Self {
        self.field = Some(path.into());
        self
    }
}

/// An error about a field becomes a 422.
impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.detail).field(error.field)
    }
}

/// A change that may be lost becomes a 503. The caller can safely repeat it.
impl From<NotSet> for Wrong {
    fn from(not_set: NotSet) -> Self {
        match not_set {
            NotSet::Wrong(error) => error.into(),
            NotSet::Refused(why) => Self::busy(&format!(
                "nothing was changed, since it could not be kept: {why}; repeat it when /readyz answers 200"
            )),
            NotSet::Unkept(why) => Self::busy(&format!(
                "the change may be in force, and may be lost: {why}; repeat it when /readyz answers 200"
            )),
        }
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        let status = self.status;
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("error").to_owned(),
            status: status.as_u16(),
            detail: self.detail,
            field: self.field,
        };
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                // A browser asks for a password after `Basic`. `Bearer` tells API clients that a
                // bearer token is accepted.
                let ask = "Basic realm=\"politely\", Bearer realm=\"politely\"";
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(ask));
            }
            _ => {}
        }
        response
    }
}

/// The description of a call that fails with a problem document.
impl IntoResponses for Wrong {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let problem = openapi::Content::new(Some(Ref::from_schema_name("Problem")));
        let response = openapi::Response::builder()
            .content(PROBLEM, problem)
            .build();
        let statuses = ["4XX", "503"].map(str::to_owned);
        statuses
            .map(|status| (status, response.clone().into()))
            .into()
    }
}

pub(crate) async fn not_found(uri: Uri) -> Wrong {
    Wrong::new(StatusCode::NOT_FOUND, format!("there is no {}", uri.path()))
}

pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Wrong {
    let detail = format!("{} does not take {method}", uri.path());
    Wrong::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
