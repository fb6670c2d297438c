//! The rules of `--policy` in a run.

use std::path::Path;
use std::time::Duration;

use http::Method;
use politely::core::gate::HoldReason;
use politely::policy::{Rule, RuleBook};
use politely::{Ask, Key};
use url::Url;

use super::limits::Limits;
use crate::exit::Wrong;

impl Limits {
    /// Returns what a request costs by the rule of its host, if the rule names costs.
    pub(super) fn ask_of(&self, key: &Key) -> Option<Ask> {
        let costs = &self.rule(key)?.costs;
        (!costs.is_empty()).then(|| Ask {
            cost: costs.requests(&Method::GET).unwrap_or(1),
            units: costs.units(&Method::GET),
            ..Ask::default()
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

    /// Holds `key` for a rule.
    pub(crate) fn hold(&self, key: &Key, length: Duration, reason: HoldReason) {
        let limiter = self.fleet.as_ref().unwrap_or(&self.limiter);
        // If there is no room for the key, it has no request to hold.
        let _ = limiter.hold(key, length, reason);
    }
}

/// Reads the rules of `--policy`.
pub(super) fn read(file: &Path) -> Result<RuleBook, Wrong> {
    let book = crate::policy::read(file)?;
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
