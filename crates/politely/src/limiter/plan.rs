//! A request under the limiter's policy: its keys, its cost, its group, and the meaning of its
//! answer.
//!
//! The policy is applied here only, for the layers, for `politely fetch` and for the coordinator.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use politely_core::retry::Policy;
use politely_core::signal::{Outcome, Report, Scope, WallClock};
use url::Url;

use super::scopes::Route;
use super::share::Share;
use super::{Builder, Limiter};
use crate::error::{Keys, MissingLabel};
use crate::policy::{AnswerRule, Caller, Rule, RuleBook, Ruling};

/// The parts of a request that a policy reads.
#[derive(Clone)]
pub struct RequestView<'a> {
    /// The keys of the request. The first learns from the outcome.
    pub keys: Vec<Key>,
    /// The URL. Without it, rules about paths do not apply.
    pub url: Option<&'a Url>,
    /// The method.
    pub method: &'a Method,
    /// Returns the value of a label.
    pub labels: &'a dyn Fn(&str) -> Option<&'a str>,
}

/// What the policy says about one request.
#[derive(Clone, Debug)]
pub struct Plan {
    keys: Vec<Key>,
    ask: AcquireRequest,
    ruled: Option<Ruled>,
    route: Option<Route>,
}

/// The rule of a request, and the keys that it added.
#[derive(Clone, Debug)]
struct Ruled {
    rule: Arc<Rule>,
    account: Option<Key>,
    /// The keys that a refusal holds in place of the first.
    held: Vec<Key>,
    /// The keys that the labels of the caller select. Other callers have others.
    of_caller: Vec<Key>,
}

impl RequestView<'_> {
    /// Returns a GET of which only the keys are known.
    pub(super) const fn of_keys(keys: Vec<Key>) -> Self {
        Self {
            keys,
            url: None,
            method: &Method::GET,
            labels: &|_| None,
        }
    }
}

