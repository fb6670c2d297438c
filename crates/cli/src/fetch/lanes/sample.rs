//! What may show that an answer is a refusal: its status, the target of a redirect, or the words of
//! a short page.
//!
//! Refusals differ in the number of an incident only, and in what they repeat of the request. A
//! page of content is longer, or unlike others.

use http::HeaderMap;
use http::header::LOCATION;
use politely::core::signal::Signal;
use url::{Position, Url};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::fetch::transport::answer::Answer;
use crate::fetch::transport::unexpected::{TEXT_MAX, is_text};

/// What tells an answer from others of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    Status(u16),
    /// A hash of the target of a redirect.
    Target(u32),
    /// A hash of the words of a short page.
    Text(u32),
}

impl Sample {
    /// Returns what may show that the `answer` to `url` is a refusal, unless it is a page of some
    /// length or an answer that other code judges.
    pub(crate) fn of(answer: &Answer, url: &Url, signal: Signal) -> Option<Self> {
        let status = answer.status.as_u16();
        match signal {
            Signal::Ok if answer.status.is_redirection() && status != 304 => {
                target(&answer.headers, url).map(Self::Target)
            }
            // A plain 500 is judged by its share (`core/src/host/evidence.rs`).
            Signal::Ok | Signal::UrlError if status >= 300 && status != 500 => {
                Some(Self::Status(status))
            }
            Signal::Ok => {
                let body = &answer.start;
                let is_whole = answer.spoiled.is_none()
                    && body.len() as u64 == answer.bytes
                    && body.len() < TEXT_MAX;
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
            Self::Target(hash) | Self::Text(hash) => hash | 1 << 31,
        }
    }
}

/// Returns a hash of the target of a redirect, unless it has the path of `url` too. Of a target
/// below that path only the rest counts, as in `/items/7` to `/items/7/blocked`. A query that
/// repeats the path of `url` does not count, as in `/login?next=/items/7`: it says where to go
/// afterwards, and no page.
fn target(headers: &HeaderMap, url: &Url) -> Option<u32> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    let to = url.join(location).ok()?;
    let path = |url: &Url| url[Position::BeforePath..Position::AfterPath].to_owned();
    let (own, whole) = (path(url), path(&to));
    let below = whole.strip_prefix(own.trim_end_matches('/'));
    let below = below.filter(|below| below.starts_with('/') && own != "/");
    match below {
        _ if own == whole => None,
        Some("/") => None,
        Some(below) => Some(xxh3_64(below.as_bytes()) as u32),
        None => {
            let repeats = |value: &str| url.path().len() > 1 && value.contains(url.path());
            let is_back = to.query_pairs().any(|(_, value)| repeats(&value));
            let end = if is_back {
                Position::AfterPath
            } else {
                Position::AfterQuery
            };
            Some(xxh3_64(to[..end].as_bytes()) as u32)
        }
    }
}

/// Returns a hash of the words in the answer to `url`, without those that contain a digit, those of
/// the URL, and those inside of tags.
fn hash(body: &[u8], url: &Url) -> u32 {
    let host = url.host_str().unwrap_or_default().as_bytes();
    let address = url[Position::BeforePath..].as_bytes();
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    let parts = address.split(|byte| !is_letter(byte));
    let own: Vec<&[u8]> = words(address).chain(parts).collect();
    let is_own = |word: &[u8]| own.iter().any(|part| part.eq_ignore_ascii_case(word));
    let text = visible(body);
    let mut hash = Xxh3::new();
    for word in words(&text) {
        let is_host = !host.is_empty() && word.windows(host.len()).any(|part| part == host);
        if !is_host && !is_own(word) && !word.iter().any(u8::is_ascii_digit) {
            hash.update(word);
        }
    }
    hash.digest() as u32
}

