//! The responses of a host.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use crate::model::Quota;
use crate::town::{Headers, HostSpec, Robots};

/// The most links on the front page; more would make a page of megabytes.
const LINKS_MAX: u32 = 1_000;

/// The block page's status.
pub(super) const BLOCKED: u16 = 403;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Root,
    Page(u32),
    Robots,
    Unknown,
}

impl Path {
    pub(super) fn of(path: &str, pages: u32) -> Self {
        match path {
            "/" => Self::Root,
            "/robots.txt" => Self::Robots,
            _ => path
                .strip_prefix("/page/")
                .and_then(|number| number.parse().ok())
                .filter(|&number| number < pages)
                .map_or(Self::Unknown, Self::Page),
        }
    }

    pub(super) const fn page(self) -> Option<u32> {
        match self {
            Self::Page(number) => Some(number),
            _ => None,
        }
    }
}

/// When a refusal tells its client to come back.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    Bare,
    Seconds(u64),
    Date(SystemTime),
}

fn respond(
    status: u16,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    // Statuses were validated with the town.
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Returns the page. The same request gets the same bytes in every run.
pub(super) fn served(path: Path, spec: &HostSpec) -> Response<Full<Bytes>> {
    match path {
        Path::Root => {
            let mut body = format!("<!doctype html><title>{}</title>\n", spec.name);
            for page in 0..spec.pages.min(LINKS_MAX) {
                let _ = writeln!(body, "<a href=\"/page/{page}\">page {page}</a>");
            }
            respond(200, HTML, body)
        }
        Path::Page(page) => {
            let name = &spec.name;
            let mut body =
                format!("<!doctype html><title>{name}, page {page}</title>\n").into_bytes();
            // Short pages keep their first words.
            body.resize(body.len().max(spec.page_bytes), b'.');
            respond(200, HTML, body)
        }
        Path::Robots => match &spec.robots {
            Robots::Text(text) => respond(200, TEXT, text.clone()),
            Robots::Status(status) => respond(*status, TEXT, "no robots.txt\n"),
        },
        Path::Unknown => respond(404, TEXT, "no such page\n"),
    }
}

pub(super) fn refused(status: u16, refusal: Refusal) -> Response<Full<Bytes>> {
    let mut response = respond(status, TEXT, "too many requests\n");
    let value = match refusal {
        Refusal::Bare => return response,
        Refusal::Seconds(secs) => HeaderValue::from(secs),
        Refusal::Date(at) => match HeaderValue::from_str(&httpdate::fmt_http_date(at)) {
            Ok(value) => value,
            Err(_) => return response,
        },
    };
    response.headers_mut().insert(RETRY_AFTER, value);
    response
}

pub(super) fn failure(status: u16) -> Response<Full<Bytes>> {
    respond(status, TEXT, "something went wrong\n")
}

/// Returns a challenge page with one vendor's header, as a client meets it.
pub(super) fn blocked() -> Response<Full<Bytes>> {
    let body = "<!doctype html><title>Access denied</title>\n<h1>Sorry, you have been blocked</h1>\n\
                <p>Unusual traffic from your network was detected.</p>\n";
    let mut response = respond(BLOCKED, HTML, body);
    response
        .headers_mut()
        .insert("cf-mitigated", HeaderValue::from_static("challenge"));
    response
}

const fn secs_up(span: Duration) -> u64 {
    span.as_micros().div_ceil(1_000_000) as u64
}

pub(super) fn announce(headers: &mut HeaderMap, dialect: Headers, quota: Quota, wall: SystemTime) {
    let Quota {
        limit,
        remaining,
        reset,
        window,
    } = dialect.claim(quota);
    let mut set = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    let slots = window.is_zero();
    match dialect {
        Headers::None => {}
        Headers::Ietf | Headers::Lying if slots => {
            set(
                "ratelimit-policy",
                format!("\"default\";q={limit};qu=\"concurrent-requests\""),
            );
            set("ratelimit", format!("\"default\";r={remaining}"));
        }
        Headers::Ietf | Headers::Lying => {
            set(
                "ratelimit-policy",
                format!("\"default\";q={limit};w={}", secs_up(window)),
            );
            set(
                "ratelimit",
                format!("\"default\";r={remaining};t={}", secs_up(reset)),
            );
        }
        Headers::X => {
            set("x-ratelimit-limit", limit.to_string());
            set("x-ratelimit-remaining", remaining.to_string());
            if !slots {
                let since_1970 = wall
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default();
                set("x-ratelimit-reset", secs_up(since_1970 + reset).to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        assert_eq!(Path::of("/page/149", 150), Path::Page(149));
        assert_eq!(Path::of("/page/150", 150), Path::Unknown);
        assert_eq!(Path::of("/page/-1", 150), Path::Unknown);
        assert_eq!(Path::of("/robots.txt", 0), Path::Robots);
    }

    #[test]
    fn quotas_in_both_dialects() {
        let quota = Quota {
            limit: 20,
            remaining: 3,
            reset: Duration::from_millis(6_500),
            window: Duration::from_secs(10),
        };
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_700);
        let mut headers = HeaderMap::new();
        announce(&mut headers, Headers::Ietf, quota, wall);
        announce(&mut headers, Headers::X, quota, wall);
        let got = |name| headers[name].to_str().unwrap();
        assert_eq!(got("ratelimit-policy"), "\"default\";q=20;w=10");
        assert_eq!(got("ratelimit"), "\"default\";r=3;t=7");
        assert_eq!(got("x-ratelimit-limit"), "20");
        assert_eq!(got("x-ratelimit-remaining"), "3");
        assert_eq!(got("x-ratelimit-reset"), "1000008");
        announce(&mut headers, Headers::Lying, quota, wall);
        assert_eq!(headers["ratelimit-policy"], "\"default\";q=40;w=10");
        assert_eq!(headers["ratelimit"], "\"default\";r=40;t=7");
    }
}
