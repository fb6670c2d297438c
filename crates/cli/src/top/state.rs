//! The state of the screen, and its changes by key presses, answers and failures. It is pure:
//! events go in, and wanted data comes out. Other modules poll and draw.

use std::collections::VecDeque;

use politely_api::wire::{
    FleetStats, KeyDetail, KeyPage, KeyPatch, KeyRow, KeyState, KeysQuery, SortBy,
};
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Size;

use super::columns;
use super::draw;
use super::poll::{CrawlsSeen, Seen, Shown, Wanted};
use crate::fault::Fault;

/// The number of samples of the fleet's rates for the small curves, one per second.
const SAMPLES: usize = 60;
/// The states in the order of the key `f`.
const STATES: [KeyState; 10] = [
    KeyState::Ready,
    KeyState::Pacing,
    KeyState::Full,
    KeyState::Bytes,
    KeyState::Budget,
    KeyState::Hold,
    KeyState::Parked,
    KeyState::Breaker,
    KeyState::Quarantine,
    KeyState::Unavailable,
];

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Resized(Size),
    /// The coordinator answered.
    Seen(Box<Seen>),
    /// The coordinator did not answer.
    Unavailable(Fault),
    /// An operator's order succeeded or failed.
    Set(Order, Result<(), Fault>),
    /// The terminal is gone, or a signal ends the process.
    End,
}

/// An action that is needed beside drawing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Set(Order),
    Quit,
}

/// An operator's change of one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) key: String,
    /// The order in words: `held for 60 s`.
    pub(super) what: &'static str,
    pub(super) patch: Box<KeyPatch>,
}

/// The state of the whole screen.
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
    /// The crawls of the frontier, if they are shown.
    pub(super) crawls: Option<Crawls>,
    /// Whether the user is typing a search.
    pub(super) typing: bool,
    pub(super) help: bool,
    /// Why there is no answer, and the number of failures in a row.
    pub(super) unavailable: Option<(Fault, u32)>,
    /// A message that is shown until the next key press.
    pub(super) notice: Option<String>,
}

/// The table of keys.
#[derive(Default)]
pub(super) struct Table {
    pub(super) text: String,
    pub(super) filter: Option<KeyState>,
    pub(super) sort: SortBy,
    pub(super) descending: bool,
    /// The row under the cursor, counted from the first of all matching rows.
    pub(super) cursor: usize,
    /// The key under the cursor. The cursor stays on it when rows change places.
    followed: Option<String>,
    /// The first row on the screen.
    first: usize,
    /// The last rows that came, and their first row.
    pub(super) page: KeyPage,
    pub(super) page_first: usize,
}

/// One key, opened.
pub(super) struct Open {
    pub(super) key: String,
    pub(super) detail: Option<Box<KeyDetail>>,
    /// Whether the coordinator does not know the key.
    pub(super) unknown: bool,
    /// The number of decisions scrolled past.
    pub(super) scroll: usize,
}

/// The crawls of the frontier.
#[derive(Default)]
pub(super) struct Crawls {
    /// The chosen crawl. The first one until the user moves.
    pub(super) chosen: Option<String>,
    /// `None` until the coordinator answered, and `Some(None)` if it has no frontier.
    #[expect(
        clippy::option_option,
        reason = "the two absences are drawn differently"
    )]
    pub(super) seen: Option<Option<CrawlsSeen>>,
}

impl Crawls {
    /// Returns the place of the chosen crawl.
    pub(super) fn at(&self) -> usize {
        let crawls = self.seen.iter().flatten().flat_map(|seen| &seen.crawls);
        let chosen = self.chosen.as_deref();
        let mut names = crawls.map(|crawl| Some(crawl.crawl.as_str()));
        names.position(|name| name == chosen).unwrap_or(0)
    }

    /// Chooses the crawl at a place, or the last one.
    pub(super) fn go(&mut self, to: usize) {
        let Some(Some(seen)) = &mut self.seen else {
            return;
        };
        let to = to.min(seen.crawls.len().saturating_sub(1));
        let chosen = seen.crawls.get(to).map(|crawl| crawl.crawl.clone());
        if self.chosen != chosen {
            // The owners are those of the crawl that was chosen before.
            seen.owners.clear();
            self.chosen = chosen;
        }
    }
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
            crawls: None,
            typing: false,
            help: false,
            unavailable: None,
            notice: None,
        }
    }

    /// Returns the data to poll for.
    pub(super) fn wanted(&self) -> Wanted {
        if let Some(crawls) = &self.crawls {
            return Wanted::Crawls(crawls.chosen.clone());
        }
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
            ..KeysQuery::default()
        })
    }

    /// Returns the number of table rows that the screen has room for.
    pub(super) fn rows(&self) -> usize {
        draw::rows(self.size)
    }

    /// Returns the key that `h` and `u` change.
    pub(super) fn chosen(&self) -> Option<&str> {
        match &self.open {
            _ if self.crawls.is_some() => None,
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
            Event::Unavailable(fault) => {
                let before = self.unavailable.as_ref().map_or(0, |(_, times)| *times);
                self.unavailable = Some((fault, before + 1));
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
        self.unavailable = None;
        if self.past.len() >= SAMPLES {
            self.past.pop_front();
        }
        let fleet = seen.fleet;
        self.past
            .push_back((fleet.granted_per_s, fleet.refused_per_s));
        self.fleet = Some(fleet);
        if seen.wanted != self.wanted() {
            return; // another key was pressed meanwhile
        }
        match (seen.shown, &mut self.open) {
            (Shown::Crawls(seen), _) => {
                if let Some(crawls) = &mut self.crawls {
                    crawls.seen = Some(seen);
                }
            }
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
    /// Returns the row under the cursor, if it has come.
    pub(super) fn under_cursor(&self) -> Option<&KeyRow> {
        let at = self.cursor.checked_sub(self.page_first)?;
        self.page.keys.get(at)
    }

    /// Moves the cursor to row `to`, or to the last, and scrolls as little as needed.
    pub(super) fn go(&mut self, to: usize, rows: usize) {
        let matching = self.page.matching as usize;
        self.cursor = to.min(matching.saturating_sub(1));
        let least = (self.cursor + 1).saturating_sub(rows);
        let most = self.cursor.min(matching.saturating_sub(rows).max(least));
        self.first = self.first.clamp(least, most);
        self.followed = self.under_cursor().map(|row| row.key.clone());
    }

    /// Returns to the top, since the rows or their order change.
    pub(super) fn anew(&mut self) {
        (self.cursor, self.first, self.followed) = (0, 0, None);
    }

    pub(super) fn next_sort(&mut self) {
        let columns = columns::ALL.iter().filter_map(|column| column.sort());
        let sorts: Vec<SortBy> = [SortBy::Attention].into_iter().chain(columns).collect();
        self.sort = after(&sorts, self.sort).unwrap_or_default();
        // Large numbers are the interesting ones.
        self.descending = !matches!(self.sort, SortBy::Name | SortBy::Attention);
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

/// Returns the element after `this`, or the first after the last.
fn after<T: Copy + PartialEq>(all: &[T], this: T) -> Option<T> {
    let at = all.iter().position(|one| *one == this)?;
    all.get((at + 1) % all.len()).copied()
}
