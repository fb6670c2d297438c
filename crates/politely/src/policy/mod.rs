//! The operator's rules: which limits a URL or a key has, from one TOML file.
//!
//! ```toml
//! [[rule]]
//! match   = ["api.example.com", "*.example.org"]
//! account = "example"
//! limits  = ["10/s", "1000/day@UTC", "100 concurrent"]
//! ```
//!
//! The most specific rule wins. Two rules with the same pattern are an error that names both lines.

mod answer;
mod cost;
mod diff;
mod pattern;
mod read;
mod share;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use politely_core::budget::DeclaredLimits;
use politely_core::host::{KeyRule, Spacing};
use politely_core::key::Key;
use politely_core::signal::{Outcome, Report, Signal};
use url::Url;

pub use answer::AnswerRule;
pub use cost::RuleCosts;
pub use diff::differences;
use pattern::{Path, Pattern};
pub use read::{PolicyError, Preset};
pub use share::{FairQueue, Weights};

/// The longest text of a policy: 64 MiB.
pub const POLICY_MAX: usize = 64 << 20;

/// The rules of a policy file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleBook {
    rules: Vec<Arc<Rule>>,
    hosts: HashMap<String, usize>,
    /// Rules of `*.suffix`, by suffix.
    suffixes: HashMap<String, usize>,
    /// Rules of `site:example.com`, by site.
    sites: HashMap<String, usize>,
    /// Rules of a host and a path, most specific first, by host.
    paths: HashMap<String, Vec<(Path, usize)>>,
    /// Rules of keys: `custom/team-7` or, with a star, `custom/*`.
    keys: HashMap<String, usize>,
    prefixes: HashMap<String, usize>,
    /// The rule of `*`.
    all: Option<usize>,
    preset: Option<Preset>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The line of the file on which it begins, from 1.
    pub line: usize,
    /// Its patterns, as they are written.
    pub patterns: Vec<String>,
    /// The key of the account that requests under this rule share, if there is one.
    pub account: Option<Key>,
    /// The limits of the account, or else of each key that the rule matches.
    pub limits: DeclaredLimits,
    /// The costs of a request in named units, if it states none.
    pub costs: RuleCosts,
    /// Whether the law learns from the outcomes.
    pub learn: bool,
    /// The gaps between departures.
    pub spacing: Option<Spacing>,
    /// The weights of groups of consumers.
    pub share: Weights,
    /// What answers mean. The first that fits counts.
    pub answers: Vec<AnswerRule>,
    /// Methods whose requests are sent again after a refusal, although they are not safe.
    pub resend: Vec<Method>,
    /// Whether a refusal that names a wait holds the account, and not only the request's own key.
    pub holds_account: bool,
    /// The share of blocks among a key's answers that operators are told of, 0 to 1.
    pub block_share: Option<f64>,
    /// What the request's own key follows.
    own: Arc<KeyRule>,
    /// What the account's key follows.
    of_account: Option<Arc<KeyRule>>,
}

/// What the policy says about one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ruling<'a> {
    /// The rule that wins.
    pub rule: &'a Arc<Rule>,
}

impl<'a> Ruling<'a> {
    /// Returns what the request's own key follows.
    pub fn own(self) -> &'a Arc<KeyRule> {
        &self.rule.own
    }

    /// Returns the account's key, and what it follows.
    pub fn account(self) -> Option<(&'a Key, &'a Arc<KeyRule>)> {
        Some((self.rule.account.as_ref()?, self.rule.of_account.as_ref()?))
    }
}

impl Rule {
    /// Returns the first rule about answers that fits, and gives its meaning to `report`.
    pub fn judge(&self, outcome: &Outcome<'_>, report: &mut Report) -> Option<&AnswerRule> {
        let answer = self.answers.iter().find(|answer| answer.fits(outcome))?;
        answer.judge(report);
        Some(answer)
    }

    /// Returns the account that an answer holds, and how long.
    pub fn account_hold(&self, report: &Report) -> Option<(&Key, Duration)> {
        let account = self.account.as_ref().filter(|_| self.holds_account)?;
        let is_refused = report.signal == Signal::RateLimited;
        let wait = report
            .retry_after
            .filter(|wait| is_refused && !wait.is_zero())?;
        Some((account, wait))
    }

    /// Returns whether a refused request with this method is sent again.
    pub fn resends(&self, method: &Method) -> bool {
        self.resend.contains(method)
    }

    /// Returns whether a rule about answers reads bodies.
    pub fn reads_bodies(&self) -> bool {
        self.answers.iter().any(AnswerRule::reads_body)
    }

