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
//!
//! - [`RuleBook`] reads the file and finds the [`Rule`] of a URL or of a key.
//! - A [`Rule`] has limits, [costs](RuleCosts), [keys that it adds](RuleKey), [shares](Weights) and
//!   [meanings of answers](AnswerRule).
//! - [`differences`] compares two books.
//!
//! Nothing here counts or waits. To send requests under a policy, see `Builder::policy` of the
//! crate `politely`. The reference of the file is `docs/reference/policy.md`.

mod answer;
mod body_wait;
mod cost;
mod diff;
mod pattern;
mod read;
mod rule_key;
mod share;
mod template;
mod trouble;

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use politely_core::budget::{DeclaredLimits, LimitUnit, UnitName};
use politely_core::host::{KeyRule, Spacing, TroubleNumbers};
use politely_core::key::Key;
use politely_core::signal::{Alike, Outcome, Report, ScopeName, WallClock};
use url::Url;

pub use answer::AnswerRule;
pub use cost::RuleCosts;
pub use diff::differences;
use pattern::{Path, Pattern};
pub use read::{PolicyError, Preset};
pub use rule_key::{MethodClass, RULE_KEYS_MAX, RuleKey};
pub use share::{FairQueue, Weights};
pub use template::{CLIENT, Caller, KeyTemplate, is_label_value, may_bring};
pub use trouble::{
    BackoffSetting, BreakerSetting, JitterSetting, RetryBudgetSetting, TroubleSettings, of_flag,
};

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
    /// The rule and the settings of each key that rules add, by the name as it is written.
    added: HashMap<String, (usize, Arc<KeyRule>)>,
    /// The rule of `*`.
    all: Option<usize>,
    preset: Option<Preset>,
    /// What a reader should know, and on which line.
    notes: Vec<(usize, String)>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The line of the file on which it begins, from 1.
    pub line: usize,
    /// Its patterns, as they are written.
    pub patterns: Vec<String>,
    /// The keys that it adds to its requests. The account is the first, if there is one.
    pub keys: Vec<RuleKey>,
    /// Whether the first of `keys` is the account.
    has_account: bool,
    /// The part of the host whose stated quotas the account has.
    pub scope: Option<ScopeName>,
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
    /// How the request's own key and its retries meet trouble.
    pub trouble: TroubleSettings,
    /// The share of blocks among a key's answers that operators are told of, 0 to 1.
    pub block_share: Option<f64>,
    /// What the request's own key follows.
    own: Arc<KeyRule>,
}

/// Why labels are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The name is not usable.
    #[error("label `{0}`: use 1 to 32 lowercase letters, digits and `_`, but not `host` or `site`")]
    Name(String),
    /// The value of the label with this name is not usable.
    #[error("label `{0}`: its value must have 1 to 128 characters and no control characters")]
    Value(String),
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

    /// Returns the keys that the rule adds to a request of `caller`. The account is the first.
    pub fn keys<'c, 'l>(
        self,
        caller: &'c Caller<'l>,
    ) -> impl Iterator<Item = (Key, &'a RuleKey)> + use<'a, 'c, 'l> {
        let keys = self.rule.keys.iter();
        let keys = keys.filter(move |key| key.has(caller.method));
        keys.map(move |key| (key.name.fill(caller), key))
    }

    /// Returns the first key that needs a label which `caller` does not bring, and that label.
    pub fn missing_label(self, caller: &Caller<'_>) -> Option<(&'a KeyTemplate, &'a str)> {
        let keys = self.rule.keys.iter();
        let keys = keys.filter(|key| key.has(caller.method));
        let mut needed =
            keys.flat_map(|key| key.name.labels().map(move |label| (&key.name, label)));
        needed.find(|(_, label)| (caller.labels)(label).is_none())
    }
}

impl Rule {
    /// Returns the first rule about answers that fits, and gives its meaning to `report`.
    pub fn judge(
        &self,
        outcome: &Outcome<'_>,
        clock: WallClock,
        report: &mut Report,
    ) -> Option<&AnswerRule> {
        let answer = self.answers.iter().find(|answer| answer.fits(outcome))?;
        answer.judge(outcome, clock, report);
        report.alike = Alike::Nothing;
        Some(answer)
    }

    /// Returns the account.
    pub fn account(&self) -> Option<&RuleKey> {
        self.keys.first().filter(|_| self.has_account)
    }

    /// Returns the keys that a refusal holds. If there is none, it holds the request's own key.
    pub fn held(&self) -> impl Iterator<Item = &RuleKey> {
        self.keys.iter().filter(|key| key.is_held)
    }

    /// Returns the units of its limits that its costs do not charge.
    fn uncharged_units(&self) -> Vec<UnitName> {
        let of_keys = self
            .keys
            .iter()
            .filter_map(|key| key.follows.limits.as_ref());
        let limits = of_keys.chain([&self.limits]);
        let units = limits.flat_map(DeclaredLimits::windows);
        let mut uncharged = Vec::new();
        for limit in units {
            if let LimitUnit::Named(name) = limit.unit()
                && !self.costs.charge(name)
                && !uncharged.contains(&name)
            {
                uncharged.push(name);
            }
        }
        uncharged
    }

    /// Returns whether a refused request with this method is sent again.
    pub fn resends(&self, method: &Method) -> bool {
        self.resend.contains(method)
    }

    /// Returns whether a rule about answers reads the bodies of answers that are no error pages.
    pub fn needs_bodies(&self) -> bool {
        self.answers.iter().any(AnswerRule::needs_bodies)
    }

