//! The runs of a state folder.
//!
//! A folder has its first run. `--again` begins a further one, unless such a run was interrupted:
//! that one goes on. So a command that is given every day begins a run a day, and one that was
//! killed continues. Any other command continues the present run.

use crate::config::AgainSettings;

/// The kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// It fetches pages that are new.
    First = 0,
    /// It fetches pages again.
    Again = 1,
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
    /// Returns the kind of run that the settings ask for.
    fn of(settings: &AgainSettings) -> Self {
        if settings.is_on {
            Self::Again
        } else {
            Self::First
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

    /// Returns the run that `settings` begin or continue in a folder whose last run is `last`.
    pub(super) fn next(last: Option<Self>, settings: &AgainSettings) -> Self {
        let kind = RunKind::of(settings);
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

    const AGAIN: AgainSettings = AgainSettings {
        is_on: true,
        since: None,
        repeats_posts: false,
    };

    fn next(last: Option<RunOfFolder>, settings: &AgainSettings) -> (u32, bool) {
        let run = RunOfFolder::next(last, settings);
        (run.number, run.has_ended)
    }

    #[test]
    fn a_run_begins_when_the_last_one_has_ended_and_an_interrupted_one_goes_on() {
        let plain = AgainSettings::default();
        let first = RunOfFolder::next(None, &plain);
        assert_eq!((first.number, first.has_ended), (1, false));
        assert_eq!(next(Some(first), &AGAIN), (2, false), "of another kind");
        let daily = RunOfFolder::next(None, &AGAIN);
        assert_eq!(daily.number, 1);
        assert_eq!(next(Some(daily), &AGAIN), (1, false), "interrupted");
        let ended = RunOfFolder {
            has_ended: true,
            ..daily
        };
        assert_eq!(next(Some(ended), &AGAIN), (2, false));
        assert_eq!(next(Some(ended), &plain), (1, true));
    }
}
