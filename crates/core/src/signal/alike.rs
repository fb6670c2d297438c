//! The likeness of answers that may be refusals, although no list has them.

use super::{Report, Signal};

/// The likeness of an answer to others that may be refusals of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alike {
    /// Its status, if that may refuse any page.
    #[default]
    Status,
    /// This number, by which the caller compares answers. The caller keeps the pages that got such
    /// answers until the host is no longer in doubt.
    Of(u32),
    /// Nothing: it is the page itself, or what it means is known.
    Nothing,
}

impl Report {
    /// Returns what the answer shares with others that may be refusals, or `None` if it is no such
    /// answer.
    pub fn odd(&self) -> Option<u32> {
        if !matches!(self.signal, Signal::Ok | Signal::UrlError) {
            return None;
        }
        match self.alike {
            Alike::Of(number) => Some(number),
            Alike::Nothing => None,
            Alike::Status => self
                .status
                .filter(|status| may_refuse(*status))
                .map(u32::from),
        }
    }

    /// Returns what a failure that says nothing of a limit shares with others: its status, or 0
    /// without an answer.
    pub(crate) fn trouble(&self) -> Option<u32> {
        let is_trouble = self.signal == Signal::Overloaded
            && self.retry_after.is_none()
            && !matches!(self.status, Some(503 | 529));
        is_trouble.then(|| self.status.unwrap_or_default().into())
    }

    /// Returns whether this is an error of an overloaded host or of a broken page: a plain 500,
    /// what a gateway answers, or no answer.
    pub(crate) fn is_error(&self) -> bool {
        self.signal == Signal::UrlError && self.status == Some(500) || self.trouble().is_some()
    }
}

/// Returns whether answers with these numbers may be refusals of one ban. A host may alternate
/// between statuses that say the same.
pub const fn are_alike(one: u32, other: u32) -> bool {
    const fn forbids(status: u32) -> bool {
        matches!(status, 401..=403 | 406 | 418 | 423 | 444 | 451 | 999)
    }
    one == other || forbids(one) && forbids(other)
}

/// Returns whether an error with this status may be an answer to the client rather than to its
/// request.
///
/// Of the statuses of RFC 9110, section 15, those for a missing page and for a wrong request are
/// none. A plain 500 is judged by its share of all answers (`core/src/host/error_trial.rs`).
const fn may_refuse(status: u16) -> bool {
    match status {
        400 | 404..=405 | 408..=417 | 422 | 424 | 426 | 428 | 431 | 500 => false,
        _ => status > 400,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd(status: u16, alike: Alike) -> Option<u32> {
        let report = Report {
            status: Some(status),
            alike,
            ..Report::of(Signal::UrlError)
        };
        report.odd()
    }

    #[test]
    fn an_error_is_odd_unless_it_is_about_its_request() {
        for status in [401, 402, 403, 418, 423, 444, 451, 501, 530, 599] {
            assert_eq!(odd(status, Alike::Status), Some(status.into()));
        }
        for status in [200, 301, 400, 404, 410, 413, 422, 500] {
            assert_eq!(odd(status, Alike::Status), None, "{status}");
        }
    }

    #[test]
    fn a_caller_says_what_is_odd_and_other_signals_are_judged_elsewhere() {
        assert_eq!(odd(404, Alike::Of(404)), Some(404));
        assert_eq!(odd(403, Alike::Nothing), None);
        let refused = Report {
            status: Some(403),
            ..Report::of(Signal::RateLimited)
        };
        assert_eq!(refused.odd(), None);
    }
}
