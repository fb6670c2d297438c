//! Weighs the reports of a host by its evidence, and undoes cuts that the evidence refutes.

use super::Host;
use super::evidence::{Evidence, Fault, Kind, OWN_FAULTS, OWN_REFUSALS};
use crate::Timestamp;
use crate::config::Config;
use crate::control::Law;
use crate::gate::Lease;
use crate::signal::{Report, Resource, Signal};

impl Host {
    /// Returns what `report` counts against. A late report, without a `lease`, changes nothing
    /// here.
    #[inline]
    pub(super) fn weigh(&mut self, lease: Option<&Lease>, report: &Report) -> Fault {
        if report.signal == Signal::Ok {
            if let Some(rare) = &mut self.rare
                && let Some(evidence) = &mut rare.evidence
                && let Some(lease) = lease
            {
                let was_open = rare.breaker.open_until().is_some();
                evidence.served(report.resource.map(Resource::short), lease.id, was_open);
            }
            return Fault::Host;
        }
        self.weigh_failure(lease, report)
    }

    #[cold]
    fn weigh_failure(&mut self, lease: Option<&Lease>, report: &Report) -> Fault {
        if report.of_scope {
            return Fault::Url;
        }
        let kind = Kind::of(report);
        let Some(url) = report.resource.map(Resource::short) else {
            return match (kind, report.status) {
                (Kind::Answer, _) => Fault::Url,
                _ => Fault::Host,
            };
        };
        let known = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        // After a refusal, only a served page tells whether the refusals are over.
        let no_strike = self.strikes == 0;
        let told = |fault| match fault {
            Fault::Url if no_strike => Fault::Page,
            fault => fault,
        };
        if kind == Kind::Answer {
            if let (Some(evidence), Some(_)) = (known, lease) {
                evidence.answered(url);
            }
            return told(Fault::Url);
        }
        let Some(lease) = lease else {
            return match known {
                Some(evidence) if evidence.suspects(url) => Fault::Url,
                _ => Fault::Host,
            };
        };
        let (next, reported) = (self.leases.next(), self.leases.tally().reported);
        let served_before = self.latency.p50().is_some();
        let evidence = self.rare().evidence.get_or_insert_with(|| {
            // `reported` includes this report already.
            Box::new(Evidence::after(reported.saturating_sub(1)))
        });
        let is_gateways = matches!(report.status, None | Some(500..=502 | 504..=528 | 530..));
        evidence.says_refusals |=
            kind == Kind::Refusal && (report.retry_after.is_some() || !is_gateways);
        let refuses_urls = evidence.record >= OWN_FAULTS || evidence.is_proven(url);
        let fault = evidence.failed(url, kind, lease.id, next, served_before);
        match kind {
            Kind::Refusal | Kind::Block if !refuses_urls => fault,
            _ if !served_before => fault,
            _ => told(fault),
        }
    }

    /// Returns whether the host ever refused with a status that means it.
    pub(super) fn says_refusals(&self) -> bool {
        let evidence = self.rare.as_ref().and_then(|rare| rare.evidence.as_ref());
        evidence.is_some_and(|evidence| evidence.says_refusals)
    }

    /// Returns whether the URL of `report` is known to fail while others are served. A further
    /// failure may prove that an earlier one was no limit.
    pub(super) fn suspects(&self, report: &Report) -> bool {
        let evidence = self.rare.as_ref().and_then(|rare| rare.evidence.as_ref());
        (report.resource.map(Resource::short).zip(evidence))
            .is_some_and(|(url, evidence)| evidence.suspects(url))
    }

    /// Returns whether the last answer for `url` is known to be a failure.
    pub(super) fn has_failed(&self, url: Option<u32>) -> bool {
        let evidence = self.rare.as_ref().and_then(|rare| rare.evidence.as_ref());
        url.zip(evidence)
            .is_some_and(|(url, evidence)| evidence.remembers(url))
    }

    /// Returns whether `report` is a refusal that may still be a limit of the host: its URL has not
    /// proved to be at fault, and few others have. Its Retry-After then holds the host.
    pub(super) fn may_be_a_limit(&self, report: &Report) -> bool {
        let evidence = self.rare.as_ref().and_then(|rare| rare.evidence.as_ref());
        let (Some(url), Some(evidence)) = (report.resource.map(Resource::short), evidence) else {
            return false;
        };
        report.retry_after.is_some()
            && !report.of_scope
            && Kind::of(report) == Kind::Refusal
            && evidence.record < OWN_REFUSALS
            && !evidence.is_proven(url)
    }

    /// Saves the law before it cuts the rate for `report`, in case the URL proves to be at fault.
    pub(super) fn before_cut(&mut self, report: &Report) {
        let law = &self.law;
        if let Some(rare) = &mut self.rare
            && let Some(evidence) = &mut rare.evidence
        {
            evidence.before_cut(report.resource.map(Resource::short), Kind::of(report), law);
        }
    }

    /// Restores the law from before cuts whose URLs all proved to be at fault themselves.
    pub(super) fn undo_cuts(&mut self, now: Timestamp, config: &Config) {
        let evidence = self.rare.as_mut().and_then(|rare| rare.evidence.as_mut());
        if let Some(mut before) = evidence.and_then(|evidence| evidence.undo_cuts()) {
            let limits = self.limits(config);
            if before.setpoint(now, limits).rate >= self.law.setpoint(now, limits).rate {
                self.law = before;
            }
        }
    }
}
