//! robots.txt (RFC 9309): the rules of one origin.
//!
//! This module does no I/O. The fetch is a request like any other, paced by the same
//! [limits](crate) as the pages. (In other crawlers robots fetches bypassed the limiter, and a host
//! was hit hardest before its rules were known.) The caller passes the status and the bytes to
//! [`Robots::from_response`].
//!
//! | answer | meaning (RFC 9309) | here |
//! | --- | --- | --- |
//! | 2xx | 2.3.1.1 successful | the rules in the body |
//! | 3xx | 2.3.1.2: a 3xx passed in exceeds [`MAX_REDIRECTS`] | as a 4xx |
//! | 4xx but 429 | 2.3.1.3 unavailable: there are no rules | everything allowed |
//! | 5xx, 429, no answer | 2.3.1.4 unreachable: unknown *now* | nothing allowed, fetched again later |
//!
//! A 2xx whose body is damaged or in an unknown content coding counts as no answer: read as text,
//! it would allow everything. [`coding::decode`](crate::coding::decode) undoes codings and reports
//! such a body as an error.
//!
//! 429 is a 4xx, but it means "not now", so it counts as unreachable.
//!
//! **Unreachable.** The caller asks again later. Meanwhile an earlier copy stays in force, however
//! old (2.4 lets a copy outlive its 24 h only then). Without a copy the origin stays closed. The
//! RFC permits treating it as unavailable after about 30 days, but that is a MAY.
//!
//! **The parser.** robotxt 0.7 is the best existing crate, but three things had to change.
//! `User-agent: foobot/1.2` has to match `foobot`. A `Crawl-delay` between two `User-agent` lines
//! must not end the group. Of several delays the largest counts (in robotxt, the smallest). These
//! decide which group applies and which delay; preprocessing would have parsed the file, written it
//! again and parsed it twice. Only the matching of one pattern remained of the library: forty
//! lines.
//!
//! Beyond the RFC, for files in the wild, and always in the stricter direction:
//! - `Crawl-delay` and `Request-rate` ([`Robots::crawl_delay`]);
//! - common misspellings of `User-agent` and `Disallow`, but none of `Allow`, and a missing colon
//!   (`disallow /x`), as Google reads them;
//! - a partial UTF-8 byte order mark, and UTF-16 if its mark says so;
//! - a path without its first `/` (`Disallow: private`).
//!
//! In Google's parser `Allow: /dir/index.html` also opens `/dir/`. This parser does *not* do so,
//! because it widens the permission.

mod delay;
mod parse;
mod pattern;
mod product;
#[cfg(test)]
mod tests;

use std::time::Duration;

use url::Url;

pub use delay::MAX_CRAWL_DELAY;
pub use product::product_token;

use pattern::Rule;

/// Bytes of a robots.txt that are read: 500 KiB, the least a crawler has to read (RFC 9309, 2.5).
///
/// A fetcher need not read further; a body this long or longer is cut after its last whole line.
pub const MAX_BYTES: usize = 500 * 1024;

/// Redirects to follow before a robots.txt counts as unavailable (RFC 9309, 2.3.1.2).
pub const MAX_REDIRECTS: u32 = 5;

/// The result of an attempt to fetch robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// There is a file, and its rules apply.
    Rules,
    /// There is no file (4xx, too many redirects): everything is allowed.
    Unavailable,
    /// The rules are unknown now (5xx, 429, no response): nothing is allowed until they are known.
    Unreachable,
}

impl Availability {
    /// Returns the meaning of `status` for robots.txt. `None` means no response: a failed
    /// connection, a timeout, or a body that broke off.
    pub const fn of_status(status: Option<u16>) -> Self {
        match status {
            Some(200..=299) => Self::Rules,
            Some(429) => Self::Unreachable,
            Some(300..=499) => Self::Unavailable,
            _ => Self::Unreachable,
        }
    }
}

/// Returns the addresses in the `Sitemap` lines of a robots.txt, as they are written. They are for
/// every agent. `body` is decoded ([`mod@crate::coding`]).
pub fn sitemaps(body: &[u8]) -> Vec<String> {
    parse::sitemaps(body)
}

/// The rules of one origin's robots.txt for one product token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Robots {
    availability: Availability,
    /// The rules, most specific first, so that the first match decides.
    rules: Vec<Rule>,
    crawl_delay: Option<Duration>,
}

/// The verdict on one URL, with the line that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'r> {
    /// Whether the URL may be fetched.
    pub allowed: bool,
    /// The line that decided, with its path normalised to ASCII (safe to print):
    /// `Disallow: /b%C3%BCcher/`. `None` if no line did: there was none that matched, or no file at
    /// all ([`Robots::availability`]).
    pub rule: Option<&'r str>,
}

impl Robots {
    /// Reads a response to `/robots.txt`. `status` is `None` if there was no whole answer.
    ///
    /// `agent` is our product token, or a `User-Agent` value that names it ([`product_token`]). An
    /// empty one is bound by the `*` group only. `body` is decoded ([`mod@crate::coding`]); for one
    /// that cannot be decoded pass `None` as the status.
    pub fn from_response(status: Option<u16>, body: &[u8], agent: &str) -> Self {
        match Availability::of_status(status) {
            Availability::Rules => parse::parse(body, agent),
            availability => Self {
                availability,
                rules: Vec::new(),
                crawl_delay: None,
            },
        }
    }

    /// Returns the result of the fetch.
    pub fn availability(&self) -> Availability {
        self.availability
    }

    /// Returns whether `url` may be fetched. Its scheme, host and port must be those of this file.
    pub fn allows(&self, url: &Url) -> Verdict<'_> {
        match url.query() {
            None => self.allows_path(url.path()),
            Some(query) => self.allows_path(&format!("{}?{query}", url.path())),
        }
    }

    /// Returns whether `path` (with its query, if any) may be fetched. A fragment is ignored.
    ///
    /// The longest matching pattern decides, and `Allow` among equals. `/robots.txt` itself is
    /// always allowed.
    pub fn allows_path(&self, path: &str) -> Verdict<'_> {
        let path = path.split('#').next().unwrap_or_default();
        if path == "/robots.txt" {
            return Verdict {
                allowed: true,
                rule: None,
            };
        }
        if self.rules.is_empty() {
            return Verdict {
                allowed: self.availability != Availability::Unreachable,
                rule: None,
            };
        }
        let path = pattern::normalise_path(path);
        match self.rules.iter().find(|rule| rule.matches(&path)) {
            Some(rule) => Verdict {
                allowed: rule.is_allow(),
                rule: Some(rule.line()),
            },
            None => Verdict {
                allowed: true,
                rule: None,
            },
        }
    }

    /// Returns the pause that the origin requests between two requests: never zero, at most
    /// [`MAX_CRAWL_DELAY`].
    ///
    /// It is the largest of the group's `Crawl-delay` lines (seconds, with fractions) and
    /// `Request-rate` lines (`1/5` is one request in 5 s; a rate for certain hours applies all
    /// day). Values that are not positive numbers are ignored. The pause is a lower bound: it never
    /// makes a slower limit faster.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.crawl_delay
    }
}
