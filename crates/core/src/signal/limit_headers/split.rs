//! Quotas as one number in each header: the drafts to -06 and everybody's X- headers.

use std::time::Duration;

use http::HeaderMap;

use super::super::clock::WallClock;
use super::super::retry_after::digits;
use super::{COUNT_MAX, ITEMS_MAX, Quota, SPAN_MAX, reset};

/// The names of one dialect.
pub(super) struct Names {
    prefix: &'static str,
    limit: &'static str,
    remaining: &'static str,
    used: &'static str,
    reset: &'static str,
}

impl Names {
    pub(super) fn own(&self, name: &str) -> bool {
        name.starts_with(self.prefix)
    }
}

pub(super) const DIALECTS: [Names; 3] = [
    Names {
        prefix: "ratelimit-",
        limit: "ratelimit-limit",
        remaining: "ratelimit-remaining",
        used: "ratelimit-observed",
        reset: "ratelimit-reset",
    },
    Names {
        prefix: "x-ratelimit-",
        limit: "x-ratelimit-limit",
        remaining: "x-ratelimit-remaining",
        used: "x-ratelimit-used",
        reset: "x-ratelimit-reset",
    },
    Names {
        prefix: "x-rate-limit-",
        limit: "x-rate-limit-limit",
        remaining: "x-rate-limit-remaining",
        used: "x-rate-limit-used",
        reset: "x-rate-limit-reset",
    },
];

/// What the dialect's headers say together; fields nobody sent are computed from the others where they follow.
pub(super) fn quota(headers: &HeaderMap, names: &Names, now: impl FnOnce() -> WallClock) -> Quota {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (limit, window) = text(names.limit).map_or((None, None), limit_and_window);
    let remaining = text(names.remaining).and_then(|text| count(text, Round::Down));
    let used = text(names.used).and_then(|text| count(text, Round::Up));
    // Reddit names no limit.
    let limit = limit.or_else(|| Some((remaining? + used?).min(COUNT_MAX)));
    // What is over the limit is not left, whoever says so.
    let remaining = match (remaining, limit, used) {
        (Some(remaining), Some(limit), _) => Some(remaining.min(limit)),
        (None, Some(limit), Some(used)) => Some(limit.saturating_sub(used)),
        (remaining, ..) => remaining,
    };
    let reset = text(names.reset).and_then(|text| reset::from_now(text, now));
    Quota {
        limit,
        window,
        remaining,
        reset,
    }
}

/// `10`, or `10, 10;w=1, 1000;w=3600`: the limit in force, then the policies; the window is its policy's.
fn limit_and_window(text: &str) -> (Option<u64>, Option<Duration>) {
    let limit = text
        .split([',', ';'])
        .next()
        .and_then(|first| count(first, Round::Down));
    let policies = text.split(',').take(ITEMS_MAX).filter_map(|policy| {
        let (count_text, params) = policy.split_once(';')?;
        let window = params.split(';').find_map(|param| window(param.trim()))?;
        Some((count(count_text, Round::Down)?, window))
    });
    let window = limit.and_then(|limit| policies.into_iter().find(|(count, _)| *count == limit));
    (limit, window.map(|(_, window)| window))
}

fn window(param: &str) -> Option<Duration> {
    let secs = param
        .strip_prefix("w=")
        .or_else(|| param.strip_prefix("window="))?;
    let window = Duration::from_secs(digits(secs)?);
    (!window.is_zero() && window <= SPAN_MAX).then_some(window)
}

/// Which way a fraction goes: so that never more is left than was said.
#[derive(Clone, Copy)]
enum Round {
    Down,
    Up,
}

fn count(text: &str, round: Round) -> Option<u64> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let (whole, fraction) = (digits(whole)?, digits(fraction)?);
    let up = u64::from(matches!(round, Round::Up) && fraction > 0);
    Some(whole.saturating_add(up).min(COUNT_MAX))
}
