//! Operators' view and settings of keys.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::config::Config;
use politely::core::control::{LawChoice, UnknownLaw};
use politely::core::gate::HoldReason;
use politely::core::host::Source;
use politely::core::key::Key;
use politely::{DeclaredLimit, DeclaredLimits, Explanation, LimitError, Limiter, OperatorNumbers};
use politely_api::wire::{
    self, Change, KeyFailure, KeyPatch, KeysChanged, LawInForce, NumberInForce, Outstanding, SetBy,
};

use super::report::{error, ms_up};
use super::{Coordinator, Settings, metadata};
use crate::cells::CellError;
use crate::store::{Counters, Store};

/// The time for the engine to answer. After that a key is shown in this coordinator's own state.
const REFRESHED: Duration = Duration::from_secs(1);
/// The most keys of one change whose failures are listed.
const FAILURES_MAX: usize = 100;
/// The number of keys that are kept in one transaction.
const KEPT_AT_ONCE: usize = 4_096;

impl Coordinator {
    /// Applies `patch` to the operators' settings of `key`.
    pub(crate) async fn patch_key(&self, key: &Key, patch: &KeyPatch) -> Result<(), NotSet> {
        let checked = self.check(patch)?;
        if *patch == KeyPatch::default() {
            return Ok(());
        }
        self.refuse_if_in_trouble()?;
        if patch.reset_budget.is_some() {
            // The key may be in the engine alone.
            self.refresh(key).await.map_err(NotSet::Refused)?;
        }
        self.apply_patch(key, patch, checked)?;
        let metadata = vec![(key.clone(), metadata::change(patch))];
        self.set_metadata(metadata).await?;
        self.keep_operated(key).await
    }

    /// Applies a patch to each of `keys`, which are created if they are new. Returns when all
    /// changes are kept.
    pub(crate) async fn patch_keys(
        &self,
        keys: impl Iterator<Item = (String, Option<Box<KeyPatch>>)>,
    ) -> Result<KeysChanged, NotSet> {
        self.refuse_if_in_trouble()?;
        let (mut changed, mut answer) = (Vec::new(), KeysChanged::default());
        let mut metadata = Vec::new();
        for (name, patch) in keys {
            let patch = patch.unwrap_or_default();
            let applied = Key::parse(&name)
                .map_err(|why| error("key", &why.to_string()))
                .and_then(|key| {
                    let checked = self.check(&patch)?;
                    self.apply_patch(&key, &patch, checked)?;
                    Ok(key)
                });
            match applied {
                Ok(key) => {
                    metadata.push((key.clone(), metadata::change(&patch)));
                    changed.push(key);
                }
                Err(why) if answer.failed.len() < FAILURES_MAX => {
                    let detail = format!("{}: {}", why.field, why.detail);
                    answer.failed.push(KeyFailure { key: name, detail });
                }
                Err(_) => {}
            }
        }
        answer.changed = changed.len() as u32;
        self.set_metadata(metadata).await?;
        for keys in changed.chunks(KEPT_AT_ONCE) {
            self.keep_all_operated(keys).await?;
        }
        Ok(answer)
    }

    fn apply_patch(
        &self,
        key: &Key,
        patch: &KeyPatch,
        checked: Checked,
    ) -> Result<(), wire::Error> {
        let limiter = &self.0.limiter;
        let reset = patch.reset_budget.as_deref();
        let reset = reset.map(|name| self.budget(key, name)).transpose()?;
        let full = |_| error("key", "no room for another key");
        if patch.forget == Some(true) {
            limiter.forget(key);
        }
        if patch.unpark == Some(true) {
            limiter.unpark(key);
        }
        let numbers = OperatorNumbers {
            rate: patch.rate.or_none(f64::INFINITY),
            burst: patch.burst.or_none(f64::INFINITY),
            in_flight: patch.in_flight.or_none(u32::MAX),
            law: checked.law,
            learn: patch.learn.or_none(true),
            crawl_delay_ms: patch.crawl_delay_ms.or_none(u32::MAX),
        };
        let sets_nothing = *patch
            == KeyPatch {
                metadata: patch.metadata.clone(),
                ..KeyPatch::default()
            };
        // Numbers that set nothing still create the key.
        if numbers != OperatorNumbers::default() || sets_nothing {
            let set = limiter.set_numbers(key, numbers);
            set.map_err(|why| error("key", &why.to_string()))?;
        }
        match checked.limits {
            Change::Keep => {}
            Change::TakeBack => limiter.set_limits(key, None).map_err(full)?,
            Change::To(limits) => limiter.set_limits(key, Some(limits)).map_err(full)?,
        }
        if let Some(which) = reset {
            limiter.reset_budgets(key, which.as_ref());
        }
        if let Some(ms) = patch.hold_ms {
            let length = Duration::from_millis(ms);
            limiter
                .hold(key, length, HoldReason::Operator)
                .map_err(full)?;
        }
        if *patch != KeyPatch::default() {
            let text = words(patch);
            self.0.watch.operated(self.now(), limiter, key, &text);
        }
        Ok(())
    }

