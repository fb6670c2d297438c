//! Reads quotas from headers that hold one number each, by the words in their names.
//!
//! A name that contains `ratelimit` or `rate-limit` is split at its dashes. One word says which
//! number it is (limit, remaining, used, reset, …). The others identify the quota: its unit, its
//! window, or a name of the server's own. Numbers whose other words are equal belong to one quota.
//! So `x-ratelimit-limit-tokens` and `anthropic-ratelimit-tokens-limit` need no table of vendors.

use std::time::Duration;

use http::HeaderMap;

use super::super::Unit;
use super::super::clock::WallClock;
use super::super::span::{bare, digits};
use super::{COUNT_MAX, ITEMS_MAX, Quota, SPAN_MAX, reset};

/// Different quotas that are read in one response.
const GROUPS_MAX: usize = 12;
/// Lines that are read of one field.
const LINES_MAX: usize = 4;

const SHOPIFY: &str = "-shop-api-call-limit";

/// Returns whether a header's name (in lower case, as `http` has it) may belong to a quota.
pub(super) fn speaks_of_limits(name: &str) -> bool {
    // The first byte already excludes nearly every name.
    matches!(name.as_bytes().first(), Some(b'r' | b'x' | b'a'))
        && (split(name).is_some() || name.ends_with(SHOPIFY))
}

/// Splits a name into its vendor's part and the words that name a quota and a number.
fn split(name: &str) -> Option<(&str, &str)> {
    const MARKS: [&str; 4] = ["ratelimit", "rate-limit", "x-app-limit", "x-user-limit"];
    // A mark begins and ends with a word. Comparing at each word is cheaper than a search.
    let bytes = name.as_bytes();
    (0..bytes.len()).find_map(|at| {
        let begins = matches!(bytes[at], b'r' | b'x') && (at == 0 || bytes[at - 1] == b'-');
        let here = name.get(at..).filter(|_| begins)?;
        let words = MARKS.iter().find_map(|mark| here.strip_prefix(mark))?;
        let vendor = &name[..name.len() - words.len()];
        (words.is_empty() || words.starts_with('-'))
            .then_some((vendor, words.trim_start_matches('-')))
    })
}

/// Which number a header holds.
#[derive(Clone, Copy, PartialEq)]
enum Number {
    Limit,
    Remaining,
    Used,
    Reset,
    /// Discord's seconds from now, with a fraction. It is finer than the reset beside it.
    ResetAfter,
    /// The window, in thousandths of this many seconds.
    Window {
        millis: u64,
    },
}

/// The words of a name.
struct Name {
    number: Number,
    unit: Unit,
    window: Option<Duration>,
    of_account: bool,
    /// Identifies the quota within its response.
    group: u64,
}

impl Name {
    /// Reads a name's words. Returns `None` if they name neither a number nor a window.
    fn read(vendor: &str, words: &str) -> Option<Self> {
        let is_bare = words.is_empty();
        let mut name = Self {
            number: Number::Limit,
            unit: Unit::Requests,
            window: None,
            of_account: false,
            group: hash(0, vendor),
        };
        let mut found = None;
        let mut words = words.split('-').filter(|word| !word.is_empty()).peekable();
        let (mut times, mut before) = (1, "");
        while let Some(word) = words.next() {
            let (number, rest) = match word {
                "resettime" => (Some(Number::Reset), ""),
                "max" => (Some(Number::Limit), ""),
                "observed" => (Some(Number::Used), ""),
                "interval" => {
                    let millis = if words.next() == Some("milliseconds") {
                        1
                    } else {
                        1_000
                    };
                    (Some(Number::Window { millis }), "")
                }
                _ => number_of(word),
            };
            if let Some(number) = number.filter(|_| found.is_none()) {
                let after = number == Number::Reset && words.next_if_eq(&"after").is_some();
                found = Some(if after { Number::ResetAfter } else { number });
                if !rest.is_empty() {
                    name.group = hash(name.group, rest);
                }
                continue;
            }
            if let Some(count) = digits(word) {
                times = count;
                continue;
            }
            name.unit = unit_of(word, before).unwrap_or(name.unit);
            before = word;
            name.of_account |= word == "project";
            name.window = name.window.or_else(|| window_of(word, times));
            name.group = hash(name.group, word);
        }
        name.group = name.group.wrapping_add(times);
        name.number = found.unwrap_or(Number::Limit);
        (found.is_some() || is_bare || name.window.is_some()).then_some(name)
    }
}

