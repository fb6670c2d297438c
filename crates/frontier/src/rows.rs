//! The layout of the tables: keys and values as bytes.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | control | `v` | version of the layout, seed of the URL hashes |
//! | control | `s` | end of the reserved tokens and orders |
//! | control | `i` | next id of a domain or a queue |
//! | control | `n` | next id of a crawl |
//! | control | `c` crawl | [`CrawlRow`] |
//! | control | `u` token | [`UnitRow`] |
//! | control | `g` kind id | nothing: rows to delete, [`Grave`] |
//! | domains | `n` crawl name | id of the domain |
//! | domains | `d` id | [`DomainRow`] |
//! | domains | `t` id | name of the domain |
//! | pages | domain hash | [`PageRow`] |
//! | queue | queue lane order hash | nothing; for a dated page its priority |
//!
//! Numbers in keys are big-endian, so keys sort by number. A domain's pages and its queue have ids
//! of their own: a purge gives the domain a new queue, and the old rows are deleted later.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::page::Priority;
use crate::{Date, StoreError, Token};

/// The version of the layout.
pub(crate) const VERSION: u8 = 1;
/// The lane of pages with a date. It sorts after the lanes of all priorities.
const DATED_LANE: u8 = u8::MAX;

/// The id of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct CrawlId(pub(crate) u32);

/// The id of a domain in a crawl. Ids are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct DomainId(pub(crate) u32);

/// The id of a domain's queue. It comes from the same counter as [`DomainId`].
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
    pub(crate) pages: Vec<QueueRow>,
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
}

/// A page that was accepted. Whether it waits is in the queue only.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PageRow {
    pub(crate) form: UrlForm,
    pub(crate) url: String,
    pub(crate) metadata: Vec<u8>,
    pub(crate) visit: Option<Visit>,
}

/// The last visit of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) at: Date,
    pub(crate) status: u16,
    /// The date of the next visit, if there is to be one.
    pub(crate) again: Option<Date>,
    /// Attempts that failed since the last visit that did not.
    pub(crate) attempts: u16,
    /// How many of these attempts the host refused.
    pub(crate) refusals: u16,
}

impl Visit {
    /// Returns the visit of a page that was visited before the frontier knew it.
    pub(crate) const fn elsewhere(at: Date) -> Self {
        Self {
            at,
            status: 0,
            again: None,
            attempts: 0,
            refusals: 0,
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

/// The place of a page in its domain's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QueueRow {
    lane: u8,
    order: u64,
    pub(crate) hash: u64,
}

impl QueueRow {
    /// Returns the place of a page that may be handed out. A lower `order` is first.
    pub(crate) const fn ready(priority: Priority, order: u64, hash: u64) -> Self {
        let lane = Priority::MAX.level() - priority.level();
        Self { lane, order, hash }
    }

    /// Returns the place of a page that has to wait for a date.
    pub(crate) const fn dated(due: Date, hash: u64) -> Self {
        Self {
            lane: DATED_LANE,
            order: due.millis(),
            hash,
        }
    }

    /// Returns the priority of a page that may be handed out.
    pub(crate) fn priority(self) -> Priority {
        let level = Priority::MAX.level().saturating_sub(self.lane);
        Priority::new(level).unwrap_or_default()
    }

    /// Returns the date of a page in the dated lane.
    pub(crate) fn due(self) -> Date {
        Date::from_millis(self.order).unwrap_or_default()
    }

    pub(crate) const fn is_dated(self) -> bool {
        self.lane == DATED_LANE
    }

    pub(crate) fn key(self, queue: QueueId) -> Vec<u8> {
        let mut key = Vec::with_capacity(21);
        key.extend(queue.0.to_be_bytes());
        key.push(self.lane);
        key.extend(self.order.to_be_bytes());
        key.extend(self.hash.to_be_bytes());
        key
    }

    pub(crate) fn of_key(key: &[u8]) -> Result<Self, StoreError> {
        let rest = key.get(4..).unwrap_or_default();
        let (Some((lane, rest)), 21) = (rest.split_first(), key.len()) else {
            return Err(damaged("queue", key));
        };
        Ok(Self {
            lane: *lane,
            order: number(&rest[..8]),
            hash: number(&rest[8..]),
        })
    }
}

/// The first key of the pages of a queue that have a date.
pub(crate) fn dated_prefix(queue: QueueId) -> Vec<u8> {
    let mut key = queue.0.to_be_bytes().to_vec();
    key.push(DATED_LANE);
    key
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
    let mut key = Vec::with_capacity(12);
    key.extend(domain.0.to_be_bytes());
    key.extend(hash.to_be_bytes());
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
    fn pages_sort_by_priority_then_order_then_date() {
        let date = |millis| Date::from_millis(millis).unwrap();
        let rows = [
            QueueRow::ready(Priority::MAX, 9, 1),
            QueueRow::ready(Priority::default(), 2, 7),
            QueueRow::ready(Priority::default(), 3, 0),
            QueueRow::ready(Priority::MIN, 1, 5),
            QueueRow::dated(date(5), 3),
            QueueRow::dated(date(1 << 40), 0),
        ];
        let keys: Vec<_> = rows.iter().map(|row| row.key(QueueId(3))).collect();
        assert!(keys.is_sorted());
        for (row, key) in rows.iter().zip(&keys) {
            assert_eq!(QueueRow::of_key(key).as_ref(), Ok(row));
            assert_eq!(key.starts_with(&dated_prefix(QueueId(3))), row.is_dated());
        }
        assert!(QueueRow::of_key(b"short").is_err());
    }

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
