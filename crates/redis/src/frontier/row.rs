//! The bytes of a page, and the numbers of a domain.
//!
//! A row is the digit of the priority, the date when the page was added, the last visit or nothing,
//! `;`, and what never changes: the form of the URL, the URL without the part that the domain's
//! name has, a line feed, the metadata. The scripts write the date, and visits as
//! `,AT,STATUS,AGAIN,ATTEMPTS,REFUSALS`.

use politely_frontier::{Counts, Date, NewPage, PageStatus, Priority, TakenPage, Token};
use xxhash_rust::xxh3::xxh3_128;

/// Returns the bytes under which a URL is known.
///
/// A caller can find two URLs with one hash only among its own, since each domain has its own
/// pages.
pub(super) fn hash(url: &str) -> [u8; 16] {
    xxh3_128(url.as_bytes()).to_be_bytes()
}

/// Returns the part of a row that never changes.
pub(super) fn rest(url: &str, domain: &str, metadata: &[u8]) -> Vec<u8> {
    let short = |scheme| {
        let path = url.strip_prefix(scheme)?.strip_prefix(domain)?;
        path.starts_with('/').then_some(path)
    };
    let (form, url) = if let Some(path) = short("https://") {
        (b's', path)
    } else if let Some(path) = short("http://") {
        (b'h', path)
    } else {
        (b'w', url)
    };
    [&[form], url.as_bytes(), b"\n", metadata].concat()
}

/// Returns the row of a page that was never visited, without the date of now.
pub(super) fn new_row(priority: Priority, rest: &[u8]) -> Vec<u8> {
    [&[b'0' + priority.level(), b';'], rest].concat()
}

/// A page as it is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) url: String,
    pub(super) priority: Priority,
    pub(super) added: Date,
    pub(super) visit: Option<Visit>,
    pub(super) metadata: Vec<u8>,
}

/// The last visit of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) at: Date,
    pub(super) status: u16,
    pub(super) again: Option<Date>,
    pub(super) attempts: u16,
    pub(super) free: u16,
}

impl Row {
    /// Reads a row, or returns `None` if it is damaged.
    pub(super) fn read(bytes: &[u8], domain: &str) -> Option<Self> {
        let (priority, bytes) = bytes.split_first()?;
        let end = bytes.iter().position(|byte| *byte == b';')?;
        let (dates, bytes) = (&bytes[..end], &bytes[end + 1..]);
        let (added, visit) = split(str::from_utf8(dates).ok()?);
        let (form, bytes) = bytes.split_first()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let url = str::from_utf8(&bytes[..end]).ok()?;
        let url = match form {
            b's' => ["https://", domain, url].concat(),
            b'h' => ["http://", domain, url].concat(),
            _ => url.to_owned(),
        };
        Some(Self {
            url,
            priority: Priority::new(priority.checked_sub(b'0')?)?,
            // A new page has no date before the script stores it.
            added: match added {
                "" => Date::EPOCH,
                text => Date::from_millis(text.parse().ok()?)?,
            },
            visit: match visit {
                None => None,
                Some(text) => Some(Visit::read(text)?),
            },
            metadata: bytes[end + 1..].to_vec(),
        })
    }

    pub(super) fn taken(self) -> TakenPage {
        TakenPage {
            url: self.url,
            priority: self.priority,
            metadata: self.metadata,
            attempts: self.visit.map_or(0, |visit| visit.attempts),
            free: self.visit.map_or(0, |visit| visit.free),
        }
    }

    pub(super) fn status(self, domain: &str, leased: Option<Token>) -> PageStatus {
        PageStatus {
            url: self.url,
            domain: domain.to_owned(),
            added: self.added,
            leased,
            visited: self.visit.map(|visit| visit.at),
            status: self.visit.map(|visit| visit.status),
            again: self.visit.and_then(|visit| visit.again),
            metadata: self.metadata,
        }
    }
}

