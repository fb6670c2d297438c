//! What is on the screen, and what follows from what happens: keys pressed, answers, silence. Pure: events go in, what is
//! wanted comes out; asking and drawing are done elsewhere.

use std::collections::VecDeque;

use politely::wire::{
    FleetStats, KeyDetail, KeyPage, KeyPatch, KeyRow, KeyState, KeysQuery, SortBy,
};
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Size;

use super::client::Fault;
use super::columns;
use super::draw;
use super::poll::{Seen, Shown, Wanted};

/// Samples of the fleet's rates kept for the little curves: one a second.
const SAMPLES: usize = 60;
/// The states in the order in which `f` goes through them.
const STATES: [KeyState; 9] = [
    KeyState::Ready,
    KeyState::Pacing,
    KeyState::Full,
    KeyState::Bytes,
    KeyState::Hold,
    KeyState::Parked,
    KeyState::Breaker,
    KeyState::Quarantine,
    KeyState::Away,
];

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Resized(Size),
    /// The coordinator answered.
    Seen(Box<Seen>),
    /// It did not.
    Away(Fault),
    /// What an operator set is set, or is not.
    Set(Order, Result<(), Fault>),
    /// The terminal is gone, or somebody wants us to end.
    End,
}

/// What must be done beyond drawing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Set(Order),
    Quit,
}

/// What an operator wants for one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) key: String,
    /// In words: `held for 60 s`.
    pub(super) what: &'static str,
    pub(super) patch: KeyPatch,
}

/// The whole screen.
pub(super) struct State {
    pub(super) size: Size,
    /// The coordinator's URL.
    pub(super) place: String,
    pub(super) fleet: Option<FleetStats>,
    /// Permits and refusals per second, oldest first.
    pub(super) past: VecDeque<(f64, f64)>,
    pub(super) table: Table,
    /// The key that is open, if one is.
    pub(super) open: Option<Open>,
    /// The line of the search is being typed.
    pub(super) typing: bool,
    pub(super) help: bool,
    /// Why there is no answer, and how often there was none in a row.
    pub(super) away: Option<(Fault, u32)>,
    /// Said once, until the next key is pressed.
    pub(super) notice: Option<String>,
}

/// The table of keys.
#[derive(Default)]
pub(super) struct Table {
    pub(super) text: String,
    pub(super) filter: Option<KeyState>,
    pub(super) sort: SortBy,
    pub(super) descending: bool,
    /// The row under the cursor, counted from the first of all that match.
    pub(super) cursor: usize,
    /// … and the key in it: the cursor stays on it when rows change places.
    followed: Option<String>,
    /// The first row of the screen.
    first: usize,
    /// What came last, and its first row.
    pub(super) page: KeyPage,
    pub(super) page_first: usize,
}

/// One key, opened.
pub(super) struct Open {
    pub(super) key: String,
    pub(super) detail: Option<Box<KeyDetail>>,
    /// The coordinator does not know it.
    pub(super) unknown: bool,
    /// Decisions scrolled past.
    pub(super) scroll: usize,
}

impl State {
    pub(super) fn new(size: Size, place: String) -> Self {
        Self {
            size,
            place,
            fleet: None,
            past: VecDeque::new(),
            table: Table::default(),
            open: None,
            typing: false,
            help: false,
            away: None,
            notice: None,
        }
    }

    /// What should be asked for.
    pub(super) fn wanted(&self) -> Wanted {
        if let Some(open) = &self.open {
            return Wanted::Key(open.key.clone());
        }
        let table = &self.table;
        Wanted::Table(KeysQuery {
            q: Some(table.text.clone()).filter(|text| !text.is_empty()),
            state: table.filter,
            sort: table.sort,
            descending: table.descending,
            offset: table.first as u32,
            limit: Some(self.rows() as u32),
        })
    }

    /// Rows of the table that the screen has room for.
    pub(super) fn rows(&self) -> usize {
        draw::rows(self.size)
    }