/// Returns the number that a word stands for, and the text before it in the same word
/// (`userlimit`).
fn number_of(word: &str) -> (Option<Number>, &str) {
    const NUMBERS: [(&str, Number); 4] = [
        ("limit", Number::Limit),
        ("remaining", Number::Remaining),
        ("used", Number::Used),
        ("reset", Number::Reset),
    ];
    let found = NUMBERS
        .iter()
        .find_map(|(end, number)| Some((Some(*number), word.strip_suffix(end)?)));
    found.unwrap_or((None, ""))
}

/// Returns the unit of a quota, after `word` of its name. `before` is the word that came before.
fn unit_of(word: &str, before: &str) -> Option<Unit> {
    match (before, Unit::of_word(word)) {
        ("input", Some(Unit::Tokens)) => Some(Unit::InputTokens),
        ("output", Some(Unit::Tokens)) => Some(Unit::OutputTokens),
        (_, unit) => unit,
    }
}

/// Reads `minute`, `daily`, `24hour`. `times` is a count from the word before.
fn window_of(word: &str, times: u64) -> Option<Duration> {
    let end = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    let (count, word) = word.split_at(end);
    let secs = match word {
        "second" | "seconds" | "secondly" | "sec" => 1,
        "minute" | "minutes" | "minutely" | "min" => 60,
        "hour" | "hours" | "hourly" => 3_600,
        "day" | "days" | "daily" => 86_400,
        "week" | "weekly" => 7 * 86_400,
        "month" | "monthly" => 30 * 86_400,
        _ => return None,
    };
    let count = digits(count).unwrap_or(times);
    let window = Duration::from_secs(secs * count.min(SPAN_MAX.as_secs()));
    (!window.is_zero() && window <= SPAN_MAX).then_some(window)
}

/// Hashes the words of a name by FNV-1a, with a separator between them.
fn hash(sum: u64, word: &str) -> u64 {
    word.bytes()
        .chain([b'-'])
        .fold(sum ^ 0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The numbers of one quota.
struct Group {
    id: u64,
    unit: Unit,
    window: Option<Duration>,
    of_account: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    used: Option<u64>,
    /// Whether less than nothing is left. With a reset this means nothing, as with Reddit. Azure
    /// sends -1 for an unknown number, and no reset.
    is_owed: bool,
    reset: Option<Duration>,
    reset_after: Option<Duration>,
}

/// Passes every quota that the headers name to `found`.
pub(super) fn quotas(headers: &HeaderMap, clock: WallClock, found: impl FnMut(Quota)) {
    let mut groups: Vec<Group> = Vec::new();
    let now = || clock.just_after(headers);
    for name in headers.keys() {
        let name = name.as_str();
        let lines = || {
            let lines = headers.get_all(name).iter().take(LINES_MAX);
            lines.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
        };
        let Some((vendor, words)) = split(name) else {
            if name.ends_with(SHOPIFY) {
                let shop = Name::read(SHOPIFY, "");
                if let Some(group) = shop.and_then(|shop| group(&mut groups, &shop)) {
                    lines().for_each(|text| group.read_share(text));
                }
            }
            continue;
        };
        // `structured.rs` reads the structured fields.
        if vendor == "ratelimit" && matches!(words, "" | "policy") {
            continue;
        }
        // AWS names requests per second, and no quota.
        let is_aws = vendor == "x-amzn-ratelimit" && words == "limit";
        let Some(name) = Name::read(vendor, words) else {
            continue;
        };
        let Some(group) = group(&mut groups, &name) else {
            continue;
        };
        for text in lines() {
            if is_aws {
                group.read_rate(text);
            } else {
                group.read(name.number, text, now);
            }
        }
    }
    groups.into_iter().filter_map(Group::quota).for_each(found);
}

/// Returns the group that `name` belongs to, or `None` if there are too many.
fn group<'a>(groups: &'a mut Vec<Group>, name: &Name) -> Option<&'a mut Group> {
    let at = groups.iter().position(|group| group.id == name.group);
    let at = at.unwrap_or(groups.len());
    if at == GROUPS_MAX {
        return None;
    }
    if at == groups.len() {
        groups.push(Group {
            id: name.group,
            unit: name.unit,
            window: name.window,
            of_account: name.of_account,
            limit: None,
            remaining: None,
            used: None,
            is_owed: false,
            reset: None,
            reset_after: None,
        });
    }
    groups.get_mut(at)
}

