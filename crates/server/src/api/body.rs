//! JSON request bodies, and problem documents that name the wrong field.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::Wrong;

/// The largest body, in bytes: 4,096 reports with a kilobyte of headers each.
const BODY_MAX: usize = 4 << 20;
/// The time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The most bytes of the scratch buffer that a thread keeps for its next answer.
const SCRATCH_MAX: usize = 1 << 20;

thread_local! {
    /// Each answer is written here first, because its length is unknown. A new buffer per answer
    /// would be grown and copied several times.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A JSON body: an extractor for requests, and a response.
pub(crate) struct Json<T>(pub(crate) T);

/// The parameters of a query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Wrong;

    async fn from_request(request: Request, _: &S) -> Result<Self, Wrong> {
        // A page of another origin can send this content type only after a CORS preflight.
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
        // serde would accept an array as the fields in their order.
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            let detail = "the body must be an object, not an array";
            return Err(Wrong::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
        }
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|why| unreadable::<T>(&bytes, &why))
    }
}

/// Returns the problem for a body that could not be read to its end.
fn unread(why: &axum::Error) -> Wrong {
    if matches!(why.source(), Some(cause) if cause.is::<LengthLimitError>()) {
        let detail = format!("a body is at most {BODY_MAX} bytes long");
        return Wrong::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
    }
    Wrong::new(StatusCode::BAD_REQUEST, why.to_string())
}

/// Returns the problem for a body that cannot be parsed, with the wrong field. Parses the body a
/// second time, because tracking the path is slower.
fn unreadable<T: DeserializeOwned>(bytes: &[u8], why: &serde_json::Error) -> Wrong {
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let wrong = serde_path_to_error::deserialize::<_, T>(json).err();
    let path = wrong.map(|wrong| wrong.path().to_string());
    let path = path.filter(|path| path != "." && path != "?");
    let status = if why.is_data() {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::BAD_REQUEST
    };
    let why = why.to_string();
    let missing = why.strip_prefix("missing field `");
    let missing = missing.and_then(|rest| rest.split('`').next());
    let field = match (path, missing) {
        (Some(path), Some(missing)) => Some(format!("{path}.{missing}")),
        (path, missing) => path.or(missing.map(str::to_owned)),
    };
    let wrong = Wrong::new(status, in_words(&why));
    match field {
        Some(path) => wrong.field(path),
        None => wrong,
    }
}

/// Translates serde's names of Rust types into JSON's terms.
fn in_words(why: &str) -> String {
    let mut words = why
        .replace("expected f64", "expected a number")
        .replace("expected a sequence", "expected an array")
        .replace("invalid type: sequence", "invalid type: array")
        .replace("invalid type: map", "invalid type: object")
        .replace("expected a map", "expected an object");
    if let Some(at) = words.find("expected struct ") {
        let name = words[at + 16..].split(' ').next().unwrap_or_default().len();
        words.replace_range(at..at + 16 + name, "expected an object");
    }
    words
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
            Err(why) => Err(misread(&why.body_text())),
        }
    }
}

/// Returns the problem for a query that cannot be parsed. The parser's message has the form
/// `Failed to …: field: why`.
fn misread(text: &str) -> Wrong {
    let text = text.split_once(": ").map_or(text, |(_, said)| said);
    let (field, why) = match text.split_once(": ") {
        Some(named) => named,
        None => match text.strip_prefix("duplicate field `") {
            Some(rest) => (rest.trim_end_matches('`'), "is there twice"),
            None => ("", text),
        },
    };
    let why = match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "must be a whole number of at least 0"
        }
        "number too large to fit in target type" => "is too large",
        other => other,
    };
    let wrong = Wrong::new(StatusCode::BAD_REQUEST, why);
    if field.is_empty() {
        wrong
    } else {
        wrong.field(field)
    }
}

/// A path parameter, as text.
pub(crate) struct Part(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Part {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Wrong> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(part)) => Ok(Self(part)),
            Err(why) => Err(Wrong::new(StatusCode::BAD_REQUEST, why.body_text()).field("key")),
        }
    }
}

/// Two path parameters, as text: a crawl and a URL.
pub(crate) struct TwoParts(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TwoParts {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Wrong> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path((first, second))) => Ok(Self(first, second)),
            Err(why) => Err(Wrong::new(StatusCode::BAD_REQUEST, why.body_text()).field("url")),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    is_type(headers, "application/json")
}

/// Returns whether a body has this type.
pub(super) fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}
