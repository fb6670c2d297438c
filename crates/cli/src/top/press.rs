//! The effect of each key.

use politely_api::wire::KeyPatch;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Crawls, Effect, Open, Order, State};

/// The hold that `h` sets.
const HOLD_MS: u64 = 60_000;
/// The maximum length of a search. No key's name is longer.
const TEXT_MAX: usize = 255;

/// The keys on the help page that `?` shows.
pub(super) const HELP: [(&str, &str); 13] = [
    (
        "up down, k j",
        "the row above, below; decisions of an open key",
    ),
    ("PgUp PgDn", "a screenful"),
    ("Home End, g G", "the first row, the last"),
    ("/", "search names while typing; Enter keeps, Esc clears"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("f", "only keys in the next state; after the last: all"),
    ("Enter", "open the key: its past, latencies, decisions"),
    ("c", "the crawls of the frontier: domains, backlog, owners"),
    ("Esc", "back; clears search and filter"),
    ("h", "hold the key: nothing leaves for 60 s"),
    ("u", "unpark the key: lifts hold, breaker and quarantine"),
    ("q, Ctrl-C", "quit"),
];

impl State {
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.notice = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Some(Effect::Quit);
        }
        if self.help {
            self.help = false;
            return (key.code == KeyCode::Char('q')).then_some(Effect::Quit);
        }
        if self.typing {
            self.type_text(key.code, control);
            return None;
        }
        match key.code {
            _ if control => {}
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('h') => {
                let hold = KeyPatch {
                    hold_ms: Some(HOLD_MS),
                    ..KeyPatch::default()
                };
                return self.order("held for 60 s", hold);
            }
            KeyCode::Char('u') => {
                let unpark = KeyPatch {
                    unpark: Some(true),
                    ..KeyPatch::default()
                };
                return self.order("unparked", unpark);
            }
            KeyCode::Char('c') if self.crawls.is_none() => self.crawls = Some(Crawls::default()),
            code if self.crawls.is_some() => self.browse(code),
            code => match &mut self.open {
                Some(open) => {
                    if turn(open, code) {
                        self.open = None;
                    }
                }
                None => self.steer(code),
            },
        }
        None
    }

    /// Handles a key press within the list of crawls.
    fn browse(&mut self, code: KeyCode) {
        let Some(crawls) = &mut self.crawls else {
            return;
        };
        let at = crawls.at();
        match code {
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left | KeyCode::Char('c') => {
                self.crawls = None;
            }
            KeyCode::Up | KeyCode::Char('k') => crawls.go(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => crawls.go(at + 1),
            KeyCode::Home | KeyCode::Char('g') => crawls.go(0),
            KeyCode::End | KeyCode::Char('G') => crawls.go(usize::MAX),
            _ => {}
        }
    }

    fn order(&self, what: &'static str, patch: KeyPatch) -> Option<Effect> {
        let key = self.chosen()?.to_owned();
        let patch = Box::new(patch);
        Some(Effect::Set(Order { key, what, patch }))
    }

    fn type_text(&mut self, code: KeyCode, control: bool) {
        let table = &mut self.table;
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                table.text.clear();
                table.anew();
            }
            KeyCode::Char('u') if control => {
                table.text.clear();
                table.anew();
            }
            KeyCode::Backspace if table.text.is_empty() => self.typing = false,
            KeyCode::Backspace => {
                table.text.pop();
                table.anew();
            }
            KeyCode::Char(letter) if !control && table.text.len() < TEXT_MAX => {
                table.text.push(letter);
                table.anew();
            }
            _ => {}
        }
    }

    fn steer(&mut self, code: KeyCode) {
        let rows = self.rows();
        let at = self.table.cursor;
        let table = &mut self.table;
        match code {
            KeyCode::Up | KeyCode::Char('k') => table.go(at.saturating_sub(1), rows),
            KeyCode::Down | KeyCode::Char('j') => table.go(at + 1, rows),
            KeyCode::PageUp => table.go(at.saturating_sub(rows), rows),
            KeyCode::PageDown => table.go(at + rows, rows),
            KeyCode::Home | KeyCode::Char('g') => table.go(0, rows),
            KeyCode::End | KeyCode::Char('G') => table.go(usize::MAX, rows),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => table.next_sort(),
            KeyCode::Char('r') => {
                table.descending = !table.descending;
                table.anew();
            }
            KeyCode::Char('f') => table.next_filter(),
            KeyCode::Esc => {
                table.text.clear();
                table.filter = None;
                table.anew();
            }
            KeyCode::Enter => {
                self.open = self.chosen().map(|key| Open {
                    key: key.to_owned(),
                    detail: None,
                    unknown: false,
                    scroll: 0,
                });
            }
            _ => {}
        }
    }
}

/// Handles a key press within an open key. Returns whether to go back.
fn turn(open: &mut Open, code: KeyCode) -> bool {
    let decisions = open
        .detail
        .as_ref()
        .map_or(0, |detail| detail.decisions.len());
    let last = decisions.saturating_sub(1);
    let to = match code {
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => return true,
        KeyCode::Up | KeyCode::Char('k') => open.scroll.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => open.scroll + 1,
        KeyCode::PageUp => open.scroll.saturating_sub(10),
        KeyCode::PageDown => open.scroll + 10,
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        _ => return false,
    };
    open.scroll = to.min(last);
    false
}
