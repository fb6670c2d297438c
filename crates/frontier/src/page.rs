//! A page on its way into the frontier, and the answer to it.

use politely_core::key::{Key, KeyError, KeyKind};
use url::Url;

use crate::Date;

/// The most bytes of a URL, before and after it is made canonical.
pub const URL_LEN_MAX: usize = 8_192;
/// The most bytes of a page's metadata.
pub const METADATA_LEN_MAX: usize = 16 * 1_024;
/// The most bytes of a key's text.
const KEY_LEN_MAX: usize = 520;

/// The order of pages within a domain, and of domains that may be taken: 0 is last, 9 is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The first priority.
    pub const MAX: Self = Self(9);
    /// The last priority.
    pub const MIN: Self = Self(0);

    /// Returns the priority, or `None` above 9.
    pub const fn new(level: u8) -> Option<Self> {
        if level > Self::MAX.0 {
            return None;
        }
        Some(Self(level))
    }

    /// Returns the level, from 0 to 9.
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(5)
    }
}

/// A page that a caller adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPage {
    /// The URL. Its fragment is ignored.
    pub url: String,
    /// The domain, as the text of a key. Default: the key that follows from the URL.
    pub key: Option<String>,
    /// The order within the domain.
    pub priority: Priority,
    /// The date before which the page is not handed out. Pages whose date has passed leave in the
    /// order of their dates. Default: now.
    pub due: Option<Date>,
    /// Data of the caller, at most 16 KiB. It comes back with the page.
    pub metadata: Vec<u8>,
    /// Whether the page was visited elsewhere. It is then visited again from `due` on, and never
    /// without it.
    pub is_visited: bool,
}

impl NewPage {
    /// Creates a page with defaults.
    pub fn of_url(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }
}

/// The answer to a page that a caller added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The page is stored.
    New,
    /// The crawl has had this page before. Nothing changed.
    Known,
    /// A bound of the domain, the crawl or the frontier is reached. The page is not stored.
    Full,
    /// The page is not valid. It is not stored.
    Invalid(Invalid),
}

/// The reason why a page is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The URL is too long.
    #[error("the URL has {0} bytes; at most {URL_LEN_MAX} are accepted")]
    UrlLen(usize),
    /// The text is not a URL.
    #[error("not a URL: {0}")]
    Url(#[from] url::ParseError),
    /// The key is too long.
    #[error("the key has {0} bytes; at most {KEY_LEN_MAX} are accepted")]
    KeyLen(usize),
    /// The URL or the key names no domain.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The metadata is too long.
    #[error("the metadata has {0} bytes; at most {METADATA_LEN_MAX} are accepted")]
    MetadataLen(usize),
}

/// A page that was found valid. Checking a page needs no frontier, so callers can check pages while
/// the frontier serves another call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ValidPage {
    /// The canonical URL.
    pub url: String,
    /// The domain.
    pub key: Key,
    /// The order within the domain.
    pub priority: Priority,
    /// The date before which the page is not handed out.
    pub due: Option<Date>,
    /// Data of the caller.
    pub metadata: Vec<u8>,
    /// Whether the page was visited elsewhere.
    pub is_visited: bool,
}

impl ValidPage {
    /// Checks a page. `kind` is how its domain follows from its URL, if it names none.
    ///
    /// # Errors
    /// [`Invalid`] is the first reason why it is not valid.
    pub fn new(page: NewPage, kind: KeyKind) -> Result<Self, Invalid> {
        let url = canonical(&page.url)?;
        // The URL must have a host even if the key is given, since it is requested later.
        let of_url = kind.key(&url, None, None)?;
        let key = match page.key {
            None => of_url,
            Some(text) if text.len() > KEY_LEN_MAX => return Err(Invalid::KeyLen(text.len())),
            Some(text) => Key::parse(&text)?,
        };
        if page.metadata.len() > METADATA_LEN_MAX {
            return Err(Invalid::MetadataLen(page.metadata.len()));
        }
        Ok(Self {
            url: url.into(),
            key,
            priority: page.priority,
            due: page.due,
            metadata: page.metadata,
            is_visited: page.is_visited,
        })
    }
}