    /// The key that `h` and `u` are about.
    pub(super) fn chosen(&self) -> Option<&str> {
        match &self.open {
            Some(open) => Some(&open.key),
            None => self.table.under_cursor().map(|row| row.key.as_str()),
        }
    }

    pub(super) fn on(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Key(key) => return self.press(key),
            Event::Resized(size) => {
                self.size = size;
                self.table.go(self.table.cursor, self.rows());
            }
            Event::Seen(seen) => self.see(*seen),
            Event::Away(fault) => {
                let before = self.away.as_ref().map_or(0, |(_, times)| *times);
                self.away = Some((fault, before + 1));
            }
            Event::Set(order, Ok(())) => {
                self.notice = Some(format!("{} {}", order.key, order.what));
            }
            Event::Set(order, Err(why)) => {
                self.notice = Some(format!("{} not {}: {why}", order.key, order.what));
            }
            Event::End => return Some(Effect::Quit),
        }
        None
    }

    fn see(&mut self, seen: Seen) {
        self.away = None;
        if self.past.len() >= SAMPLES {
            self.past.pop_front();
        }
        let fleet = seen.fleet;
        self.past
            .push_back((fleet.granted_per_s, fleet.refused_per_s));
        self.fleet = Some(fleet);
        if seen.wanted != self.wanted() {
            return; // overtaken by a key that was pressed
        }
        match (seen.shown, &mut self.open) {
            (Shown::Table(page), None) => {
                let rows = self.rows();
                self.table.show(page, rows);
            }
            (Shown::Key(detail), Some(open)) => {
                open.unknown = detail.is_none();
                open.detail = detail.or(open.detail.take());
            }
            _ => {}
        }
    }
}

impl Table {
    /// The row under the cursor, if it has come.
    pub(super) fn under_cursor(&self) -> Option<&KeyRow> {
        let at = self.cursor.checked_sub(self.page_first)?;
        self.page.keys.get(at)
    }

    /// Puts the cursor on row `to`, or the last, and scrolls as little as is needed.
    pub(super) fn go(&mut self, to: usize, rows: usize) {
        let matching = self.page.matching as usize;
        self.cursor = to.min(matching.saturating_sub(1));
        let least = (self.cursor + 1).saturating_sub(rows);
        let most = self.cursor.min(matching.saturating_sub(rows).max(least));
        self.first = self.first.clamp(least, most);
        self.followed = self.under_cursor().map(|row| row.key.clone());
    }

    /// Other rows, or another order: from the top.
    pub(super) fn anew(&mut self) {
        (self.cursor, self.first, self.followed) = (0, 0, None);
    }

    pub(super) fn next_sort(&mut self) {
        let sorts: Vec<SortBy> = columns::ALL
            .iter()
            .filter_map(|column| column.sort())
            .collect();
        self.sort = after(&sorts, self.sort).unwrap_or_default();
        // Of numbers, the large ones are of interest.
        self.descending = self.sort != SortBy::Name;
        self.anew();
    }

    pub(super) fn next_filter(&mut self) {
        self.filter = match self.filter {
            None => Some(STATES[0]),
            Some(STATE_LAST) => None,
            Some(state) => after(&STATES, state),
        };
        self.anew();
    }

    fn show(&mut self, page: KeyPage, rows: usize) {
        self.page_first = self.first;
        let followed = self.followed.take();
        let at = followed.and_then(|key| page.keys.iter().position(|row| row.key == key));
        self.page = page;
        self.go(at.map_or(self.cursor, |at| self.page_first + at), rows);
    }
}

const STATE_LAST: KeyState = STATES[STATES.len() - 1];

/// The one after `this`, and after the last the first.
fn after<T: Copy + PartialEq>(all: &[T], this: T) -> Option<T> {
    let at = all.iter().position(|one| *one == this)?;
    all.get((at + 1) % all.len()).copied()
}
