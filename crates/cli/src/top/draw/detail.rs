//! The view of one key: its numbers, its history and its decisions.

use politely_api::wire::{KeyDetail, KeyPatch, Point};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Sparkline;

use super::super::columns;
use super::super::paint::{FAINT, Paint, STRONG};
use super::super::state::Open;
use super::super::words;

/// The lines reserved for decisions, with their title, before curves grow.
const DECISIONS: u16 = 5;
/// The maximum height of a curve.
const CURVE_MAX: u16 = 4;
/// The number of curves: rate, refusals, latency.
const CURVES: u16 = 3;

pub(super) fn draw(frame: &mut Frame, area: Rect, open: &Open, paint: Paint) {
    let Some(detail) = &open.detail else {
        let what = if open.unknown {
            "not known"
        } else {
            "asking …"
        };
        return frame.render_widget(format!("{}: {what}", words::harmless(&open.key)), area);
    };
    let head = head(open, detail, paint);
    let left = area.height.saturating_sub(head.height() as u16);
    // Either each curve gets a title and at least one line, or no curve is drawn.
    let high = (left.saturating_sub(DECISIONS) / CURVES).min(CURVE_MAX + 1);
    let high = if high < 2 { 0 } else { high };
    let parts = [
        Constraint::Length(head.height() as u16),
        Constraint::Length(high),
        Constraint::Length(high),
        Constraint::Length(high),
        Constraint::Min(0),
    ];
    let [top, rate, refused, latency, end] = Layout::vertical(parts).areas(area);
    frame.render_widget(head, top);
    if high > 0 {
        curves(frame, [rate, refused, latency], detail, paint);
    }
    decisions(frame, end, open, detail);
}

fn head<'a>(open: &Open, detail: &KeyDetail, paint: Paint) -> Text<'a> {
    let row = &detail.row;
    let name = Span::styled(words::harmless(&row.key), STRONG);
    let mut state = vec![name, "  ".into()];
    state.push(if open.unknown {
        Span::styled("not known any more", paint.bad())
    } else {
        Span::styled(words::state(row.state), paint.state(row.state))
    });
    let per_s = |rate: f64| match words::rate(rate) {
        bounded if rate < 1e9 => bounded + "/s",
        unbounded => unbounded,
    };
    let now = format!(
        "rate {}  ceiling {}  in flight {}  waiting {}  p50 {}  p95 {}",
        per_s(row.rate.unwrap_or(f64::INFINITY)),
        row.ceiling.map_or_else(|| "–".to_owned(), per_s),
        columns::in_flight(row),
        words::count(row.waiting.into()),
        words::latency(row.latency_p50_ms),
        words::latency(row.latency_p95_ms),
    );
    let sums = format!(
        "granted {}  refused {} ({})  cancelled {}  expired {}",
        words::count(row.granted),
        words::count(row.refused),
        words::share(row.refused_share),
        words::count(detail.cancelled),
        words::count(detail.expired),
    );
    let mut lines = vec![
        Line::from(state),
        Line::from(words::harmless(&row.why)),
        Line::from(now),
        Line::from(sums),
    ];
    lines.extend(set(&detail.limits).map(Line::from));
    lines.extend(detail.out.first().map(|oldest| {
        let (out, ago) = (detail.out.len(), words::ago(oldest.ago_ms));
        let client = words::harmless(&oldest.client);
        Line::from(format!(
            "{out} permits out; the oldest went {ago} to {client}"
        ))
    }));
    Text::from(lines)
}

/// Returns the limits that the operator has set.
fn set(limits: &KeyPatch) -> Option<String> {
    let parts = [
        limits
            .rate
            .set()
            .map(|rate| format!("rate {}/s", words::rate(rate))),
        limits.burst.set().map(|burst| format!("burst {burst}")),
        limits
            .in_flight
            .set()
            .map(|slots| format!("in flight {slots}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("set by an operator: {}", parts.join(", ")))
}

fn curves(
    frame: &mut Frame,
    [rate, refused, latency]: [Rect; 3],
    detail: &KeyDetail,
    paint: Paint,
) {
    let width = usize::from(rate.width);
    let of = |value: fn(&Point) -> Option<f64>| series(detail, width, value);

    let rates = of(|point| Some(point.rate).filter(|rate| *rate > 0.0 && *rate < 1e9));
    let title = format!("rate, at most {}/s", words::rate(largest(&rates)));
    curve(frame, rate, title, &rates, paint.flow());

    let refusals = of(|point| Some(f64::from(point.refused + point.blocked)));
    let (most, step) = (largest(&refusals), words::duration(detail.step_ms));
    let title = format!("refused and blocked, at most {most} in {step}");
    curve(frame, refused, title, &refusals, paint.refused());

    let latencies = of(|point| Some(point.latency_p95_ms).filter(|ms| *ms > 0.0));
    let title = format!(
        "latency p95, at most {}",
        words::latency(Some(largest(&latencies)))
    );
    curve(frame, latency, title, &latencies, Style::new());
}

/// Returns one value per step, the newest last. A step without a point has none.
fn series(detail: &KeyDetail, width: usize, value: fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
    let mut series = vec![None; width];
    for point in &detail.history {
        let steps = (point.ago_ms / detail.step_ms.max(1)) as usize;
        if let Some(at) = width.checked_sub(steps + 1) {
            series[at] = value(point);
        }
    }
    series
}

fn largest(series: &[Option<f64>]) -> f64 {
    series.iter().flatten().copied().fold(0.0, f64::max)
}

fn curve(frame: &mut Frame, area: Rect, title: String, series: &[Option<f64>], style: Style) {
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::styled(title, FAINT), above);
    let whole = largest(series);
    // The curve's widget takes whole numbers.
    let fine = |value: f64| (value / whole * 1e6) as u64;
    let bars = series
        .iter()
        .map(|value| value.filter(|_| whole > 0.0).map(fine));
    let drawn = Sparkline::default()
        .data(bars.collect::<Vec<_>>())
        .max(1_000_000)
        .absent_value_symbol(" ")
        .style(style);
    frame.render_widget(drawn, below);
}

fn decisions(frame: &mut Frame, area: Rect, open: &Open, detail: &KeyDetail) {
    let title = match (detail.decisions.len(), open.scroll) {
        (0, _) => "nothing was decided yet".to_owned(),
        (_, 0) => "decisions".to_owned(),
        (_, above) => format!("decisions ({above} newer above)"),
    };
    let mut lines = vec![Line::styled(title, FAINT)];
    lines.extend(detail.decisions.iter().skip(open.scroll).map(|decision| {
        let text = words::harmless(&decision.text);
        Line::from(format!("{:>14}  {text}", words::ago(decision.ago_ms)))
    }));
    frame.render_widget(Text::from(lines), area);
}
