use politely_api::wire::{
    Change, Decision, FleetStats, InForce, KeyDetail, KeyPage, KeyPatch, KeyRow, KeyState, Learned,
    Outstanding, Point,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::super::poll::{Seen, Shown};
use super::super::state::Event;
use super::*;
use crate::fault::Fault;

fn row(key: &str, state: KeyState, why: &str) -> KeyRow {
    KeyRow {
        key: key.to_owned(),
        state,
        why: why.to_owned(),
        rate: Some(9.8),
        ceiling: Some(10.0),
        in_flight: 1,
        in_flight_max: 4,
        waiting: 12,
        granted: 1_234,
        reported: 1_000,
        refused: 32,
        refused_share: 0.032,
        latency_p50_ms: Some(12.0),
        latency_p95_ms: Some(80.4),
        ..KeyRow::default()
    }
}

fn state(width: u16, height: u16) -> State {
    State::new(Size { width, height }, "http://127.0.0.1:7077".to_owned())
}

fn see(state: &mut State, shown: Shown) {
    let seen = Seen {
        wanted: state.wanted(),
        fleet: FleetStats {
            uptime_s: 3_725.0,
            keys: 1_234,
            reported: 1_000,
            refused: 10,
            live: 3,
            waiting: 12,
            granted_per_s: 12.34,
            refused_per_s: 0.1,
            ..FleetStats::default()
        },
        shown,
    };
    assert_eq!(state.on(Event::Seen(Box::new(seen))), None);
}

/// Returns a state with a table of three keys.
fn filled(width: u16, height: u16) -> State {
    let mut state = state(width, height);
    let hold = "waits 3.2 s: hold, Retry-After (429)";
    let keys = vec![
        row("a.example", KeyState::Ready, "ready"),
        row("b.example:8080", KeyState::Hold, hold),
        row(
            "site/c.example",
            KeyState::Quarantine,
            "waits 60.0 s: quarantine",
        ),
    ];
    let page = KeyPage {
        next: None,
        keys,
        matching: 3,
        total: 1_234,
        ..KeyPage::default()
    };
    see(&mut state, Shown::Table(page));
    state
}

fn press(state: &mut State, code: KeyCode) {
    state.on(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
}

fn buffer(state: &State, colour: bool) -> Buffer {
    let Size { width, height } = state.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| screen(frame, state, Paint { colour }))
        .unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the text on the screen, without blanks at the ends of lines.
fn drawn(state: &State) -> String {
    let buffer = buffer(state, true);
    let line = |y| {
        let line: String = (0..buffer.area.width)
            .map(|x| buffer[(x, y)].symbol())
            .collect();
        line.trim_end().to_owned() + "\n"
    };
    (0..buffer.area.height).map(line).collect()
}

#[test]
fn a_screen_of_80_columns_shows_the_table_and_why_the_chosen_key_waits() {
    let mut state = filled(80, 10);
    press(&mut state, KeyCode::Down);
    let expected = "\
granted 12.3/s            █  refused 0.10/s            █  share 1.0 %
keys 1,234  waiting 12  live 3  up 1 h 2 min  http://127.0.0.1:7077
key                    state        rate/s  ceiling  in flight  waiting  refused
a.example              ready          9.80     10.0        1/4       12    3.2 %
b.example:8080         hold           9.80     10.0        1/4       12    3.2 %
site/c.example         quarantine     9.80     10.0        1/4       12    3.2 %


b.example:8080: waits 3.2 s: hold, Retry-After (429)
1-3 of 3 of 1,234 keys, by attention, most urgent first  ? help
";
    assert_eq!(drawn(&state), expected);
}

#[test]
fn a_wide_screen_shows_every_column() {
    let shown = drawn(&filled(140, 10));
    let hold = shown.lines().nth(4).unwrap();
    let expected = "b.example:8080                   hold           9.80     10.0        1/4       12    3.2 %     1,234 \
                    waits 3.2 s: hold, Retry-After (429)";
    assert_eq!(hold, expected);
}

#[test]
fn a_small_screen_keeps_names_and_states() {
    let expected = "\
key               state
a.example         ready
b.example:8080    hold
1-3 of 3 of 1,234 keys, by a
";
    assert_eq!(drawn(&filled(28, 4)), expected);
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(0, 0), (1, 1), (3, 2), (200, 1), (1, 60), (17, 9)] {
        let mut state = filled(width, height);
        drawn(&state);
        press(&mut state, KeyCode::Char('/'));
        press(&mut state, KeyCode::Char('x'));
        drawn(&state);
        press(&mut state, KeyCode::Esc);
        press(&mut state, KeyCode::Char('?'));
        drawn(&state);
        press(&mut state, KeyCode::Esc);
        press(&mut state, KeyCode::Enter);
        drawn(&state);
        see(&mut state, Shown::Key(Some(Box::new(detail()))));
        drawn(&state);
    }
}

#[test]
fn a_coordinator_that_is_away_is_said_and_the_last_table_greyed() {
    let mut state = filled(80, 10);
    let plain = buffer(&state, true);
    assert!(!plain[(0, 3)].modifier.contains(Modifier::DIM));
    let fault = Fault::Unreachable("connection refused".to_owned());
    state.on(Event::Unavailable(fault.clone()));
    state.on(Event::Unavailable(fault));
    let shown = drawn(&state);
    let said = "no answer: connection refused; tried 2 times, trying on\n";
    assert!(
        shown.contains(said) && shown.contains("b.example:8080"),
        "{shown}"
    );
    assert!(
        buffer(&state, true)[(0, 3)]
            .modifier
            .contains(Modifier::DIM)
    );

    let shown = drawn(&{
        let mut small = filled(40, 5);
        small.on(Event::Unavailable(Fault::Token));
        small
    });
    assert!(
        shown.contains("the coordinator refuses: the token"),
        "{shown}"
    );

    see(&mut state, Shown::Table(KeyPage::default()));
    let shown = drawn(&state);
    assert!(
        !shown.contains("no answer") && shown.contains("none of 0 keys"),
        "{shown}"
    );
}

#[test]
fn without_colour_nothing_is_coloured_and_the_words_are_the_same() {
    let state = filled(130, 10);
    let (colour, plain) = (buffer(&state, true), buffer(&state, false));
    let coloured = |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(coloured(&colour) && !coloured(&plain));
    for (one, other) in colour.content.iter().zip(&plain.content) {
        assert_eq!(
            (one.symbol(), one.modifier),
            (other.symbol(), other.modifier)
        );
    }
}

#[test]
fn names_command_no_terminal() {
    let mut state = state(80, 10);
    let page = KeyPage {
        next: None,
        keys: vec![row("a\u{1b}[31mb", KeyState::Ready, "x\ny")],
        matching: 1,
        total: 1,
        ..KeyPage::default()
    };
    see(&mut state, Shown::Table(page));
    let shown = drawn(&state);
    assert!(shown.contains("a?[31mb: x?y"), "{shown}");
}

#[test]
fn the_search_is_typed_on_the_last_line() {
    let mut state = filled(80, 10);
    for letter in "/shop".chars() {
        press(&mut state, KeyCode::Char(letter));
    }
    assert_eq!(drawn(&state).lines().last(), Some("/shop"));
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Char('f'));
    for _ in 0..2 {
        press(&mut state, KeyCode::Char('s'));
    }
    let said = "1-3 of 3 of 1,234 keys, by state, latest first, only ready, named \"shop\"  ? help";
    assert_eq!(drawn(&state).lines().last(), Some(said));
}