/// Returns a page without its tags, scripts and styles. Their attributes often have a token of the
/// request. What has no tags stays as it is.
fn visible(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        text.extend_from_slice(&rest[..at]);
        text.push(b' ');
        let tag = &rest[at + 1..];
        if !tag
            .first()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || b"/!".contains(byte))
        {
            text.push(b'<');
            rest = tag;
            continue;
        }
        let name = |name: &[u8]| {
            tag.get(..name.len())
                .is_some_and(|tag| tag.eq_ignore_ascii_case(name))
        };
        let end: &[u8] = if name(b"script") {
            b"</script"
        } else if name(b"style") {
            b"</style"
        } else {
            b">"
        };
        let length = tag
            .windows(end.len())
            .position(|part| part.eq_ignore_ascii_case(end));
        rest = match length {
            Some(at) if end == b">" => &tag[at + 1..],
            Some(at) => &tag[at..],
            None => &[],
        };
    }
    text.extend_from_slice(rest);
    text
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

    use http::header::CONTENT_TYPE;
    use http::{HeaderName, HeaderValue, StatusCode};

    use super::*;
    use crate::fetch::transport::answer::Wire;

    fn sample(kind: Option<&'static str>, url: &str, body: &str) -> Option<Sample> {
        let kind = kind.map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind)));
        sample_of(StatusCode::OK, kind, url, body)
    }

    fn redirect(url: &str, to: &str) -> Option<Sample> {
        let to = HeaderValue::from_str(to).unwrap();
        sample_of(StatusCode::FOUND, Some((LOCATION, to)), url, "")
    }

    fn sample_of(
        status: StatusCode,
        header: Option<(HeaderName, HeaderValue)>,
        url: &str,
        body: &str,
    ) -> Option<Sample> {
        let answer = Answer {
            status,
            headers: header.into_iter().collect(),
            latency: Duration::ZERO,
            bytes: body.len() as u64,
            content: None,
            exchange: None,
            start: body.to_owned().into(),
            wire: Wire::default(),
            spoiled: None,
            saved: None,
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
        assert_eq!(sample(None, url, &"long ".repeat(20_000)), None);
    }

    #[test]
    fn redirects_to_one_page_are_alike_and_those_to_the_same_path_are_none() {
        let login = redirect("http://a.example/1", "/login?next=%2F1");
        assert!(matches!(login, Some(Sample::Target(_))), "{login:?}");
        let absolute = redirect("http://a.example/2", "http://a.example/login?next=%2F2");
        assert_eq!(login, absolute);
        assert_ne!(
            login,
            redirect("http://a.example/1", "http://b.example/login")
        );
        assert_ne!(login, redirect("http://a.example/1", "/2"));
        // A way to a page, and no way back to it.
        assert_ne!(
            redirect("http://a.example/1", "/view?id=1"),
            redirect("http://a.example/2", "/view?id=2")
        );
        for to in ["https://a.example/1", "/1?session=7", "http://[", "//:"] {
            assert_eq!(redirect("http://a.example/1", to), None, "{to}");
        }
    }

    #[test]
    fn tokens_in_tags_and_scripts_do_not_tell_refusals_apart() {
        let page = |token: &str, title: &str| {
            let slug = title.to_lowercase().replace(' ', "-");
            let body = format!(
                "<html><script>let t = '{token}'; if (1 < 2) go()</script><img src=/c/{token}.jpg>\
                 <p>Type the letters to read {title}.<form action='/{token}'>"
            );
            sample(None, &format!("http://a.example/read/{slug}"), &body)
        };
        let first = page("qwertz", "Red Cats");
        assert_eq!(first, page("azerty", "Blue Dogs"));
        let other = sample(None, "http://a.example/x", "<p>Type the letters to write.");
        assert_ne!(first, other);
        let unfinished = sample(None, "http://a.example/x", "1 < 2 and <b");
        assert!(unfinished.is_some());
    }

    #[test]
    fn redirects_below_the_own_path_are_alike_and_a_final_slash_is_none() {
        let blocked = redirect("http://a.example/item/7", "/item/7/_block/stop");
        assert_eq!(
            blocked,
            redirect("http://a.example/other/8", "/other/8/_block/stop")
        );
        assert!(blocked.is_some());
        assert_eq!(redirect("http://a.example/item", "/item/"), None);
        assert_ne!(blocked, redirect("http://a.example/", "/_block/stop"));
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
