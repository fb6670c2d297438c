//! The few shapes of the plots.

use std::fmt::Write as _;

/// Blue is ours or the setpoint, green is accepted, red is refused; everything else is a shade of
/// ink.
const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#3b424d}\
.title{font-size:18px;font-weight:600;fill:#14181f}.sub{fill:#5d6675}.tick{font-size:12px;fill:#5d6675}\
.strong{font-weight:600;fill:#14181f}.paper{fill:#ffffff}.grid{stroke:#e4e8ee}.axis{stroke:#9aa3b2}\
.limit{stroke:#14181f;stroke-width:2;fill:none}.aim{stroke:#1f6fd6;stroke-width:1.5;fill:none}\
.got{fill:#8fd1a5;fill-opacity:.75}.refused{stroke:#d32f3c;stroke-width:1.2}.band{fill:#7f8aa0;fill-opacity:.16}\
.goal{fill:#8fd1a5;fill-opacity:.35}.t-limit{fill:#14181f;font-weight:600}.t-aim{fill:#1a5fb8;font-weight:600}\
.t-got{fill:#20784a;font-weight:600}.t-refused{fill:#c12735;font-weight:600}.t-goal{fill:#20784a}\
.ours{fill:#1f6fd6;stroke:#1f6fd6}.rival{fill:#7d8797;stroke:#7d8797}.whisker{stroke-opacity:.45;stroke-width:1.5}\
.lead{stroke:#9aa3b2;stroke-width:.8}.halo{paint-order:stroke;stroke:#ffffff;stroke-width:4px;stroke-linejoin:round}\
.s0{stroke:#d32f3c;fill:#d32f3c}.s1{stroke:#b8730a;fill:#b8730a}.s2{stroke:#1f6fd6;fill:#1f6fd6}\
.s3{stroke:#20784a;fill:#20784a}.s4{stroke:#7a4fc0;fill:#7a4fc0}.curve{fill:none;stroke-width:2.2}.name{stroke:none;font-weight:600}\
@media (prefers-color-scheme:dark){\
text{fill:#c9d0db}.title,.strong,.t-limit{fill:#f2f5f9}.sub,.tick{fill:#97a1b1}.paper{fill:#15191f}\
.grid{stroke:#29303a}.axis{stroke:#626d7d}.limit{stroke:#f2f5f9}.aim{stroke:#62a6ff}.t-aim{fill:#7db5ff}\
.got{fill:#2f7a4c;fill-opacity:.8}.t-got,.t-goal{fill:#74cf96}.refused{stroke:#ff6570}.t-refused{fill:#ff7f88}\
.goal{fill:#2f7a4c;fill-opacity:.4}.ours{fill:#62a6ff;stroke:#62a6ff}.rival{fill:#8c97a8;stroke:#8c97a8}\
.lead{stroke:#626d7d}.halo{stroke:#15191f}.s0{stroke:#ff6570;fill:#ff6570}.s1{stroke:#f0a93c;fill:#f0a93c}\
.s2{stroke:#62a6ff;fill:#62a6ff}.s3{stroke:#74cf96;fill:#74cf96}.s4{stroke:#b794f4;fill:#b794f4}.curve{fill:none}.name{stroke:none}}";

/// The alignment of a text.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A plot in progress. Coordinates are pixels from the upper left.
pub(super) struct Svg(String);

impl Svg {
    /// Creates an empty plot. Screen readers read `label`.
    pub(super) fn new(width: f64, height: f64, label: &str) -> Self {
        let mut svg = Self(String::new());
        let label = escaped(label);
        svg.push(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{label}\">\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\"/>"
        ));
        svg
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64)) {
        let ((x, y), (width, height)) = (at, size);
        self.push(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64) {
        let (x, y) = at;
        self.push(&format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
        ));
    }

    /// A line through `points`, or the area they enclose if the class fills it.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{command}{x:.1} {y:.1}");
        }
        self.push(&format!("<path class=\"{class}\" d=\"{d}\"/>"));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let (x, y) = at;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(super) fn done(mut self) -> String {
        self.push("</svg>");
        self.0
    }

    fn push(&mut self, element: &str) {
        self.0.push_str(element);
        self.0.push('\n');
    }
}

/// Estimates the width of a text, because no font is available.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.2
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML cannot express these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_name_cannot_break_the_picture() {
        assert_eq!(
            escaped("<a & \"b\">\u{0}"),
            "&lt;a &amp; &quot;b&quot;&gt;\u{fffd}"
        );
    }
}