impl Plan {
    /// Returns the keys of the request, then those that its rules add, and then that of a part of
    /// the host whose quota is spent. Acquire a permit for them: the policy is not applied a second
    /// time.
    pub fn keys(&self) -> Keys<'_> {
        Keys::planned(&self.keys)
    }

    pub(super) fn into_keys(self) -> Vec<Key> {
        self.keys
    }

    /// Returns the key that learns from the outcome.
    ///
    /// # Panics
    /// If the request had no key.
    pub fn key(&self) -> &Key {
        &self.keys[0]
    }

    /// Returns the account of the request, or else its own key.
    pub(super) fn owner(&self) -> &Key {
        self.account().unwrap_or_else(|| self.key())
    }

    fn account(&self) -> Option<&Key> {
        self.ruled.as_ref()?.account.as_ref()
    }

    /// Returns the account, if the rule says that it has the quotas of `scope`.
    pub(super) fn account_of(&self, scope: &Scope) -> Option<&Key> {
        let of_rule = self.rule()?.scope.as_ref()?;
        self.account().filter(|_| of_rule == scope.name())
    }

    /// Returns the account, if the labels of the caller select it.
    pub(super) fn account_of_caller(&self) -> Option<&Key> {
        let account = self.account()?;
        self.keys_of_caller().contains(account).then_some(account)
    }

    pub(super) const fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// Returns the costs of the request by its rule.
    pub const fn ask(&self) -> &AcquireRequest {
        &self.ask
    }

    /// Returns `ask` with the costs of the rule, for those that it does not state.
    pub fn costing(&self, mut ask: AcquireRequest) -> AcquireRequest {
        if ask.cost <= 1 {
            ask.cost = self.ask.cost;
        }
        ask.units = ask.units.or(&self.ask.units);
        ask
    }

    /// Returns the rule of the first key.
    pub fn rule(&self) -> Option<&Rule> {
        self.ruled.as_ref().map(|ruled| &*ruled.rule)
    }

    /// Returns the keys that the labels of the caller select.
    pub fn keys_of_caller(&self) -> &[Key] {
        self.ruled.as_ref().map_or(&[], |ruled| &ruled.of_caller)
    }

    /// Gives `report` the meaning of the rule about answers that fits, and returns that rule.
    pub fn judge(
        &self,
        outcome: &Outcome<'_>,
        clock: WallClock,
        report: &mut Report,
    ) -> Option<&AnswerRule> {
        self.rule()?.judge(outcome, clock, report)
    }

    /// Works as [`Plan::judge`], logs a warning if the rule says so, and returns how long the rule
    /// holds the key.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        allow(dead_code, reason = "the HTTP layers call it")
    )]
    pub(crate) fn judge_and_warn(
        &self,
        outcome: &Outcome<'_>,
        clock: WallClock,
        report: &mut Report,
    ) -> Option<Duration> {
        let answer = self.judge(outcome, clock, report)?;
        if answer.notify {
            let (key, line, signal) = (self.key(), answer.line, answer.signal.as_str());
            tracing::warn!(%key, line, signal, status = report.status, "an answer fits a rule");
        }
        answer.hold
    }

    /// Returns the keys that a refusal belongs to by the rule: those that `feedback` names, or else
    /// an account that the labels of the caller select. If there is none, it belongs to the first
    /// key.
    pub(super) fn refused(&self) -> &[Key] {
        self.ruled.as_ref().map_or(&[], |ruled| &ruled.held)
    }

    /// Returns the keys that a response is about, if [`Limiter::hear_scope`] held these: those that
    /// a refusal belongs to, or else the first key. The hold of a rule about answers holds them.
    pub fn held_by(&self, held: &[Key]) -> &[Key] {
        let refused = self.refused();
        if !refused.is_empty() && held.ends_with(refused) {
            refused
        } else {
            &self.keys[..1]
        }
    }

    /// Returns whether a rule about answers reads the bodies of answers that are no error pages.
    pub fn needs_bodies(&self) -> bool {
        self.rule().is_some_and(Rule::needs_bodies)
    }

    /// Returns `policy` with the numbers that the rule sets for retries.
    pub fn retry_policy<'p>(&self, policy: &'p Policy) -> Cow<'p, Policy> {
        self.rule()
            .map_or(Cow::Borrowed(policy), |rule| rule.trouble.over(policy))
    }

    /// Returns whether a refused request is sent again, whatever its method.
    pub fn resends(&self, method: &Method) -> bool {
        self.rule().is_some_and(|rule| rule.resends(method))
    }
}

impl Builder {
    /// Sets the rules of limits.
    ///
    /// The tower layer and the reqwest middleware apply a rule whole: its keys, costs and rules
    /// about answers, for the labels of the request ([`Labels`](crate::Labels)).
    /// [`Limiter::acquire`] knows only keys, so paths and labels do not apply there;
    /// [`Limiter::plan`] does what the layers do.
    ///
    /// ```
    /// # #[cfg(feature = "policy")] {
    /// use politely::Limiter;
    ///
    /// let rules = "[[rule]]\nmatch = [\"api.example.com\"]\nlimits = [\"1000/h\"]";
    /// let limiter = Limiter::builder().policy(rules.parse()?).build()?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn policy(mut self, rules: RuleBook) -> Self {
        self.policy = Some(Arc::new(rules));
        self
    }
}

impl Limiter {
    /// Puts `policy` into force, in place of the one before. A key follows its new rule from its
    /// next request on.
    pub fn set_policy(&self, policy: RuleBook) {
        self.0.policy.replace(policy);
    }

    /// Returns whether there ever was a policy.
    pub fn has_policy(&self) -> bool {
        self.0.policy.is_set()
    }

    /// Returns the policy in force, or `None` if there never was one.
    pub fn policy(&self) -> Option<Arc<RuleBook>> {
        self.0.policy.book()
    }

    /// Returns the keys that rules may add to GETs of the host of `url`, whose first key is `key`.
    /// It follows all paths, and counts labels as empty.
    pub fn keys_of_rules(&self, url: &Url, key: &Key) -> Vec<Key> {
        let Some(book) = self.policy() else {
            return Vec::new();
        };
        let caller = Caller {
            url: Some(url),
            key,
            method: &Method::GET,
            labels: &|_| None,
        };
        let rulings = book.rulings_of_host(url);
        let added = rulings.flat_map(|ruling| ruling.keys(&caller));
        added.map(|(key, _)| key).collect()
    }

