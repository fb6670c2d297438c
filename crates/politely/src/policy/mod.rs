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

mod pattern;
mod read;

use std::collections::HashMap;

use politely_core::budget::DeclaredLimits;
use politely_core::key::Key;
use url::Url;

use pattern::{Path, Pattern};
pub use read::PolicyError;

/// The longest text of a policy: 64 MiB.
pub const POLICY_MAX: usize = 64 << 20;

/// The rules of a policy file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleBook {
    rules: Vec<Rule>,
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
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The line of the file on which it begins, from 1.
    pub line: usize,
    /// Its patterns, as they are written.
    pub patterns: Vec<String>,
    /// The key of the account that requests under this rule share, if there is one.
    pub account: Option<Key>,
    /// The limits of the account, or else of each key that the rule matches.
    pub limits: DeclaredLimits,
}

/// What the policy says about one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict<'a> {
    /// The rule that wins.
    pub rule: &'a Rule,
}

impl<'a> Verdict<'a> {
    /// Returns the limits of the request's own key.
    pub fn own_limits(self) -> Option<&'a DeclaredLimits> {
        let has_account = self.rule.account.is_some();
        Some(&self.rule.limits).filter(|limits| !has_account && !limits.is_empty())
    }

    /// Returns the account's key and its limits.
    pub fn account(self) -> Option<(&'a Key, &'a DeclaredLimits)> {
        Some((self.rule.account.as_ref()?, &self.rule.limits))
    }
}

impl RuleBook {
    /// Returns the rules in the order of the file.
    pub fn rules(&self) -> &[Rule] {
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

    /// Returns the rule that wins for a request of `url`, whose first key is `key`.
    pub fn of_url(&self, url: &Url, key: &Key) -> Option<Verdict<'_>> {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let by_path = || {
            let paths = self.paths.get(host)?;
            let found = paths.iter().find(|(path, _)| path.covers(url.path()));
            found.map(|(_, rule)| *rule)
        };
        let found = by_path().or_else(|| self.of_host(host));
        self.verdict(found.or_else(|| self.by_key(key)))
    }

    /// Returns the rule that wins for a request that names only its key.
    pub fn of_key(&self, key: &Key) -> Option<Verdict<'_>> {
        let name = key.as_str();
        let by_host = || {
            let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
            (!name.contains('/')).then(|| self.of_host(host)).flatten()
        };
        self.verdict(self.by_key(key).or_else(by_host).or(self.all))
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

    fn verdict(&self, rule: Option<usize>) -> Option<Verdict<'_>> {
        let rule = self.rules.get(rule?)?;
        Some(Verdict { rule })
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
        self.rules.push(rule);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
