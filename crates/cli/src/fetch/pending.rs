//! A request on its way through the frontier, with all that its result line will need.

use http::Method;
use politely::core::retry::Attempt;
use url::Url;

use super::frontier::LaneId;
use super::output::Row;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A URL of the input.
    Page,
    /// The robots.txt of this lane.
    Robots(LaneId),
}

/// A request that waits, is under way, or goes again.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: Purpose,
    /// Where the spool has the URL.
    pub(crate) offset: u64,
    /// Where the last redirect led, or the robots.txt itself; else the spool's URL is meant.
    pub(crate) hop: Option<Url>,
    /// The spool's line, once it was read.
    pub(crate) given: Option<String>,
    /// Redirects followed on the way here.
    pub(crate) hops: usize,
    /// Requests sent.
    pub(crate) attempts: u32,
    /// How the last one was answered, if it was.
    pub(crate) status: Option<u16>,
    /// Of those, answered with a refusal (429 and the like).
    pub(crate) refused: u32,
    /// The next attempt at the present hop, as the retry policy counts.
    pub(crate) attempt: Attempt,
    /// Failures at the present hop that count against the page (see [`super::outage`]).
    pub(crate) own_failures: u32,
    /// A failure that does not count yet: how many requests the host had served before it, and how
    /// often the page failed since.
    pub(crate) failed_in: Option<(u64, u32)>,
    /// The last failure, in words.
    pub(crate) trouble: Option<Box<str>>,
    /// First in line, without leave.
    pub(crate) waited_us: u64,
}

impl Pending {
    pub(crate) fn page(offset: u64) -> Self {
        Self {
            purpose: Purpose::Page,
            offset,
            hop: None,
            given: None,
            hops: 0,
            attempts: 0,
            status: None,
            refused: 0,
            attempt: Attempt::first(Method::GET),
            own_failures: 0,
            failed_in: None,
            trouble: None,
            waited_us: 0,
        }
    }

    /// The robots.txt of `lane`, whose origin is `origin`.
    pub(crate) fn robots(lane: LaneId, origin: &str) -> Self {
        // An origin came out of a parsed URL, so it is one again.
        let hop = Url::parse(&format!("{origin}/robots.txt")).ok();
        Self {
            purpose: Purpose::Robots(lane),
            hop,
            ..Self::page(0)
        }
    }

    /// Did the request never fail at its present hop?
    pub(crate) fn is_untried(&self) -> bool {
        self.own_failures == 0 && self.failed_in.is_none() && self.attempt.number == 1
    }

    /// Goes on at `to`, where a redirect leads.
    pub(crate) fn go_on(&mut self, to: Url) {
        self.hop = Some(to);
        self.hops += 1;
        self.attempt = Attempt::first(Method::GET);
        self.own_failures = 0;
        self.failed_in = None;
    }
}

impl Pending {
    /// The result line of a URL that ends without a further request.
    pub(crate) fn row<'a>(&self, url: &'a str, key: &'a str, why: &'a str) -> Row<'a> {
        Row {
            url,
            key,
            status: self.status,
            attempts: self.attempts,
            refused: self.refused,
            bytes: 0,
            wait_ms: self.waited_us / 1000,
            latency_ms: 0,
            saved: None,
            error: Some(why),
        }
    }
}