    /// Returns the first rule about answers that needs the body of an answer with `status`, which
    /// workers send only if they are asked for it.
    pub fn needs_body_of(&self, status: u16) -> Option<&AnswerRule> {
        let mut answers = self.answers.iter();
        answers.find(|answer| answer.needs_body_of(status))
    }

    /// Splits the settings between the account's key and the request's own.
    fn with_key_rules(mut self) -> Self {
        let limits = Some(self.limits.clone()).filter(|limits| !limits.is_empty());
        let own = KeyRule {
            learn: self.learn,
            trouble: self.trouble.of_key(),
            ..KeyRule::default()
        };
        let all = KeyRule {
            limits,
            spacing: self.spacing,
            ..own.clone()
        };
        if let Some(account) = self.keys.first_mut().filter(|_| self.has_account) {
            // The account is limited by its declared limits alone, whatever its hosts teach.
            let limits = all.limits.or(Some(DeclaredLimits::default()));
            // Outcomes go to the request's own key alone.
            let trouble = TroubleNumbers::default();
            account.follows = Arc::new(KeyRule {
                limits,
                trouble,
                ..all
            });
            self.own = Arc::new(own);
        } else {
            let pattern = self.patterns.first().map_or("", String::as_str);
            let limits = all.limits.map(|limits| limits.of_rule(pattern));
            self.own = Arc::new(KeyRule { limits, ..all });
        }
        self
    }
}

/// Returns why a limit of `unit` has no effect, and what to do.
fn uncharged(unit: UnitName) -> String {
    format!(
        "nothing charges the unit {unit}; charge it in a rule (`cost = {{ {unit} = 1 }}`, or 0 if \
         requests state it), or use requests, bytes or tokens"
    )
}

impl RuleBook {
    /// Returns the rules in the order of the file.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Checks that each of `limits` can be spent.
    ///
    /// # Errors
    /// No rule charges the unit of a limit, and requests do not state it.
    pub fn check_units(&self, limits: &DeclaredLimits) -> Result<(), String> {
        let charges = |name| self.rules.iter().any(|rule| rule.costs.charge(name));
        limits
            .windows()
            .iter()
            .try_for_each(|limit| match limit.unit() {
                LimitUnit::Named(name) if !name.is_stated() && !charges(name) => {
                    Err(format!("limit `{limit}`: {}", uncharged(name)))
                }
                _ => Ok(()),
            })
    }

    /// Returns whether a rule depends on the path of a request.
    pub fn has_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns what the author of the file should know, by line: limits in an unusual notation, and
    /// units that no request may ever cost.
    pub fn notes(&self) -> impl Iterator<Item = (usize, &str)> {
        self.notes.iter().map(|(line, note)| (*line, &**note))
    }

    /// Returns the origin of the policy, if it is a preset.
    pub const fn preset(&self) -> Option<&Preset> {
        self.preset.as_ref()
    }

    /// Returns the first rule that `has` the named field.
    pub fn first_with(&self, has: impl Fn(&Rule) -> bool) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| has(rule))
    }

    /// Fills the labels of this process into the names of keys.
    ///
    /// ```
    /// use politely_policy::RuleBook;
    ///
    /// let rules = "[[rule]]\nmatch = [\"*\"]\naccount = \"{token_name}\"\nlimits = [\"9/s\"]";
    /// let rules: RuleBook = rules.parse()?;
    /// assert_eq!(rules.missing_label(), Some((1, "token_name")));
    /// let rules = rules.with_labels([("token_name", "ci")])?;
    /// assert_eq!(rules.missing_label(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A name or a value is no label.
    pub fn with_labels<'a>(
        mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, LabelError> {
        let mut values = HashMap::new();
        for (name, value) in labels {
            if name != CLIENT && !may_bring(name) {
                return Err(LabelError::Name(name.escape_debug().to_string()));
            }
            if !is_label_value(value) {
                return Err(LabelError::Value(name.to_owned()));
            }
            values.insert(name.to_owned(), value.to_owned());
        }
        for rule in &mut self.rules {
            if rule
                .keys
                .iter()
                .any(|key| key.name.labels().next().is_some())
            {
                for key in &mut Arc::make_mut(rule).keys {
                    key.name = key.name.with_labels(&|name| values.get(name).cloned());
                }
            }
        }
        Ok(self)
    }

    /// Returns the line of the first rule with a key that needs a label, and the label.
    pub fn missing_label(&self) -> Option<(usize, &str)> {
        let mut keys =
            (self.rules.iter()).flat_map(|rule| rule.keys.iter().map(|key| (rule.line, key)));
        keys.find_map(|(line, key)| Some((line, key.name.labels().next()?)))
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

    /// Returns the rules that win for some request to the host of `url`.
    pub fn rulings_of_host(&self, url: &Url) -> impl Iterator<Item = Ruling<'_>> {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let of_paths = self.paths.get(host).into_iter().flatten();
        let of_paths = of_paths.map(|(_, rule)| *rule);
        of_paths
            .chain(self.of_host(host))
            .filter_map(|rule| self.ruling(Some(rule)))
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
        self.rules.push(Arc::new(rule));
        Ok(())
    }

    /// Notes the keys that a rule adds.
    ///
    /// # Errors
    /// A key has other settings in an earlier rule.
    fn note_keys(&mut self, rule: &Rule) -> Result<(), String> {
        for key in &rule.keys {
            let name = key.name.to_string();
            match self.added.get(&name) {
                Some((line, known)) if *known != key.follows => {
                    return Err(format!(
                        "`{name}` has other limits in the rule of line {line}; make them equal, \
                         or rename one of the keys"
                    ));
                }
                Some(_) => {}
                None => {
                    _ = self
                        .added
                        .insert(name, (rule.line, Arc::clone(&key.follows)));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
