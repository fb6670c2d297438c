//! Our own client: core's host under one of its laws, as the library runs it.

use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{AcquireRequest, Decision, Host, Reason};
use politely_core::signal::{Report, Resource, Signal};
use politely_core::{Rng, Timestamp};

use crate::client::{Answer, Client, Reply};

/// One key's state machine, driven as the library drives it.
#[derive(Debug)]
pub struct Polite {
    host: Host,
    config: Config,
}

impl Polite {
    /// Creates a key in its initial state.
    pub fn new(config: Config, now: Timestamp) -> Self {
        Self {
            host: Host::new(&config, now),
            config,
        }
    }

    /// Returns the key's state.
    pub const fn host(&self) -> &Host {
        &self.host
    }
}

impl Client for Polite {
    fn ask(&mut self, now: Timestamp) -> Answer {
        match self
            .host
            .request(now, AcquireRequest::default(), &self.config)
        {
            Decision::Granted(grant) => Answer::Go(grant.lease.0),
            Decision::Wait(wait) if wait.reason == Reason::InFlight => Answer::AfterReply,
            Decision::Wait(wait) => Answer::At(wait.at),
        }
    }

    fn hear(&mut self, now: Timestamp, reply: &Reply, rng: &mut Rng) {
        // The result of `signal::classify` for these statuses and headers.
        let signal = match reply.status {
            429 => Signal::RateLimited,
            403 if reply.retry_after.is_none() => Signal::Blocked,
            ..400 => Signal::Ok,
            _ if reply.retry_after.is_some() => Signal::RateLimited,
            502..=504 => Signal::Overloaded,
            _ => Signal::UrlError,
        };
        let report = Report {
            status: reply.failure.is_none().then_some(reply.status),
            failure: reply.failure,
            latency: reply.latency,
            retry_after: reply.retry_after,
            quotas: reply.quota.into(),
            resource: reply.page.map(|page| Resource::of(&page.to_string())),
            ..Report::of(signal)
        };
        self.host
            .report(now, LeaseId(reply.ticket), &report, &self.config, rng);
    }

    fn rate(&self, now: Timestamp) -> Option<f64> {
        Some(self.host.explain(now, &self.config).rate)
    }
}
