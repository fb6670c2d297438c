//! The fields of a result line about the last answer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Version};
use serde::Serialize;
use url::Url;

use crate::fetch::transport::answer::Answer;

/// The longest value of a header field in a result line, in bytes. A stranger chooses it.
const VALUE_MAX: usize = 4096;

/// The fields of a result line about the last answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LastAnswer {
    /// The URL that answered, if it is not the one that was requested first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) final_url: Option<Box<str>>,
    /// The redirects that led there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) redirects: Vec<Redirect>,
    content_type: Option<Box<str>>,
    /// The size of the body as it came, before it was decoded.
    wire_bytes: u64,
    protocol: Option<&'static str>,
    /// The address of the host. A proxy knows it alone.
    address: Option<IpAddr>,
    /// Time to look up the name, to connect and for TLS, or `None` on a connection that was kept.
    connect_ms: Option<u64>,
    /// Time from the last request to the end of its answer.
    total_ms: u64,
    /// The fields of `--row-header`.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<Box<str>, Box<str>>>,
}

/// A redirect that was followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Redirect {
    /// The URL that answered with it.
    url: Box<str>,
    status: u16,
}

impl Redirect {
    pub(crate) fn of(url: &Url, status: u16) -> Self {
        Self {
            url: shown(url),
            status,
        }
    }
}

impl LastAnswer {
    /// Returns the fields about an answer of `url` after `redirects`. `chosen` are the names of
    /// `--row-header`.
    pub(crate) fn of(
        answer: &Answer,
        url: &Url,
        redirects: &[Redirect],
        chosen: &[HeaderName],
    ) -> Self {
        let headers = chosen
            .iter()
            .filter_map(|name| Some((name.as_str().into(), values(&answer.headers, name)?)));
        Self {
            final_url: (!redirects.is_empty()).then(|| shown(url)),
            redirects: redirects.to_vec(),
            content_type: values(&answer.headers, &CONTENT_TYPE),
            wire_bytes: answer.wire.bytes,
            protocol: Some(protocol(answer.wire.version)),
            address: answer.wire.address,
            connect_ms: answer.wire.connect.map(millis),
            total_ms: millis(answer.wire.total),
            headers: (!chosen.is_empty()).then(|| headers.collect()),
        }
    }
}

/// Returns a URL without a login.
fn shown(url: &Url) -> Box<str> {
    crate::fetch::without_login(url.as_str()).into()
}

/// Returns the values of a field, which are joined if there are several.
fn values(headers: &HeaderMap, name: &HeaderName) -> Option<Box<str>> {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let joined: String = values.join(", ").chars().take(VALUE_MAX).collect();
    (!values.is_empty()).then(|| joined.into())
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => "HTTP/1.1",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
