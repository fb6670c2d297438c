//! The note of a page: what a later run needs to know of the last visit.
//!
//! It stands in the page's metadata, before what the input gave, and changes in the same batch as
//! the page's outcome. So after a kill it belongs to the visit that is recorded. A page of a first
//! run that has nothing to note has no note.

use std::path::Path;

use http::header::{
    ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use url::Url;

use super::metadata::Kind;

/// The longest `ETag` or Last-Modified that is kept, in bytes. Servers send less than 100.
const VALIDATOR_MAX: usize = 512;
/// The longest reason of a failure that is kept, in characters.
const FAILURE_MAX: usize = 200;
/// The fields that make a request conditional, or one for a part.
const CONDITIONS: [HeaderName; 6] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
];

/// The facts about the last visit of a page that a later run needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The number of the run that finished the page.
    pub(crate) run: u32,
    /// Why the page failed, if it did.
    pub(crate) failure: Option<Box<str>>,
    /// The validators of the last good answer.
    pub(crate) validators: Option<Validators>,
}

/// The validators of an answer (RFC 9110, section 8.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Validators {
    /// The URL that answered, which is another one after a redirect.
    url: Box<str>,
    etag: Option<Box<[u8]>>,
    last_modified: Option<Box<[u8]>>,
    saved: Option<SavedBody>,
}

/// The file of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedBody {
    /// Its name below the folder of `--save`.
    pub(crate) name: Box<str>,
    /// Its length in bytes, by which another body in its place is detected.
    pub(crate) len: u64,
}

impl Default for Note {
    fn default() -> Self {
        Self {
            run: 1,
            failure: None,
            validators: None,
        }
    }
}

impl Note {
    /// Splits metadata of the crawl into the note and what the input gave.
    pub(crate) fn split(metadata: &[u8]) -> (Self, &[u8]) {
        let read = Kind::Note.read(metadata);
        read.unwrap_or_else(|| (Self::default(), metadata))
    }

    /// Returns the metadata for a page of which the input gave `given`.
    pub(crate) fn join(&self, given: &[u8]) -> Vec<u8> {
        if *self == Self::default() {
            return given.to_vec();
        }
        let mut metadata = Kind::Note.store(self);
        metadata.extend_from_slice(given);
        metadata
    }

    /// Returns the part of a reason that is kept.
    pub(crate) fn reason(why: &str) -> Box<str> {
        why.chars().take(FAILURE_MAX).collect()
    }
}

impl Validators {
    /// Returns the validators in the head of a good answer of `url`, if it has any.
    pub(crate) fn of(url: &Url, headers: &HeaderMap) -> Option<Self> {
        let kept = |name, is_valid: fn(&[u8]) -> bool| {
            let value = headers.get(name)?.as_bytes().trim_ascii();
            (value.len() <= VALIDATOR_MAX && is_valid(value)).then(|| Box::from(value))
        };
        let etag = kept(ETAG, is_entity_tag);
        let last_modified = kept(LAST_MODIFIED, |value| !value.is_empty());
        (etag.is_some() || last_modified.is_some()).then(|| Self {
            url: url.as_str().into(),
            etag,
            last_modified,
            saved: None,
        })
    }

    /// Returns them with the file of the answer's body.
    pub(crate) fn saved_as(self, saved: Option<SavedBody>) -> Self {
        Self { saved, ..self }
    }

    /// Returns the name of the body's file below the folder of `--save`, if there is one.
    pub(crate) fn saved(&self) -> Option<&str> {
        self.saved.as_ref().map(|saved| &*saved.name)
    }

    /// Makes a request for `url` conditional, and returns whether it is. Bodies are saved in
    /// `save`: without the body of the last answer, the page is needed itself.
    pub(crate) fn apply(&self, url: &Url, headers: &mut HeaderMap, save: Option<&Path>) -> bool {
        let has_body = save.is_none_or(|dir| self.saved.as_ref().is_some_and(|it| it.is_in(dir)));
        let is_set = CONDITIONS.iter().any(|name| headers.contains_key(name));
        if *self.url != *url.as_str() || is_set || !has_body {
            return false;
        }
        let fields = [
            (IF_NONE_MATCH, &self.etag),
            (IF_MODIFIED_SINCE, &self.last_modified),
        ];
        for (name, value) in fields {
            let value = value.as_deref().map(HeaderValue::from_bytes);
            if let Some(Ok(value)) = value {
                headers.insert(name, value);
            }
        }
        headers.contains_key(IF_NONE_MATCH) || headers.contains_key(IF_MODIFIED_SINCE)
    }
}

