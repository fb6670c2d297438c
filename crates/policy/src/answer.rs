//! Rules about the answers of a host: what an answer means, in the host's own words.

use std::time::Duration;

use http::HeaderName;
use politely_core::signal::{
    BODY_SCANNED, Outcome, Report, Signal, WallClock, is_error_page, retry_after,
};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use super::body_wait::BodyWait;
use super::trouble::span;

/// The most bytes of a compiled pattern. It bounds the memory of patterns such as `(a{99}){99}`.
const PATTERN_BYTES_MAX: usize = 1 << 18;

/// What an answer means, if it fits all conditions.
#[derive(Clone, Debug)]
pub struct AnswerRule {
    /// The line of the file on which it begins, from 1.
    pub line: usize,
    statuses: Vec<u16>,
    headers: Vec<(HeaderName, Regex)>,
    body: Option<Regex>,
    /// The meaning, in place of the usual one.
    pub signal: Signal,
    /// How long the key is held.
    pub hold: Option<Duration>,
    /// Where the body states how long to wait.
    retry_after: Option<BodyWait>,
    /// Whether operators are told of each such answer.
    pub notify: bool,
}

impl PartialEq for AnswerRule {
    /// Compares everything apart from the line.
    fn eq(&self, other: &Self) -> bool {
        let headers = |rule: &Self| -> Vec<(HeaderName, String)> {
            let headers = rule.headers.iter();
            let texts = headers.map(|(name, value)| (name.clone(), value.as_str().to_owned()));
            texts.collect()
        };
        self.statuses == other.statuses
            && headers(self) == headers(other)
            && self.body.as_ref().map(Regex::as_str) == other.body.as_ref().map(Regex::as_str)
            && (self.signal, self.hold, self.notify) == (other.signal, other.hold, other.notify)
            && self.retry_after == other.retry_after
    }
}

impl AnswerRule {
    /// Returns whether the answer fits. At most the first 16 KiB of its body are read.
    pub fn fits(&self, outcome: &Outcome<'_>) -> bool {
        let Outcome::Answered {
            status,
            headers,
            body_start,
        } = outcome
        else {
            return false;
        };
        let has_header = |(name, value): &(HeaderName, Regex)| {
            let mut values = headers.get_all(name).iter();
            values.any(|known| value.is_match(known.as_bytes()))
        };
        let start = &body_start[..body_start.len().min(BODY_SCANNED)];
        (self.statuses.is_empty() || self.statuses.contains(&status.as_u16()))
            && self.headers.iter().all(has_header)
            && self.body.as_ref().is_none_or(|body| body.is_match(start))
    }

    /// Returns whether it reads the bodies of answers with `status`. Workers send the beginning of
    /// an error page anyway.
    pub fn needs_body_of(&self, status: u16) -> bool {
        let has_status = self.statuses.is_empty() || self.statuses.contains(&status);
        self.reads_body() && has_status && !is_error_page(status)
    }

    /// Returns whether it reads the bodies of answers that are no error pages.
    pub(super) fn needs_bodies(&self) -> bool {
        let is_error = |status: &u16| is_error_page(*status);
        self.reads_body() && (self.statuses.is_empty() || !self.statuses.iter().all(is_error))
    }

    const fn reads_body(&self) -> bool {
        self.body.is_some() || self.retry_after.is_some()
    }

    /// Returns the names of the headers that it reads.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().map(|(name, _)| name)
    }

    /// Gives `report` the meaning of this rule, with the wait that the body states.
    pub(super) fn judge(&self, outcome: &Outcome<'_>, clock: WallClock, report: &mut Report) {
        if report.signal != self.signal || self.hold.is_some() {
            // The rule is about the whole key.
            report.scope = None;
        }
        report.signal = self.signal;
        match self.signal {
            Signal::Ok | Signal::UrlError => report.retry_after = None,
            _ => {
                let (in_body, in_headers) = self.stated(outcome, clock);
                let usual = self.hold.or(report.retry_after).or(in_headers);
                report.retry_after = in_body.max(usual);
            }
        }
    }

    /// Returns the waits that the body and the headers of an answer state.
    fn stated(
        &self,
        outcome: &Outcome<'_>,
        clock: WallClock,
    ) -> (Option<Duration>, Option<Duration>) {
        let &Outcome::Answered {
            headers,
            body_start,
            ..
        } = outcome
        else {
            return (None, None);
        };
        let start = &body_start[..body_start.len().min(BODY_SCANNED)];
        let place = self.retry_after.as_ref();
        let in_body = place.and_then(|place| place.wait(start, headers, clock));
        (in_body, retry_after(headers, clock))
    }
}

