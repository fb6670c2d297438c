//! robots.txt in a run: fetched before an origin's first page, paced like any request, stored with
//! `--state`.
//!
//! An answer of 5xx or 429 closes the origin for a while: its URLs wait and are not lost. After
//! [`TRIES_MAX`] such answers in a row the URLs fail, each with that reason. They also fail if no
//! attempt gets an answer.

use std::sync::Arc;
use std::time::Duration;

use politely::CrawlDelay;
use politely::core::Timestamp;
use politely::robots::{Availability, Robots};
use serde::{Deserialize, Serialize};
use url::Url;

/// The time for which an answer is valid (RFC 9309, 2.4: at most 24 h).
pub(crate) const TTL: Duration = Duration::from_hours(24);
/// The number of answers in a row that leave the rules unknown before an origin's URLs fail.
pub(crate) const TRIES_MAX: u32 = 5;
/// The wait after the first such answer. It is four times as long after each further one: 2 s, 8 s,
/// 32 s, and then 60 s.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_mins(1);

/// The state of an origin's robots.txt.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// The robots.txt is not fetched: `--no-robots`, or profile `api`.
    Off,
    Unknown,
    /// A request for the robots.txt is in flight. `old` is used if it fails.
    Asking {
        tries: u32,
        old: Option<Arc<Rules>>,
    },
    Known {
        rules: Arc<Rules>,
        until: Timestamp,
    },
    /// Unknown now. It is fetched again at this time.
    Unavailable {
        tries: u32,
        until: Timestamp,
    },
    /// Given up, and why.
    GaveUp(Box<str>),
}

/// An answer as `--state` stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cached {
    pub(crate) fetched_unix_s: u64,
    /// `None` means that there is no robots.txt (4xx).
    pub(crate) body: Option<Vec<u8>>,
    /// Whether the sitemaps that it names are in the crawl.
    pub(crate) has_sitemaps: bool,
}

/// Returns the wall clock in seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Standing {
    pub(crate) fn rules(&self) -> Option<&Arc<Rules>> {
        match self {
            Self::Known { rules, .. } => Some(rules),
            _ => None,
        }
    }

    /// Returns the Crawl-delay that the origin asks for.
    pub(crate) fn crawl_delay(&self, now: Timestamp) -> Option<CrawlDelay> {
        let Self::Known { rules, until } = self else {
            return None;
        };
        Some(CrawlDelay {
            pause: rules.crawl_delay()?,
            fresh: until.since(now),
        })
    }

    /// Returns the state after the request was sent.
    pub(crate) fn asked(self) -> Self {
        match self {
            Self::Unavailable { tries, .. } => Self::Asking { tries, old: None },
            Self::Known { rules, .. } => Self::Asking {
                tries: 0,
                old: Some(rules),
            },
            other @ (Self::Off | Self::Asking { .. }) => other,
            Self::Unknown | Self::GaveUp(_) => Self::Asking {
                tries: 0,
                old: None,
            },
        }
    }

    /// Returns whether it waits for a further try after [`TRIES_MAX`] of them.
    pub(crate) const fn is_spent(&self) -> bool {
        matches!(self, Self::Unavailable { tries, .. } if *tries >= TRIES_MAX)
    }

    /// Returns the state without further tries, after the last `answer`.
    pub(crate) fn given_up(self, answer: &str) -> Self {
        match self {
            Self::Unavailable { tries, .. } => closed(answer, tries),
            other => other,
        }
    }

    /// Returns the state after an unusable answer or none.
    pub(crate) fn unavailable(self, unusable: &Unusable<'_>) -> Self {
        let Unusable {
            why, patient, now, ..
        } = *unusable;
        match self {
            // RFC 9309, 2.4: a copy may be used beyond its time while the origin cannot be reached.
            Self::Asking {
                old: Some(rules), ..
            } => Self::Known {
                rules,
                until: now + TTL,
            },
            Self::Asking { .. } if unusable.for_good => Self::GaveUp(match why {
                why if why.starts_with("robots.txt") => why.into(),
                why => format!("robots.txt: {why}").into(),
            }),
            Self::Asking { tries, .. } if tries + 1 >= TRIES_MAX && !patient => {
                closed(why, tries + 1)
            }
            Self::Asking { tries, .. } => Self::Unavailable {
                tries: tries + 1,
                until: (now + (RETRY_FIRST * 4_u32.pow(tries.min(TRIES_MAX - 2))).min(RETRY_MAX))
                    .max(unusable.not_before),
            },
            other => other,
        }
    }
}