impl Group {
    fn read(&mut self, number: Number, text: &str, now: impl Fn() -> WallClock) {
        match number {
            Number::Limit if text.contains('/') => self.read_share(text),
            Number::Limit => {
                let (limit, window) = limit_and_window(text);
                self.limit = self.limit.or(limit);
                self.window = self.window.or(window);
            }
            Number::Remaining => {
                let owed = |text| bare(text).strip_prefix('-').and_then(left);
                self.is_owed |= text.split(',').any(|text| owed(text).is_some());
                let left = text.split(',').filter_map(left).min();
                self.remaining = self.remaining.into_iter().chain(left).min();
            }
            Number::Used => self.used = self.used.max(count(text, Round::Up)),
            Number::Reset => {
                // A date has a comma, too.
                let several = || text.split(',').filter_map(|text| reset(text, &now)).max();
                self.reset = self.reset.max(reset(text, &now).or_else(several));
            }
            Number::ResetAfter => self.reset_after = self.reset_after.max(reset(text, now)),
            Number::Window { millis } => {
                let length = count(text, Round::Down).and_then(|count| count.checked_mul(millis));
                let length = length.map(Duration::from_millis);
                self.window = length.filter(|window| !window.is_zero() && *window <= SPAN_MAX);
            }
        }
    }

    /// Reads `39/40`: the used number and the limit.
    fn read_share(&mut self, text: &str) {
        if let Some((used, limit)) = text.split_once('/') {
            self.used = self.used.max(count(used, Round::Up));
            self.limit = self.limit.or(count(limit, Round::Down));
        }
    }

    /// Reads `0.5`: requests per second, converted to whole requests.
    fn read_rate(&mut self, text: &str) {
        let thousandths = |text: &str| {
            let number = super::super::span::seconds(bare(text))?;
            u64::try_from(number.as_millis()).ok()
        };
        if let Some(rate) = thousandths(text).filter(|rate| (1..=COUNT_MAX).contains(rate)) {
            // Finds the shortest window of whole requests: 0.5 per second is one in two seconds.
            let secs = if rate % 1_000 == 0 {
                1
            } else {
                1_000_u64.div_ceil(rate).max(10)
            };
            self.limit = Some(rate * secs / 1_000);
            self.window = Some(Duration::from_secs(secs));
        }
    }

    /// Returns the quota of these numbers. A missing number is computed from the others where
    /// possible.
    fn quota(mut self) -> Option<Quota> {
        let reset = self.reset_after.or(self.reset);
        let owed = reset.filter(|_| self.is_owed).map(|_| 0);
        self.remaining = self.remaining.or(owed);
        // Reddit names no limit.
        let sum = || Some(self.remaining?.saturating_add(self.used?).min(COUNT_MAX));
        let limit = self.limit.or_else(sum);
        // No more than the limit can be left.
        let remaining = match (self.remaining, limit, self.used) {
            (Some(remaining), Some(limit), _) => Some(remaining.min(limit)),
            (None, Some(limit), Some(used)) => Some(limit.saturating_sub(used)),
            (remaining, ..) => remaining,
        };
        let quota = Quota {
            unit: self.unit,
            limit,
            window: self.window,
            remaining,
            reset,
            of_account: self.of_account,
        };
        (limit.is_some() || remaining.is_some() || reset.is_some()).then_some(quota)
    }
}

/// Reads what is left: `5`, or `0;w=21600`.
fn left(text: &str) -> Option<u64> {
    count(text.split(';').next()?, Round::Down)
}

/// Reads `10`, or `10, 10;w=1, 1000;w=3600`: the limit in force, then the policies. The window is
/// that of the policy with this limit.
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

/// The direction in which a fraction is rounded, so that the remaining number is never too large.
#[derive(Clone, Copy)]
enum Round {
    Down,
    Up,
}

fn count(text: &str, round: Round) -> Option<u64> {
    let text = bare(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let (whole, fraction) = (digits(whole)?, digits(fraction)?);
    let up = u64::from(matches!(round, Round::Up) && fraction > 0);
    Some(whole.saturating_add(up).min(COUNT_MAX))
}
