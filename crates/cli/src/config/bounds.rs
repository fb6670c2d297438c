//! The statuses that count as fetched, and the bounds of a run.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::Knobs;

/// The default maximum of redirects of a page, as in the library and in reqwest.
const REDIRECTS_DEFAULT: u32 = 10;

/// The statuses of `--accept`: `200,404` or `2xx`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Accepted(Vec<RangeInclusive<u16>>);

impl Accepted {
    pub(crate) fn contains(&self, status: StatusCode) -> bool {
        self.0.iter().any(|range| range.contains(&status.as_u16()))
    }
}

impl Default for Accepted {
    fn default() -> Self {
        Self(vec![200..=299])
    }
}

/// Returns the statuses of a text such as `404` or `4xx`, if it is one.
pub(super) fn status_range(text: &str) -> Option<RangeInclusive<u16>> {
    let class = text
        .strip_suffix("xx")
        .and_then(|class| class.parse::<u16>().ok());
    match (class, text.parse::<u16>()) {
        (Some(class @ 2..=5), _) => Some(class * 100..=class * 100 + 99),
        (_, Ok(status @ 200..=599)) => Some(status..=status),
        _ => None,
    }
}

impl FromStr for Accepted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |piece: &str| {
            let piece = piece.trim();
            status_range(piece).ok_or(format!(
                "`{}`: not a status; write 404 or 4xx",
                piece.escape_debug()
            ))
        };
        text.split(',')
            .map(range)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl TryFrom<String> for Accepted {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The bounds of a run, beside those of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) accepted: Accepted,
    /// The maximum number of redirects of a page.
    pub(crate) redirects_max: usize,
    pub(crate) deadline: Option<Duration>,
    /// The maximum number of new pages that are read from the input.
    pub(crate) pages_max: Option<u64>,
    /// The size of all bodies, decoded, at which the run ends.
    pub(crate) bytes_max: Option<u64>,
    /// Patterns of URLs, of which one must match.
    pub(crate) include: Vec<String>,
    /// Patterns of URLs, of which none may match.
    pub(crate) exclude: Vec<String>,
}

impl Bounds {
    pub(super) fn checked(knobs: &mut Knobs) -> Result<Self, String> {
        let redirects = knobs.max_redirects.unwrap_or(REDIRECTS_DEFAULT);
        super::within("max-redirects", Some(f64::from(redirects)), 0.0, 50.0)?;
        super::within("max-pages", knobs.max_pages.map(f64::from), 1.0, 4e9)?;
        Ok(Self {
            accepted: knobs.accept.take().unwrap_or_default(),
            redirects_max: redirects as usize,
            deadline: knobs.deadline.map(|span| span.0),
            pages_max: knobs.max_pages.map(u64::from),
            bytes_max: knobs.max_bytes.map(|size| size.0),
            include: std::mem::take(&mut knobs.include),
            exclude: std::mem::take(&mut knobs.exclude),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_their_classes_are_accepted() {
        let accepted: Accepted = "2xx, 404,410".parse().unwrap();
        for (status, is_accepted) in [
            (200, true),
            (299, true),
            (404, true),
            (410, true),
            (403, false),
            (301, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(accepted.contains(status), is_accepted, "{status}");
        }
        for wrong in ["", "2x", "1xx", "9xx", "99", "600", "200,,404", "ok"] {
            assert!(
                wrong
                    .parse::<Accepted>()
                    .unwrap_err()
                    .contains("not a status"),
                "{wrong}"
            );
        }
    }
}