    /// Returns the budget of `key` with this name, `None` for the name of all budgets.
    fn budget(&self, key: &Key, name: &str) -> Result<Option<DeclaredLimit>, wire::Error> {
        let wrong = |detail: String| error("reset_budget", &detail);
        let explained = self.0.limiter.explain(key);
        let explained = explained.ok_or_else(|| wrong(format!("the key {key} is not known")))?;
        let budgets = explained.budgets.into_iter().map(|left| left.limit);
        let budgets: Vec<_> = budgets.collect();
        let names: Vec<_> = budgets.iter().map(ToString::to_string).collect();
        if names.is_empty() {
            return Err(wrong(format!("the key {key} has no budgets")));
        }
        if name == wire::ALL_BUDGETS {
            return Ok(None);
        }
        let limit = name.parse::<DeclaredLimit>();
        let limit = limit.map_err(|why| wrong(why.to_string()))?;
        if !budgets.contains(&limit) {
            let names = names.join("; ");
            let detail = format!("the key {key} has no budget `{limit}`; it has {names}");
            return Err(wrong(detail));
        }
        Ok(Some(limit))
    }

    /// Returns an error if changes cannot be kept now.
    pub(super) fn refuse_if_in_trouble(&self) -> Result<(), NotSet> {
        self.last_error()
            .map_or(Ok(()), |why| Err(NotSet::Refused(why)))
    }

    /// Reads from the engine what other coordinators wrote about `key`. Returns whether the key is
    /// known.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(crate) async fn refresh(&self, key: &Key) -> Result<bool, String> {
        self.0.limiter.refresh(key, REFRESHED).await
    }

    /// Returns the operators' settings of `key`.
    pub(crate) fn numbers(&self, key: &Key) -> KeyPatch {
        settings(&self.0.limiter, key)
    }

    /// Returns the settings in force for a key, and the source of each.
    pub(crate) fn in_force(&self, explained: &Explanation, now: Timestamp) -> wire::InForce {
        let operated = self.0.operated.lock();
        let (limits, set) = (&operated.settings.config.limits, &operated.changes.crawling);
        let profile = match operated.settings.profile.as_str() {
            "api" => Config::api(),
            _ => Config::crawler(),
        };
        let profile = &profile.limits;
        let of_all = |is_set: bool, is_profile: bool| match (is_set, is_profile) {
            (false, true) => SetBy::Profile,
            _ => SetBy::Operator,
        };
        let rate_by = of_all(
            set.rate_per_host.set().or(set.rate_start.set()).is_some(),
            (limits.rate_max, limits.rate_start) == (profile.rate_max, profile.rate_start),
        );
        let burst_by = match of_all(
            set.rate_burst.set().is_some(),
            limits.burst.to_bits() == profile.burst.to_bits(),
        ) {
            SetBy::Profile => SetBy::Default,
            other => other,
        };
        let in_flight_by = of_all(
            set.in_flight.set().is_some(),
            limits.in_flight == profile.in_flight,
        );
        let law_by = if operated.settings.law == Settings::default().law {
            SetBy::Default
        } else {
            SetBy::Operator
        };
        let by = |source: Source, configured: SetBy| match source {
            Source::Configured => configured,
            Source::Operator => SetBy::Operator,
            Source::Learned => SetBy::Learned,
            Source::Robots => SetBy::Robots,
        };
        let number = |(value, source): (f64, Source), configured| NumberInForce {
            value: value.is_finite().then_some(value),
            set_by: by(source, configured),
        };
        let it = &explained.in_force;
        wire::InForce {
            rate: number(it.rate, rate_by),
            burst: number(it.burst, burst_by),
            in_flight: number((f64::from(it.in_flight.0), it.in_flight.1), in_flight_by),
            law: LawInForce {
                value: it.law.0.to_owned(),
                set_by: by(it.law.1, law_by),
                learns: it.learns,
            },
            crawl_delay_ms: it
                .crawl_delay
                .map(|(delay, source)| number((delay.as_secs_f64() * 1e3, source), SetBy::Robots)),
            hold_ms: explained.hold.map(|(until, reason)| NumberInForce {
                value: Some(ms_up(until.since(now)) as f64),
                set_by: match reason {
                    HoldReason::RetryAfter | HoldReason::QuotaSpent => SetBy::Header,
                    HoldReason::Backoff => SetBy::Learned,
                    HoldReason::CrawlDelay => SetBy::Robots,
                    HoldReason::Operator => SetBy::Operator,
                },
            }),
        }
    }

    /// Returns what workers did. Blocks.
    pub(crate) fn usage(&self, query: &wire::UsageQuery) -> wire::UsagePage {
        self.0.usage.page(query, self.now())
    }

    /// Returns the share of requested items that met a limit and had to wait.
    pub(crate) fn hit_rate(&self) -> f64 {
        match self.hits() {
            (_, 0) => 0.0,
            (at_once, requested) => requested.saturating_sub(at_once) as f64 / requested as f64,
        }
    }

    /// Returns the number of items that were granted at once, and of all requested items.
    pub(crate) fn hits(&self) -> (u64, u64) {
        let at_once = self.0.at_once.load(Ordering::Relaxed);
        (at_once, self.0.asked.load(Ordering::Relaxed))
    }

    /// Returns the granted permits of `key` that have not ended, at most 100.
    pub(crate) fn out_of(&self, key: &Key) -> Vec<Outstanding> {
        let now = self.now();
        self.0.permits.of_key(key, 100, |number, out| Outstanding {
            // The number without the signature, because only the holder may know the signature.
            permit: number.to_string(),
            client: out.worker.client().to_owned(),
            ago_ms: now.since(out.start).as_millis() as u64,
            lease_ms: ms_up(out.until.since(now)),
        })
    }

    pub(crate) fn live(&self) -> u64 {
        self.0.permits.live()
    }

    /// Returns the counters of the state folder, if there is one.
    pub(crate) fn kept(&self) -> Option<Counters> {
        self.0.store.as_ref().map(Store::counters)
    }
}

