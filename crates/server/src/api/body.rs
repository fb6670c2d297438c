//! JSON bodies in, with problems that name the field.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::Wrong;

/// The largest body: 4,096 reports with a kilobyte of headers each.
const BODY_MAX: usize = 4 << 20;
/// A body that takes longer is not coming.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A thread keeps so much room for its next answer.
const SCRATCH_MAX: usize = 1 << 20;

thread_local! {
    /// Where answers are written before it is known how long they are: a buffer of their own would be grown and copied a few
    /// times for each.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A JSON body; on the way out, an answer.
pub(crate) struct Json<T>(pub(crate) T);

/// A query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Wrong;

    async fn from_request(request: Request, _: &S) -> Result<Self, Wrong> {
        // Only a page of ours sends this without being asked first by a browser (CORS): no stranger's page can.
        if !is_json(request.headers()) {
            let detail = "the body must be application/json";
            return Err(Wrong::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let read = to_bytes(request.into_body(), BODY_MAX);
        let Ok(read) = tokio::time::timeout(BODY_TIME, read).await else {
            let detail = format!("the body did not come within {} s", BODY_TIME.as_secs());
            return Err(Wrong::new(StatusCode::REQUEST_TIMEOUT, detail));
        };
        let bytes = read.map_err(|why| unread(&why))?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|why| unreadable::<T>(&bytes, &why))
    }
}

/// Why a body could not be read to its end.
fn unread(why: &axum::Error) -> Wrong {
    if matches!(why.source(), Some(cause) if cause.is::<LengthLimitError>()) {
        let detail = format!("a body is at most {BODY_MAX} bytes long");
        return Wrong::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
    }
    Wrong::new(StatusCode::BAD_REQUEST, why.to_string())
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
        let written = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            let written = serde_json::to_writer(&mut *scratch, &self.0);
            let bytes = Bytes::copy_from_slice(scratch);
            scratch.shrink_to(SCRATCH_MAX);
            written.map(|()| bytes)
        });
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(why) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Wrong::new(status, why.to_string()).into_response();
            }
        };
        let mut response = Response::new(Body::from(bytes));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
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
