//! What may show that an answer is a refusal: its status, or the words of a short page.
//!
//! Refusals differ in the number of an incident only, and in what they repeat of the request. A
//! page of content is longer, or unlike others.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use politely::core::signal::{BODY_SCANNED, Signal};
use url::{Position, Url};
use xxhash_rust::xxh3::Xxh3;

use crate::fetch::transport::client::Answer;

/// What tells an answer from others of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    Status(u16),
    /// A hash of the words of a short page.
    Text(u32),
}

impl Sample {
    /// Returns what may show that the `answer` to `url` is a refusal, unless it is a page of some
    /// length or an answer that other code judges.
    pub(crate) fn of(answer: &Answer, url: &Url, signal: Signal) -> Option<Self> {
        let status = answer.status.as_u16();
        match signal {
            // A plain 500 is judged by its share (`core/src/host/evidence.rs`).
            Signal::Ok | Signal::UrlError if status >= 300 && status != 500 => {
                Some(Self::Status(status))
            }
            Signal::Ok => {
                let body = &answer.start;
                let is_whole = body.len() as u64 == answer.bytes && body.len() < BODY_SCANNED;
                let is_text = body.is_empty() || is_text(&answer.headers);
                (is_whole && is_text).then(|| Self::Text(hash(body, url)))
            }
            _ => None,
        }
    }

    /// Returns the number by which core compares answers. Statuses are smaller than hashes.
    pub(super) fn alike(self) -> u32 {
        match self {
            Self::Status(status) => u32::from(status),
            Self::Text(hash) => hash | 1 << 31,
        }
    }
}

/// Returns whether the body is a text, as far as its head says.
fn is_text(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let kind = String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.starts_with("text/") || kind.ends_with("json") || kind.ends_with("xml")
}

/// Returns a hash of the words in the answer to `url`, without those that contain a digit, and
/// those of the URL.
fn hash(body: &[u8], url: &Url) -> u32 {
    let host = url.host_str().unwrap_or_default().as_bytes();
    let own: Vec<&[u8]> = words(url[Position::BeforePath..].as_bytes()).collect();
    let mut hash = Xxh3::new();
    for word in words(body) {
        let is_host = !host.is_empty() && word.windows(host.len()).any(|part| part == host);
        if !is_host && !own.contains(&word) && !word.iter().any(u8::is_ascii_digit) {
            hash.update(word);
        }
    }
    hash.digest() as u32
}

/// Returns the words of a text. A path is one word.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_part =
        |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"/._-%".contains(byte);
    text.split(move |byte| !is_part(byte)).map(|word| {
        let is_end = |byte: &u8| matches!(byte, b'/' | b'.' | b'-');
        let from = word
            .iter()
            .position(|byte| !is_end(byte))
            .unwrap_or(word.len());
        let to = word
            .iter()
            .rposition(|byte| !is_end(byte))
            .map_or(from, |at| at + 1);
        &word[from..to]
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderValue, StatusCode};

    use super::*;

    fn sample(kind: Option<&'static str>, url: &str, body: &str) -> Option<Sample> {
        let mut headers = HeaderMap::new();
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let answer = Answer {
            status: StatusCode::OK,
            headers,
            latency: Duration::ZERO,
            bytes: body.len() as u64,
            start: body.to_owned().into(),
            spoiled: None,
            no_room: None,
        };
        Sample::of(&answer, &Url::parse(url).unwrap(), Signal::Ok)
    }

    #[test]
    fn texts_of_every_kind_and_empty_bodies_are_compared_and_others_are_not() {
        let url = "http://a.example/";
        for kind in [
            "text/html",
            "Text/Plain; charset=utf-8",
            "application/json",
            "application/problem+json",
            "application/xhtml+xml",
        ] {
            assert!(sample(Some(kind), url, "banned").is_some(), "{kind}");
        }
        assert!(sample(None, url, "banned").is_some());
        assert!(sample(Some("image/png"), url, "").is_some());
        for kind in ["image/png", "application/octet-stream", "application/pdf"] {
            assert_eq!(sample(Some(kind), url, "data"), None, "{kind}");
        }
        assert_eq!(sample(None, url, &"long ".repeat(4_000)), None);
    }

    #[test]
    fn refusals_are_alike_whatever_they_repeat_of_the_request() {
        let page = |url: &str, incident: &str| {
            let url = Url::parse(url).unwrap();
            let path = &url[Position::BeforePath..];
            let body = format!(
                "<p>You cannot open {path}. <a href=\"{url}\">Again</a>. Incident {incident}, 17:03."
            );
            sample(None, url.as_str(), &body)
        };
        let first = page("http://a.example/body/about", "18.deadbee7");
        assert_eq!(first, page("http://a.example/", "18.0dd5eed"));
        assert_eq!(
            first,
            page("http://b.example/find?q=cats&b=dogs", "44-fee1-dead")
        );
        assert_eq!(first, page("http://b.example/p/7", "12"));
        let other = sample(None, "http://a.example/", "<p>You cannot close it.");
        assert_ne!(first, other);
    }
}