/// An answer's rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenAnswer {
    when: WrittenWhen,
    signal: Spanned<String>,
    hold: Option<Spanned<String>>,
    retry_after: Option<Spanned<String>>,
    #[serde(default)]
    notify: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenWhen {
    status: Option<Spanned<toml::Value>>,
    #[serde(default)]
    header: std::collections::BTreeMap<String, Spanned<String>>,
    body: Option<Spanned<String>>,
}

/// Reads an answer's rule.
///
/// # Errors
/// The place in the file, and what is wrong there.
pub(super) fn read(
    written: Spanned<WrittenAnswer>,
    line: usize,
) -> Result<AnswerRule, (usize, String)> {
    let at = written.span().start;
    let WrittenAnswer {
        when,
        signal,
        hold,
        retry_after,
        notify,
    } = written.into_inner();
    if when.status.is_none() && when.header.is_empty() && when.body.is_none() {
        let why = "`when` is empty; name a status, a header or a body, or all answers would fit";
        return Err((at, why.to_owned()));
    }
    let mut statuses = Vec::new();
    if let Some(written) = when.status {
        let at = written.span().start;
        statuses = read_statuses(written.get_ref()).ok_or_else(|| {
            let why = "`status` is a number from 100 to 999, or a list of them";
            (at, why.to_owned())
        })?;
    }
    let mut headers = Vec::new();
    for (name, value) in when.header {
        let at = value.span().start;
        let known = name.parse::<HeaderName>();
        let known = known.map_err(|_| (at, format!("`{}` is no header", name.escape_debug())))?;
        headers.push((known, placed(&value, pattern)?));
    }
    let body = when.body.map(|text| placed(&text, pattern)).transpose()?;
    let named = [
        Signal::Ok,
        Signal::RateLimited,
        Signal::Overloaded,
        Signal::Blocked,
        Signal::UrlError,
    ];
    let known = named
        .into_iter()
        .find(|known| known.as_str() == signal.get_ref());
    let signal = known.ok_or_else(|| {
        let why = format!(
            "unknown signal `{}`; use ok, rate_limited, overloaded, blocked or url_error",
            signal.get_ref().escape_debug()
        );
        (signal.span().start, why)
    })?;
    let hold = match hold {
        None => None,
        Some(text) => Some(span(text.get_ref()).ok_or_else(|| {
            let why = format!(
                "hold `{}`: write it as `60s`, `5min` or `1h`, at most a day",
                text.get_ref().escape_debug()
            );
            (text.span().start, why)
        })?),
    };
    if let Some(text) = &retry_after
        && matches!(signal, Signal::Ok | Signal::UrlError)
    {
        let why = format!(
            "retry_after `{}`: the signal {} has no wait",
            text.get_ref().escape_debug(),
            signal.as_str()
        );
        return Err((text.span().start, why));
    }
    let retry_after = retry_after.map(|text| placed(&text, BodyWait::read));
    Ok(AnswerRule {
        line,
        statuses,
        headers,
        body,
        signal,
        hold,
        retry_after: retry_after.transpose()?,
        notify,
    })
}

/// Reads a text of the file. An error has its place.
fn placed<T>(
    text: &Spanned<String>,
    read: fn(&str) -> Result<T, String>,
) -> Result<T, (usize, String)> {
    read(text.get_ref()).map_err(|why| (text.span().start, why))
}

fn read_statuses(value: &toml::Value) -> Option<Vec<u16>> {
    let one = |value: &toml::Value| {
        let status = u16::try_from(value.as_integer()?).ok()?;
        (100..=999).contains(&status).then_some(status)
    };
    match value {
        toml::Value::Array(all) if !all.is_empty() => all.iter().map(one).collect(),
        value => Some(vec![one(value)?]),
    }
}

/// Compiles a pattern. The engine's time is linear in the text, whatever the pattern.
///
/// # Errors
/// The reason, which names the pattern.
pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .build();
    compiled.map_err(|why| {
        let why = match why {
            regex::Error::CompiledTooBig(_) => "it is too large; repeat less".to_owned(),
            why => {
                let text = why.to_string();
                let last = text.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_owned()
            }
        };
        let shown: String = text.chars().take(60).collect();
        format!("pattern `{}`: {why}", shown.escape_debug())
    })
}
