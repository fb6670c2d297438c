//! A request under the limiter's policy: its keys, its cost, and the meaning of its answer.

#![cfg_attr(
    not(feature = "policy"),
    allow(clippy::unused_self, reason = "the same calls as with a policy")
)]
#![cfg_attr(
    not(any(feature = "tower", feature = "reqwest")),
    allow(dead_code, reason = "the HTTP layers call it")
)]

use std::time::Duration;

use http::Method;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use politely_core::signal::{Outcome, Report};
#[cfg(any(feature = "policy", feature = "tower", feature = "reqwest"))]
use url::Url;

#[cfg(any(feature = "policy", feature = "tower", feature = "reqwest"))]
use super::Limiter;
#[cfg(feature = "policy")]
use {
    super::Builder,
    crate::policy::{Caller, PolicyError, Rule, RuleBook, Ruling},
    std::sync::Arc,
};

/// A request and the rule that it falls under.
#[derive(Debug)]
pub(crate) struct Ruled {
    /// The request's keys, and those that the rule adds.
    pub(crate) keys: Vec<Key>,
    pub(crate) ask: AcquireRequest,
    /// The keys that a refusal holds beside the first.
    #[cfg(feature = "policy")]
    held: Vec<Key>,
    #[cfg(feature = "policy")]
    rule: Option<Arc<Rule>>,
}

#[cfg(all(not(feature = "policy"), any(feature = "tower", feature = "reqwest")))]
impl Limiter {
    pub(crate) fn ruled(&self, _: Option<&Url>, _: &Method, keys: Vec<Key>) -> Ruled {
        let ask = AcquireRequest::default();
        Ruled { keys, ask }
    }
}

#[cfg(feature = "policy")]
impl Ruled {
    /// Returns `ask` with the costs of the rule, for those that it does not state.
    pub(crate) fn costing(&self, mut ask: AcquireRequest) -> AcquireRequest {
        if ask.cost <= 1 {
            ask.cost = self.ask.cost;
        }
        ask.units = ask.units.or(&self.ask.units);
        ask
    }
}

#[cfg(not(feature = "policy"))]
impl Ruled {
    pub(crate) fn judge(&self, _: &Outcome<'_>, _: &mut Report) -> Option<Duration> {
        None
    }

    pub(crate) fn held(&self, _: &Report) -> (&[Key], Duration) {
        (&[], Duration::ZERO)
    }

    pub(crate) fn reads_bodies(&self) -> bool {
        false
    }

    pub(crate) fn resends(&self, _: &Method) -> bool {
        false
    }
}

#[cfg(feature = "policy")]
impl Builder {
    /// Sets the rules of limits.
    ///
    /// The tower layer and the reqwest middleware apply a rule whole: its account, costs and rules
    /// about answers. [`Limiter::acquire`] knows only keys, so paths do not apply there.
    ///
    /// ```
    /// # #[cfg(feature = "policy")] {
    /// use politely::Limiter;
    ///
    /// let rules = "[[rule]]\nmatch = [\"api.example.com\"]\nlimits = [\"1000/h\"]";
    /// let limiter = Limiter::builder().policy(rules.parse()?)?.build()?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A rule has shares, which divide a key between the workers of a coordinator. Or the key of a
    /// rule needs a label: [`RuleBook::with_labels`] fills it.
    pub fn policy(mut self, rules: RuleBook) -> Result<Self, PolicyError> {
        if let Some(rule) = rules.first_with(|rule| !rule.share.is_empty()) {
            return Err(PolicyError::shares_need_a_coordinator(rule.line));
        }
        if let Some((line, label)) = rules.missing_label() {
            return Err(PolicyError::label_is_missing(line, label));
        }
        self.policy = Some(Arc::new(rules));
        Ok(self)
    }
}

#[cfg(feature = "policy")]
impl Limiter {
    /// Returns the request under its rule, and lets its keys follow the rule.
    pub(crate) fn ruled(&self, url: Option<&Url>, method: &Method, mut keys: Vec<Key>) -> Ruled {
        let mut ask = AcquireRequest::default();
        let (mut rule, mut held) = (None, Vec::new());
        if let (Some(book), Some(key)) = (&self.0.policy, keys.first()) {
            let ruling = match url {
                Some(url) => book.of_url(url, key),
                None => book.of_key(key),
            };
            // If there is no room for a key, the request for a permit fails with that error.
            let _ = self.follow_rule(key, ruling.map(Ruling::own));
            let caller = Caller {
                url,
                key,
                method,
                labels: &|_| None,
            };
            let added = ruling.into_iter().flat_map(|ruling| ruling.keys(&caller));
            let added: Vec<_> = added.collect();
            for (key, of_rule) in added {
                let _ = self.follow_rule(&key, Some(of_rule.follows()));
                if of_rule.is_held {
                    held.push(key.clone());
                }
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            rule = ruling.map(|ruling| Arc::clone(ruling.rule));
        }
        if let Some(rule) = &rule {
            ask.cost = rule.costs.requests(method).unwrap_or(1);
            ask.units = rule.costs.units(method);
        }
        Ruled {
            keys,
            ask,
            held,
            rule,
        }
    }
}

#[cfg(feature = "policy")]
impl Ruled {
    /// Gives `report` the meaning of the rule about answers that fits. Returns how long the key is
    /// held.
    pub(crate) fn judge(&self, outcome: &Outcome<'_>, report: &mut Report) -> Option<Duration> {
        let answer = self.rule.as_ref()?.judge(outcome, report)?;
        if answer.notify {
            let (key, line, signal) = (&self.keys[0], answer.line, answer.signal.as_str());
            tracing::warn!(%key, line, signal, status = report.status, "an answer fits a rule");
        }
        answer.hold
    }

    /// Returns the keys that an answer holds beside the first, and how long.
    pub(crate) fn held(&self, report: &Report) -> (&[Key], Duration) {
        match Rule::hold_of(report) {
            Some(length) => (&self.held, length),
            None => (&[], Duration::ZERO),
        }
    }

    /// Returns whether a rule about answers reads the body.
    pub(crate) fn reads_bodies(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.reads_bodies())
    }

    /// Returns whether a refused request is sent again, whatever its method.
    pub(crate) fn resends(&self, method: &Method) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.resends(method))
    }
}
