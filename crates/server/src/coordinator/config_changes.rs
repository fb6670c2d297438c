//! Operators' changes of the configuration of all keys.
//!
//! A change for all keys replaces the settings. A change for new keys begins a cohort: keys that
//! exist keep the number of their cohort in their states, and [`Changes`] keeps the settings of
//! each cohort. Both survive a restart.

use politely::core::config::{Cohorts, Config, InvalidConfig, Limits};
use politely::core::control::LawConfig;
use politely_api::wire::{
    self, Apply, ConfigBody, ConfigPatch, Crawling, CrawlingPatch, EventKind,
};
use serde::{Deserialize, Serialize};

use super::operate::{NotSet, burst_is_sound, declared, rate_is_sound};
use super::report::{error, finite};
use super::{Coordinator, Operated};

/// The most changes for new keys between two changes for all keys.
const COHORTS_MAX: usize = 64;
/// The number of states in one transaction when all keys are kept.
const KEYS_PER_COMMIT: usize = 4_096;

/// The changes that operators made so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Changes {
    /// The settings of keys that are created from now on.
    pub(super) crawling: CrawlingPatch,
    /// The number of the cohort of these keys.
    #[serde(default, skip_serializing_if = "is_zero")]
    cohort: u32,
    /// The settings of earlier cohorts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Earlier>,
}

/// The settings of keys that existed before a change for new keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Earlier {
    /// The number of the last cohort with these settings.
    last: u32,
    crawling: CrawlingPatch,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Changes {
    /// Returns these changes with `patch` merged into them.
    ///
    /// # Errors
    /// There are too many changes for new keys.
    fn after(&self, patch: &ConfigPatch) -> Result<Self, wire::Error> {
        let (new, old) = (&patch.crawling, &self.crawling);
        let mut all = self.clone();
        all.crawling = CrawlingPatch {
            rate_per_host: new.rate_per_host.after(old.rate_per_host),
            rate_burst: new.rate_burst.after(old.rate_burst),
            rate_start: new.rate_start.after(old.rate_start),
            in_flight: new.in_flight.after(old.in_flight),
            limits: new.limits.clone().after(old.limits.clone()),
        };
        match patch.apply {
            Apply::All => all.earlier.clear(),
            Apply::New if all.crawling == self.crawling => {}
            Apply::New if all.earlier.len() >= COHORTS_MAX => {
                let detail = format!(
                    "there are {COHORTS_MAX} changes for new keys; change the settings of all \
                     keys first"
                );
                return Err(error("apply", &detail));
            }
            Apply::New => {
                let last = all.cohort;
                let crawling = self.crawling.clone();
                all.earlier.push(Earlier { last, crawling });
                all.cohort = last.saturating_add(1);
            }
        }
        Ok(all)
    }

    /// Returns `began` with these changes.
    fn config(&self, began: &Config) -> Config {
        let earlier = self.earlier.iter();
        let earlier = earlier.map(|earlier| (earlier.last, limits(began, &earlier.crawling)));
        let texts = self.crawling.limits.as_set();
        let declared = texts.and_then(|texts| declared(texts, "crawling.limits").ok());
        let mut config = began.clone().with_limits(limits(began, &self.crawling));
        if let Some(declared) = declared {
            config.declared = declared;
        }
        config.cohorts = Cohorts::new(self.cohort, earlier.collect());
        config
    }
}

impl Coordinator {
    /// Returns the settings of keys that are created from now on.
    pub(crate) fn config(&self) -> ConfigBody {
        let operated = self.0.operated.lock();
        let limits = &operated.settings.config.limits;
        ConfigBody {
            crawling: Crawling {
                rate_per_host: limits.rate_max.is_finite().then_some(limits.rate_max),
                rate_burst: limits.burst,
                rate_start: finite(limits.rate_start),
                in_flight: limits.in_flight,
                limits: operated.settings.config.declared.texts(),
            },
            profile: operated.settings.profile.clone(),
            law: operated.settings.law.clone(),
            key: operated.settings.key.as_str().to_owned(),
            version: operated.version,
        }
    }

