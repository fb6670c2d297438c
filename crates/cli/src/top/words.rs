//! Numbers for people, with their units, in the same form as on the coordinator's page.

use politely_api::wire::{KeyState, Need};

/// A rate beyond this counts as unbounded.
const UNBOUNDED: f64 = 1e9;

/// Formats a count: `12,345`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate per second without its unit: `0.25`, `12.5`, `1,250`.
pub(super) fn rate(per_s: f64) -> String {
    if per_s >= UNBOUNDED {
        "no bound".to_owned()
    } else if per_s >= 99.95 {
        count(per_s.round() as u64)
    } else if per_s >= 9.995 {
        format!("{per_s:.1}")
    } else {
        format!("{per_s:.2}")
    }
}

/// Formats a share: `3.2 %`.
pub(super) fn share(of: f64) -> String {
    if of == 0.0 {
        "0 %".to_owned()
    } else if of < 0.001 {
        "< 0.1 %".to_owned()
    } else {
        format!("{:.1} %", of * 100.0)
    }
}

/// Formats a duration: `85 ms`, `3.2 s`, `2 min 5 s`, `1 h 20 min`, `3 d 4 h`.
pub(super) fn duration(ms: u64) -> String {
    if ms < 1_000 {
        return format!("{ms} ms");
    }
    if ms < 9_950 {
        return format!("{:.1} s", ms as f64 / 1e3);
    }
    let s = (ms + 500) / 1_000;
    let (large, one, small, other) = match s {
        0..60 => return format!("{s} s"),
        60..3_600 => (s / 60, "min", s % 60, "s"),
        3_600..86_400 => (s / 3_600, "h", s % 3_600 / 60, "min"),
        _ => (s / 86_400, "d", s % 86_400 / 3_600, "h"),
    };
    if small == 0 {
        format!("{large} {one}")
    } else {
        format!("{large} {one} {small} {other}")
    }
}

/// Formats an age: `12 s ago`, or now if it is less than a second.
pub(super) fn ago(ms: u64) -> String {
    match ms {
        0..1_000 => "now".to_owned(),
        1_000..60_000 => format!("{} s ago", ms / 1_000),
        _ => format!("{} ago", duration(ms)),
    }
}

/// Formats a latency, which may be unknown: `85 ms`.
pub(super) fn latency(ms: Option<f64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| duration(ms.round() as u64))
}

/// Returns a key's state in one word.
pub(super) const fn state(state: KeyState) -> &'static str {
    match state {
        KeyState::Ready => "ready",
        KeyState::Pacing => "pacing",
        KeyState::Full => "full",
        KeyState::Bytes => "bytes",
        KeyState::Budget => "budget",
        KeyState::Hold => "hold",
        KeyState::Parked => "parked",
        KeyState::Breaker => "breaker",
        KeyState::Quarantine => "quarantine",
        KeyState::Unavailable => "unavailable",
    }
}

/// Returns the reason why a key needs attention.
pub(super) const fn need(need: Need) -> &'static str {
    match need {
        Need::Unavailable => "engine unavailable",
        Need::Blocked => "blocked",
        Need::Failing => "failing",
        Need::Starved => "starved",
        Need::Refused => "refused above 1 %",
        Need::Expiring => "leases expire",
    }
}

/// Removes terminal control characters: names and reasons come from strangers.
pub(super) fn harmless(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_round_into_another_width() {
        let rates = [0.25, 9.999, 12.34, 99.96, 1_250.4, 2e9].map(rate);
        assert_eq!(rates, ["0.25", "10.0", "12.3", "100", "1,250", "no bound"]);
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0.0, 0.0001, 0.032, 1.0].map(share),
            ["0 %", "< 0.1 %", "3.2 %", "100.0 %"]
        );
    }

    #[test]
    fn times_have_at_most_two_units() {
        let times = [
            85,
            3_200,
            9_960,
            59_400,
            59_600,
            125_000,
            4_800_000,
            273_600_000,
        ];
        let said = [
            "85 ms",
            "3.2 s",
            "10 s",
            "59 s",
            "1 min",
            "2 min 5 s",
            "1 h 20 min",
            "3 d 4 h",
        ];
        assert_eq!(times.map(duration), said);
        assert_eq!(
            [999, 12_900, 60_000].map(ago),
            ["now", "12 s ago", "1 min ago"]
        );
    }

    #[test]
    fn a_name_commands_no_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\nc"), "a?[2Jb?c");
    }
}
