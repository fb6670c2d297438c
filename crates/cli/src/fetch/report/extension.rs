//! The extension of a saved body, from its type or its URL.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use url::Url;

/// The longest extension of a URL that is kept, in bytes.
const LEN_MAX: usize = 8;
/// The extensions of common types (IANA's registry of media types).
const OF_TYPES: [(&str, &str); 31] = [
    ("application/atom+xml", "xml"),
    ("application/gzip", "gz"),
    ("application/javascript", "js"),
    ("application/json", "json"),
    ("application/ld+json", "jsonld"),
    ("application/msword", "doc"),
    ("application/pdf", "pdf"),
    ("application/rss+xml", "xml"),
    ("application/x-gzip", "gz"),
    ("application/x-ndjson", "ndjson"),
    ("application/xhtml+xml", "xhtml"),
    ("application/xml", "xml"),
    ("application/zip", "zip"),
    ("audio/mpeg", "mp3"),
    ("font/woff2", "woff2"),
    ("image/avif", "avif"),
    ("image/gif", "gif"),
    ("image/jpeg", "jpg"),
    ("image/png", "png"),
    ("image/svg+xml", "svg"),
    ("image/webp", "webp"),
    ("image/x-icon", "ico"),
    ("text/calendar", "ics"),
    ("text/css", "css"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/javascript", "js"),
    ("text/markdown", "md"),
    ("text/xml", "xml"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
];

/// Returns the extension for the body of an answer of `url`: that of its type, or else that of the
/// URL.
pub(super) fn extension(url: &Url, headers: &HeaderMap) -> Option<String> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|value| value.split(';').next());
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    let of_type = OF_TYPES.iter().find(|(known, _)| *known == kind);
    match of_type {
        Some((_, extension)) => Some((*extension).to_owned()),
        // A text may be anything that has an extension of its own.
        None if kind == "text/plain" => Some(of_url(url).unwrap_or_else(|| "txt".to_owned())),
        None => of_url(url),
    }
}

/// Returns the extension of a URL, if it is short and without odd characters.
fn of_url(url: &Url) -> Option<String> {
    let (stem, extension) = url.path().rsplit('/').next()?.rsplit_once('.')?;
    let is_plain = extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fits = (1..=LEN_MAX).contains(&extension.len()) && !stem.is_empty();
    (is_plain && fits).then(|| extension.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_type_comes_before_the_url() {
        for (path, kind, expected) in [
            ("/", "text/html; charset=utf-8", Some("html")),
            ("/a.php", "Text/HTML", Some("html")),
            ("/a.JPEG", "application/octet-stream", Some("jpeg")),
            ("/a.tar.gz", "", Some("gz")),
            ("/notes", "text/plain", Some("txt")),
            ("/notes.md", "text/plain", Some("md")),
            ("/a.b/c", "", None),
            ("/.hidden", "", None),
            ("/a.%2e%2e", "", None),
            ("/a.muchtoolong", "", None),
            ("/a.", "x/y", None),
        ] {
            let url = Url::parse(&format!("http://a{path}")).unwrap();
            let value = HeaderValue::from_str(kind).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value)]);
            assert_eq!(
                extension(&url, &headers).as_deref(),
                expected,
                "{path} {kind}"
            );
        }
    }
}