fn detail() -> KeyDetail {
    let point = |ago_ms, rate, refused, latency_p95_ms| Point {
        ago_ms,
        rate,
        refused,
        latency_p95_ms,
        ..Point::default()
    };
    let decided = |ago_ms, text: &str| Decision {
        ago_ms,
        text: text.to_owned(),
    };
    KeyDetail {
        row: row(
            "b.example:8080",
            KeyState::Hold,
            "waits 3.2 s: hold, Retry-After (429)",
        ),
        cancelled: 2,
        expired: 1,
        limits: KeyPatch {
            rate: Change::To(20.0),
            ..KeyPatch::default()
        },
        in_force: InForce::default(),
        budgets: Vec::new(),
        learned: Learned::default(),
        // Ten seconds without a point: the key had no requests.
        history: vec![
            point(35_000, 5.0, 0, 40.0),
            point(15_000, 10.0, 3, 80.0),
            point(5_000, 9.8, 1, 60.0),
        ],
        step_ms: 10_000,
        decisions: vec![
            decided(3_000, "12.00/s -> 9.80/s"),
            decided(125_000, "held for 60.0 s"),
        ],
        out: vec![Outstanding {
            client: "worker-1".to_owned(),
            ago_ms: 3_200,
            ..Outstanding::default()
        }],
    }
}

#[test]
fn an_open_key_shows_its_past_and_what_was_decided() {
    let mut state = filled(60, 24);
    press(&mut state, KeyCode::Enter);
    assert_eq!(drawn(&state).lines().nth(2), Some("a.example: asking …"));
    see(&mut state, Shown::Key(Some(Box::new(detail()))));
    let expected = "\
granted 12.3/s           ██  refused 0.10/s           ██  sh
keys 1,234  waiting 12  live 3  up 1 h 2 min  http://127.0.0
b.example:8080  hold
waits 3.2 s: hold, Retry-After (429)
rate 9.80/s  ceiling 10.0/s  in flight 1/4  waiting 12  p50
granted 1,234  refused 32 (3.2 %)  cancelled 2  expired 1
set by an operator: rate 20.0/s
1 permits out; the oldest went 3 s ago to worker-1
rate, at most 10.0/s
                                                          █▇
                                                        █ ██
refused and blocked, at most 3 in 10 s
                                                          █
                                                          █▅
latency p95, at most 80 ms
                                                          █▄
                                                        █ ██
decisions
       3 s ago  12.00/s -> 9.80/s
 2 min 5 s ago  held for 60.0 s



Esc back  up down decisions  h hold  u unpark  ? help
";
    assert_eq!(drawn(&state), expected);

    press(&mut state, KeyCode::Down);
    let shown = drawn(&state);
    assert!(
        shown.contains("decisions (1 newer above)\n 2 min 5 s ago"),
        "{shown}"
    );

    see(&mut state, Shown::Key(None));
    let shown = drawn(&state);
    assert!(
        shown.contains("b.example:8080  not known any more"),
        "{shown}"
    );
}

#[test]
fn a_low_screen_shows_decisions_rather_than_curves() {
    let mut state = filled(60, 14);
    press(&mut state, KeyCode::Enter);
    see(&mut state, Shown::Key(Some(Box::new(detail()))));
    let shown = drawn(&state);
    assert!(
        !shown.contains("latency p95") && shown.contains("held for 60.0 s"),
        "{shown}"
    );
}

#[test]
fn help_names_every_key() {
    let mut state = filled(80, 24);
    press(&mut state, KeyCode::Char('?'));
    let shown = drawn(&state);
    for word in ["PgUp", "search", "reverse", "filter", "unpark", "Ctrl-C"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    press(&mut state, KeyCode::Char('x'));
    assert!(drawn(&state).contains("b.example:8080"));
}
