//! The layout of the tables: keys and values as bytes.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | control | `v` | version of the layout, seed of the URL hashes |
//! | control | `s` | end of the reserved tokens and orders |
//! | control | `i`, `q` | next id of a domain, of a queue |
//! | control | `n` | next id of a crawl |
//! | control | `c` crawl | [`CrawlRow`] |
//! | control | `u` token | [`UnitRow`] |
//! | control | `g` kind id | nothing: rows to delete, [`Grave`] |
//! | domains | `n` crawl name | id of the domain |
//! | domains | `d` id | [`DomainRow`] |
//! | domains | `t` id | name of the domain |
//! | pages | domain hash | [`PageRow`] |
//! | pages | domain hash `v` | [`Visit`], the last one |
//! | queue | queue … | pages that wait: `queue.rs` |
//!
//! Numbers in keys are big-endian, so keys sort by number. A domain's pages and its queue have ids
//! of their own: a purge gives the domain a new queue, and the old rows are deleted later.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::queue::Ready;
use crate::{Date, StoreError, Token};

/// The version of the layout.
pub(crate) const VERSION: u8 = 3;

/// The id of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct CrawlId(pub(crate) u32);

/// The id of a domain in a crawl. Ids are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct DomainId(pub(crate) u32);

/// The id of a domain's queue. A purge gives a domain a new one. Ids are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct QueueId(pub(crate) u32);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CrawlRow {
    pub(crate) name: String,
    pub(crate) is_paused: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UnitRow {
    pub(crate) domain: DomainId,
    pub(crate) expires: Date,
    pub(crate) shares_domain: bool,
    pub(crate) pages: Vec<Ready>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DomainRow {
    pub(crate) crawl: CrawlId,
    pub(crate) queue: QueueId,
    pub(crate) pages: u32,
    pub(crate) ready: u32,
    pub(crate) dated: u32,
    pub(crate) dated_first: Date,
    pub(crate) priority: u8,
    /// The domain is not handed out before this date.
    pub(crate) next: Date,
    pub(crate) blocked_until: Date,
    pub(crate) delay_ms: u64,
    /// The number of finished pages from which on the domain is not handed out; 0 for none.
    pub(crate) finished_max: u32,
}

/// A page that was accepted. It does not change. Whether it waits is in the queue only.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PageRow<'a> {
    pub(crate) form: UrlForm,
    pub(crate) url: &'a str,
    pub(crate) metadata: &'a [u8],
    /// The date at which the page was added, in seconds since 1970 (UTC).
    pub(crate) added_secs: u64,
}

impl<'a> PageRow<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, StoreError> {
        postcard::from_bytes(bytes).map_err(|_| damaged("pages", bytes))
    }

    /// Returns whether this is the page of a canonical URL in a domain.
    pub(crate) fn is_of(&self, url: &str, domain: &str) -> bool {
        UrlForm::split(url, domain) == (self.form, self.url)
    }

    pub(crate) fn url(&self, domain: &str) -> String {
        self.form.join(domain, self.url)
    }
}

/// The last visit of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) at: Date,
    pub(crate) status: u16,
    /// The date of the next visit, if there is to be one.
    pub(crate) again: Option<Date>,
}

impl Visit {
    /// Returns the visit of a page that was visited before the frontier knew it.
    pub(crate) const fn elsewhere(at: Date, again: Option<Date>) -> Self {
        Self {
            at,
            status: 0,
            again,
        }
    }
}

/// The part of a URL that a [`PageRow`] leaves out, because the domain's name has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum UrlForm {
    /// Nothing.
    Whole,
    /// `https://` and the domain.
    Https,
    /// `http://` and the domain.
    Http,
}