    /// Changes the settings of all keys, or of new keys.
    pub(crate) async fn patch_config(&self, patch: &ConfigPatch) -> Result<(), NotSet> {
        rate_is_sound(patch.crawling.rate_per_host, "crawling.rate_per_host")?;
        rate_is_sound(patch.crawling.rate_start, "crawling.rate_start")?;
        burst_is_sound(patch.crawling.rate_burst, "crawling.rate_burst")?;
        if let Some(texts) = patch.crawling.limits.as_set() {
            self.declared(texts, "crawling.limits")?;
        }
        if patch.apply == Apply::New && patch.crawling.limits != wire::Change::Keep {
            let detail = "declared limits apply to all keys; leave \"apply\" out";
            return Err(error("apply", detail).into());
        }
        if *patch == ConfigPatch::default() {
            return Ok(());
        }
        self.refuse_if_in_trouble()?;
        if let Some(cell) = self.0.config_cell.get() {
            self.change_shared_config(cell, patch).await?;
        } else {
            let (all, version) = self.apply(patch)?;
            if patch.apply == Apply::New {
                self.keep_all_keys().await?;
            }
            self.keep_config(&all, version).await?;
        }
        let text = "the configuration was changed";
        self.0.watch.announce(EventKind::Config, None, text);
        Ok(())
    }

    /// Keeps the states of all keys, so that each known key is known after a restart too.
    async fn keep_all_keys(&self) -> Result<(), NotSet> {
        if self.0.store.is_none() {
            return Ok(());
        }
        for keys in self.0.limiter.keys().chunks(KEYS_PER_COMMIT) {
            let kept = self.keep_now(keys).await;
            kept.map_err(|why| NotSet::Unkept(why.to_string()))?;
        }
        Ok(())
    }

    /// Applies `patch`. Returns all changes that operators made so far, and their version.
    fn apply(&self, patch: &ConfigPatch) -> Result<(Changes, u64), wire::Error> {
        let mut operated = self.0.operated.lock();
        let all = operated.changes.after(patch)?;
        let version = operated.version + 1;
        self.put_to_work(&mut operated, &all, version)?;
        Ok((all, version))
    }

    /// Replaces the operators' changes so far with `all`.
    pub(super) fn replace_config(&self, all: &Changes, version: u64) -> Result<(), wire::Error> {
        self.put_to_work(&mut self.0.operated.lock(), all, version)
    }

    /// Returns `before` with `patch` merged into it.
    ///
    /// # Errors
    /// The merged settings are invalid.
    pub(super) fn merged(
        &self,
        patch: &ConfigPatch,
        before: &Changes,
    ) -> Result<Changes, wire::Error> {
        let all = before.after(patch)?;
        let config = all.config(&self.0.operated.lock().began);
        config.validate().map_err(|wrong| not_sound(&wrong))?;
        Ok(all)
    }

    /// Returns the changes that operators made so far, and their version.
    pub(super) fn operated_now(&self) -> (Changes, u64) {
        let operated = self.0.operated.lock();
        (operated.changes.clone(), operated.version)
    }

    fn put_to_work(
        &self,
        operated: &mut Operated,
        all: &Changes,
        version: u64,
    ) -> Result<(), wire::Error> {
        let config = all.config(&operated.began);
        config.validate().map_err(|wrong| not_sound(&wrong))?;
        let set = self.0.limiter.reconfigure(config.clone());
        set.map_err(|why| error("crawling", &why.to_string()))?;
        operated.settings.config = config;
        operated.changes = all.clone();
        operated.version = version;
        Ok(())
    }
}

/// Returns the limits of `began` with the changes in `set`.
fn limits(began: &Config, set: &CrawlingPatch) -> Limits {
    let mut limits = began.limits;
    limits.rate_max = set.rate_per_host.set().unwrap_or(limits.rate_max);
    limits.burst = set.rate_burst.set().unwrap_or(limits.burst);
    if let (Some(rate), LawConfig::Fixed | LawConfig::Advice(_)) =
        (set.rate_per_host.set(), &began.law)
    {
        // These laws do not raise the rate from the start rate to its bound.
        limits.rate_start = rate;
    }
    limits.rate_start = set.rate_start.set().unwrap_or(limits.rate_start);
    limits.in_flight = set.in_flight.set().unwrap_or(limits.in_flight);
    limits
}

fn not_sound(wrong: &InvalidConfig) -> wire::Error {
    let field = match wrong.name() {
        "rate_max" => "rate_per_host",
        "burst" => "rate_burst",
        name => name,
    };
    error(&format!("crawling.{field}"), &wrong.rule())
}
