//! All laws over one set: how much of the limit they use, against how often they are refused.
//!
//! Both scales are stretched towards the goal, because laws differ in the last per cent: from 90 to
//! 99 % used is as far as from 0 to 90 %, and from 0.1 to 1 % refused as far as from 1 to 10 %.

use super::svg::{Anchor, Svg, width};
use crate::summary::{Spread, Summary};

const WIDTH: f64 = 980.0;
const HEIGHT: f64 = 662.0;
const LEFT: f64 = 84.0;
/// Leaves room for the names of laws that are refused nearly always.
const RIGHT: f64 = WIDTH - 100.0;
const TOP: f64 = 118.0;
const BOTTOM: f64 = HEIGHT - 70.0;

/// A smaller refused share is drawn as none.
const REFUSED_MIN: f64 = 0.0001;
const UNUSED_MIN: f64 = 0.001;
/// The goals on the held-out set: median utilisation and refused share.
const GOAL_USED: f64 = 0.97;
const GOAL_REFUSED: f64 = 0.004;

/// An occupied place: left, top, right, bottom.
type Box4 = (f64, f64, f64, f64);

/// Draws one mark per law at its medians, with whiskers from the best to the worst tenth. `ours`
/// stand out.
pub fn field(set: &str, summaries: &[Summary], ours: &[&str]) -> String {
    let runs = summaries.iter().map(|one| one.runs).max().unwrap_or(0);
    let title = format!("How much of the limit each law uses, and what it costs: {set}");
    let mut svg = Svg::new(WIDTH, HEIGHT, &title);
    svg.text("title", (24.0, 34.0), Anchor::Start, &title);
    let sub = format!(
        "Median of {runs} runs each; whiskers from the best tenth to the worst tenth. Both scales are stretched \
         towards the good end."
    );
    svg.text("sub", (24.0, 56.0), Anchor::Start, &sub);
    frame(&mut svg);

    let mut taken: Vec<Box4> = Vec::new();
    for one in summaries {
        let class = who(ours, one);
        let (x, y) = place(one);
        let Spread {
            good_tail,
            bad_tail,
            ..
        } = one.refused_share;
        let class = format!("{class} whisker");
        svg.line(&class, (across(good_tail), y), (across(bad_tail), y));
        let used = one.utilisation;
        svg.line(&class, (x, up(used.good_tail)), (x, up(used.bad_tail)));
        taken.push((x - 7.0, y - 7.0, x + 7.0, y + 7.0));
    }
    for one in summaries {
        let own = is_ours(ours, one);
        svg.dot(who(ours, one), place(one), if own { 7.0 } else { 5.0 });
    }
    // Our laws first, so that they get the best places.
    let mut order: Vec<&Summary> = summaries.iter().collect();
    order.sort_by_key(|one| !is_ours(ours, one));
    for one in order {
        name(&mut svg, one, is_ours(ours, one), &mut taken);
    }
    svg.done()
}

fn is_ours(ours: &[&str], one: &Summary) -> bool {
    ours.contains(&one.law.as_str())
}

fn who(ours: &[&str], one: &Summary) -> &'static str {
    if is_ours(ours, one) { "ours" } else { "rival" }
}

fn place(one: &Summary) -> (f64, f64) {
    (across(one.refused_share.median), up(one.utilisation.median))
}

fn across(refused_share: f64) -> f64 {
    let decades = libm::log10(refused_share.clamp(REFUSED_MIN, 1.0) / REFUSED_MIN);
    LEFT + decades / libm::log10(1.0 / REFUSED_MIN) * (RIGHT - LEFT)
}

fn up(used: f64) -> f64 {
    let decades = -libm::log10((1.0 - used).clamp(UNUSED_MIN, 1.0));
    BOTTOM - decades / -libm::log10(UNUSED_MIN) * (BOTTOM - TOP)
}

