//! The state of the screen, drawn.

mod bottom;
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

/// Lower, the totals and the reason make room for rows.
const HEIGHT_WHOLE: u16 = 8;
/// Lines of totals.
const FLEET: u16 = 2;
/// Lines of the message and of the status.
const BOTTOM: u16 = 2;
/// The line of the titles.
const TITLES: u16 = 1;

/// Rows of the table that a screen of `size` has room for, at least 1.
pub(super) fn rows(size: Size) -> usize {
    let (fleet, bottom) = edges(size.height);
    size.height
        .saturating_sub(fleet + bottom + TITLES)
        .max(1)
        .into()
}

/// Lines above and below the table.
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
        Some(open) => detail::draw(frame, middle, open, paint),
        None => table::draw(frame, middle, &state.table, paint),
    }
    if state.away.is_some() {
        // What is shown is old.
        frame.buffer_mut().set_style(top, FAINT);
        frame.buffer_mut().set_style(middle, FAINT);
    }
    bottom::draw(frame, end, state, paint);
}