fn closed(answer: &str, tries: u32) -> Standing {
    let why =
        format!("robots.txt answers {answer}: the host is closed to crawlers ({tries} tries)");
    Standing::GaveUp(why.into())
}

/// A robots.txt that cannot be used.
pub(crate) struct Unusable<'a> {
    /// The reason in the result of each URL that fails because of it.
    pub(crate) why: &'a str,
    /// Whether further fetches are useless.
    pub(crate) for_good: bool,
    /// Whether the fetch is worth more tries than [`TRIES_MAX`], because the host may be down.
    pub(crate) patient: bool,
    /// The time before which the server wants no request.
    pub(crate) not_before: Timestamp,
    pub(crate) now: Timestamp,
}

/// The rules of one origin for this crawler.
#[derive(Clone, Debug)]
pub(crate) struct Rules(Robots);

impl Rules {
    /// Returns the meaning of an answer for `agent`. `None` means that the rules are unknown now
    /// (5xx, 429, no answer).
    pub(crate) fn of(status: Option<u16>, body: &[u8], agent: &str) -> Option<Self> {
        let robots = Robots::from_response(status, body, agent);
        (robots.availability() != Availability::Unreachable).then_some(Self(robots))
    }

    /// Returns whether the rules could forbid a URL. Without a file, no URL must be checked.
    pub(crate) fn has_any(&self) -> bool {
        self.0.availability() == Availability::Rules
    }

    /// Returns the line that forbids `url`, in words.
    pub(crate) fn forbids(&self, url: &Url) -> Option<String> {
        let verdict = self.0.allows(url);
        (!verdict.allowed).then(|| {
            format!(
                "robots.txt: {}",
                verdict.rule.unwrap_or("nothing is allowed")
            )
        })
    }

    /// Returns the pause after each request.
    fn crawl_delay(&self) -> Option<Duration> {
        self.0.crawl_delay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(patient: bool, now: Timestamp) -> Unusable<'static> {
        Unusable {
            why: "503",
            for_good: false,
            patient,
            not_before: now,
            now,
        }
    }

    fn rules(status: u16, body: &[u8]) -> Option<Rules> {
        Rules::of(Some(status), body, "politely/0.1 (+https://example.com)")
    }

    #[test]
    fn unreachable_rules_are_asked_for_again_and_given_up_after_a_bounded_number_of_tries() {
        let mut standing = Standing::Unknown;
        let mut now = Timestamp::ZERO;
        for _ in 1..TRIES_MAX {
            standing = standing.asked().unavailable(&busy(false, now));
            let Standing::Unavailable { until, .. } = standing else {
                panic!("{standing:?}")
            };
            assert!(until > now);
            now = until;
        }
        // While many pages wait, only time ends it.
        let patient = standing.clone().asked().unavailable(&busy(true, now));
        assert!(
            matches!(patient, Standing::Unavailable { .. }),
            "{patient:?}"
        );
        let standing = standing.asked().unavailable(&busy(false, now));
        assert!(matches!(standing, Standing::GaveUp(_)), "{standing:?}");
    }

    #[test]
    fn an_old_copy_holds_while_the_origin_cannot_be_asked() {
        let old = Standing::Known {
            rules: Arc::new(rules(404, b"").unwrap()),
            until: Timestamp::ZERO,
        };
        let standing = old.asked().unavailable(&busy(false, Timestamp::ZERO));
        assert!(standing.rules().is_some());
    }

    #[test]
    fn answers_mean_what_the_rfc_says() {
        let url = Url::parse("http://a/private/x").unwrap();
        let file = b"User-agent: politely\nDisallow: /private\nCrawl-delay: 0.5";
        let found = rules(200, file).unwrap();
        assert_eq!(
            found.forbids(&url).as_deref(),
            Some("robots.txt: Disallow: /private")
        );
        assert_eq!(found.crawl_delay(), Some(Duration::from_millis(500)));
        assert!(!rules(403, file).unwrap().has_any());
        assert!(rules(503, file).is_none() && rules(429, file).is_none());
    }
}
