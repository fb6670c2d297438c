//! Reads a policy file.

use std::collections::BTreeMap;
use std::sync::Arc;

use politely_core::budget::understood_as;
use politely_core::host::Spacing;
use politely_core::signal::ScopeName;
use serde::Deserialize;
use toml::Spanned;

use super::answer::WrittenAnswer;
use super::pattern::Pattern;
use super::rule_key::{RuleKey, WrittenKey};
use super::trouble::{
    BackoffSetting, BreakerSetting, JitterSetting, RetryBudgetSetting, TroubleSettings,
};
use super::{POLICY_MAX, Rule, RuleBook, answer, cost, rule_key, share, uncharged};

/// Why a policy is refused: the line, from 1, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct PolicyError {
    line: usize,
    why: String,
}

impl PolicyError {
    /// Returns the number of the wrong line, from 1.
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Returns the reason, on one line.
    pub fn why(&self) -> &str {
        &self.why
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    preset: Option<Preset>,
    #[serde(default)]
    rule: Vec<Spanned<WrittenRule>>,
}

/// The origin of a policy that plays a known API.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is for, on one line.
    pub about: String,
    /// The addresses of the pages that state the numbers.
    pub sources: Vec<String>,
    /// The month of those pages, for example `2025-06`.
    pub as_of: String,
    /// The headers in which the API states its quotas: `x-ratelimit`, `ratelimit`, `openai`,
    /// `anthropic` or `none`.
    pub headers: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    r#match: Vec<Spanned<String>>,
    account: Option<Spanned<String>>,
    scope: Option<Spanned<String>>,
    #[serde(default)]
    limits: Vec<Spanned<String>>,
    cost: Option<Spanned<BTreeMap<String, toml::Value>>>,
    learn: Option<Spanned<bool>>,
    spacing: Option<Spanned<String>>,
    share: Option<Spanned<BTreeMap<String, i64>>>,
    #[serde(default)]
    answer: Vec<Spanned<WrittenAnswer>>,
    #[serde(default)]
    resend: Vec<Spanned<String>>,
    block_share: Option<Spanned<f64>>,
    feedback: Option<Spanned<toml::Value>>,
    backoff: Option<BackoffSetting>,
    jitter: Option<JitterSetting>,
    retry_budget: Option<RetryBudgetSetting>,
    breaker: Option<BreakerSetting>,
    cut: Option<f64>,
    #[serde(default)]
    key: Vec<WrittenKey>,
}

impl std::str::FromStr for RuleBook {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        if text.len() > POLICY_MAX {
            let why = format!("the policy is longer than {POLICY_MAX} bytes");
            return Err(PolicyError { line: 1, why });
        }
        let lines = Lines::of(text);
        let file: File = toml::from_str(text).map_err(|error| PolicyError {
            line: lines.line(error.span().map_or(0, |span| span.start)),
            why: in_one_line(error.message()),
        })?;
        let mut book = Self {
            preset: file.preset,
            ..Self::default()
        };
        for rule in file.rule {
            book.read(rule, &lines)?;
        }
        Ok(book)
    }
}