    /// Returns what the policy says about a request, and lets its keys follow their rules.
    ///
    /// # Errors
    /// The rule needs a label that the request does not have.
    pub fn plan(&self, request: RequestView<'_>) -> Result<Plan, MissingLabel> {
        let (url, method) = (request.url, request.method);
        let mut plan = self.plan_of_rules(request)?;
        let (route, spent) = self.route(plan.owner(), url, method);
        plan.route = route;
        plan.keys.extend(spent);
        Ok(plan)
    }

    fn plan_of_rules(&self, request: RequestView<'_>) -> Result<Plan, MissingLabel> {
        let RequestView {
            mut keys,
            url,
            method,
            labels,
        } = request;
        let Some(book) = self.0.policy.book() else {
            return Ok(Plan {
                keys,
                ask: AcquireRequest::default(),
                ruled: None,
                route: None,
            });
        };
        let mut first: Option<Ruled> = None;
        let (mut added, mut own) = (Vec::new(), Vec::with_capacity(keys.len()));
        for (i, key) in keys.iter().enumerate() {
            let url = url.filter(|_| i == 0);
            let ruling = match url {
                Some(url) => book.of_url(url, key),
                None => book.of_key(key),
            };
            own.push(ruling);
            let Some(ruling) = ruling else { continue };
            let caller = Caller {
                url,
                key,
                method,
                labels: &|name| labels(name),
            };
            let of_key = self.add_keys(ruling, &caller, &mut added)?;
            if i == 0 {
                first = Some(of_key);
            }
        }
        for (key, ruling) in keys.iter().zip(own) {
            if !added.contains(key) {
                // If there is no room for a key, the request for a permit fails with that error.
                let _ = self.follow_rule(key, ruling.map(Ruling::own));
            }
        }
        for key in added {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let costs = first.as_ref().map(|first| &first.rule.costs);
        let ask = costs.map_or_else(AcquireRequest::default, |costs| AcquireRequest {
            cost: costs.requests(method).unwrap_or(1),
            units: costs.units(method),
            ..AcquireRequest::default()
        });
        Ok(Plan {
            keys,
            ask,
            ruled: first,
            route: None,
        })
    }

    /// Adds the keys of a rule to `added`, and lets them follow it.
    fn add_keys(
        &self,
        ruling: Ruling<'_>,
        caller: &Caller<'_>,
        added: &mut Vec<Key>,
    ) -> Result<Ruled, MissingLabel> {
        if let Some((name, label)) = ruling.missing_label(caller) {
            return Err(MissingLabel {
                line: ruling.rule.line,
                name: name.to_string(),
                label: label.to_owned(),
            });
        }
        let mut ruled = Ruled {
            rule: Arc::clone(ruling.rule),
            account: None,
            held: Vec::new(),
            of_caller: Vec::new(),
        };
        for (key, of_rule) in ruling.keys(caller) {
            let _ = self.follow_rule(&key, Some(of_rule.follows()));
            let account = ruling.rule.account();
            if account.is_some_and(|account| std::ptr::eq(account, of_rule)) {
                ruled.account = Some(key.clone());
            }
            if of_rule.is_held {
                ruled.held.push(key.clone());
            }
            if of_rule.name.labels().next().is_some() {
                ruled.of_caller.push(key.clone());
            }
            added.push(key);
        }
        Ok(ruled)
    }

    /// Returns the place of a request of `consumer` among the groups of its rule. Returns `None` if
    /// the rule has no shares.
    pub fn enter_share(&self, plan: &Plan, consumer: &str, cost: u16) -> Option<Share> {
        let ruled = plan.ruled.as_ref()?;
        let weights = &ruled.rule.share;
        let key = plan.owner();
        (!weights.is_empty())
            .then(|| (self.0.policy.shares()).enter(key, weights, consumer, cost, self.now()))
    }
}