impl UrlForm {
    /// Splits a canonical URL into its form and the rest.
    pub(crate) fn split<'a>(url: &'a str, domain: &str) -> (Self, &'a str) {
        let rest = |scheme| {
            let rest = url.strip_prefix(scheme)?.strip_prefix(domain)?;
            rest.starts_with('/').then_some(rest)
        };
        if let Some(rest) = rest("https://") {
            (Self::Https, rest)
        } else if let Some(rest) = rest("http://") {
            (Self::Http, rest)
        } else {
            (Self::Whole, url)
        }
    }

    /// Joins a form and the rest to the canonical URL.
    pub(crate) fn join(self, domain: &str, rest: &str) -> String {
        match self {
            Self::Whole => rest.to_owned(),
            Self::Https => ["https://", domain, rest].concat(),
            Self::Http => ["http://", domain, rest].concat(),
        }
    }
}

/// Rows that are deleted little by little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grave {
    /// The names of a crawl's domains; each leads to further graves.
    Crawl(CrawlId),
    /// The pages of a domain.
    Domain(DomainId),
    /// A queue.
    Queue(QueueId),
}

impl Grave {
    pub(crate) fn key(self) -> Vec<u8> {
        let (kind, id) = match self {
            Self::Crawl(id) => (b'c', id.0),
            Self::Domain(id) => (b'd', id.0),
            Self::Queue(id) => (b'q', id.0),
        };
        [&[b'g', kind], id.to_be_bytes().as_slice()].concat()
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        let id = u32::from_be_bytes(key.get(2..)?.try_into().ok()?);
        match key[1] {
            b'c' => Some(Self::Crawl(CrawlId(id))),
            b'd' => Some(Self::Domain(DomainId(id))),
            b'q' => Some(Self::Queue(QueueId(id))),
            _ => None,
        }
    }
}

pub(crate) fn crawl_key(id: CrawlId) -> Vec<u8> {
    tagged(b'c', &id.0.to_be_bytes())
}

pub(crate) fn unit_key(token: Token) -> Vec<u8> {
    tagged(b'u', &token.0.to_be_bytes())
}

pub(crate) fn name_key(crawl: CrawlId, name: &str) -> Vec<u8> {
    [b"n", crawl.0.to_be_bytes().as_slice(), name.as_bytes()].concat()
}

pub(crate) fn domain_key(id: DomainId) -> Vec<u8> {
    tagged(b'd', &id.0.to_be_bytes())
}

pub(crate) fn text_key(id: DomainId) -> Vec<u8> {
    tagged(b't', &id.0.to_be_bytes())
}

pub(crate) fn page_key(domain: DomainId, hash: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.extend(domain.0.to_be_bytes());
    key.extend(hash.to_be_bytes());
    key
}

/// The key of a page's last visit. It follows the page.
pub(crate) fn visit_key(domain: DomainId, hash: u64) -> Vec<u8> {
    let mut key = page_key(domain, hash);
    key.push(b'v');
    key
}

fn tagged(tag: u8, id: &[u8]) -> Vec<u8> {
    [&[tag], id].concat()
}

/// Reads a big-endian number of at most eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

pub(crate) fn id(bytes: &[u8]) -> Result<u32, StoreError> {
    let bytes = bytes.try_into().map_err(|_| damaged("id", bytes))?;
    Ok(u32::from_be_bytes(bytes))
}

pub(crate) fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    // Only maps of unknown length and types without postcard support fail.
    postcard::to_stdvec(row).unwrap_or_default()
}

pub(crate) fn decode<T: DeserializeOwned>(table: &str, bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|_| damaged(table, bytes))
}

pub(crate) fn damaged(table: &str, bytes: &[u8]) -> StoreError {
    let bytes = &bytes[..bytes.len().min(32)];
    StoreError(format!(
        "an entry of the table \"{table}\" is damaged: {bytes:02x?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_and_joined_without_loss() {
        for url in [
            "https://a.com/b?c",
            "http://a.com/",
            "http://a.com:81/",
            "https://a.community/",
            "http://b.com/",
        ] {
            let (form, rest) = UrlForm::split(url, "a.com");
            assert_eq!(form.join("a.com", rest), url);
        }
        assert_eq!(UrlForm::split("https://a.com/b", "a.com").0, UrlForm::Https);
    }
}
