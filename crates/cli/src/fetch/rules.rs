//! The rules of `--policy` in a run.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use http::Method;
use politely::core::gate::HoldReason;
use politely::policy::{CLIENT, Caller, Rule, RuleBook, Ruling};
use politely::{AcquireRequest, Key, Report};
use url::Url;

use super::limits::Limits;
use crate::config::Settings;
use crate::exit::Wrong;

impl Limits {
    /// Returns what a request costs by the rule of its host, if the rule names costs.
    pub(super) fn ask_of(&self, key: &Key) -> Option<AcquireRequest> {
        let costs = &self.rule(key)?.costs;
        (!costs.is_empty()).then(|| AcquireRequest {
            cost: costs.requests(&Method::GET).unwrap_or(1),
            units: costs.units(&Method::GET),
            ..AcquireRequest::default()
        })
    }

    /// Returns the rule of a host's key.
    pub(crate) fn rule(&self, key: &Key) -> Option<&Rule> {
        let ruling = self.book.as_ref()?.of_key(key)?;
        Some(ruling.rule)
    }

    /// Returns whether a rule about answers reads bodies.
    pub(crate) fn reads_bodies(&self) -> bool {
        let book = self.book.as_ref();
        book.is_some_and(|book| book.first_with(Rule::reads_bodies).is_some())
    }

    /// Returns the rule of a page.
    pub(crate) fn rule_of(&self, url: &Url) -> Option<&Rule> {
        let key = Key::of_url(url).ok()?;
        let ruling = self.book.as_ref()?.of_url(url, &key)?;
        Some(ruling.rule)
    }

    /// Lets the first key of a request to `url` follow its rule, and adds the keys of the rule.
    pub(super) fn add_keys_of_rule(&self, keys: &mut Vec<Key>, url: &Url) {
        let Some(book) = &self.book else { return };
        let limiter = self.fleet.as_ref().unwrap_or(&self.limiter);
        let first = keys[0].clone();
        let ruling = book.of_url(url, &first);
        // If there is no room for a key, the request for a permit fails with that error.
        let _ = limiter.follow_rule(&first, ruling.map(Ruling::own));
        let Some(ruling) = ruling else { return };
        for (key, of_rule) in ruling.keys(&caller(url, &first)) {
            let _ = limiter.follow_rule(&key, Some(of_rule.follows()));
            self.added
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(key.clone());
            keys.push(key);
        }
    }

    /// Returns whether this is a key that a rule added.
    pub(super) fn is_added(&self, key: &Key) -> bool {
        let added = || self.added.read().unwrap_or_else(PoisonError::into_inner);
        self.book.is_some() && added().contains(key)
    }

    /// Holds the keys that a refusal of `url` affects by its rule, beside the page's own.
    pub(crate) fn hold_others(&self, url: &Url, report: &Report) {
        let Some(length) = self.book.as_ref().and(Rule::hold_of(report)) else {
            return;
        };
        let Ok(key) = Key::of_url(url) else { return };
        let ruling = self.book.as_ref().and_then(|book| book.of_url(url, &key));
        let caller = caller(url, &key);
        let keys = ruling.into_iter().flat_map(|ruling| ruling.keys(&caller));
        for (key, _) in keys.filter(|(_, of_rule)| of_rule.is_held) {
            self.hold(&key, length, HoldReason::RetryAfter);
        }
    }

    /// Holds `key` for a rule.
    pub(crate) fn hold(&self, key: &Key, length: Duration, reason: HoldReason) {
        let limiter = self.fleet.as_ref().unwrap_or(&self.limiter);
        // If there is no room for the key, it has no request to hold.
        let _ = limiter.hold(key, length, reason);
    }
}

/// Returns a page, as far as it fills the names of keys. All labels are filled already.
fn caller<'a>(url: &'a Url, key: &'a Key) -> Caller<'a> {
    Caller {
        url: Some(url),
        key,
        method: &Method::GET,
        labels: &|_| None,
    }
}

/// Reads the rules of `--policy`, and fills the labels of `--labels` and `--client` into them.
pub(super) fn read(file: &Path, settings: &Settings) -> Result<RuleBook, Wrong> {
    let book = crate::policy::read(file)?;
    let client = settings.client.as_deref().map(|name| (CLIENT, name));
    let labels = settings.labels.0.iter();
    let labels = labels.map(|(name, value)| (&**name, &**value));
    let book = book
        .with_labels(labels.chain(client))
        .map_err(|why| Wrong(format!("--client or --labels: {why}")))?;
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
    match book.with_path() {
        Some((line, pattern)) => Err(Wrong(format!(
            "{}:{line}: `{pattern}` has a path, which `fetch` does not support; use a host, or \
             `politely serve`",
            file.display()
        ))),
        None => match book.first_with(|rule| !rule.share.is_empty()) {
            Some(rule) => Err(Wrong(format!(
                "{}:{}: `share` divides a key between workers, and `fetch` is one; remove it, or \
                 use `politely serve`",
                file.display(),
                rule.line
            ))),
            None => Ok(book),
        },
    }
}
