//! What operators see and set; and permits that need more time, or none.

use std::ops::RangeInclusive;
use std::time::Duration;

use politely::OperatorNumbers;
use politely::core::config::{Config, InvalidConfig};
use politely::core::gate::HoldReason;
use politely::core::key::Key;
use politely::wire::{
    self, Cancelled, Change, ConfigBody, ConfigPatch, Crawling, CrawlingPatch, EventKind, KeyPatch,
    Outstanding, Renewed, RenewedPermit,
};

use super::permits::Entry;
use super::report::{error, finite, ms_up};
use super::{Coordinator, Operated};
use crate::store::{Counters, Store};
use crate::watch::Worker;

/// No hold an operator sets is longer.
const HOLD_MAX: Duration = Duration::from_hours(24 * 365);

/// The engine has so long to say what it holds before a key is shown as it is known here.
const REFRESHED: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Extends the leases of `permits`.
    pub(crate) fn renew(&self, worker: &Worker, permits: &[String]) -> Renewed {
        let (mut answer, mut kept) = (Renewed::default(), Vec::new());
        let now = self.now();
        for name in permits {
            let renewed = self.number(name, 0).ok().and_then(|number| {
                let mut shard = self.0.permits.shard(number);
                let Some(Entry::Out(out)) = shard.get(number) else {
                    return None;
                };
                if out.expired || !out.is_held_by(worker) {
                    return None;
                }
                let lease = match (&out.permit, &mut out.heard) {
                    (Some(permit), _) => permit.renew(),
                    (None, Some(heard)) => heard.0.renew(),
                    (None, None) => None,
                }?;
                out.until = now + lease;
                kept.push((number.0, out.until.since(out.start).as_millis() as u32));
                Some(RenewedPermit {
                    permit: name.clone(),
                    lease_ms: lease.as_millis() as u64,
                })
            });
            match renewed {
                Some(renewed) => answer.renewed.push(renewed),
                None => answer.lost.push(name.clone()),
            }
        }
        self.keep_renewed(&kept);
        answer
    }

    /// Takes back permits that will not be used.
    pub(crate) fn cancel(&self, worker: &Worker, permits: &[String], sent: bool) -> Cancelled {
        let (mut answer, mut gone) = (Cancelled::default(), Vec::new());
        for name in permits {
            let taken = self
                .number(name, 0)
                .ok()
                .and_then(|number| Some((number, self.0.permits.take(number, worker)?)));
            let Some((number, out)) = taken else {
                answer.lost.push(name.clone());
                continue;
            };
            gone.push(number.0);
            if out.wish != 0 {
                self.0.wishes.forget(out.wish);
            }
            let expired = out.expired;
            match out.permit {
                Some(permit) if expired => permit.abandon(),
                Some(mut permit) if sent => permit.sent(),
                // Dropped, it gives back what it has.
                _ => {}
            }
            if expired {
                answer.lost.push(name.clone());
            } else {
                worker.cancelled();
                answer.cancelled.push(name.clone());
            }
        }
        self.keep_gone(&gone);
        answer
    }

    /// Sets what `patch` says for `key`.
    pub(crate) async fn patch_key(&self, key: &Key, patch: &KeyPatch) -> Result<(), NotSet> {
        rate_is_sound(patch.rate, "rate")?;
        burst_is_sound(patch.burst, "burst")?;
        if patch.in_flight == Change::To(0) {
            return Err(error("in_flight", "must be at least 1").into());
        }
        if *patch == KeyPatch::default() {
            return Ok(());
        }
        self.refuse_if_in_trouble()?;
        let limiter = &self.0.limiter;
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
        };
        if numbers != OperatorNumbers::default() {
            limiter.set_numbers(key, numbers).map_err(full)?;
        }
        if let Some(ms) = patch.hold_ms {
            let length = Duration::from_millis(ms).min(HOLD_MAX);
            limiter
                .hold(key, length, HoldReason::Operator)
                .map_err(full)?;
        }
        self.0
            .watch
            .operated(self.now(), limiter, key, &words(patch));
        self.keep_operated(key).await
    }

    /// No change is made that could not be kept.
    fn refuse_if_in_trouble(&self) -> Result<(), NotSet> {
        self.trouble()
            .map_or(Ok(()), |why| Err(NotSet::Refused(why)))
    }

    /// Learns from the engine what other coordinators wrote about `key`. Says whether the key is
    /// known.
    ///
    /// # Errors
    /// The engine did not answer.
    pub(crate) async fn refresh(&self, key: &Key) -> Result<bool, String> {
        self.0.limiter.refresh(key, REFRESHED).await
    }

    /// What an operator has set for `key`.
    pub(crate) fn numbers(&self, key: &Key) -> KeyPatch {
        let set = self.0.limiter.numbers(key);
        KeyPatch {
            rate: set.rate.into(),
            burst: set.burst.into(),
            in_flight: set.in_flight.into(),
            ..KeyPatch::default()
        }
    }

    /// The permits of `key` that are out.
    pub(crate) fn out_of(&self, key: &Key) -> Vec<Outstanding> {
        let now = self.now();
        self.0.permits.of_key(key, 100, |number, out| Outstanding {
            permit: out.name(number).to_string(),
            client: out.worker.name().to_owned(),
            ago_ms: now.since(out.start).as_millis() as u64,
            lease_ms: ms_up(out.until.since(now)),
        })
    }

    pub(crate) fn live(&self) -> u64 {
        self.0.permits.live()
    }

    /// What was written to the state folder, if there is one.
    pub(crate) fn kept(&self) -> Option<Counters> {
        self.0.store.as_ref().map(Store::counters)
    }

    /// What holds for every key without numbers of its own.
    pub(crate) fn config(&self) -> ConfigBody {
        let operated = self.0.operated.lock();
        let limits = &operated.settings.config.limits;
        ConfigBody {
            crawling: Crawling {
                rate_per_host: limits.rate_max.is_finite().then_some(limits.rate_max),
                rate_burst: limits.burst,
                rate_start: finite(limits.rate_start),
                in_flight: limits.in_flight,
            },
            profile: operated.settings.profile.clone(),
            law: operated.settings.law.clone(),
            key: operated.settings.key.as_str().to_owned(),
            version: operated.version,
        }
    }

    /// Changes what holds for every key.
    pub(crate) async fn patch_config(&self, patch: &ConfigPatch) -> Result<(), NotSet> {
        rate_is_sound(patch.crawling.rate_per_host, "crawling.rate_per_host")?;
        rate_is_sound(patch.crawling.rate_start, "crawling.rate_start")?;
        burst_is_sound(patch.crawling.rate_burst, "crawling.rate_burst")?;
        if *patch == ConfigPatch::default() {
            return Ok(());
        }
        self.refuse_if_in_trouble()?;
        if let Some(cell) = self.0.config_cell.get() {
            self.change_shared_config(cell, patch).await?;
        } else {
            let (all, version) = self.apply(patch)?;
            self.keep_config(&all, version).await?;
        }
        let text = "the configuration was changed";
        self.0.watch.announce(EventKind::Config, None, text);
        Ok(())
    }

    /// Puts `patch` to work. The answer is all that operators have changed so far, and its version.
    pub(super) fn apply(&self, patch: &ConfigPatch) -> Result<(ConfigPatch, u64), wire::Error> {
        let mut operated = self.0.operated.lock();
        let all = after(patch, &operated.patch);
        let version = operated.version + 1;
        self.put_to_work(&mut operated, &all, version)?;
        Ok((all, version))
    }

    /// Puts `all` to work in place of what operators have changed so far.
    pub(super) fn replace_config(
        &self,
        all: &ConfigPatch,
        version: u64,
    ) -> Result<(), wire::Error> {
        self.put_to_work(&mut self.0.operated.lock(), all, version)
    }

    /// `patch` after `before`, if its numbers make sense.
    pub(super) fn merged(
        &self,
        patch: &ConfigPatch,
        before: &ConfigPatch,
    ) -> Result<ConfigPatch, wire::Error> {
        let all = after(patch, before);
        let config = changed(&self.0.operated.lock().began, &all);
        config.validate().map_err(|wrong| not_sound(&wrong))?;
        Ok(all)
    }

    /// What operators have changed so far.
    pub(super) fn operated_patch(&self) -> ConfigPatch {
        self.operated_now().0
    }

    pub(super) fn operated_now(&self) -> (ConfigPatch, u64) {
        let operated = self.0.operated.lock();
        (operated.patch, operated.version)
    }

    fn put_to_work(
        &self,
        operated: &mut Operated,
        all: &ConfigPatch,
        version: u64,
    ) -> Result<(), wire::Error> {
        let config = changed(&operated.began, all);
        let set = self.0.limiter.reconfigure(config.clone());
        set.map_err(|wrong| not_sound(&wrong))?;
        operated.settings.config = config;
        operated.patch = *all;
        operated.version = version;
        Ok(())
    }
}

