//! Draws the state of the screen.

mod bottom;
mod crawls;
mod curve;
mod detail;
mod fleet;
mod help;
mod table;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Size};

use super::paint::{FAINT, Paint};
use super::state::State;

/// On a lower screen, the totals and the reason make room for rows.
const HEIGHT_WHOLE: u16 = 8;
/// The number of lines of totals.
const FLEET: u16 = 2;
/// The number of lines for the message and the status.
const BOTTOM: u16 = 2;
/// The number of lines for the titles.
const TITLES: u16 = 1;

/// Returns the number of table rows that a screen of `size` has room for, at least 1.
pub(super) fn rows(size: Size) -> usize {
    let (fleet, bottom) = edges(size.height);
    size.height
        .saturating_sub(fleet + bottom + TITLES)
        .max(1)
        .into()
}

/// Returns the number of lines above and below the table.
const fn edges(height: u16) -> (u16, u16) {
    if height < HEIGHT_WHOLE {
        (0, 1)
    } else {
        (FLEET, BOTTOM)
    }
}

pub(super) fn screen(frame: &mut Frame, state: &State, paint: Paint) {
    let (above, below) = edges(frame.area().height);
    let parts = [
        Constraint::Length(above),
        Constraint::Min(0),
        Constraint::Length(below),
    ];
    let [top, middle, end] = Layout::vertical(parts).areas(frame.area());
    fleet::draw(frame, top, state, paint);
    match &state.open {
        _ if state.help => help::draw(frame, middle),
        _ if state.crawls.is_some() => crawls::draw(frame, middle, state),
        Some(open) => detail::draw(frame, middle, open, paint),
        None => table::draw(frame, middle, &state.table, paint),
    }
    if state.away.is_some() {
        // The shown data is old.
        frame.buffer_mut().set_style(top, FAINT);
        frame.buffer_mut().set_style(middle, FAINT);
    }
    bottom::draw(frame, end, state, paint);
}
