//! The runs of a state folder.
//!
//! A folder has its first run. `--again` and `--retry-failed` begin a further one, unless a run of
//! the same kind was interrupted: that one goes on. So a command that is given every day begins a
//! run a day, and one that was killed continues. Any other command continues the present run.

use crate::config::Wanted;

/// The kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// It fetches pages that are new.
    First = 0,
    /// It fetches pages again.
    Again = 1,
    /// It tries failed pages again.
    Retry = 2,
}

/// The present run of a state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunOfFolder {
    /// From 1 on.
    pub(crate) number: u32,
    /// A number of [`RunKind`].
    pub(super) kind: u64,
    /// Whether it ended by itself.
    pub(crate) has_ended: bool,
}

impl RunKind {
    /// Returns the kind of run that fetches the `wanted` pages again.
    fn of(wanted: &Wanted) -> Self {
        match wanted {
            Wanted::None => Self::First,
            Wanted::All { .. } => Self::Again,
            Wanted::Failed(_) => Self::Retry,
        }
    }
}

impl RunOfFolder {
    /// The run that began with the folder.
    pub(super) const FIRST: Self = Self {
        number: 1,
        kind: RunKind::First as u64,
        has_ended: false,
    };

    /// Returns the run that fetches the `wanted` pages again, in a folder whose last run is `last`.
    pub(super) fn next(last: Option<Self>, wanted: &Wanted) -> Self {
        let kind = RunKind::of(wanted);
        let first = Self {
            kind: kind as u64,
            ..Self::FIRST
        };
        let Some(last) = last else { return first };
        let goes_on = !last.has_ended && last.kind == kind as u64;
        if kind == RunKind::First || goes_on {
            return last;
        }
        Self {
            number: last.number.saturating_add(1),
            ..first
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FailedPages;

    const AGAIN: Wanted = Wanted::All { since: None };

    fn next(last: Option<RunOfFolder>, wanted: &Wanted) -> (u32, bool) {
        let run = RunOfFolder::next(last, wanted);
        (run.number, run.has_ended)
    }

    #[test]
    fn a_run_begins_when_the_last_one_has_ended_and_an_interrupted_one_goes_on() {
        let (plain, retry) = (Wanted::None, Wanted::Failed(FailedPages::default()));
        let first = RunOfFolder::next(None, &plain);
        assert_eq!((first.number, first.has_ended), (1, false));
        assert_eq!(next(Some(first), &AGAIN), (2, false), "of another kind");
        let daily = RunOfFolder::next(None, &AGAIN);
        assert_eq!(daily.number, 1);
        assert_eq!(next(Some(daily), &AGAIN), (1, false), "interrupted");
        assert_eq!(next(Some(daily), &retry), (2, false), "of another kind");
        let ended = RunOfFolder {
            has_ended: true,
            ..daily
        };
        assert_eq!(next(Some(ended), &AGAIN), (2, false));
        assert_eq!(next(Some(ended), &plain), (1, true));
    }
}