fn after(patch: &ConfigPatch, before: &ConfigPatch) -> ConfigPatch {
    let (new, old) = (&patch.crawling, &before.crawling);
    ConfigPatch {
        crawling: CrawlingPatch {
            rate_per_host: new.rate_per_host.after(old.rate_per_host),
            rate_burst: new.rate_burst.after(old.rate_burst),
            rate_start: new.rate_start.after(old.rate_start),
            in_flight: new.in_flight.after(old.in_flight),
        },
    }
}

/// `began` with the changes in `all`.
fn changed(began: &Config, all: &ConfigPatch) -> Config {
    let mut config = began.clone();
    let (limits, set) = (&mut config.limits, &all.crawling);
    limits.rate_max = set.rate_per_host.set().unwrap_or(limits.rate_max);
    limits.burst = set.rate_burst.set().unwrap_or(limits.burst);
    limits.rate_start = set.rate_start.set().unwrap_or(limits.rate_start);
    limits.in_flight = set.in_flight.set().unwrap_or(limits.in_flight);
    config
}

fn not_sound(wrong: &InvalidConfig) -> wire::Error {
    let field = match wrong.name() {
        "rate_max" => "rate_per_host",
        "burst" => "rate_burst",
        name => name,
    };
    error(&format!("crawling.{field}"), &wrong.rule())
}

/// Why a change was not made, or may be lost.
#[derive(Debug)]
pub(crate) enum NotSet {
    /// It makes no sense.
    Wrong(wire::Error),
    /// It was not made: it could not have been kept.
    Refused(String),
    /// It may be in force, and may be lost.
    Unkept(String),
}

#[cfg(test)]
impl NotSet {
    /// The field that makes no sense.
    pub(super) fn field(&self) -> &str {
        match self {
            Self::Wrong(error) => &error.field,
            other => panic!("{other:?}"),
        }
    }
}

impl From<wire::Error> for NotSet {
    fn from(wrong: wire::Error) -> Self {
        Self::Wrong(wrong)
    }
}

/// The same bounds as on the command line.
fn rate_is_sound(set: Change<f64>, field: &str) -> Result<(), wire::Error> {
    let rule = "must be from 0.000001 to 1,000,000";
    is_within(set, wire::RATE_MIN..=wire::RATE_MAX, field, rule)
}

fn burst_is_sound(set: Change<f64>, field: &str) -> Result<(), wire::Error> {
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

/// What was set, for the log.
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
    if let Some(ms) = patch.hold_ms {
        words.push(format!("held for {} s", ms as f64 / 1e3));
    }
    format!("operator: {}", words.join(", "))
}
