//! The plot of Brooker's backoff study: the cost of contention for each kind of backoff.

use super::axis::Axis;
use super::svg::{Anchor, Svg};
use crate::backoff::Row;

const WIDTH: f64 = 980.0;
const HEIGHT: f64 = 440.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = HEIGHT - 64.0;
/// Left and right edge of each panel; the names of its curves follow.
const PANELS: [(f64, f64); 2] = [(72.0, 380.0), (556.0, 860.0)];

/// One number of a row.
type Figure = fn(&Row) -> f64;

/// Draws calls and time against clients, a curve per backoff in the rows' order.
pub fn study(rows: &[Row]) -> String {
    let title = "Backoff: what clients that compete for one row cost each other";
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    svg.text("title", (24.0, 34.0), Anchor::Start, title);
    let sub = "Every client must succeed once. Without jitter they meet again and again.";
    svg.text("sub", (24.0, 56.0), Anchor::Start, sub);
    let mut backoffs: Vec<&str> = Vec::new();
    for row in rows {
        if !backoffs.contains(&row.backoff) {
            backoffs.push(row.backoff);
        }
    }
    let clients = rows.iter().map(|row| row.clients).max().unwrap_or(1);
    let figures: [(&str, Figure); 2] = [
        ("calls until all have succeeded", |row| row.calls),
        ("time until all have succeeded, s", |row| row.time_s),
    ];
    for ((left, right), (what, figure)) in PANELS.into_iter().zip(figures) {
        svg.text("strong", (left, TOP - 16.0), Anchor::Start, what);
        let most = rows.iter().map(figure).fold(1e-9, f64::max);
        let x = Axis::new(f64::from(clients), (left, right));
        let y = Axis::new(most * 1.05, (BOTTOM, TOP));
        y.draw_left(&mut svg, left, right);
        x.draw_below(&mut svg, BOTTOM);
        let middle = f64::midpoint(left, right);
        svg.text("tick", (middle, HEIGHT - 20.0), Anchor::Middle, "clients");
        let mut names: Vec<(f64, usize)> = Vec::new();
        for (number, backoff) in backoffs.iter().enumerate() {
            let curve: Vec<(f64, f64)> = (rows.iter())
                .filter(|row| row.backoff == *backoff)
                .map(|row| (x.at(f64::from(row.clients)), y.at(figure(row))))
                .collect();
            svg.path(&format!("s{} curve", number % 5), &curve);
            names.extend(curve.last().map(|(_, y)| (y + 4.0, number)));
        }
        // Names of curves that end close to each other are moved apart, upwards.
        names.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut below = f64::INFINITY;
        for (at, number) in names {
            let baseline = at.min(below);
            let class = format!("s{} name", number % 5);
            svg.text(
                &class,
                (right + 8.0, baseline),
                Anchor::Start,
                backoffs[number],
            );
            below = baseline - 16.0;
        }
    }
    svg.done()
}
