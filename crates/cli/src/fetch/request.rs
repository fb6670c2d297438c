//! The request of a page, where it is more than a GET of its URL.
//!
//! The crawl knows a page by its URL. A page with another method, or with a body, is known by
//! [`PageRequest::known_as`] instead, a URL made of a hash of method, URL and body. So such pages
//! with one URL are different pages, and fields, labels and `meta` do not make pages different.
//! The request is the page's metadata in the crawl, so it survives a kill. What the settings add
//! to every request may be secret, so it is not stored.

use std::fmt;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, HeaderName,
};
use http::{HeaderMap, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use url::Url;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::crawl::metadata::Kind;
use super::crawl::random;
use super::defaults::Defaults;

/// The name of the field that lets a server recognise a request that is sent again.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The fields that describe a body.
const OF_BODY: [HeaderName; 4] = [
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
];

/// The parts of a page's request beside its URL.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PageRequest {
    /// The URL that is requested.
    pub(crate) url: Box<str>,
    /// The URL of the input, if its text differs.
    pub(crate) given: Option<Box<str>>,
    method: Box<str>,
    /// The fields of the input line.
    headers: Vec<(Box<str>, Box<[u8]>)>,
    content: Content,
    /// JSON of the input line that comes back in the page's row.
    pub(crate) meta: Option<Box<str>>,
    /// The value of the Idempotency-Key.
    key: Option<Box<str>>,
}

/// The body of a request.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Content {
    None,
    /// The body of the settings, which has this hash.
    OfSettings(u64),
    Own(Box<[u8]>),
}

/// The parts of a request that an input line gives.
#[derive(Default)]
pub(crate) struct LineRequest {
    pub(crate) method: Option<Method>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Box<[u8]>>,
    pub(crate) meta: Option<Box<str>>,
}

impl PageRequest {
    /// Returns the request for `url`, given as the text `given`, or `None` if it is a GET of its
    /// URL without more.
    pub(crate) fn of(
        url: &Url,
        given: &str,
        line: LineRequest,
        defaults: &Defaults,
    ) -> Option<Self> {
        let is_own = line.method.is_some() || line.body.is_some();
        let content = match line.body {
            Some(body) => Content::Own(body),
            None if is_own => Content::None,
            None => (defaults.body.as_ref())
                .map_or(Content::None, |it| Content::OfSettings(xxh3_64(it))),
        };
        let method = match (line.method, &content) {
            (Some(method), _) => method,
            (None, Content::Own(_)) => Method::POST,
            (None, _) => defaults.method.clone(),
        };
        let is_plain = line.headers.is_empty() && line.meta.is_none();
        if is_plain && method == Method::GET && content == Content::None {
            return None;
        }
        let needs_key = defaults.gives_keys && !method.is_idempotent();
        let mut headers = line.headers;
        if let Content::Own(body) = &content
            && !headers.contains_key(CONTENT_TYPE)
        {
            headers.insert(CONTENT_TYPE, content_type(body));
        }
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().into(), value.as_bytes().into())
        };
        Some(Self {
            url: url.as_str().into(),
            given: (url.as_str() != given).then(|| given.into()),
            key: (needs_key && !headers.contains_key(IDEMPOTENCY_KEY)).then(random_uuid),
            headers: headers.iter().map(field).collect(),
            method: method.as_str().into(),
            content,
            meta: line.meta,
        })
    }

    /// Returns the number of a request that is not a GET without a body. It tells requests of one
    /// URL apart.
    pub(crate) fn id(&self) -> Option<u128> {
        if &*self.method == "GET" && self.content == Content::None {
            return None;
        }
        let mut hash = Xxh3::new();
        for part in [&*self.method, " ", &*self.url, " "] {
            hash.update(part.as_bytes());
        }
        match &self.content {
            Content::None => {}
            Content::OfSettings(body) => hash.update(&body.to_le_bytes()),
            Content::Own(body) => hash.update(&xxh3_64(body).to_le_bytes()),
        }
        Some(hash.digest128())
    }

    /// Returns the URL under which the crawl knows the page of a request with `id`.
    pub(crate) fn known_as(id: u128) -> String {
        // RFC 2606 reserves the name, so this is no page of the input.
        format!("http://request.invalid/{id:032x}")
    }

    pub(crate) fn method(&self) -> Method {
        // The method was checked when the line was read.
        Method::from_bytes(self.method.as_bytes()).unwrap_or_default()
    }

    /// Returns whether the request may be sent again although the first one may have arrived.
    pub(crate) fn may_repeat(&self) -> bool {
        let has_key = |(name, _): &(Box<str>, _)| **name == *IDEMPOTENCY_KEY.as_str();
        self.method().is_idempotent() || self.key.is_some() || self.headers.iter().any(has_key)
    }

    /// Returns the request with another Idempotency-Key, if it has one of this program: it is meant
    /// to act again.
    pub(crate) fn renewed(self) -> Self {
        let key = self.key.is_some().then(random_uuid);
        Self { key, ..self }
    }

    /// Returns the body to send, or `None` if it is that of settings that are no longer given.
    pub(crate) fn body(&self, defaults: &Defaults) -> Option<Bytes> {
        match &self.content {
            Content::None => Some(Bytes::new()),
            Content::Own(body) => Some(Bytes::copy_from_slice(body)),
            Content::OfSettings(hash) => {
                let body = defaults.body.as_ref();
                body.filter(|body| xxh3_64(body) == *hash).cloned()
            }
        }
    }

    /// Puts the fields of the request into `headers`, in place of those of the settings.
    fn put_headers(&self, headers: &mut HeaderMap) {
        let own = self.headers.iter().filter_map(|(name, value)| {
            // The fields were checked when the line was read.
            let text = std::str::from_utf8(value).ok()?;
            crate::config::header(name, text).ok()
        });
        let own: Vec<_> = own.collect();
        for (name, _) in &own {
            headers.remove(name);
        }
        for (name, value) in own {
            headers.append(name, value);
        }
        let key = self
            .key
            .as_ref()
            .and_then(|key| HeaderValue::from_str(key).ok());
        headers.extend(key.map(|key| (IDEMPOTENCY_KEY, key)));
    }

    /// Returns the request as metadata of the crawl.
    pub(crate) fn stored(&self) -> Vec<u8> {
        Kind::Request.store(self)
    }

    /// Returns the request in metadata of the crawl, if that is one.
    pub(crate) fn read(metadata: &[u8]) -> Option<Self> {
        Kind::Request.read(metadata).map(|(request, _)| request)
    }
}

