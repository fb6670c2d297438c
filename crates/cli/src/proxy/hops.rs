//! Header fields that are for one hop only (RFC 9110, section 7.6), and those that a proxy adds.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};

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
    let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    request.version() == Version::HTTP_11
        && headers.get(UPGRADE).is_some_and(is_websocket)
        && words(headers, CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

/// Makes the header fields of a request those of the next hop.
pub(super) fn pass_request<B>(request: &mut Request<B>, upgrades: bool) {
    let version = request.version();
    let headers = request.headers_mut();
    let wants_trailers = words(headers, TE).any(|word| word.eq_ignore_ascii_case("trailers"));
    strip(headers);
    // The client names the host, from the URL. It is this proxy that answers 100.
    headers.remove(HOST);
    headers.remove(EXPECT);
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