/// Splits the dates of a row into the date when the page was added and the visit.
fn split(dates: &str) -> (&str, Option<&str>) {
    match dates.split_once(',') {
        Some((added, visit)) => (added, Some(visit)),
        None => (dates, None),
    }
}

impl Visit {
    fn read(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let mut next = || fields.next();
        let date = |text: &str| Date::from_millis(text.parse().ok()?);
        Some(Self {
            at: date(next()?)?,
            status: next()?.parse().ok()?,
            again: match next()? {
                "" => None,
                text => Some(date(text)?),
            },
            attempts: next()?.parse().ok()?,
            free: next()?.parse().ok()?,
        })
    }
}

/// What the schedule keeps of a domain. `domain.lua` writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) counts: Counts,
    pub(super) owners: u64,
    /// The time when it may be handed out, in milliseconds since 1970; 0 if nothing waits.
    pub(super) due: u64,
}

impl Summary {
    /// Reads a summary. A damaged one is empty.
    pub(super) fn read(text: &str) -> Self {
        let mut fields = text.split(' ').map(|field| field.parse().unwrap_or(0));
        let mut next = || fields.next().unwrap_or(0);
        let _version = next();
        let counts = counts(1, &mut next);
        let owners = next();
        let _priority = next();
        Self {
            counts,
            owners,
            due: next(),
        }
    }

    /// Returns about how many pages can be handed out when the domain is due.
    pub(super) fn pages(&self) -> u64 {
        match self.counts.ready {
            0 => (self.counts.dated + self.counts.leased).max(1),
            ready => ready,
        }
    }
}

/// Returns the sums of a shard, and its owners.
pub(super) fn sums(text: &str) -> (Counts, u64) {
    let mut fields = text.split(' ').map(|field| field.parse().unwrap_or(0));
    let mut next = || fields.next().unwrap_or(0);
    (counts(next(), &mut next), next())
}

/// Returns the counts of `domains`, whose numbers of pages come next.
fn counts(domains: u64, mut next: impl FnMut() -> u64) -> Counts {
    Counts {
        domains,
        pages: next(),
        ready: next(),
        dated: next(),
        leased: next(),
    }
}

/// Returns the page of a URL under a domain, to find its key.
pub(super) fn page_of(url: &str, key: Option<&str>) -> NewPage {
    NewPage {
        key: key.map(ToOwned::to_owned),
        ..NewPage::of_url(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        for url in ["https://a.com/b?c;d", "http://a.com/", "https://b.com/"] {
            let bytes = new_row(Priority::MAX, &rest(url, "a.com", b"{\"a\":\n;1}"));
            let row = Row::read(&bytes, "a.com").expect("a whole row");
            assert_eq!(
                (&row.url[..], row.priority, row.visit),
                (url, Priority::MAX, None)
            );
            assert_eq!(row.metadata, b"{\"a\":\n;1}");
        }
        let row = Row::read(b"599,123,404,456,2,1;s/x\n", "a.com").expect("a whole row");
        let date = |millis| Date::from_millis(millis).expect("before the year 9999");
        let visit = Visit {
            at: date(123),
            status: 404,
            again: Some(date(456)),
            attempts: 2,
            free: 1,
        };
        assert_eq!(row.visit, Some(visit));
        for damaged in [&b""[..], b"5", b"x;s/\n", b"5;s/", b"51,1,2;s/\n", b"5;"] {
            assert_eq!(Row::read(damaged, "a.com"), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_summary_tells_how_many_pages_may_leave() {
        let summary = Summary::read("1700000000000000 9 3 2 1 1 5 42 0");
        assert_eq!(
            (summary.counts.pages, summary.owners, summary.due),
            (9, 1, 42)
        );
        assert_eq!(summary.pages(), 3);
        assert_eq!(Summary::read("1 9 0 2 1 1 5 42 0").pages(), 3);
        assert_eq!(Summary::read("nonsense").pages(), 1);
    }
}
