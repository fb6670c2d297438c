//! Reads a policy file.

use politely_core::budget::{DeclaredLimit, DeclaredLimits};
use politely_core::key::Key;
use serde::Deserialize;
use toml::Spanned;

use super::pattern::Pattern;
use super::{POLICY_MAX, Rule, RuleBook};

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
    #[serde(default)]
    rule: Vec<Spanned<WrittenRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    r#match: Vec<Spanned<String>>,
    account: Option<Spanned<String>>,
    #[serde(default)]
    limits: Vec<Spanned<String>>,
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
        let mut book = Self::default();
        for rule in file.rule {
            book.read(rule, &lines)?;
        }
        Ok(book)
    }
}

impl RuleBook {
    fn read(&mut self, written: Spanned<WrittenRule>, lines: &Lines) -> Result<(), PolicyError> {
        let line = lines.line(written.span().start);
        let WrittenRule {
            r#match,
            account,
            limits,
        } = written.into_inner();
        let wrong = |line, why| PolicyError { line, why };
        if r#match.is_empty() {
            let why = "`match` is empty; name a host, such as \"api.example.com\"";
            return Err(wrong(line, why.to_owned()));
        }
        let mut patterns = Vec::with_capacity(r#match.len());
        for text in &r#match {
            let pattern = Pattern::read(text.get_ref());
            patterns.push(pattern.map_err(|why| wrong(lines.line(text.span().start), why))?);
        }
        let account = match account {
            None => None,
            Some(name) => {
                let at = lines.line(name.span().start);
                let key = Key::custom(name.get_ref());
                Some(key.map_err(|why| wrong(at, format!("account `{}`: {why}", name.get_ref())))?)
            }
        };
        let mut declared = Vec::with_capacity(limits.len());
        for text in &limits {
            let limit: Result<DeclaredLimit, _> = text.get_ref().parse();
            let at = lines.line(text.span().start);
            declared.push(limit.map_err(|why| wrong(at, why.to_string()))?);
        }
        let limits = DeclaredLimits::new(declared).map_err(|why| wrong(line, why.to_string()))?;
        let rule = Rule {
            line,
            patterns: r#match.iter().map(|text| text.get_ref().clone()).collect(),
            account,
            limits,
        };
        let spans: Vec<usize> = r#match.iter().map(|text| text.span().start).collect();
        self.add(rule, patterns).map_err(|(at, known)| {
            let line = lines.line(spans.get(at).copied().unwrap_or_default());
            let text = r#match.get(at).map_or("", |text| text.get_ref());
            let why = format!("`{text}` is in the rule of line {known}, too; keep one of them");
            wrong(line, why)
        })
    }
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
