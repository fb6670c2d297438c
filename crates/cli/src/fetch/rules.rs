//! The rules of `--policy` in a run.

use std::path::Path;
use std::time::Duration;

use politely::core::gate::HoldReason;
use politely::policy::{CLIENT, Rule, RuleBook};
use politely::{Key, MissingLabel, Plan, Report, RequestView};
use url::Url;

use super::lanes::{Lane, Refused};
use super::limits::Limits;
use crate::config::Settings;
use crate::exit::Wrong;

impl Limits {
    /// Returns whether a rule about answers reads the bodies of answers that are no error pages.
    pub(crate) fn needs_bodies(&self) -> bool {
        let book = self.limiter.policy();
        book.is_some_and(|book| book.first_with(Rule::needs_bodies).is_some())
    }

    /// Returns whether the limits of a request depend on its page.
    pub(crate) fn depend_on_pages(&self) -> bool {
        self.limiter.policy().is_some_and(|book| book.has_paths())
    }

    /// Returns what the policy says about the next request of `lane`, whose first key is `key`.
    /// Returns `None` if its limits are those of its keys.
    pub(super) fn plan(&self, lane: &Lane, key: &Key) -> Result<Option<Plan>, Refused> {
        if !self.limiter.has_policy() && !lane.by_page {
            return Ok(None);
        }
        let url = lane.next_url().or_else(|| Url::parse(&lane.origin).ok());
        let plan = self.plan_of(url.as_ref(), key);
        let plan = plan.map_err(|missing| Refused::SetAside(missing.to_string()))?;
        Ok(Some(plan))
    }

    fn plan_of(&self, url: Option<&Url>, key: &Key) -> Result<Plan, MissingLabel> {
        self.limiter.plan(RequestView {
            keys: vec![key.clone()],
            url,
            method: &self.method,
            // The labels of this process are filled in already.
            labels: &|_| None,
        })
    }

    /// Holds what the answer to `url` is about, if that is not the whole host, and takes it out of
    /// `report`. Returns the keys that are held.
    pub(crate) fn hear_scope(&self, url: &Url, key: &Key, report: &mut Report) -> Vec<Key> {
        // The plan of a permit may be one of its host alone.
        let plan = self.plan_of(Some(url), key).ok();
        plan.map_or_else(Vec::new, |plan| self.limiter.hear_scope(&plan, report))
    }

    /// Returns the keys that rules may add to the requests of `lane`.
    pub(crate) fn keys_of_rules(&self, lane: &Lane) -> Vec<Key> {
        match (lane.keys.first(), Url::parse(&lane.origin)) {
            (Some(keys), Ok(url)) => self.limiter.keys_of_rules(&url, &keys[0]),
            _ => Vec::new(),
        }
    }

    /// Holds `key` for a rule.
    pub(crate) fn hold(&self, key: &Key, length: Duration, reason: HoldReason) {
        // If there is no room for the key, it has no request to hold.
        let _ = self.limiter.hold(key, length, reason);
    }
}

/// Reads the rules of `--policy`, and fills the labels of `--labels` and `--client` into them.
pub(super) fn read(file: &Path, settings: &Settings) -> Result<RuleBook, Wrong> {
    let book = labelled(read_some(file)?, settings)?;
    if let Some((line, label)) = book.missing_label() {
        let flag = match label {
            CLIENT => "--client NAME".to_owned(),
            label => format!("--labels {label}=VALUE"),
        };
        let file = file.display();
        return Err(Wrong(format!(
            "{file}:{line}: a key of the rule needs `{{{label}}}`; set it with {flag}"
        )));
    }
    Ok(book)
}

/// Reads a policy that has a rule.
pub(crate) fn read_some(file: &Path) -> Result<RuleBook, Wrong> {
    let book = crate::policy::read(file)?;
    if book.rules().is_empty() {
        let file = file.display();
        return Err(Wrong(format!(
            "{file}: the policy has no rule; add one, or leave --policy out"
        )));
    }
    Ok(book)
}

/// Fills the labels of `--labels` and `--client` into the rules.
pub(crate) fn labelled(book: RuleBook, settings: &Settings) -> Result<RuleBook, Wrong> {
    let client = settings.client.as_deref().map(|name| (CLIENT, name));
    let labels = settings.labels.0.iter();
    let labels = labels.map(|(name, value)| (&**name, &**value));
    book.with_labels(labels.chain(client))
        .map_err(|why| Wrong(format!("--client or --labels: {why}")))
}
