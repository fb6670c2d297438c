//! The name of a crawl.

use std::fmt;
use std::str::FromStr;

/// The most bytes of a crawl's name.
const NAME_LEN_MAX: usize = 64;

/// The name of a crawl: 1 to 64 letters, digits, dots, hyphens and underscores of ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrawlName(Box<str>);

/// A text that is not the name of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the name of a crawl: use 1 to {NAME_LEN_MAX} letters, digits, dots, hyphens and underscores"
)]
pub struct CrawlNameError;

impl CrawlName {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CrawlName {
    type Err = CrawlNameError;

    fn from_str(text: &str) -> Result<Self, CrawlNameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if (1..=NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(Self(text.into()))
        } else {
            Err(CrawlNameError)
        }
    }
}

impl fmt::Display for CrawlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