impl RuleBook {
    fn read(&mut self, written: Spanned<WrittenRule>, lines: &Lines) -> Result<(), PolicyError> {
        let written_at = written.span().start;
        let line = lines.line(written_at);
        let written = written.into_inner();
        let wrong = |line, why| PolicyError { line, why };
        let placed = |(at, why)| wrong(lines.line(at), why);
        if written.r#match.is_empty() {
            let why = "`match` is empty; name a host, such as \"api.example.com\"";
            return Err(wrong(line, why.to_owned()));
        }
        let mut patterns = Vec::with_capacity(written.r#match.len());
        for text in &written.r#match {
            let pattern = Pattern::read(text.get_ref());
            patterns.push(pattern.map_err(|why| placed((text.span().start, why)))?);
        }
        let limits = rule_key::limits(&written.limits, written_at).map_err(placed)?;
        let of_keys = written.key.iter().flat_map(WrittenKey::limits);
        for text in written.limits.iter().chain(of_keys) {
            let at = lines.line(text.span().start);
            let understood = understood_as(text.get_ref());
            self.notes.extend(understood.map(|note| (at, note)));
        }
        if let Some(learn) = &written.learn
            && !learn.get_ref()
            && limits.is_empty()
        {
            let why = "`learn = false` needs `limits`; without them nothing would limit the key";
            return Err(placed((learn.span().start, why.to_owned())));
        }
        let learn = written.learn.as_ref().is_none_or(|learn| *learn.get_ref());
        let trouble = trouble(&written, learn).map_err(|why| wrong(line, why))?;
        let mut resend = Vec::new();
        for text in &written.resend {
            let method = cost::method(text.get_ref());
            let why = |why| format!("resend: {why}");
            resend.push(method.map_err(|wrong| placed((text.span().start, why(wrong))))?);
        }
        let block_share = written.block_share.as_ref().map(block_share);
        let account = written.account.as_ref();
        let account = account.map(|name| rule_key::template(name, "account"));
        let account = account.transpose().map_err(placed)?.map(|name| RuleKey {
            name,
            class: None,
            is_held: false,
            follows: Arc::default(),
        });
        let has_account = account.is_some();
        let scope = written.scope.as_ref().map(|text| scope(text, has_account));
        let mut keys = Vec::from_iter(account);
        keys.extend(rule_key::read(&written.key, learn).map_err(placed)?);
        rule_key::mark_held(written.feedback.as_ref(), has_account, &mut keys).map_err(placed)?;
        let answers = written.answer.into_iter().map(|written| {
            let line = lines.line(written.span().start);
            answer::read(written, line).map_err(placed)
        });
        let costs = written.cost.as_ref().map(cost::read).transpose();
        let share = written.share.as_ref().map(share::read).transpose();
        let r#match = &written.r#match;
        let rule = Rule {
            line,
            patterns: r#match.iter().map(|text| text.get_ref().clone()).collect(),
            keys,
            has_account,
            scope: scope.transpose().map_err(placed)?,
            limits,
            costs: costs.map_err(placed)?.unwrap_or_default(),
            learn,
            spacing: written
                .spacing
                .as_ref()
                .map(spacing)
                .transpose()
                .map_err(placed)?,
            share: share.map_err(placed)?.unwrap_or_default(),
            answers: answers.collect::<Result<_, _>>()?,
            resend,
            trouble,
            block_share: block_share.transpose().map_err(placed)?,
            own: Arc::default(),
        }
        .with_key_rules();
        for unit in rule.uncharged_units() {
            if !unit.is_stated() {
                return Err(wrong(line, uncharged(unit)));
            }
            let note = format!(
                "no `cost` of the rule charges the unit {unit}, so only requests that state it count"
            );
            self.notes.push((line, note));
        }
        self.note_keys(&rule).map_err(|why| wrong(line, why))?;
        let spans: Vec<usize> = r#match.iter().map(|text| text.span().start).collect();
        self.add(rule, patterns).map_err(|(at, known)| {
            let line = lines.line(spans.get(at).copied().unwrap_or_default());
            let text = r#match.get(at).map_or("", |text| text.get_ref());
            let why = format!("`{text}` is in the rule of line {known}, too; keep one of them");
            wrong(line, why)
        })
    }
}

fn trouble(written: &WrittenRule, learn: bool) -> Result<TroubleSettings, String> {
    let trouble = TroubleSettings {
        backoff: written.backoff,
        jitter: written.jitter,
        retry_budget: written.retry_budget,
        breaker: written.breaker,
        cut: written.cut,
    };
    trouble.check()?;
    if trouble.cut.is_some() && !learn {
        return Err("`cut` has no effect beside `learn = false`; leave one of them out".to_owned());
    }
    Ok(trouble)
}

fn block_share(share: &Spanned<f64>) -> Result<f64, (usize, String)> {
    let why = || "`block_share` must be from 0 to 1".to_owned();
    let is_share = (0.0..=1.0).contains(share.get_ref());
    (is_share.then_some(*share.get_ref())).ok_or_else(|| (share.span().start, why()))
}

fn scope(text: &Spanned<String>, has_account: bool) -> Result<ScopeName, (usize, String)> {
    let at = text.span().start;
    if !has_account {
        let why = "`scope` needs an `account`, which its quotas hold";
        return Err((at, why.to_owned()));
    }
    ScopeName::read(text.get_ref()).ok_or_else(|| {
        let shown: String = text.get_ref().chars().take(60).collect();
        let shown = shown.escape_debug();
        let why = format!("scope `{shown}`: use 1 to 64 letters, digits and `_`, `-`, `.` or `:`");
        (at, why)
    })
}

fn spacing(text: &Spanned<String>) -> Result<Spacing, (usize, String)> {
    let known = Spacing::ALL
        .into_iter()
        .find(|known| known.as_str() == text.get_ref());
    known.ok_or_else(|| {
        let shown = text.get_ref().escape_debug();
        let why = format!("unknown spacing `{shown}`; use fixed, uniform or exponential");
        (text.span().start, why)
    })
}

/// The places at which lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(ends.map(|(at, _)| at).collect())
    }

    /// Returns the number of the line at a place, from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

fn in_one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    lines.collect::<Vec<_>>().join("; ")
}
