//! One run over time: the limit, the setpoint, accepted requests, and each refusal.

use politely_core::Timestamp;
use politely_target::model::{LimitSpec, Service};

use super::axis::{Axis, short};
use super::svg::{Anchor, Svg};
use crate::optimum;
use crate::run::phase;
use crate::scenario::{Demand, Scenario};
use crate::score::Score;
use crate::trace::{Fate, Trace};

const WIDTH: f64 = 980.0;
const HEIGHT: f64 = 444.0;
const LEFT: f64 = 70.0;
/// Leaves room for the names of the lines.
const RIGHT: f64 = WIDTH - 120.0;
const TOP: f64 = 98.0;
const BOTTOM: f64 = HEIGHT - 92.0;
/// Refusals have a strip of their own under the plot.
const STRIP: (f64, f64) = (BOTTOM + 8.0, BOTTOM + 28.0);

/// The most bins over which accepted requests are counted.
const BINS_MAX: f64 = 150.0;
/// The usual number of requests per bin, so that a slow host's line is not a comb.
const PER_BIN: f64 = 12.0;

/// Draws the run behind `score`. The trace must have been made with its rates kept.
pub fn timeline(scenario: &Scenario, score: &Score, trace: &Trace) -> String {
    let title = format!("{} under {}", scenario.name, score.law);
    let mut svg = Svg::new(WIDTH, HEIGHT, &title);
    svg.text("title", (24.0, 34.0), Anchor::Start, &title);
    svg.text(
        "sub",
        (24.0, 56.0),
        Anchor::Start,
        &figures(scenario, score),
    );

    let end_s = trace.end.as_secs_f64().max(1e-3);
    let (unit_s, unit) = unit(end_s);
    let x = Axis::new(end_s / unit_s, (LEFT, RIGHT));
    let across = |time_s: f64| x.at(time_s / unit_s);
    let limit = limit(scenario, score.seed, end_s);
    let served = || {
        (trace.requests.iter())
            .filter(|request| request.fate == Fate::Served)
            .map(|request| request.sent)
    };
    let accepted = binned(served(), served().count(), end_s);
    let highest = |line: &[(f64, f64)]| line.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let top = (highest(&limit) * 1.3).max(highest(&accepted) * 1.1);
    let y = Axis::new(top.max(1e-3), (BOTTOM, TOP));

    for fault in &scenario.faults {
        if let Some((from_s, to_s)) = fault.outage()
            && from_s < end_s
        {
            let (from, to) = (across(from_s), across(to_s));
            svg.rect("band", (from, TOP), (to - from, STRIP.1 - TOP));
            let middle = f64::midpoint(from, to);
            svg.text("sub", (middle, TOP + 15.0), Anchor::Middle, "outage");
        }
    }
    y.draw_left(&mut svg, LEFT, RIGHT);
    svg.text("tick", (24.0, TOP - 12.0), Anchor::Start, "requests/s");

    let steps = |line: &[(f64, f64)]| -> Vec<(f64, f64)> {
        let ends = line.iter().skip(1).map(|(t, _)| *t).chain([end_s]);
        (line.iter().zip(ends))
            .flat_map(|(&(from, rate), to)| [(across(from), y.at(rate)), (across(to), y.at(rate))])
            .collect()
    };
    let mut area = steps(&accepted);
    area.insert(0, (LEFT, BOTTOM));
    area.push((RIGHT, BOTTOM));
    svg.path("got", &area);
    let aim = aimed_for(trace, across, |rate| y.at(rate));
    if !aim.is_empty() {
        svg.path("aim", &aim);
    }
    if !limit.is_empty() {
        svg.path("limit", &steps(&limit));
    }

    let refusals = refusals(&mut svg, trace, across);
    svg.line("axis", (LEFT, STRIP.1), (RIGHT, STRIP.1));
    x.draw_below(&mut svg, STRIP.1);
    let name = format!("time, {unit}");
    let middle = f64::midpoint(LEFT, RIGHT);
    svg.text("tick", (middle, HEIGHT - 18.0), Anchor::Middle, &name);

    let last = |line: &[(f64, f64)]| line.last().map(|(_, rate)| y.at(*rate));
    // The last bin may be incomplete, so the name stands at the bin before.
    let middling = accepted.get(accepted.len().saturating_sub(2)..accepted.len().max(1) - 1);
    let over = (trace.rates.last()).is_some_and(|(_, rate)| *rate > y.to());
    let aimed_for = if over { "aimed for ↑" } else { "aimed for" };
    let mut names: Vec<(&str, &str, f64)> = [
        // An area is named inside.
        (
            "t-got",
            "accepted",
            middling.and_then(last).map(|y| y + 12.0),
        ),
        ("t-aim", aimed_for, aim.last().map(|(_, y)| *y)),
        ("t-limit", "the limit", last(&limit)),
    ]
    .into_iter()
    .filter_map(|(class, name, at)| Some((class, name, at?)))
    .collect();
    names.sort_by(|a, b| b.2.total_cmp(&a.2));
    let mut below = BOTTOM + 4.0;
    for (class, name, at) in names {
        let baseline = (at + 4.0).min(below);
        svg.text(class, (RIGHT + 8.0, baseline), Anchor::Start, name);
        below = baseline - 16.0;
    }
    let name = match refusals {
        0 => "no refusal".to_owned(),
        1 => "1 refusal".to_owned(),
        many => format!("{} refusals", short(many as f64)),
    };
    svg.text(
        "t-refused",
        (RIGHT + 8.0, STRIP.1 - 4.0),
        Anchor::Start,
        &name,
    );
    svg.done()
}

