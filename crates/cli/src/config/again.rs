//! The settings of a run that fetches pages again.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::Knobs;
use super::bounds::status_range;

/// The settings of a run that fetches pages again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgainSettings {
    pub(crate) wanted: Wanted,
    /// Whether requests are sent again that may act twice.
    pub(crate) repeats_posts: bool,
}

/// The finished pages that a run fetches again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    None,
    /// All pages, or those whose last visit is at least this long ago.
    All { since: Option<Duration> },
    /// Pages that failed.
    Failed(FailedPages),
}

/// The failed pages of `--retry-failed`: all of them, or those with one of these reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct FailedPages(Vec<Reason>);

/// Why a page failed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Status(RangeInclusive<u16>),
    /// Words of the reason, in lower case.
    Words(String),
}

impl AgainSettings {
    pub(super) fn checked(knobs: &mut Knobs) -> Result<Self, String> {
        let needs =
            |name: &str, other: &str| Err(format!("--{name} has an effect only with {other}"));
        let wanted = match (knobs.again, knobs.retry_failed.take()) {
            (false, None) => Wanted::None,
            (true, None) => Wanted::All {
                since: knobs.since.map(|age| age.0),
            },
            (false, Some(failed)) => Wanted::Failed(failed),
            (true, Some(_)) => {
                return Err("--retry-failed cannot be combined with --again, which fetches failed pages again, too".to_owned());
            }
        };
        if wanted != Wanted::None && knobs.state.is_none() {
            let name = if knobs.again { "again" } else { "retry-failed" };
            return needs(name, "--state DIR, which knows the pages");
        }
        if knobs.since.is_some() && !knobs.again {
            return needs("since", "--again");
        }
        if knobs.repeat_posts && wanted == Wanted::None {
            return needs("repeat-posts", "--again or --retry-failed");
        }
        Ok(Self {
            wanted,
            repeats_posts: knobs.repeat_posts,
        })
    }
}

impl FailedPages {
    /// Returns whether a page is meant that failed with this status of its last answer, or 0
    /// without one, and with this reason.
    pub(crate) fn contains(&self, status: u16, reason: &str) -> bool {
        let reason = reason.to_lowercase();
        let fits = |known: &Reason| match known {
            Reason::Status(range) => range.contains(&status),
            Reason::Words(words) => reason.contains(words),
        };
        self.0.is_empty() || self.0.iter().any(fits)
    }

    /// Returns whether all failed pages are meant.
    pub(crate) const fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for FailedPages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let reason = |piece: &str| {
            let piece = piece.trim();
            if piece.is_empty() {
                return Err("has an empty reason; write 503, 5xx or words of the reason".to_owned());
            }
            let words = || Reason::Words(piece.to_lowercase());
            Ok(status_range(piece).map_or_else(words, Reason::Status))
        };
        match text.trim() {
            "all" => Ok(Self::default()),
            text => text
                .split(',')
                .map(reason)
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

impl TryFrom<String> for FailedPages {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_pages_are_chosen_by_status_or_by_words_of_their_reason() {
        for (text, status, reason, is_chosen) in [
            ("all", 404, "404 Not Found", true),
            ("503", 503, "503 Service Unavailable", true),
            ("503", 502, "502 Bad Gateway, after 503", false),
            ("5xx, 429", 429, "429", true),
            ("5xx", 404, "404 Not Found", false),
            ("No Answer,404", 0, "connect: no answer within 30 s", true),
            ("no such host", 0, "no such host: a.example", true),
            ("refused", 0, "no connection: connection refused", true),
            ("timeout", 0, "no connection: connection refused", false),
        ] {
            let failed: FailedPages = text.parse().unwrap();
            assert_eq!(failed.contains(status, reason), is_chosen, "{text}");
        }
        for wrong in ["", " ", "503,", ",404"] {
            assert!(wrong.parse::<FailedPages>().is_err(), "{wrong}");
        }
    }
}
