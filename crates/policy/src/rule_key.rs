//! The keys that a rule adds to its requests: an account, a consumer, a class of methods.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use http::Method;
use politely_core::budget::{DeclaredLimit, DeclaredLimits};
use politely_core::host::KeyRule;
use serde::Deserialize;
use toml::Spanned;

use super::template::KeyTemplate;

/// The most keys of a rule, its account included. Each takes a lease of every request.
pub const RULE_KEYS_MAX: usize = 4;
/// The most keys of a rule beside its account.
const KEYS_MAX: usize = RULE_KEYS_MAX - 1;
/// The name of the account among the keys that `feedback` names.
const ACCOUNT: &str = "account";

/// A key that a rule adds to its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleKey {
    /// Its name.
    pub name: KeyTemplate,
    /// The methods of the requests that it is added to. `None` means all.
    pub class: Option<MethodClass>,
    /// Whether a refusal holds it, in place of the request's own key.
    pub is_held: bool,
    /// What the key follows.
    pub(super) follows: Arc<KeyRule>,
}

/// A class of methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodClass {
    /// GET and HEAD.
    Read,
    /// All other methods.
    Write,
}

impl MethodClass {
    const ALL: [Self; 2] = [Self::Read, Self::Write];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    fn has(self, method: &Method) -> bool {
        matches!(*method, Method::GET | Method::HEAD) == (self == Self::Read)
    }
}

impl RuleKey {
    /// Returns what the key follows.
    pub const fn follows(&self) -> &Arc<KeyRule> {
        &self.follows
    }

    pub(super) fn has(&self, method: &Method) -> bool {
        self.class.is_none_or(|class| class.has(method))
    }
}

/// Writes the key's name and limits.
impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match self.follows.limits.as_ref() {
            Some(limits) if !limits.is_empty() => limits.fmt(f)?,
            _ => f.write_str("no limits")?,
        }
        if let Some(class) = self.class {
            write!(f, ", {} requests", class.as_str())?;
        }
        if self.is_held {
            f.write_str(", held by a refusal")?;
        }
        Ok(())
    }
}

/// A `[[rule.key]]` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKey {
    name: Spanned<String>,
    limits: Spanned<Vec<Spanned<String>>>,
    class: Option<Spanned<String>>,
}

impl WrittenKey {
    pub(super) fn limits(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.limits.get_ref().iter()
    }
}

/// Reads the keys of a rule beside its account.
///
/// # Errors
/// The place in the file, and what is wrong there.
pub(super) fn read(written: &[WrittenKey], learn: bool) -> Result<Vec<RuleKey>, (usize, String)> {
    if let Some(last) = written.get(KEYS_MAX) {
        let why = format!("more than {KEYS_MAX} keys; remove some");
        return Err((last.name.span().start, why));
    }
    let mut keys: Vec<RuleKey> = Vec::with_capacity(written.len());
    for written in written {
        let name = template(&written.name, "name")?;
        if keys.iter().any(|known| known.name == name) {
            let why = format!(
                "the rule has two keys `{}`; rename one",
                written.name.get_ref()
            );
            return Err((written.name.span().start, why));
        }
        let limits = limits(written.limits.get_ref(), written.limits.span().start)?;
        if limits.is_empty() {
            let why = "`limits` is empty; a key without limits changes nothing".to_owned();
            return Err((written.limits.span().start, why));
        }
        let class = written.class.as_ref().map(class).transpose()?;
        let follows = Arc::new(KeyRule {
            learn,
            ..limits.into()
        });
        keys.push(RuleKey {
            name,
            class,
            is_held: false,
            follows,
        });
    }
    Ok(keys)
}

/// Reads the name of a key. `field` is where it is written.
pub(super) fn template(
    text: &Spanned<String>,
    field: &str,
) -> Result<KeyTemplate, (usize, String)> {
    KeyTemplate::read(text.get_ref()).map_err(|why| {
        let shown: String = text.get_ref().chars().take(60).collect();
        let why = format!("{field} `{}`: {why}", shown.escape_debug());
        (text.span().start, why)
    })
}

/// Reads a list of limits. `at` is its place.
pub(super) fn limits(
    texts: &[Spanned<String>],
    at: usize,
) -> Result<DeclaredLimits, (usize, String)> {
    let mut declared = Vec::with_capacity(texts.len());
    for text in texts {
        let limit: Result<DeclaredLimit, _> = text.get_ref().parse();
        declared.push(limit.map_err(|why| (text.span().start, why.to_string()))?);
    }
    DeclaredLimits::new(declared).map_err(|why| (at, why.to_string()))
}

fn class(text: &Spanned<String>) -> Result<MethodClass, (usize, String)> {
    let mut known = MethodClass::ALL.into_iter();
    let found = known.find(|known| known.as_str() == text.get_ref());
    found.ok_or_else(|| {
        let shown = text.get_ref().escape_debug();
        let why = format!("unknown class `{shown}`; use read (GET and HEAD) or write (all others)");
        (text.span().start, why)
    })
}

/// Marks the keys that a refusal holds: those that `feedback` names, one or a list. Without it, an
/// account with places of labels, since other callers of the host have other accounts. The account
/// is the first of `keys` if `has_account`.
///
/// # Errors
/// The place and a description of the mistake.
pub(super) fn mark_held(
    feedback: Option<&Spanned<toml::Value>>,
    has_account: bool,
    keys: &mut [RuleKey],
) -> Result<(), (usize, String)> {
    let Some(feedback) = feedback else {
        if let Some(account) = keys.first_mut().filter(|_| has_account) {
            account.is_held = account.name.labels().next().is_some();
        }
        return Ok(());
    };
    named_keys(feedback.get_ref(), has_account, keys).map_err(|why| (feedback.span().start, why))
}

fn named_keys(
    feedback: &toml::Value,
    has_account: bool,
    keys: &mut [RuleKey],
) -> Result<(), String> {
    let names = match feedback {
        toml::Value::Array(names) => names.iter().map(toml::Value::as_str).collect(),
        name => name.as_str().map(|name| vec![name]),
    };
    let names: Vec<&str> = names.ok_or("`feedback` is the name of a key, or a list of names")?;
    for name in names {
        let is_account = name == ACCOUNT && has_account;
        let custom = format!("custom/{name}");
        let is_named = |key: &RuleKey| key.name.to_string() == custom;
        let key = if is_account {
            keys.first_mut()
        } else {
            keys.iter_mut().find(|key| is_named(key))
        };
        let Some(key) = key else {
            let mut known = String::new();
            for (i, key) in keys.iter().enumerate() {
                let name = key.name.to_string();
                let name = name.trim_start_matches("custom/");
                let name = if i == 0 && has_account { ACCOUNT } else { name };
                // Writing to a `String` cannot fail.
                _ = write!(known, "{}\"{name}\"", if i > 0 { ", " } else { "" });
            }
            if known.is_empty() {
                known.push_str("an `account` or a [[rule.key]], of which the rule has none");
            }
            let shown: String = name.chars().take(60).collect();
            let shown = shown.escape_debug();
            return Err(format!(
                "feedback `{shown}` is no key of this rule; name {known}"
            ));
        };
        key.is_held = true;
    }
    Ok(())
}