impl ValidPage {
    /// Checks a page whose URL is parsed and whose domain is known. Its fragment is ignored.
    ///
    /// # Errors
    /// [`Invalid`] is the first reason why it is not valid.
    pub fn of_url(mut url: Url, key: Key, metadata: Vec<u8>) -> Result<Self, Invalid> {
        url.set_fragment(None);
        if url.as_str().len() > URL_LEN_MAX {
            return Err(Invalid::UrlLen(url.as_str().len()));
        }
        Key::of_url(&url)?;
        if metadata.len() > METADATA_LEN_MAX {
            return Err(Invalid::MetadataLen(metadata.len()));
        }
        Ok(Self {
            url: url.into(),
            key,
            priority: Priority::default(),
            due: None,
            metadata,
            is_visited: false,
        })
    }
}

/// Splits pages into the valid ones and the answers to the others, `None` for a valid page.
pub(crate) fn check(pages: Vec<NewPage>, kind: KeyKind) -> (Vec<ValidPage>, Vec<Option<Answer>>) {
    let mut valid = Vec::with_capacity(pages.len());
    let mut answers = Vec::with_capacity(pages.len());
    for page in pages {
        match ValidPage::new(page, kind) {
            Ok(page) => {
                valid.push(page);
                answers.push(None);
            }
            Err(why) => answers.push(Some(Answer::Invalid(why))),
        }
    }
    (valid, answers)
}

/// Fills the answers of [`check`] with the answers to the valid pages.
pub(crate) fn merge(answers: Vec<Option<Answer>>, valid: Vec<Answer>) -> Vec<Answer> {
    let mut valid = valid.into_iter();
    let answers = answers
        .into_iter()
        .map(|answer| answer.or_else(|| valid.next()));
    answers.flatten().collect()
}

/// Returns the URL in the form under which pages are compared: parsed by the URL standard, without
/// a fragment.
///
/// # Errors
/// The text is not a URL, or it is too long.
pub fn canonical(text: &str) -> Result<Url, Invalid> {
    if text.len() > URL_LEN_MAX {
        return Err(Invalid::UrlLen(text.len()));
    }
    let mut url = Url::parse(text)?;
    url.set_fragment(None);
    // Escapes can make a URL three times as long.
    match url.as_str().len() {
        len if len > URL_LEN_MAX => Err(Invalid::UrlLen(len)),
        _ => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: NewPage) -> Result<ValidPage, Invalid> {
        ValidPage::new(page, KeyKind::Host)
    }

    #[test]
    fn spellings_of_a_url_are_one_page() {
        for url in ["HTTP://Example.com:80/a#b", "http://example.com/./a"] {
            let page = check(NewPage::of_url(url)).unwrap();
            assert_eq!(page.url, "http://example.com/a");
            assert_eq!(page.key.as_str(), "example.com");
        }
    }

    #[test]
    fn every_wrong_page_is_named() {
        let url = |url: &str| NewPage::of_url(url);
        let with_key = |key: String| NewPage {
            key: Some(key),
            ..url("http://a.com/")
        };
        let escapes = format!("http://a.com/{}", "é".repeat(4_000));
        let metadata = NewPage {
            metadata: vec![0; METADATA_LEN_MAX + 1],
            ..url("http://a.com/")
        };
        for (page, error) in [
            (url(&"x".repeat(65_536)), "the URL has 65536 bytes"),
            (url(&escapes), "the URL has 24013 bytes"),
            (
                url("example.com/a"),
                "not a URL: relative URL without a base",
            ),
            (url("mailto:a@b.c"), "only http and https"),
            (with_key("k".repeat(1_024)), "the key has 1024 bytes"),
            (with_key(String::new()), "empty"),
            (metadata, "the metadata has 16385 bytes"),
        ] {
            let found = check(page).err().map(|error| error.to_string());
            assert!(
                found.as_ref().is_some_and(|found| found.contains(error)),
                "{found:?}"
            );
        }
    }
}