/// Reads the texts of declared limits. No text means no limit.
pub(super) fn declared(texts: &[String], field: &str) -> Result<DeclaredLimits, wire::Error> {
    let wrong = |why: LimitError| error(field, &why.to_string());
    let limits = texts.iter().map(|text| text.parse::<DeclaredLimit>());
    let limits = limits.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    DeclaredLimits::new(limits).map_err(wrong)
}

/// Returns the operators' settings of `key` in the form in which they are set.
pub(crate) fn settings(limiter: &Limiter, key: &Key) -> KeyPatch {
    let set = limiter.numbers(key).unwrap_or_default();
    let limits = limiter.limits(key).ok().flatten();
    KeyPatch {
        rate: set.rate.into(),
        burst: set.burst.into(),
        in_flight: set.in_flight.into(),
        law: set.law.and_then(LawChoice::name).map(str::to_owned).into(),
        learn: set.learn.into(),
        crawl_delay_ms: set.crawl_delay_ms.into(),
        limits: limits.map(|limits| limits.texts()).into(),
        ..KeyPatch::default()
    }
}

/// The fields of a patch that are texts, as they were read.
struct Checked {
    law: Option<LawChoice>,
    limits: Change<DeclaredLimits>,
}

impl Coordinator {
    /// Checks the fields of a patch.
    fn check(&self, patch: &KeyPatch) -> Result<Checked, wire::Error> {
        rate_is_sound(patch.rate, "rate")?;
        burst_is_sound(patch.burst, "burst")?;
        if patch.in_flight == Change::To(0) {
            return Err(error("in_flight", "must be at least 1"));
        }
        let law = match &patch.law {
            Change::Keep => None,
            Change::TakeBack => Some(LawChoice::Configured),
            Change::To(name) => {
                let law = name.parse();
                Some(law.map_err(|why: UnknownLaw| error("law", &why.to_string()))?)
            }
        };
        if matches!(patch.crawl_delay_ms, Change::To(ms) if u64::from(ms) > wire::CRAWL_DELAY_MAX_MS)
        {
            return Err(error("crawl_delay_ms", "must be from 0 to 86,400,000"));
        }
        if patch.hold_ms.is_some_and(|ms| ms > wire::HOLD_MAX_MS) {
            return Err(error("hold_ms", "must be from 0 to 31,536,000,000"));
        }
        metadata::check(patch)?;
        let limits = match &patch.limits {
            Change::Keep => Change::Keep,
            Change::TakeBack => Change::TakeBack,
            Change::To(texts) => Change::To(self.declared(texts, "limits")?),
        };
        Ok(Checked { law, limits })
    }

