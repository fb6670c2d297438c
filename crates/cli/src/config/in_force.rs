//! Settings that have no effect beside the others are errors.

use politely::core::budget::LimitUnit;
use politely::{DeclaredLimit, DeclaredLimits};

use super::{Knobs, LawName, STORE_LEASE_MIN};

impl Knobs {
    /// Refuses settings that have no effect beside the others, from a flag or from the file.
    pub(super) fn all_in_force(&self) -> Result<(), String> {
        let of_keys = [
            ("rate", self.rate.is_some()),
            ("limits", self.limits.is_some()),
            ("policy", self.policy.is_some()),
            ("burst", self.burst.is_some()),
            ("in-flight", self.in_flight.is_some()),
            ("law", self.law.is_some()),
            ("breaker", self.breaker.is_some()),
            ("cut", self.cut.is_some()),
        ];
        let of_store = [
            ("lease", self.lease.is_some()),
            ("store-unavailable", self.store_unavailable.is_some()),
        ];
        let given = |of: &[(&'static str, bool)]| {
            let mut of = of.iter();
            of.find(|(_, given)| *given).map(|(name, _)| *name)
        };
        if self.coordinator.is_some() && self.store.is_some() {
            return Err("--store cannot be combined with --coordinator; give one".to_owned());
        }
        if self.coordinator.is_some()
            && let Some(name) = given(&of_keys)
        {
            return Err(format!(
                "--{name} cannot be combined with --coordinator; set it on `politely serve`"
            ));
        }
        cut_in_force(self.cut, self.law)?;
        let limits = self.limits.iter().flat_map(DeclaredLimits::windows);
        if self.policy.is_none()
            && let Some(limit) = limits.into_iter().find(|limit| is_named(limit))
        {
            return Err(format!(
                "--limits `{limit}`: without --policy no page costs such a unit; add a rule with \
                 `cost`"
            ));
        }
        if self.store.is_none()
            && let Some(name) = given(&of_store)
        {
            return Err(format!("--{name} has an effect only with --store"));
        }
        let of_coordinator = [
            ("token-file", self.token_file.is_some()),
            ("on-unavailable", self.on_unavailable.is_some()),
        ];
        if self.coordinator.is_none()
            && let Some(name) = given(&of_coordinator)
        {
            return Err(format!("--{name} has an effect only with --coordinator"));
        }
        if self.proxy.is_empty() && self.proxy_by.is_some() {
            return Err("--proxy-by has an effect only with --proxy".to_owned());
        }
        let of_worker = [
            ("client", self.client.is_some()),
            ("labels", self.labels.is_some()),
        ];
        if self.coordinator.is_none()
            && self.policy.is_none()
            && let Some(name) = given(&of_worker)
        {
            return Err(format!(
                "--{name} has an effect only with --coordinator or --policy"
            ));
        }
        if self.bearer_file.is_some() && self.basic_file.is_some() {
            return Err("--bearer-file cannot be combined with --basic-file; give one".to_owned());
        }
        self.site_in_force()?;
        if self.data.is_some() && self.data_file.is_some() {
            return Err("--data cannot be combined with --data-file; give one".to_owned());
        }
        match &self.lease {
            Some(lease) if lease.0 < STORE_LEASE_MIN => Err(format!(
                "--lease {:?}: must be at least {:?}",
                lease.0, STORE_LEASE_MIN
            )),
            _ => Ok(()),
        }
    }
}

fn is_named(limit: &DeclaredLimit) -> bool {
    matches!(limit.unit(), LimitUnit::Named(_))
}

/// Checks that the law has a cut if one is set.
pub(crate) fn cut_in_force(cut: Option<f64>, law: Option<LawName>) -> Result<(), String> {
    match cut {
        Some(_) if law != Some(LawName::Aimd) => {
            Err("--cut has an effect only with --law aimd".to_owned())
        }
        _ => Ok(()),
    }
}