impl fmt::Debug for PageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PageRequest");
        // The rest may be secret.
        shown.field("method", &self.method).finish_non_exhaustive()
    }
}

/// Returns the fields for a request. `is_rewritten` means that a redirect made it a GET without a
/// body, and `is_away` that it left the origin of its page.
pub(crate) fn headers(
    request: Option<&PageRequest>,
    defaults: &Defaults,
    is_rewritten: bool,
    is_away: bool,
) -> HeaderMap {
    let mut headers = defaults.headers.clone();
    if let Some(request) = request {
        if let Content::OfSettings(_) = request.content
            && let Some(kind) = &defaults.content_type
        {
            headers.entry(CONTENT_TYPE).or_insert_with(|| kind.clone());
        }
        request.put_headers(&mut headers);
    }
    if is_rewritten {
        for name in OF_BODY {
            headers.remove(name);
        }
    }
    if is_away {
        let kept = headers.iter().filter(|(_, value)| !value.is_sensitive());
        headers = kept
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
    }
    headers
}

/// Returns the type of a body whose type nobody named: JSON if it looks like it, else a form, as
/// curl has it.
pub(crate) fn content_type(body: &[u8]) -> HeaderValue {
    let is_json = matches!(body.trim_ascii().first(), Some(b'{' | b'['))
        && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    HeaderValue::from_static(if is_json {
        "application/json"
    } else {
        "application/x-www-form-urlencoded"
    })
}

/// Returns a random UUID (RFC 9562, version 4).
pub(crate) fn random_uuid() -> Box<str> {
    let bits = u128::from(random()) << 64 | u128::from(random());
    let with_version = bits & !(0xf << 76) | 0x4 << 76;
    let id = with_version & !(0x3 << 62) | 0x2 << 62;
    let hex = format!("{id:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(defaults: &Defaults, line: LineRequest) -> Option<PageRequest> {
        let url = Url::parse("http://a.example/x").unwrap();
        PageRequest::of(&url, url.as_str(), line, defaults)
    }

    fn with_body(body: &str) -> LineRequest {
        LineRequest {
            body: Some(body.as_bytes().into()),
            ..LineRequest::default()
        }
    }

    #[test]
    fn pages_differ_by_method_and_body_and_not_by_fields_and_meta() {
        let defaults = Defaults::default();
        assert!(request(&defaults, LineRequest::default()).is_none());
        let with_meta = LineRequest {
            meta: Some("1".into()),
            ..LineRequest::default()
        };
        assert_eq!(request(&defaults, with_meta).unwrap().id(), None);
        let id = |line| request(&defaults, line).unwrap().id().unwrap();
        let put = LineRequest {
            method: Some(Method::PUT),
            ..with_body("1")
        };
        let ids = [id(with_body("1")), id(with_body("2")), id(put)];
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
        assert_eq!(id(with_body("1")), ids[0]);
    }

    #[test]
    fn a_stored_request_is_read_back_and_a_text_is_none() {
        let stored = request(&Defaults::default(), with_body("{}"))
            .unwrap()
            .stored();
        let read = PageRequest::read(&stored).unwrap();
        assert_eq!(
            (read.method(), &*read.url),
            (Method::POST, "http://a.example/x")
        );
        assert_eq!(read.body(&Defaults::default()).unwrap(), "{}");
        for other in [&b""[..], b"http://a/", &stored[..stored.len() - 1]] {
            assert!(PageRequest::read(other).is_none());
        }
    }

    #[test]
    fn a_body_of_the_settings_is_sent_only_while_it_is_the_same() {
        let of = |body: &'static str| Defaults {
            method: Method::POST,
            body: Some(body.into()),
            ..Defaults::default()
        };
        let stored = request(&of("secret"), LineRequest::default())
            .unwrap()
            .stored();
        assert!(!stored.windows(6).any(|part| part == b"secret"));
        let read = PageRequest::read(&stored).unwrap();
        assert_eq!(read.body(&of("secret")).unwrap(), "secret");
        assert!(read.body(&of("other")).is_none() && read.body(&Defaults::default()).is_none());
    }

    #[test]
    fn a_key_makes_a_post_repeatable() {
        let with_keys = Defaults {
            gives_keys: true,
            ..Defaults::default()
        };
        let without = Defaults::default();
        let of = |defaults| request(defaults, with_body("1")).unwrap();
        assert!(!of(&without).may_repeat());
        let (one, other) = (of(&with_keys), of(&with_keys));
        assert!(one.may_repeat() && one.key != other.key && one.id() == other.id());
        let key = one.key.as_deref().unwrap();
        assert_eq!((key.len(), &key[14..15]), (36, "4"), "{key}");
    }
}
