//! JSON bodies in, with problems that name the field.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::Wrong;

/// A body that takes longer is not coming.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A JSON body; on the way out, an answer.
pub(crate) struct Json<T>(pub(crate) T);

/// A query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Wrong;

    async fn from_request(request: Request, state: &S) -> Result<Self, Wrong> {
        // Only a page of ours sends this without being asked first by a browser (CORS): no stranger's page can.
        if !is_json(request.headers()) {
            let detail = "the body must be application/json";
            return Err(Wrong::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let read = Bytes::from_request(request, state);
        let Ok(read) = tokio::time::timeout(BODY_TIME, read).await else {
            let detail = format!("the body did not come within {} s", BODY_TIME.as_secs());
            return Err(Wrong::new(StatusCode::REQUEST_TIMEOUT, detail));
        };
        let bytes = read.map_err(|why| Wrong::new(why.status(), why.body_text()))?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|why| unreadable::<T>(&bytes, &why))
    }
}

/// What is wrong with a body, and where: read once more, since looking for where takes longer.
fn unreadable<T: DeserializeOwned>(bytes: &[u8], why: &serde_json::Error) -> Wrong {
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let wrong = serde_path_to_error::deserialize::<_, T>(json).err();
    let field = wrong.map(|wrong| wrong.path().to_string());
    let status = if why.is_data() {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::BAD_REQUEST
    };
    let field = field.filter(|path| path != "." && path != "?");
    let wrong = Wrong::new(status, why.to_string());
    match field {
        Some(path) => wrong.field(path),
        None => wrong,
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Wrong> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(why) => Err(Wrong::new(StatusCode::BAD_REQUEST, why.body_text())),
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