fn figures(scenario: &Scenario, score: &Score) -> String {
    let used = score.utilisation * 100.0;
    let reached = match (scenario.demand, score.t90_s) {
        (Demand::Pages { count, .. }, _) => {
            let took = format!(
                "{} of {count} pages in {:.0} s",
                score.accepted, score.time_s
            );
            format!("{took}, {used:.1} % as fast as possible")
        }
        (_, Some(t90_s)) => format!("{used:.1} % of the limit used, 90 % after {t90_s:.0} s"),
        (_, None) => format!("{used:.1} % of the limit used, never 90 %"),
    };
    format!(
        "{reached} · {:.2} % refused, {} in the worst minute · seed {}",
        score.refused_share * 100.0,
        score.refused_worst_minute,
        score.seed,
    )
}

/// Returns the seconds of the unit in which a run of `end_s` is shown.
fn unit(end_s: f64) -> (f64, &'static str) {
    match end_s {
        ..240.0 => (1.0, "s"),
        ..10_800.0 => (60.0, "min"),
        ..172_800.0 => (3_600.0, "h"),
        _ => (86_400.0, "days"),
    }
}

/// Returns the limit's rate from each time on; nothing without a limit.
fn limit(scenario: &Scenario, seed: u64, end_s: f64) -> Vec<(f64, f64)> {
    let spec = &scenario.limit;
    let written = match spec {
        LimitSpec::None {} => return Vec::new(),
        LimitSpec::Steps { at } => (at.iter())
            .map(|(from_s, spec)| Some((*from_s, rate(spec, scenario.service)?)))
            .collect(),
        spec => rate(spec, scenario.service).map(|rate| vec![(0.0, rate)]),
    };
    // A limit without a single rate is drawn as what the best client gets of it.
    let mut line = written.unwrap_or_else(|| {
        let best = optimum::accepted(scenario, phase(seed));
        binned(best.iter().copied(), best.len(), end_s)
    });
    line.retain(|(from_s, _)| *from_s < end_s);
    line
}

/// Returns the requests per second that a limit allows in the long run, if that is one number.
fn rate(spec: &LimitSpec, service: Service) -> Option<f64> {
    match spec {
        LimitSpec::TokenBucket { rate, .. } | LimitSpec::Leaky { rate, .. } => Some(*rate),
        LimitSpec::FixedWindow {
            count, window_s, ..
        }
        | LimitSpec::SlidingLog { count, window_s }
        | LimitSpec::SlidingCounter { count, window_s } => Some(f64::from(*count) / window_s),
        LimitSpec::ConcurrencyReject { slots } | LimitSpec::ConcurrencyQueue { slots, .. } => {
            (service.mean_ms > 0.0).then(|| f64::from(*slots) / (service.mean_ms / 1e3))
        }
        LimitSpec::All { of } => {
            let rates: Option<Vec<f64>> = of.iter().map(|spec| rate(spec, service)).collect();
            rates?.into_iter().reduce(f64::min)
        }
        _ => None,
    }
}

/// Returns events per second, from the beginning of each bin.
fn binned(times: impl Iterator<Item = Timestamp>, count: usize, end_s: f64) -> Vec<(f64, f64)> {
    let bins = (count as f64 / PER_BIN).clamp(1.0, BINS_MAX).ceil();
    let width_s = end_s / bins;
    let mut counts = vec![0_u32; bins as usize];
    for at in times {
        let bin = (at.as_secs_f64() / width_s) as usize;
        if let Some(count) = counts.get_mut(bin) {
            *count += 1;
        }
    }
    (counts.iter().enumerate())
        .map(|(i, &count)| (i as f64 * width_s, f64::from(count) / width_s))
        .collect()
}

/// Returns the setpoints as a line, reduced to the extremes in each pixel.
fn aimed_for(
    trace: &Trace,
    across: impl Fn(f64) -> f64,
    up: impl Fn(f64) -> f64,
) -> Vec<(f64, f64)> {
    let points = (trace.rates.iter()).map(|(at, rate)| (across(at.as_secs_f64()), up(*rate)));
    let mut line: Vec<(f64, f64)> = Vec::new();
    let mut pixel: Vec<(f64, f64)> = Vec::new();
    let flush = |pixel: &mut Vec<(f64, f64)>, line: &mut Vec<(f64, f64)>| {
        let (Some(&first), Some(&last)) = (pixel.first(), pixel.last()) else {
            return;
        };
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let low = pixel.iter().min_by(by_height).copied().unwrap_or(first);
        let high = pixel.iter().max_by(by_height).copied().unwrap_or(first);
        // A setpoint stands until the next one.
        if let Some(&(_, before)) = line.last() {
            line.push((first.0, before));
        }
        for point in [first, low, high, last] {
            line.push((first.0, point.1));
        }
        pixel.clear();
    };
    for point in points {
        if pixel.first().is_some_and(|first| point.0 - first.0 >= 1.0) {
            flush(&mut pixel, &mut line);
        }
        pixel.push(point);
    }
    flush(&mut pixel, &mut line);
    line.dedup();
    line
}

/// Draws the refusals, one stroke per place, higher for more. Returns their number.
fn refusals(svg: &mut Svg, trace: &Trace, across: impl Fn(f64) -> f64) -> u64 {
    const PLACE: f64 = 1.5;
    let mut places = std::collections::BTreeMap::<u32, u64>::new();
    for request in &trace.requests {
        if request.fate != Fate::Served {
            let place = (across(request.sent.as_secs_f64()) / PLACE) as u32;
            *places.entry(place).or_default() += 1;
        }
    }
    let (base, top) = (STRIP.1, STRIP.0);
    for (place, count) in &places {
        let x = f64::from(*place) * PLACE;
        let height = (9.0 + 3.0 * libm::log2(*count as f64)).min(base - top);
        svg.line("refused", (x, base), (x, base - height));
    }
    places.values().sum()
}
