//! Tests of the state's changes by key presses and answers.

use politely_api::wire::{
    Decision, FleetStats, KeyDetail, KeyPage, KeyPatch, KeyRow, KeyState, KeysQuery, SortBy,
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Size;

use super::poll::{Seen, Shown, Wanted};
use super::state::{Effect, Event, Order, State};
use crate::fault::Fault;

/// Ten rows fit.
const SIZE: Size = Size {
    width: 80,
    height: 15,
};

fn press(state: &mut State, code: KeyCode) -> Option<Effect> {
    state.on(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn write(state: &mut State, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(state, KeyCode::Char(letter)), None);
    }
}

fn query(state: &State) -> KeysQuery {
    match state.wanted() {
        Wanted::Table(query) => query,
        other => panic!("{other:?} is wanted"),
    }
}

fn see(state: &mut State, wanted: Wanted, shown: Shown) {
    let fleet = FleetStats::default();
    let seen = Seen {
        wanted,
        fleet,
        shown,
    };
    assert_eq!(state.on(Event::Seen(Box::new(seen))), None);
}

fn page(names: &[&str], matching: u32) -> KeyPage {
    let row = |name: &&str| KeyRow {
        key: (*name).to_owned(),
        ..KeyRow::default()
    };
    KeyPage {
        next: None,
        keys: names.iter().map(row).collect(),
        matching,
        total: matching,
        ..KeyPage::default()
    }
}

/// Answers with the wanted rows, as a coordinator with `matching` keys does.
fn answer(state: &mut State, matching: u32) {
    let query = query(state);
    let last = (query.offset + query.limit.unwrap()).min(matching);
    let names: Vec<String> = (query.offset..last)
        .map(|at| format!("host-{at}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wanted = state.wanted();
    see(state, wanted, Shown::Table(page(&names, matching)));
}

fn started(matching: u32) -> State {
    let mut state = State::new(SIZE, String::new());
    answer(&mut state, matching);
    state
}

#[test]
fn only_rows_that_fit_are_asked_for() {
    let mut state = started(100);
    assert_eq!(query(&state).limit, Some(10));
    let size = Size {
        width: 80,
        height: 40,
    };
    state.on(Event::Resized(size));
    assert_eq!(query(&state).limit, Some(35));
}

#[test]
fn the_cursor_scrolls_as_little_as_is_needed() {
    let mut state = started(100);
    assert_eq!(state.chosen(), Some("host-0"));
    press(&mut state, KeyCode::Up);
    for _ in 0..9 {
        press(&mut state, KeyCode::Char('j'));
    }
    assert_eq!((query(&state).offset, state.chosen()), (0, Some("host-9")));
    press(&mut state, KeyCode::Down);
    assert_eq!(
        (query(&state).offset, state.chosen()),
        (1, None),
        "not there yet"
    );
    answer(&mut state, 100);
    assert_eq!(state.chosen(), Some("host-10"));
    for (code, offset, chosen) in [
        (KeyCode::PageDown, 11, "host-20"),
        (KeyCode::Char('k'), 11, "host-19"),
        (KeyCode::End, 90, "host-99"),
        (KeyCode::PageDown, 90, "host-99"),
        (KeyCode::PageUp, 89, "host-89"),
        (KeyCode::Home, 0, "host-0"),
    ] {
        press(&mut state, code);
        answer(&mut state, 100);
        assert_eq!(
            (query(&state).offset, state.chosen()),
            (offset, Some(chosen)),
            "{code:?}"
        );
    }
}

#[test]
fn a_table_that_shrinks_takes_the_cursor_along() {
    let mut state = started(100);
    press(&mut state, KeyCode::End);
    answer(&mut state, 100);
    answer(&mut state, 25);
    assert_eq!(query(&state).offset, 15);
    answer(&mut state, 25);
    assert_eq!(state.chosen(), Some("host-24"));
    answer(&mut state, 0);
    assert_eq!((query(&state).offset, state.chosen()), (0, None));
    assert_eq!(
        press(&mut state, KeyCode::Char('h')),
        None,
        "there is none to hold"
    );
    press(&mut state, KeyCode::Enter);
    assert!(state.open.is_none());
}

#[test]
fn the_cursor_stays_on_its_key_when_rows_change_places() {
    let mut state = started(3);
    press(&mut state, KeyCode::Down);
    let wanted = state.wanted();
    see(
        &mut state,
        wanted.clone(),
        Shown::Table(page(&["host-1", "host-2", "host-0"], 3)),
    );
    assert_eq!((state.chosen(), state.table.cursor), (Some("host-1"), 0));
    see(
        &mut state,
        wanted,
        Shown::Table(page(&["host-7", "host-2", "host-0"], 3)),
    );
    assert_eq!(
        state.chosen(),
        Some("host-7"),
        "it is gone: its place stays"
    );
}

#[test]
fn the_search_is_live() {
    let mut state = started(100);
    press(&mut state, KeyCode::PageDown);
    write(&mut state, "/sq");
    assert_eq!(
        query(&state).q.as_deref(),
        Some("sq"),
        "letters are no commands now"
    );
    assert_eq!(query(&state).offset, 0);
    press(&mut state, KeyCode::Backspace);
    assert_eq!(query(&state).q.as_deref(), Some("s"));
    press(&mut state, KeyCode::Enter);
    assert!(!state.typing && query(&state).q.is_some());
    write(&mut state, "/");
    press(&mut state, KeyCode::Esc);
    assert!(!state.typing && query(&state).q.is_none());
    write(&mut state, "/");
    press(&mut state, KeyCode::Backspace);
    assert!(!state.typing);
    write(&mut state, "/");
    write(&mut state, &"é".repeat(1_000));
    assert!(query(&state).q.unwrap().len() <= 256);
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    state.on(Event::Key(control('u')));
    assert_eq!(query(&state).q, None);
    assert_eq!(state.on(Event::Key(control('c'))), Some(Effect::Quit));
}

#[test]
fn sorts_go_through_the_columns_and_filters_through_the_states() {
    let mut state = started(100);
    let mut sorts = Vec::new();
    for _ in 0..9 {
        write(&mut state, "s");
        sorts.push((query(&state).sort, query(&state).descending));
    }
    assert_eq!(sorts[0], (SortBy::Name, false));
    assert_eq!(sorts[1], (SortBy::ReadyIn, true));
    assert_eq!(sorts[8], (SortBy::Attention, false));
    write(&mut state, "r");
    assert!(query(&state).descending);

    let mut filters = Vec::new();
    for _ in 0..11 {
        write(&mut state, "f");
        filters.push(query(&state).state);
    }
    assert_eq!(
        (filters[0], filters[9]),
        (Some(KeyState::Ready), Some(KeyState::Unavailable))
    );
    assert_eq!(filters[10], None);
    write(&mut state, "ff");
    press(&mut state, KeyCode::Esc);
    assert_eq!(query(&state).state, None);
}

#[test]
fn an_overtaken_answer_is_not_shown() {
    let mut state = started(3);
    let before = state.wanted();
    write(&mut state, "s");
    see(&mut state, before.clone(), Shown::Table(page(&["old"], 1)));
    assert_eq!(state.table.page.keys.len(), 3);
    press(&mut state, KeyCode::Enter);
    see(&mut state, before, Shown::Table(page(&["old"], 1)));
    assert!(state.open.as_ref().unwrap().detail.is_none());
}

#[test]
fn a_key_is_opened_scrolled_and_left() {
    let mut state = started(3);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Enter);
    let wanted = Wanted::Key("host-1".to_owned());
    assert_eq!(state.wanted(), wanted);
    let detail = KeyDetail {
        decisions: vec![Decision::default(); 2],
        ..KeyDetail::default()
    };
    see(&mut state, wanted, Shown::Key(Some(Box::new(detail))));
    for _ in 0..3 {
        press(&mut state, KeyCode::Down);
    }
    assert_eq!(state.open.as_ref().unwrap().scroll, 1, "the last");
    press(&mut state, KeyCode::Esc);
    assert!(state.open.is_none());
    assert_eq!(state.chosen(), Some("host-1"), "the cursor is where it was");
}

#[test]
fn holds_and_unparks_are_about_the_chosen_key() {
    let mut state = started(3);
    press(&mut state, KeyCode::Down);
    let Some(Effect::Set(hold)) = press(&mut state, KeyCode::Char('h')) else {
        panic!("nothing is set");
    };
    let wanted = KeyPatch {
        hold_ms: Some(60_000),
        ..KeyPatch::default()
    };
    assert_eq!((hold.key.as_str(), &*hold.patch), ("host-1", &wanted));
    press(&mut state, KeyCode::Enter);
    let Some(Effect::Set(Order { key, patch, .. })) = press(&mut state, KeyCode::Char('u')) else {
        panic!("nothing is set");
    };
    assert_eq!((key.as_str(), patch.unpark), ("host-1", Some(true)));

    state.on(Event::Set(hold.clone(), Ok(())));
    assert_eq!(state.notice.as_deref(), Some("host-1 held for 60 s"));
    state.on(Event::Set(hold, Err(Fault::Refused("no room".to_owned()))));
    let said = "host-1 not held for 60 s: the coordinator refuses: no room";
    assert_eq!(state.notice.as_deref(), Some(said));
    press(&mut state, KeyCode::Up);
    assert_eq!(state.notice, None);
}

#[test]
fn faults_are_counted_until_an_answer_comes() {
    let mut state = started(3);
    for _ in 0..3 {
        state.on(Event::Unavailable(Fault::Token));
    }
    assert_eq!(state.unavailable, Some((Fault::Token, 3)));
    answer(&mut state, 3);
    assert_eq!(state.unavailable, None);
}

#[test]
fn it_is_left_by_q_and_by_whoever_ends_it() {
    let mut state = started(3);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Effect::Quit));
    assert_eq!(state.on(Event::End), Some(Effect::Quit));
    let mut release = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    release.kind = KeyEventKind::Release;
    assert_eq!(state.on(Event::Key(release)), None);
}
