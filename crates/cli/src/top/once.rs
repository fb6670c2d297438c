//! The table as plain text, for scripts and pipes.

use std::fmt::Write as _;

use politely_api::wire::{FleetStats, KeyPage};
use ratatui::text::Line;

use super::columns;
use super::words;

/// The gap between two columns. A single space may be within a cell.
const GAP: &str = "  ";

/// Returns one line of totals, then one line per key. Columns are as wide as their widest cell.
pub(super) fn text(fleet: &FleetStats, page: &KeyPage) -> String {
    let share = fleet.refused as f64 / fleet.reported.max(1) as f64;
    let mut text = format!(
        "granted {}/s, refused {}/s, refused share {}, keys {}, waiting {}, live {}, up {}\n",
        words::rate(fleet.granted_per_s),
        words::rate(fleet.refused_per_s),
        words::share(share),
        words::count(fleet.keys),
        words::count(fleet.waiting),
        words::count(fleet.live),
        words::duration((fleet.uptime_s * 1e3) as u64),
    );
    let cells = columns::ALL.map(|column| {
        let rows = page.keys.iter().map(|row| column.cell(row));
        let cells: Vec<String> = [column.title().to_owned()]
            .into_iter()
            .chain(rows)
            .collect();
        let widest = cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
        (column, cells, widest)
    });
    for line in 0..=page.keys.len() {
        let mut written = String::new();
        for (column, cells, widest) in &cells {
            let cell = &cells[line];
            let pad = widest - width(cell);
            let (before, after) = if column.is_number() {
                (pad, 0)
            } else {
                (0, pad)
            };
            let _ = write!(written, "{:before$}{cell}{:after$}{GAP}", "", "");
        }
        text += written.trim_end();
        text.push('\n');
    }
    text
}

/// Returns the number of columns that `text` takes on a terminal.
fn width(text: &str) -> usize {
    Line::raw(text).width()
}

#[cfg(test)]
mod tests {
    use politely_api::wire::{KeyRow, KeyState};

    use super::*;

    #[test]
    fn numbers_stand_at_the_right_and_names_at_the_left() {
        let row = |key: &str, rate, state, why: &str| KeyRow {
            key: key.to_owned(),
            rate,
            state,
            why: why.to_owned(),
            in_flight_max: 4,
            ..KeyRow::default()
        };
        let page = KeyPage {
            keys: vec![
                row("a.example", Some(2.0), KeyState::Hold, "waits 3.2 s: hold"),
                row("custom/日本\u{7}", None, KeyState::Ready, "ready"),
            ],
            matching: 2,
            total: 2,
        };
        let fleet = FleetStats {
            keys: 2,
            granted: 3,
            reported: 3,
            refused: 1,
            ..FleetStats::default()
        };
        let expected = "\
granted 0.00/s, refused 0.00/s, refused share 33.3 %, keys 2, waiting 0, live 0, up 0 ms
key           state    rate/s  ceiling  in flight  waiting  refused  granted  why
a.example     hold       2.00        –        0/4        0      0 %        0  waits 3.2 s: hold
custom/日本?  ready  no bound        –        0/4        0      0 %        0  ready
";
        assert_eq!(text(&fleet, &page), expected);
    }
}