impl SavedBody {
    fn is_in(&self, dir: &Path) -> bool {
        let file = std::fs::metadata(dir.join(&*self.name));
        file.is_ok_and(|file| file.is_file() && file.len() == self.len)
    }
}

/// Returns whether a value is an entity tag (RFC 9110, section 8.8.3). Another one could have a
/// meaning of its own in If-None-Match, as `*` has.
fn is_entity_tag(value: &[u8]) -> bool {
    let opaque = value.strip_prefix(b"W/").unwrap_or(value);
    let inner = opaque
        .strip_prefix(b"\"")
        .and_then(|it| it.strip_suffix(b"\""));
    inner.is_some_and(|inner| {
        inner
            .iter()
            .all(|&byte| byte == 0x21 || byte >= 0x23 && byte != 0x7f)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn validators(fields: &[(HeaderName, &[u8])]) -> Option<Validators> {
        let value = |value: &[u8]| HeaderValue::from_bytes(value).unwrap();
        let fields = fields.iter();
        let headers = fields.map(|(name, text)| (name.clone(), value(text)));
        Validators::of(&Url::parse("http://a/x").unwrap(), &headers.collect())
    }

    #[test]
    fn a_note_is_split_from_what_the_input_gave() {
        let note = Note {
            run: 3,
            failure: Some("404 Not Found".into()),
            validators: validators(&[(ETAG, b"\"a\"")]),
        };
        for given in [&b""[..], b"http://a/#x", b"\0\x01"] {
            let metadata = note.join(given);
            assert_eq!(Note::split(&metadata), (note.clone(), given));
            assert_eq!(Note::default().join(given), given);
            assert_eq!(Note::split(given), (Note::default(), given));
        }
    }

    #[test]
    fn only_a_valid_entity_tag_is_sent_back() {
        for (tag, is_kept) in [
            (&b"\"a\""[..], true),
            (b"W/\"a-\xe9\"", true),
            (b"\"\"", true),
            (b"*", false),
            (b"a", false),
            (b"\"a\", \"b\"", false),
            (b"\"", false),
            (b"w/\"a\"", false),
        ] {
            let tag = validators(&[(ETAG, tag)]);
            assert_eq!(tag.is_some(), is_kept, "{tag:?}");
        }
        let long = [&b"\""[..], &[b'x'; VALIDATOR_MAX], b"\""].concat();
        let both = validators(&[(ETAG, &long), (LAST_MODIFIED, b"a date")]).unwrap();
        assert_eq!((both.etag, both.last_modified.is_some()), (None, true));
    }

    #[test]
    fn a_request_is_conditional_at_the_same_url_and_while_the_body_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (url, other) = (
            Url::parse("http://a/x").unwrap(),
            Url::parse("http://a/y").unwrap(),
        );
        let fields = [(ETAG, &b"\"a\""[..]), (LAST_MODIFIED, b"a date")];
        let saved = SavedBody {
            name: "x".into(),
            len: 3,
        };
        let known = validators(&fields).unwrap().saved_as(Some(saved));
        let apply = |url, save| known.apply(url, &mut HeaderMap::new(), save);
        let mut headers = HeaderMap::new();
        assert!(known.apply(&url, &mut headers, None));
        assert_eq!(headers[IF_NONE_MATCH], "\"a\"");
        assert_eq!(headers[IF_MODIFIED_SINCE], "a date");
        assert!(!known.apply(&url, &mut headers, None), "it is one already");
        assert!(!apply(&other, None) && !apply(&url, Some(dir.path())));
        std::fs::write(dir.path().join("x"), "other").unwrap();
        assert!(!apply(&url, Some(dir.path())), "another body");
        std::fs::write(dir.path().join("x"), "abc").unwrap();
        assert!(apply(&url, Some(dir.path())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let marked = [&[Kind::Note as u8][..], &bytes].concat();
            let (note, given) = Note::split(&marked);
            prop_assert!(given.len() <= marked.len());
            prop_assert!(note.run >= 1 || given.len() < marked.len());
        }

        #[test]
        fn any_head_has_validators_that_can_be_sent(tag in "[ -~]{0,20}", date in "[ -~]{0,40}") {
            let fields = [(ETAG, tag.as_bytes()), (LAST_MODIFIED, date.as_bytes())];
            if let Some(known) = validators(&fields) {
                let url = Url::parse("http://a/x").unwrap();
                prop_assert!(known.apply(&url, &mut HeaderMap::new(), None));
            }
        }
    }
}
