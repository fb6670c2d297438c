//! The last lines: a message or the reason why the chosen key waits, and a description of the rows.

use std::fmt::Write as _;

use politely_api::wire::SortBy;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use super::super::columns;
use super::super::paint::{FAINT, Paint};
use super::super::state::{State, Table};
use super::super::words;

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, paint: Paint) {
    let trouble = trouble(state, paint);
    match area.rows().collect::<Vec<_>>()[..] {
        [message, status] => {
            frame.render_widget(trouble.unwrap_or_else(|| reason(state)), message);
            status_or_search(frame, status, state);
        }
        [only] if !state.typing && trouble.is_some() => frame.render_widget(trouble, only),
        [only] => status_or_search(frame, only, state),
        _ => {}
    }
}

/// Returns the message that the coordinator does not answer, the result of an order, or the trouble
/// of the engine.
fn trouble<'a>(state: &State, paint: Paint) -> Option<Line<'a>> {
    if let Some((fault, times)) = &state.unavailable {
        let again = if *times == 1 {
            "once".to_owned()
        } else {
            format!("{times} times")
        };
        let text = format!(
            "{}; tried {again}, trying on",
            words::harmless(&fault.to_string())
        );
        return Some(Line::styled(text, paint.bad()));
    }
    if let Some(notice) = &state.notice {
        return Some(Line::from(words::harmless(notice)));
    }
    let engine = state.table.page.engine_error.as_deref()?;
    Some(Line::styled(words::harmless(engine), paint.bad()))
}

/// Returns why the chosen key waits. The view of an open key shows it above.
fn reason<'a>(state: &State) -> Line<'a> {
    let row = state.table.under_cursor();
    match row.filter(|_| state.open.is_none() && state.crawls.is_none()) {
        Some(row) => {
            let needs = row.needs.iter().map(|need| words::need(*need));
            let why = needs
                .chain([row.why.as_str()])
                .collect::<Vec<_>>()
                .join(", ");
            Line::from(words::harmless(&format!("{}: {why}", row.key)))
        }
        None => Line::default(),
    }
}

fn status_or_search(frame: &mut Frame, area: Rect, state: &State) {
    if !state.typing {
        return frame.render_widget(status(state), area);
    }
    let text = Line::from(vec![
        "/".into(),
        Span::raw(words::harmless(&state.table.text)),
    ]);
    let right = area.width.saturating_sub(1).min(text.width() as u16);
    frame.render_widget(text, area);
    frame.set_cursor_position(Position::new(area.x + right, area.y));
}

fn status<'a>(state: &State) -> Line<'a> {
    let text = match (&state.open, &state.fleet) {
        _ if state.help => "any key: back".to_owned(),
        _ if state.crawls.is_some() => "Esc back  up down crawls  ? help".to_owned(),
        (Some(_), _) => "Esc back  up down decisions  h hold  u unpark  ? help".to_owned(),
        (None, None) => "asking …".to_owned(),
        (None, Some(_)) => format!("{}  ? help", shown(&state.table)),
    };
    Line::styled(text, FAINT)
}

/// Returns `1-19 of 40 of 1,234 keys, by rate, largest first, only hold, named "shop"`.
fn shown(table: &Table) -> String {
    let page = &table.page;
    let mut text = if page.keys.is_empty() {
        format!("none of {} keys", words::count(page.total.into()))
    } else {
        let last = table.page_first + page.keys.len();
        let mut text = format!(
            "{}-{last} of {}",
            table.page_first + 1,
            words::count(page.matching.into())
        );
        if page.matching != page.total {
            let _ = write!(text, " of {}", words::count(page.total.into()));
        }
        text + " keys"
    };
    let by = columns::ALL
        .iter()
        .find(|column| column.sort() == Some(table.sort));
    let order = match (table.sort, table.descending) {
        (SortBy::Name, false) => "a to z",
        (SortBy::Name, true) => "z to a",
        (SortBy::Attention, false) => "most urgent first",
        (SortBy::Attention, true) => "least urgent first",
        (SortBy::ReadyIn, false) => "soonest first",
        (SortBy::ReadyIn, true) => "latest first",
        (_, true) => "largest first",
        (_, false) => "smallest first",
    };
    let _ = write!(
        text,
        ", by {}, {order}",
        by.map_or("attention", |column| column.title())
    );
    if let Some(state) = table.filter {
        let _ = write!(text, ", only {}", words::state(state));
    }
    if !table.text.is_empty() {
        let _ = write!(text, ", named \"{}\"", words::harmless(&table.text));
    }
    text
}