/// Draws the scales, their names, and the goal.
fn frame(svg: &mut Svg) {
    let (x, y) = (across(GOAL_REFUSED), up(GOAL_USED));
    svg.rect("goal", (LEFT, TOP), (x - LEFT, y - TOP));
    for used in [0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999] {
        let y = up(used);
        let class = if used == 0.0 { "axis" } else { "grid" };
        svg.line(class, (LEFT, y), (RIGHT, y));
        let more = if 1.0 - used <= UNUSED_MIN * 1.001 {
            "≥ "
        } else {
            ""
        };
        let number = format!("{more}{} %", super::axis::short(used * 100.0));
        svg.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, &number);
    }
    for (refused, number) in [
        (0.0001, "≤ 0.01 %"),
        (0.001, "0.1 %"),
        (0.002, "0.2 %"),
        (0.005, "0.5 %"),
        (0.01, "1 %"),
        (0.02, "2 %"),
        (0.05, "5 %"),
        (0.1, "10 %"),
        (0.2, "20 %"),
        (0.5, "50 %"),
        (1.0, "100 %"),
    ] {
        let x = across(refused);
        svg.line("grid", (x, TOP), (x, BOTTOM));
        svg.text("tick", (x, BOTTOM + 19.0), Anchor::Middle, number);
    }
    svg.line("axis", (LEFT, TOP), (LEFT, BOTTOM));
    svg.text(
        "sub",
        (24.0, TOP - 12.0),
        Anchor::Start,
        "↑ share of the limit used",
    );
    let refused = "share of requests refused →";
    svg.text("sub", (RIGHT, HEIGHT - 22.0), Anchor::End, refused);
    let goal = format!(
        "goal: ≥ {:.0} % used, ≤ {:.1} % refused",
        GOAL_USED * 100.0,
        GOAL_REFUSED * 100.0
    );
    svg.text("t-goal", (LEFT + 10.0, TOP + 19.0), Anchor::Start, &goal);
}

/// Writes a law's name at the first free place near its mark, with a thin line to it if that is
/// far.
fn name(svg: &mut Svg, one: &Summary, own: bool, taken: &mut Vec<Box4>) {
    let (x, y) = place(one);
    let wide = width(&one.law) * if own { 1.15 } else { 1.0 };
    let box_at = |dx: f64, dy: f64| {
        let left = if dx < 0.0 { x + dx - wide } else { x + dx };
        (left, y + dy - 11.0, left + wide, y + dy + 4.0)
    };
    let near = [10.0, 26.0, 44.0, 64.0];
    let candidates = near.iter().flat_map(|&far| {
        let near = if far < 12.0 { 9.0 } else { far };
        let rises = [
            0.0,
            -near,
            near,
            -1.6 * far,
            1.6 * far,
            -2.4 * far,
            2.4 * far,
        ];
        rises
            .into_iter()
            .flat_map(move |rise| [(far, 4.0 + rise), (-far, 4.0 + rise)])
    });
    let inside = |b: &Box4| b.0 >= LEFT && b.2 <= WIDTH - 6.0 && b.1 >= TOP - 30.0 && b.3 <= BOTTOM;
    let free = |b: &Box4| {
        !taken
            .iter()
            .any(|t| b.0 < t.2 && t.0 < b.2 && b.1 < t.3 && t.1 < b.3)
    };
    let chosen = candidates
        .clone()
        .find(|(dx, dy)| inside(&box_at(*dx, *dy)) && free(&box_at(*dx, *dy)));
    let (dx, dy) = chosen.unwrap_or((10.0, 4.0));
    let at = box_at(dx, dy);
    if dx.abs() > 12.0 {
        let end = if dx < 0.0 { at.2 + 2.0 } else { at.0 - 2.0 };
        svg.line("lead", (x, y), (end, y + dy - 4.0));
    }
    let class = if own { "strong halo" } else { "halo" };
    let anchor = if dx < 0.0 { Anchor::End } else { Anchor::Start };
    svg.text(class, (x + dx, y + dy), anchor, &one.law);
    taken.push(at);
}
