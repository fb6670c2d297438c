//! Header fields that are for one hop only (RFC 9110, section 7.6), and those that a proxy adds.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};

use http_body::Body;

use super::problem::Problem;
use super::way::Kind;

/// The fields of one hop, beside those that Connection names.
const OF_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Returns whether a request wants to go on with WebSocket. Other upgrades are not passed on.
pub(super) fn wants_websocket<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.version() == Version::HTTP_11
        && names_websocket(headers)
        && words(headers, CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.get(UPGRADE).is_some_and(is_websocket)
}

/// Checks the framing of a request, which hyper reads if `chunked` is only the last of its codings.
pub(super) fn check_request<B>(request: &Request<B>, kind: Kind) -> Result<(), Problem> {
    let headers = request.headers();
    let is_coded = headers.contains_key(TRANSFER_ENCODING);
    if kind == Kind::Tunnel && (is_coded || headers.contains_key(CONTENT_LENGTH)) {
        return Err(Problem::bad("a CONNECT has no body"));
    }
    let is_chunked = |word: &str| word.eq_ignore_ascii_case("chunked");
    if !is_coded || is_chunked_once(headers) {
        Ok(())
    } else if words(headers, TRANSFER_ENCODING).all(is_chunked) {
        Err(Problem::bad("Transfer-Encoding: chunked twice"))
    } else {
        let detail = "Transfer-Encoding: only chunked is served";
        Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail))
    }
}

/// Checks what a response says of its hop, and leaves one length in it.
pub(super) fn check_response<B>(
    response: &mut Response<B>,
    upgrades: bool,
) -> Result<(), &'static str> {
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if switches && !(upgrades && names_websocket(headers)) {
        return Err("the host changed to a protocol that was not asked for");
    }
    if headers.contains_key(TRANSFER_ENCODING) && !is_chunked_once(headers) {
        return Err("the host's answer has a transfer coding other than chunked");
    }
    let lengths: Vec<&str> = words(headers, CONTENT_LENGTH).collect();
    if let [first, rest @ ..] = &lengths[..]
        && !rest.is_empty()
    {
        let length = first.parse::<u64>().ok();
        let length = length.filter(|_| rest.iter().all(|other| other == first));
        let length = length.ok_or("the host's answer has several lengths")?;
        headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(())
}

fn is_chunked_once(headers: &HeaderMap) -> bool {
    let mut codings = words(headers, TRANSFER_ENCODING);
    let first = codings.next();
    first.is_some_and(|it| it.eq_ignore_ascii_case("chunked")) && codings.next().is_none()
}

/// Returns whether the caller sends its body only when it is asked to. HTTP/1.0 cannot be asked.
pub(super) fn expects_continue<B: Body>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11
        && words(request.headers(), EXPECT).any(|word| word.eq_ignore_ascii_case("100-continue"))
        && !request.body().is_end_stream()
}

/// Makes the header fields of a request those of the next hop.
pub(super) fn pass_request<B>(request: &mut Request<B>, upgrades: bool, expects: bool) {
    let version = request.version();
    let headers = request.headers_mut();
    let wants_trailers = words(headers, TE).any(|word| word.eq_ignore_ascii_case("trailers"));
    strip(headers);
    // The client names the host, from the URL.
    headers.remove(HOST);
    if !expects {
        headers.remove(EXPECT);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if version < Version::HTTP_2 {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }
    if upgrades {
        upgrade(headers);
    }
    headers.append(VIA, via(version));
    *request.version_mut() = Version::HTTP_11;
}

/// Makes the header fields of a response those of the caller's hop. A forward proxy names itself
/// in it; a gateway is the server of its callers.
pub(super) fn pass_response<B>(response: &mut Response<B>, is_forward: bool) {
    let (version, status) = (response.version(), response.status());
    let headers = response.headers_mut();
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip(headers);
    // A host does not speak for this proxy.
    let ours = |name: &&HeaderName| name.as_str().starts_with("politely-");
    let ours: Vec<_> = headers.keys().filter(ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        upgrade(headers);
    }
    if is_forward {
        headers.append(VIA, via(version));
    }
    *response.version_mut() = Version::HTTP_11;
}

/// Counts Max-Forwards of a TRACE or OPTIONS down. Returns whether the request ends here (RFC 9110,
/// section 7.6.2).
pub(super) fn is_last_hop<B>(request: &mut Request<B>) -> bool {
    if !matches!(*request.method(), Method::TRACE | Method::OPTIONS) {
        return false;
    }
    let headers = request.headers_mut();
    let left = headers
        .get(MAX_FORWARDS)
        .and_then(|left| left.to_str().ok());
    let Some(left) = left.and_then(|left| left.parse::<u32>().ok()) else {
        return false;
    };
    if let Some(left) = left.checked_sub(1) {
        headers.insert(MAX_FORWARDS, left.into());
    }
    left == 0
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = words(headers, CONNECTION)
        .filter_map(|word| word.parse().ok())
        .collect();
    for name in OF_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

fn upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 politely",
        Version::HTTP_2 => "2 politely",
        _ => "1.1 politely",
    })
}

/// Returns the words of all fields with this name.
fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
