//! JSON bodies in, with problems that name the field.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::problem;

/// A body that takes longer is not coming.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A JSON body; on the way out, an answer.
pub(crate) struct Json<T>(pub(crate) T);

/// A query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        // Only a page of ours sends this without being asked first by a browser (CORS): no stranger's page can.
        if !is_json(request.headers()) {
            let detail = "the body must be application/json";
            return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail, None));
        }
        let read = Bytes::from_request(request, state);
        let Ok(read) = tokio::time::timeout(BODY_TIME, read).await else {
            let detail = format!("the body did not come within {} s", BODY_TIME.as_secs());
            return Err(problem(StatusCode::REQUEST_TIMEOUT, detail, None));
        };
        let bytes = read.map_err(|why| problem(why.status(), why.body_text(), None))?;
        // Where a body is wrong is looked for only then: it takes longer.
        serde_json::from_slice(&bytes).map(Self).or_else(|_| {
            let mut json = serde_json::Deserializer::from_slice(&bytes);
            let read = serde_path_to_error::deserialize(&mut json).and_then(|value| {
                json.end()
                    .map(|()| value)
                    .map_err(|why| serde_path_to_error::Error::new(serde_path_to_error::Path::default(), why))
            });
            read.map(Self).map_err(|wrong: serde_path_to_error::Error<serde_json::Error>| {
                let path = wrong.path().to_string();
                let inner = wrong.into_inner();
                let status = if inner.is_data() {
                    StatusCode::UNPROCESSABLE_ENTITY
                } else {
                    StatusCode::BAD_REQUEST
                };
                problem(status, inner.to_string(), (path != "." && path != "?").then_some(path))
            })
        })
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(why) => Err(problem(StatusCode::BAD_REQUEST, why.body_text(), None)),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}
