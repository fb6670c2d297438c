//! Input lines that are JSON objects: a URL, and what is sent and kept with it.

use std::collections::BTreeMap;

use http::HeaderMap;
use politely_frontier::Priority;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::config::{header, in_one_line, method_of};
use crate::fetch::request::LineRequest;

/// The largest `meta`, in bytes.
const META_MAX: usize = 16 * 1024;

/// A line like `{"url": "https://example.com/", "method": "POST", "body": {"q": 1}}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLine<'a> {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Values>,
    #[serde(borrow, default, deserialize_with = "some")]
    body: Option<&'a RawValue>,
    priority: Option<u8>,
    #[serde(borrow, default, deserialize_with = "some")]
    meta: Option<&'a RawValue>,
}

/// The value of a header field, or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum Values {
    One(String),
    Many(Vec<String>),
}

/// The content of a JSON line.
pub(super) struct Read {
    pub(super) url: String,
    pub(super) priority: Option<Priority>,
    pub(super) request: LineRequest,
}

/// Returns whether a line is a JSON object. No URL begins with a brace.
pub(super) fn is_json(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{")
}

/// Reads a line. The error is one line, without a value of the input that may be secret.
pub(super) fn read(line: &[u8]) -> Result<Read, String> {
    let json: JsonLine<'_> = serde_json::from_slice(line).map_err(|why| words(&why))?;
    let method = json.method.as_deref().map(method_of).transpose();
    let mut headers = HeaderMap::new();
    for (name, values) in &json.headers {
        let values = match values {
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        };
        for value in values {
            let (name, value) = header(name, value).map_err(|why| format!("`headers`: {why}"))?;
            headers.append(name, value);
        }
    }
    let priority = json.priority.map(|level| {
        Priority::new(level).ok_or(format!("`priority` {level}: must be between 0 and 9"))
    });
    if let Some(meta) = json.meta
        && meta.get().len() > META_MAX
    {
        let len = meta.get().len();
        return Err(format!(
            "`meta` has {len} bytes; at most {META_MAX} are kept"
        ));
    }
    Ok(Read {
        url: json.url,
        priority: priority.transpose()?,
        request: LineRequest {
            method: method.map_err(|why| format!("`method` {why}"))?,
            headers,
            body: json.body.map(body),
            meta: json.meta.map(|meta| meta.get().into()),
        },
    })
}

/// Returns the URL of a line that cannot be read, if it has one. The rest of it may be secret.
pub(super) fn shown(line: &[u8]) -> Vec<u8> {
    #[derive(Deserialize)]
    struct Named {
        url: String,
    }
    serde_json::from_slice(line)
        .map_or_else(|_| b"{...}".to_vec(), |Named { url }| url.into_bytes())
}

/// Returns the bytes of a body: those of a string, or else the JSON as it is written.
fn body(json: &RawValue) -> Box<[u8]> {
    let text: Result<String, _> = serde_json::from_str(json.get());
    text.map_or_else(
        |_| json.get().as_bytes().into(),
        |text| text.into_bytes().into(),
    )
}

/// Keeps a `null` apart from a field that is missing.
fn some<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

/// Returns why a line cannot be read.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // A line has one line.
    let (why, column) = text
        .rsplit_once(" at line 1 column ")
        .unwrap_or((&text, ""));
    let why = match why.split_once(", expected") {
        // The value that is wrong may be secret.
        Some((found, wanted)) if found.starts_with("invalid ") => {
            let kind = found.split([' ', '`', '"']).nth(2).unwrap_or_default();
            format!("expected{wanted}, found a value of another type ({kind})")
        }
        _ => in_one_line(why),
    };
    let why = why.replace(
        "`politely fetch --help` names them all",
        "docs/reference/fetch.md names them all",
    );
    if column.is_empty() {
        why
    } else {
        format!("{why} (column {column})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use proptest::prelude::*;

    #[test]
    fn a_line_has_all_that_its_request_needs() {
        let line =
            br#" {"url": "http://a/", "method": "put", "headers": {"X-A": ["1", "2"], "B": "3"},
            "body": {"b": 1.0,  "a": null}, "priority": 9, "meta": [1.50, {"z":1,"a":2}] } "#;
        let read = read(line).unwrap();
        assert_eq!(
            (read.url.as_str(), read.priority),
            ("http://a/", Some(Priority::MAX))
        );
        let request = read.request;
        assert_eq!(request.method, Some(Method::PUT));
        assert_eq!(request.headers.get_all("x-a").iter().count(), 2);
        assert_eq!(
            request.body.as_deref(),
            Some(&br#"{"b": 1.0,  "a": null}"#[..])
        );
        assert_eq!(request.meta.as_deref(), Some(r#"[1.50, {"z":1,"a":2}]"#));
    }

    #[test]
    fn a_string_is_a_body_as_it_is_and_null_is_a_value() {
        let read = read(br#"{"url": "u", "body": "a=\u00e9", "meta": null}"#).unwrap();
        assert_eq!(read.request.body.as_deref(), Some("a=\u{e9}".as_bytes()));
        assert_eq!(read.request.meta.as_deref(), Some("null"));
    }

    #[test]
    fn a_wrong_line_says_what_is_wrong_and_no_secret() {
        let long = format!(r#"{{"url": "u", "meta": "{}"}}"#, "x".repeat(META_MAX));
        for (line, why) in [
            (
                r#"{"url": "u", "methd": "s3cret"}"#,
                "unknown key `methd`; did you mean `method`?",
            ),
            (r#"{"method": "GET"}"#, "missing field `url`"),
            (r#"{"url": 3}"#, "expected a string"),
            (r#"{"url": "u", "priority": "s3cret"}"#, "expected u8"),
            (
                r#"{"url": "u", "priority": 10}"#,
                "`priority` 10: must be between 0 and 9",
            ),
            (
                r#"{"url": "u", "headers": {"Host": "s3cret"}}"#,
                "`headers`: host: the program",
            ),
            (r#"{"url": "u", "headers": {"A": 3}}"#, "a string or a list"),
            (r#"{"url": "u", "headers": "s3cret"}"#, "expected a map"),
            (
                r#"{"url": "u", "method": "CONNECT"}"#,
                "`method` CONNECT: it opens a tunnel",
            ),
            (r#"{"url": "u""#, "EOF while parsing"),
            (r#"{"url": "u"} s3cret"#, "trailing characters"),
            (&long, "`meta` has 16386 bytes"),
        ] {
            let said = read(line.as_bytes()).err().unwrap();
            assert!(
                said.to_lowercase().contains(&why.to_lowercase()),
                "{line}: {said}"
            );
            assert!(
                !said.contains("s3cret") && said.lines().count() == 1,
                "{said}"
            );
        }
    }

    #[test]
    fn a_wrong_line_is_shown_by_its_url() {
        assert_eq!(shown(br#"{"url": "http://a/", "x": 1}"#), b"http://a/");
        assert_eq!(shown(br#"{"url": 1"#), b"{...}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in "\\{\"(url|meta|body)\": ?[\\x00-\\x7f]{0,60}") {
            let _ = (read(bytes.as_bytes()).map(|_| ()), shown(bytes.as_bytes()));
        }
    }
}