    /// Reads the texts of declared limits, whose units have to be charged.
    pub(super) fn declared(
        &self,
        texts: &[String],
        field: &str,
    ) -> Result<DeclaredLimits, wire::Error> {
        let limits = declared(texts, field)?;
        let checked = self.check_units(&limits);
        checked.map(|()| limits).map_err(|why| error(field, &why))
    }

    /// Checks that each of `limits` can be spent.
    ///
    /// # Errors
    /// No rule charges the unit of a limit, and requests do not state it.
    pub fn check_units(&self, limits: &DeclaredLimits) -> Result<(), String> {
        let book = self.0.limiter.policy().unwrap_or_default();
        book.check_units(limits)
    }
}

/// Why a change was not made, or may be lost.
#[derive(Debug)]
pub(crate) enum NotSet {
    /// A value is invalid. The change was not made.
    Wrong(wire::Error),
    /// The change was not made, because it could not have been kept.
    Refused(String),
    /// The change may be in force, but it was not confirmed and may be lost.
    Unkept(String),
}

impl From<CellError> for NotSet {
    fn from(why: CellError) -> Self {
        Self::Unkept(why.to_string())
    }
}

impl From<wire::Error> for NotSet {
    fn from(wrong: wire::Error) -> Self {
        Self::Wrong(wrong)
    }
}

/// Checks a rate against the bounds of the command line.
pub(super) fn rate_is_sound(set: Change<f64>, field: &str) -> Result<(), wire::Error> {
    let rule = "must be from 0.000001 to 1,000,000";
    is_within(set, wire::RATE_MIN..=wire::RATE_MAX, field, rule)
}

pub(super) fn burst_is_sound(set: Change<f64>, field: &str) -> Result<(), wire::Error> {
    let rule = "must be from 1 to 1,000,000";
    is_within(set, 1.0..=wire::RATE_MAX, field, rule)
}

fn is_within(
    set: Change<f64>,
    bounds: RangeInclusive<f64>,
    field: &str,
    rule: &str,
) -> Result<(), wire::Error> {
    match set.set() {
        Some(number) if !bounds.contains(&number) => Err(error(field, rule)),
        _ => Ok(()),
    }
}

/// Describes a change for the log.
fn words(patch: &KeyPatch) -> String {
    let mut words = Vec::new();
    if patch.forget == Some(true) {
        words.push("what was learned is forgotten".to_owned());
    }
    if patch.unpark == Some(true) {
        words.push("hold, breaker and quarantine are lifted".to_owned());
    }
    let number = |change: Change<f64>, set: fn(f64) -> String, what: &str| match change {
        Change::Keep => None,
        Change::TakeBack => Some(format!("{what} taken back")),
        Change::To(number) => Some(set(number)),
    };
    let cap = match patch.in_flight {
        Change::Keep => None,
        Change::TakeBack => Some("in flight taken back".to_owned()),
        Change::To(cap) => Some(format!("at most {cap} in flight")),
    };
    let rate = number(patch.rate, |rate| format!("at most {rate}/s"), "rate");
    let burst = number(patch.burst, |burst| format!("burst {burst}"), "burst");
    words.extend([rate, burst, cap].into_iter().flatten());
    match &patch.limits {
        Change::Keep => {}
        Change::TakeBack => words.push("limits taken back".to_owned()),
        Change::To(limits) => words.push(format!("limits {}", limits.join("; "))),
    }
    match &patch.law {
        Change::Keep => {}
        Change::TakeBack => words.push("law taken back".to_owned()),
        Change::To(law) => words.push(format!("law {law}")),
    }
    match patch.learn {
        Change::Keep => {}
        Change::To(false) => words.push("what was learned stays as it is".to_owned()),
        Change::TakeBack | Change::To(true) => words.push("learns again".to_owned()),
    }
    match patch.crawl_delay_ms {
        Change::Keep => {}
        Change::TakeBack => words.push("Crawl-delay taken back".to_owned()),
        Change::To(ms) => words.push(format!("Crawl-delay {} s", f64::from(ms) / 1e3)),
    }
    if patch.metadata != Change::Keep {
        words.push("metadata changed".to_owned());
    }
    if let Some(name) = &patch.reset_budget {
        words.push(format!("budget reset: {name}"));
    }
    if let Some(ms) = patch.hold_ms {
        words.push(format!("held for {} s", ms as f64 / 1e3));
    }
    format!("operator: {}", words.join(", "))
}
