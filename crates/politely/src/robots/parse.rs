//! Parsing of the bytes of a robots.txt into the rules for one product token.
//!
//! One pass keeps two sets of rules: for the token and for `*`. The token's set is used if the file
//! names the token at all, even without rules. Groups that name the same token add up (RFC 9309,
//! 2.2.1). Only `Allow` and `Disallow` end the list of agents of a group. Any other line between
//! two `User-agent` lines, `Crawl-delay` too, leaves the list open (2.2.4). A delay there applies
//! to the names right before it. In `User-agent: a`, `Crawl-delay: 1`, `User-agent: b`,
//! `Crawl-delay: 2`, `Disallow: /x` the rule applies to both, and each has its own delay.

use std::borrow::Cow;
use std::time::Duration;

use super::pattern::Rule;
use super::product::{leading, token_of};
use super::{Availability, MAX_BYTES, Robots, delay};

/// Reads the body of a successful response.
pub(super) fn parse(body: &[u8], agent: &str) -> Robots {
    let text = decode(cut(body));
    let agent = token_of(agent.as_bytes());
    let (mut ours, mut everyones) = (Group::default(), Group::default());
    // Whether the next `User-agent` begins a new list of names, for rules and for delays.
    let (mut rules_ended, mut delays_ended) = (true, true);

    // A CR LF adds an empty line, which has no effect. NUL ends a line as it ends a C string.
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        let Some((field, value)) = field(line) else {
            continue;
        };
        if field == Field::Sitemap {
            continue;
        }
        if field == Field::UserAgent {
            for (group, named) in [
                (&mut ours, names(value, agent)),
                (&mut everyones, names_everyone(value)),
            ] {
                group.named |= named;
                group.ruled = named || (group.ruled && !rules_ended);
                group.delayed = named || (group.delayed && !delays_ended);
            }
            (rules_ended, delays_ended) = (false, false);
        } else {
            ours.add(field, value);
            everyones.add(field, value);
            rules_ended |= matches!(field, Field::Allow | Field::Disallow);
            delays_ended = true;
        }
    }

    let mut group = if ours.named { ours } else { everyones };
    group
        .rules
        .sort_unstable_by(|a, b| a.precedence().cmp(&b.precedence()));
    group.rules.dedup();
    Robots {
        availability: Availability::Rules,
        rules: group.rules,
        crawl_delay: group.delay,
    }
}

/// Returns the values of the `Sitemap` lines, which belong to no group.
pub(super) fn sitemaps(body: &[u8]) -> Vec<String> {
    let text = decode(cut(body));
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r' | 0));
    let values = lines
        .filter_map(field)
        .filter(|(field, _)| *field == Field::Sitemap);
    values
        .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        .collect()
}

/// Returns whether a `User-agent` value names this token.
fn names(value: &[u8], agent: &[u8]) -> bool {
    let token = leading(value);
    !token.is_empty() && token.eq_ignore_ascii_case(agent)
}

fn names_everyone(value: &[u8]) -> bool {
    value
        .strip_prefix(b"*")
        .is_some_and(|rest| !rest.starts_with(b"*") && leading(rest).is_empty())
}

#[derive(Default)]
struct Group {
    /// Whether the file names the token.
    named: bool,
    /// Whether the current rules apply to the token.
    ruled: bool,
    /// Whether the current delays apply to the token.
    delayed: bool,
    rules: Vec<Rule>,
    delay: Option<Duration>,
}

impl Group {
    fn add(&mut self, field: Field, value: &[u8]) {
        match field {
            Field::Allow if self.ruled => self.rules.extend(Rule::parse(true, value)),
            Field::Disallow if self.ruled => self.rules.extend(Rule::parse(false, value)),
            Field::CrawlDelay if self.delayed => self.at_least(delay::crawl_delay(value)),
            Field::RequestRate if self.delayed => self.at_least(delay::request_rate(value)),
            _ => {}
        }
    }

    fn at_least(&mut self, delay: Option<Duration>) {
        self.delay = self.delay.max(delay);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    RequestRate,
    Sitemap,
}

impl Field {
    /// The misspellings are those that Google, Protego and crawler-commons met often enough to
    /// accept.
    const NAMES: [(&'static str, Self); 21] = [
        ("disallow", Self::Disallow),
        ("allow", Self::Allow),
        ("user-agent", Self::UserAgent),
        ("crawl-delay", Self::CrawlDelay),
        ("request-rate", Self::RequestRate),
        ("useragent", Self::UserAgent),
        ("user agent", Self::UserAgent),
        ("user_agent", Self::UserAgent),
        ("useg-agent", Self::UserAgent),
        ("dissallow", Self::Disallow),
        ("dissalow", Self::Disallow),
        ("disalow", Self::Disallow),
        ("diasllow", Self::Disallow),
        ("disallaw", Self::Disallow),
        ("desallow", Self::Disallow),
        ("crawldelay", Self::CrawlDelay),
        ("crawl delay", Self::CrawlDelay),
        ("crawl_delay", Self::CrawlDelay),
        ("request rate", Self::RequestRate),
        ("sitemap", Self::Sitemap),
        ("site-map", Self::Sitemap),
    ];

    fn named(name: &[u8]) -> Option<Self> {
        let name = name.trim_ascii();
        Self::NAMES
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
            .map(|&(_, field)| field)
    }
}

/// Parses `name: value`, or `name value` where the value is one word. Returns `None` for every
/// other line.
fn field(line: &[u8]) -> Option<(Field, &[u8])> {
    let line = line
        .split(|&byte| byte == b'#')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if let Some(colon) = line.iter().position(|&byte| byte == b':')
        && let Some(field) = Field::named(&line[..colon])
    {
        return Some((field, line[colon + 1..].trim_ascii()));
    }
    let space = line.iter().position(u8::is_ascii_whitespace)?;
    let value = line[space..].trim_ascii();
    // A sentence such as "Allow all robots" is no rule.
    let one_word = !value.iter().any(u8::is_ascii_whitespace);
    Field::named(&line[..space])
        .filter(|_| one_word)
        .map(|field| (field, value))
}

/// At most [`MAX_BYTES`], and then no half line: half of `Disallow: /private` might be
/// `Disallow: /`, half of `Allow: /a/b` surely is more than was allowed.
fn cut(body: &[u8]) -> &[u8] {
    let Some(head) = body.get(..MAX_BYTES) else {
        return body;
    };
    let end = head
        .iter()
        .rposition(|byte| matches!(byte, b'\n' | b'\r'))
        .map_or(0, |last| last + 1);
    &head[..end]
}

/// Without its byte order marks, whole or broken off, and as UTF-8 if the mark says UTF-16. Without
/// a mark UTF-16 reads as noise: no rules.
fn decode(body: &[u8]) -> Cow<'_, [u8]> {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.as_chunks().0.iter().map(|&pair| unit(pair));
        let text: String = char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        Cow::Owned(without_marks(text.as_bytes()).to_vec())
    };
    match body {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => Cow::Borrowed(without_marks(body)),
    }
}

/// Tools that join files or add a mark leave several, also behind blanks.
fn without_marks(mut body: &[u8]) -> &[u8] {
    loop {
        body = match body.trim_ascii_start() {
            [0xEF, 0xBB, 0xBF, rest @ ..] | [0xEF, 0xBB, rest @ ..] | [0xEF, rest @ ..] => rest,
            rest => return rest,
        };
    }
}
