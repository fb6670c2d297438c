//! The fleet's totals.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::paint::{FAINT, Paint, STRONG};
use super::super::state::State;
use super::super::words;
use super::curve::curve;

/// The number of seconds that a curve shows.
const CURVE: usize = 12;

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, paint: Paint) {
    let lines = lines(state, paint);
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

fn lines(state: &State, paint: Paint) -> [Line<'_>; 2] {
    let place = Span::styled(state.place.as_str(), FAINT);
    let Some(fleet) = &state.fleet else {
        return [Line::from("politely top"), Line::from(place)];
    };
    let past = &state.past;
    let share = if fleet.reported == 0 {
        0.0
    } else {
        fleet.refused as f64 / fleet.reported as f64
    };
    let per_s = |rate: f64| Span::styled(format!("{}/s ", words::rate(rate)), STRONG);
    let first = Line::from(vec![
        "granted ".into(),
        per_s(fleet.granted_per_s),
        Span::styled(
            curve(past.iter().map(|(granted, _)| *granted), CURVE),
            paint.flow(),
        ),
        "  refused ".into(),
        per_s(fleet.refused_per_s),
        Span::styled(
            curve(past.iter().map(|(_, refused)| *refused), CURVE),
            paint.refused(),
        ),
        "  share ".into(),
        Span::styled(words::share(share), STRONG),
    ]);
    let second = format!(
        "keys {}  waiting {}  live {}  up {}  ",
        words::count(fleet.keys),
        words::count(fleet.waiting),
        words::count(fleet.live),
        words::duration((fleet.uptime_s * 1e3) as u64),
    );
    [first, Line::from(vec![second.into(), place])]
}