    /// Splits the settings between the account's key and the request's own.
    fn with_key_rules(mut self) -> Self {
        let limits = Some(self.limits.clone()).filter(|limits| !limits.is_empty());
        let own = KeyRule {
            learn: self.learn,
            ..KeyRule::default()
        };
        let all = KeyRule {
            limits,
            spacing: self.spacing,
            ..own.clone()
        };
        if self.account.is_some() {
            // The account is limited by its declared limits alone, whatever its hosts teach.
            let limits = all.limits.or(Some(DeclaredLimits::default()));
            self.of_account = Some(Arc::new(KeyRule { limits, ..all }));
            self.own = Arc::new(own);
        } else {
            self.own = Arc::new(all);
        }
        self
    }
}

impl RuleBook {
    /// Returns the rules in the order of the file.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Returns the line and the text of the first pattern that has a path.
    pub fn with_path(&self) -> Option<(usize, &str)> {
        let rules = self.paths.values().flatten().map(|(_, rule)| *rule);
        let rule = self.rules.get(rules.min()?)?;
        let is_path = |text: &&String| matches!(Pattern::read(text), Ok(Pattern::Path(..)));
        let pattern = rule.patterns.iter().find(is_path)?;
        Some((rule.line, pattern))
    }

    /// Returns the origin of the policy, if it is a preset.
    pub const fn preset(&self) -> Option<&Preset> {
        self.preset.as_ref()
    }

    /// Returns the first rule that `has` the named field.
    pub fn first_with(&self, has: impl Fn(&Rule) -> bool) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| has(rule))
    }

    /// Returns the rule that wins for a request of `url`, whose first key is `key`.
    pub fn of_url(&self, url: &Url, key: &Key) -> Option<Ruling<'_>> {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let by_path = || {
            let paths = self.paths.get(host)?;
            let found = paths.iter().find(|(path, _)| path.covers(url.path()));
            found.map(|(_, rule)| *rule)
        };
        let found = by_path().or_else(|| self.of_host(host));
        self.ruling(found.or_else(|| self.by_key(key)))
    }

    /// Returns the rule that wins for a request that names only its key.
    pub fn of_key(&self, key: &Key) -> Option<Ruling<'_>> {
        let name = key.as_str();
        let by_host = || {
            let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
            (!name.contains('/')).then(|| self.of_host(host)).flatten()
        };
        self.ruling(self.by_key(key).or_else(by_host).or(self.all))
    }

    fn of_host(&self, host: &str) -> Option<usize> {
        if let Some(rule) = self.hosts.get(host) {
            return Some(*rule);
        }
        let mut rest = host;
        while let Some((_, suffix)) = rest.split_once('.') {
            if let Some(rule) = self.suffixes.get(suffix) {
                return Some(*rule);
            }
            rest = suffix;
        }
        if self.sites.is_empty() {
            return self.all;
        }
        let site = Key::site(host).ok();
        let site = site
            .as_ref()
            .and_then(|site| site.as_str().strip_prefix("site/"));
        site.and_then(|site| self.sites.get(site).copied())
            .or(self.all)
    }

    fn by_key(&self, key: &Key) -> Option<usize> {
        let name = key.as_str();
        if let Some(rule) = self.keys.get(name) {
            return Some(*rule);
        }
        if self.prefixes.is_empty() {
            return None;
        }
        let ends = (0..=name.len()).rev();
        let mut prefixes = ends.filter_map(|end| self.prefixes.get(name.get(..end)?));
        prefixes.next().copied()
    }

    fn ruling(&self, rule: Option<usize>) -> Option<Ruling<'_>> {
        let rule = self.rules.get(rule?)?;
        Some(Ruling { rule })
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// The index of a pattern that another rule has, and the line of that rule.
    fn add(&mut self, rule: Rule, patterns: Vec<Pattern>) -> Result<(), (usize, usize)> {
        let at = self.rules.len();
        for (i, pattern) in patterns.into_iter().enumerate() {
            let known = match pattern {
                Pattern::Host(host) => self.hosts.insert(host, at),
                Pattern::Suffix(suffix) => self.suffixes.insert(suffix, at),
                Pattern::Site(site) => self.sites.insert(site, at),
                Pattern::Key(key) => self.keys.insert(key, at),
                Pattern::Prefix(prefix) => self.prefixes.insert(prefix, at),
                Pattern::All => self.all.replace(at),
                Pattern::Path(host, path) => {
                    let paths = self.paths.entry(host).or_default();
                    let place = paths.partition_point(|(other, _)| *other < path);
                    match paths.get(place) {
                        Some((other, known)) if *other == path => Some(*known),
                        _ => {
                            paths.insert(place, (path, at));
                            None
                        }
                    }
                }
            };
            if let Some(known) = known {
                let line = self.rules.get(known).map_or(rule.line, |known| known.line);
                return Err((i, line));
            }
        }
        self.rules.push(Arc::new(rule.with_key_rules()));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
