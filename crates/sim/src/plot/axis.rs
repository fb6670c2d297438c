//! From values to pixels, with marks at round values.

use super::svg::{Anchor, Svg};

/// A linear axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// The value at the end; it begins at 0.
    to: f64,
    /// Pixels of 0 and of `to`.
    pixels: (f64, f64),
}

impl Axis {
    pub(super) fn new(to: f64, pixels: (f64, f64)) -> Self {
        Self { to, pixels }
    }

    /// The value at its end.
    pub(super) fn to(self) -> f64 {
        self.to
    }

    pub(super) fn at(self, value: f64) -> f64 {
        let (from, to) = self.pixels;
        from + (value / self.to).clamp(0.0, 1.0) * (to - from)
    }

    /// Round values along it, about `count` of them.
    fn ticks(self, count: f64) -> impl Iterator<Item = f64> {
        let step = round_step(self.to / count);
        (0..)
            .map(move |i| f64::from(i) * step)
            .take_while(move |value| *value <= self.to * 1.000_001)
            .take(100)
    }

    /// Draws a vertical axis: lines from `left` to `right`, numbers left of it.
    pub(super) fn draw_left(self, svg: &mut Svg, left: f64, right: f64) {
        for value in self.ticks(5.0) {
            let y = self.at(value);
            let class = if value == 0.0 { "axis" } else { "grid" };
            svg.line(class, (left, y), (right, y));
            svg.text("tick", (left - 8.0, y + 4.0), Anchor::End, &short(value));
        }
    }

    /// Draws a horizontal axis: marks at `y`, numbers below.
    pub(super) fn draw_below(self, svg: &mut Svg, y: f64) {
        for value in self.ticks(8.0) {
            let x = self.at(value);
            svg.line("axis", (x, y), (x, y + 5.0));
            svg.text("tick", (x, y + 19.0), Anchor::Middle, &short(value));
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|step| step * power >= rough);
    step.unwrap_or(10.0) * power
}

/// Writes a number with as few digits as possible: "0.05", "20", "1,500".
pub(super) fn short(value: f64) -> String {
    if value.abs() >= 1e3 {
        let whole = format!("{value:.0}");
        let mut grouped = String::new();
        for (i, digit) in whole.chars().enumerate() {
            if i > 0 && (whole.len() - i).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        return grouped;
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_at_round_values() {
        let marks = |to: f64| {
            let axis = Axis::new(to, (0.0, 1.0));
            axis.ticks(5.0).map(short).collect::<Vec<_>>()
        };
        assert_eq!(marks(2.4), ["0", "0.5", "1", "1.5", "2"]);
        assert_eq!(marks(0.06), ["0", "0.02", "0.04", "0.06"]);
        assert_eq!(marks(4_100.0), ["0", "1,000", "2,000", "3,000", "4,000"]);
    }
}
