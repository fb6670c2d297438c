//! A curve of numbers over time, one character high.

const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the curve of the last `width` of `values`, with the newest at the right. The largest
/// value is a whole block, and zero is a blank.
pub(super) fn curve(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    let mut last: Vec<f64> = values.rev().take(width).collect();
    last.reverse();
    let largest = last.iter().copied().fold(0.0, f64::max);
    let step = |value: f64| match (value / largest * STEPS.len() as f64).ceil() {
        step if value > 0.0 => STEPS[(step as usize).clamp(1, STEPS.len()) - 1],
        _ => ' ',
    };
    let drawn: String = last.into_iter().map(step).collect();
    format!("{drawn:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_at_the_right_and_the_largest_is_whole() {
        assert_eq!(curve([9.0, 0.0, 0.1, 4.0, 8.0].into_iter(), 4), " ▁▄█");
        assert_eq!(curve([1.0].into_iter(), 3), "  █");
        assert_eq!(curve([0.0, f64::NAN].into_iter(), 3), "   ");
    }
}
