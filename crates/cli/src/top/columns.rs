//! The columns of the table, and the choice of those that fit a width.

use politely_api::wire::{KeyRow, SortBy};

use super::words;

/// A column, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Key,
    State,
    Rate,
    Ceiling,
    InFlight,
    Waiting,
    Refused,
    Granted,
    Why,
}

pub(super) const ALL: [Column; 9] = [
    Column::Key,
    Column::State,
    Column::Rate,
    Column::Ceiling,
    Column::InFlight,
    Column::Waiting,
    Column::Refused,
    Column::Granted,
    Column::Why,
];

/// The columns by importance: the first ones get room first.
const BY_WORTH: [Column; 8] = [
    Column::State,
    Column::Rate,
    Column::Waiting,
    Column::Refused,
    Column::InFlight,
    Column::Ceiling,
    Column::Why,
    Column::Granted,
];

/// The minimum width of the column of keys. A shorter name says little.
const KEY_MIN: u16 = 16;
/// The maximum width of the column of keys. More would take room from the reason beside it.
const KEY_WANTED: u16 = 32;
/// The gap between two columns.
pub(super) const GAP: u16 = 1;

impl Column {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::State => "state",
            Self::Rate => "rate/s",
            Self::Ceiling => "ceiling",
            Self::InFlight => "in flight",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Granted => "granted",
            Self::Why => "why",
        }
    }

    /// Returns the coordinator's sort order for this column.
    pub(super) const fn sort(self) -> Option<SortBy> {
        Some(match self {
            Self::Key => SortBy::Name,
            Self::State => SortBy::ReadyIn,
            Self::Rate => SortBy::Rate,
            Self::Ceiling => SortBy::Ceiling,
            Self::InFlight => SortBy::InFlight,
            Self::Waiting => SortBy::Waiting,
            Self::Refused => SortBy::RefusedShare,
            Self::Granted => SortBy::Granted,
            Self::Why => return None,
        })
    }

    /// Returns whether the column holds numbers, which are aligned to the right.
    pub(super) const fn is_number(self) -> bool {
        !matches!(self, Self::Key | Self::State | Self::Why)
    }

    /// Returns the width for its title with a sort mark, and for its usual values.
    const fn width(self) -> u16 {
        match self {
            Self::Key => KEY_MIN,
            Self::State | Self::InFlight => 10,
            Self::Rate | Self::Ceiling | Self::Waiting | Self::Refused => 8,
            Self::Granted => 9,
            Self::Why => 24,
        }
    }

    pub(super) fn cell(self, row: &KeyRow) -> String {
        match self {
            Self::Key => words::harmless(&row.key),
            Self::State => words::state(row.state).to_owned(),
            Self::Rate => words::rate(row.rate.unwrap_or(f64::INFINITY)),
            Self::Ceiling => row.ceiling.map_or_else(|| "–".to_owned(), words::rate),
            Self::InFlight => in_flight(row),
            Self::Waiting => words::count(row.waiting.into()),
            Self::Refused => words::share(row.refused_share),
            Self::Granted => words::count(row.granted),
            Self::Why => words::harmless(&row.why),
        }
    }
}

/// Returns `3/4`, or `3/–` without a bound.
pub(super) fn in_flight(row: &KeyRow) -> String {
    match row.in_flight_max {
        u32::MAX => format!("{}/–", row.in_flight),
        most => format!("{}/{most}", row.in_flight),
    }
}

/// Returns the columns that `width` has room for, each with its width.
pub(super) fn fitting(width: u16) -> Vec<(Column, u16)> {
    let mut left = width.saturating_sub(KEY_MIN);
    let mut chosen = vec![Column::Key];
    for column in BY_WORTH {
        let Some(rest) = left.checked_sub(column.width() + GAP) else {
            break;
        };
        left = rest;
        chosen.push(column);
    }
    let why = chosen.contains(&Column::Why);
    let key = if why {
        left.min(KEY_WANTED - KEY_MIN)
    } else {
        left
    };
    let widths = ALL.into_iter().filter(|column| chosen.contains(column));
    widths
        .map(|column| match column {
            Column::Key => (column, (KEY_MIN + key).min(width)),
            Column::Why => (column, column.width() + left - key),
            _ => (column, column.width()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(width: u16) -> Vec<&'static str> {
        fitting(width)
            .iter()
            .map(|(column, _)| column.title())
            .collect()
    }

    #[test]
    fn columns_go_one_by_one_as_the_width_shrinks() {
        assert_eq!(titles(120).len(), ALL.len());
        assert_eq!(
            titles(80),
            [
                "key",
                "state",
                "rate/s",
                "ceiling",
                "in flight",
                "waiting",
                "refused"
            ]
        );
        assert_eq!(titles(60), ["key", "state", "rate/s", "waiting", "refused"]);
        assert_eq!(titles(30), ["key", "state"]);
        assert_eq!(fitting(5), [(Column::Key, 5)]);
        assert_eq!(fitting(0), [(Column::Key, 0)]);
    }

    #[test]
    fn no_width_is_exceeded_and_none_left_over() {
        for width in 0..300 {
            let columns = fitting(width);
            let gaps = GAP * (columns.len() as u16 - 1);
            let sum: u16 = columns.iter().map(|(_, width)| width).sum();
            assert_eq!(sum + gaps, width);
        }
    }
}
