//! Reports to a host that may be suspected, and what they do to its gates.

use std::time::Duration;

use super::{Effect, RESTS, Sight, Suspicion};
use crate::config::Config;
use crate::gate::Lease;
use crate::host::Host;
use crate::host::answer::Doubt;
use crate::signal::{Report, Resource, Signal};
use crate::{Rng, Timestamp};

/// The first rest between the proof and a page that was refused: a limit of one request at a time
/// would refuse it at once. Later ones are as long as the rest before the proof, up to a bound.
const CHECK_AFTER: Duration = Duration::from_secs(1);
const CHECK_AFTER_MAX: Duration = Duration::from_mins(1);

impl Host {
    /// Returns what is known of the suspicion, since the first odd answer.
    pub(in crate::host) fn suspicion(&self) -> Option<&Suspicion> {
        self.rare.as_ref()?.suspicion.as_deref()
    }

    /// Returns whether an answer is one that proved to be a limit of this host.
    #[inline]
    pub(in crate::host) fn is_known_limit(&self, report: &Report) -> bool {
        let limit = self.suspicion().and_then(|suspicion| suspicion.limit);
        limit.is_some() && report.odd().or(report.trouble()) == limit
    }

    /// Handles the suspicion after a report. Returns what it says about the page's answer.
    #[inline]
    pub(in crate::host) fn suspect(
        &mut self,
        now: Timestamp,
        lease: Option<&Lease>,
        report: &Report,
        rng: &mut Rng,
    ) -> Doubt {
        if self.suspicion().is_none() && report.odd().is_none() {
            return Doubt::None;
        }
        self.see(now, lease, report, rng)
    }

    /// Notes an answer that tells whether errors are those of an overloaded host. Returns whether
    /// this one is.
    #[inline]
    pub(in crate::host) fn is_refused_by_error(
        &mut self,
        now: Timestamp,
        lease: Option<&Lease>,
        report: &Report,
        config: &Config,
    ) -> bool {
        let Some(lease) = lease else {
            return false;
        };
        if report.signal == Signal::Ok {
            return self.suspicion().is_some() && self.try_errors(now, lease, false, config);
        }
        self.may_be_an_overload(report)
            && !self.has_failed(report.resource.map(Resource::short))
            && self.try_errors(now, lease, true, config)
    }

    /// Returns whether an overload may cause the error. A host that refuses by status needs none.
    fn may_be_an_overload(&self, report: &Report) -> bool {
        report.is_error() && (report.signal == Signal::UrlError || !self.says_refusals())
    }

    #[cold]
    fn try_errors(
        &mut self,
        now: Timestamp,
        lease: &Lease,
        is_error: bool,
        config: &Config,
    ) -> bool {
        let (next, rate) = (self.leases.next().0, self.bounds(now, config).rate.per_s);
        let suspicion = self.rare().suspicion.get_or_insert_default();
        (suspicion.errors).is_refusal(now, is_error, lease.id.0, next, rate)
    }

    /// Returns whether the answer may be a refusal of an overloaded host.
    pub(in crate::host) fn may_be_overload(&self, report: &Report) -> bool {
        let suspicion = self.suspicion();
        self.may_be_an_overload(report) && suspicion.is_some_and(|known| known.errors.is_overload())
    }

    /// Returns the rate at which a trial tells whether errors are those of an overloaded host,
    /// requests per second.
    #[inline]
    pub(in crate::host) fn trial_rate(&self) -> Option<f64> {
        self.suspicion()?.errors.rate()
    }

    #[cold]
    fn see(
        &mut self,
        now: Timestamp,
        lease: Option<&Lease>,
        report: &Report,
        rng: &mut Rng,
    ) -> Doubt {
        let Some(lease) = lease else {
            return self.suspicion().map_or(Doubt::None, Suspicion::doubt);
        };
        // Reports without a URL count as reports about different ones.
        let url = report.resource.map_or(lease.id.0 as u32, Resource::short);
        let has_served = self.latency.p50().is_some();
        let sight = Sight::of(report);
        if !has_served && matches!(sight, Sight::Odd(_)) {
            // A host that never served a page is no host that changed.
            return Doubt::None;
        }
        let rare = self.rare();
        let suspicion = rare.suspicion.get_or_insert_default();
        let (effect, doubt) = suspicion.see(url, &sight, lease.is_probe(), report.can_check);
        match effect {
            // The probe told nothing. Other signals than these are judged with the breaker.
            Effect::Nothing
                if lease.is_probe()
                    && matches!(report.signal, Signal::Ok | Signal::UrlError)
                    && suspicion.is_active() =>
            {
                rare.quarantine.probe_lost();
            }
            Effect::Nothing => {}
            Effect::Suspect | Effect::Refused => {
                rare.quarantine.failure(now, &RESTS, rng);
            }
            Effect::Check => rare
                .quarantine
                .check_next(now + check_after(rare.quarantine.rests())),
            Effect::Clear => rare.quarantine.success(),
        }
        doubt
    }
}

/// Returns the rest between a proof that came after `rests` rests and a page that was refused.
fn check_after(rests: u8) -> Duration {
    match rests {
        ..2 => CHECK_AFTER,
        _ => (RESTS.rest_min * (1 << (rests - 1).min(9))).min(CHECK_AFTER_MAX),
    }
}
