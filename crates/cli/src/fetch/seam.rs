//! Stands in for politely::Limiter until it lands.
#![allow(missing_docs)]
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{Ask, Decision, Directions, Explanation, Host, Wait};
use politely_core::key::Key;
use politely_core::signal::Report;
use politely_core::{Rng, Timestamp};

#[derive(Clone)]
pub(crate) struct Limiter(Arc<Inner>);
struct Inner {
    config: Config,
    book: Mutex<(HashMap<Key, Host>, Rng)>,
    origin: Instant,
}
pub(crate) struct Permit {
    limiter: Limiter,
    key: Key,
    lease: Option<LeaseId>,
    sent: bool,
}
pub(crate) struct Refusal {
    pub(crate) wait: Wait,
    pub(crate) key: Key,
}

impl Limiter {
    pub(crate) fn new(config: Config) -> Self {
        Self(Arc::new(Inner { config, book: Mutex::new((HashMap::new(), Rng::new(1))), origin: Instant::now() }))
    }
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000 + self.0.origin.elapsed().as_micros() as u64)
    }
    fn with<T>(&self, key: &Key, f: impl FnOnce(&mut Host, &mut Rng, Timestamp, &Config) -> T) -> T {
        let now = self.now();
        let mut book = self.0.book.lock().unwrap_or_else(PoisonError::into_inner);
        let (hosts, rng) = &mut *book;
        if !hosts.contains_key(key) {
            hosts.insert(key.clone(), Host::new(&self.0.config, now));
        }
        f(hosts.get_mut(key).unwrap(), rng, now, &self.0.config)
    }
    pub(crate) fn try_acquire(&self, key: &Key) -> Result<Permit, Refusal> {
        match self.with(key, |host, _, now, config| host.request(now, Ask::default(), config)) {
            Decision::Granted(grant) => {
                Ok(Permit { limiter: self.clone(), key: key.clone(), lease: Some(grant.lease), sent: false })
            }
            Decision::Wait(wait) => Err(Refusal { wait, key: key.clone() }),
        }
    }
    pub(crate) fn hold(&self, key: &Key, until: Timestamp, reason: HoldReason) {
        self.with(key, |host, _, now, _| host.hold(now, until, reason));
    }
    pub(crate) fn explain(&self, key: &Key) -> Explanation {
        self.with(key, |host, _, now, config| host.explain(now, config))
    }
    pub(crate) fn snapshot(&self, key: &Key) -> Option<Vec<u8>> {
        Some(self.with(key, |host, _, _, _| host.snapshot()))
    }
    pub(crate) fn restore(&self, _key: &Key, _state: &[u8]) {}
}
impl Permit {
    pub(crate) fn sent(&mut self) {
        self.sent = true;
    }
    pub(crate) fn report(mut self, report: &Report) -> Directions {
        let lease = self.lease.take().unwrap();
        self.limiter.with(&self.key, |host, rng, now, config| host.report(now, lease, report, config, rng))
    }
}
impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.limiter.with(&self.key, |host, _, now, config| host.cancel(now, lease, self.sent, config));
        }
    }
}

pub(crate) fn classify(
    outcome: &politely_core::signal::Outcome<'_>,
    _clock: politely_core::signal::WallClock,
    latency: std::time::Duration,
    bytes: u64,
) -> Report {
    use politely_core::signal::{Failure, Outcome, Signal};
    let mut report = Report {
        signal: Signal::Ok,
        status: None,
        failure: None,
        latency,
        bytes,
        retry_after: None,
        quota: None,
    };
    match outcome {
        Outcome::Failed(failure) => {
            report.failure = Some(*failure);
            report.signal = match failure {
                Failure::Timeout | Failure::Reset => Signal::Overloaded,
                Failure::Malformed => Signal::UrlError,
                _ => Signal::Unreachable,
            };
        }
        Outcome::Answered { status, headers, .. } => {
            report.status = Some(status.as_u16());
            report.retry_after = politely_core::signal::retry_after(headers, _clock);
            report.signal = match status.as_u16() {
                100..=399 | 404 | 410 => Signal::Ok,
                429 => Signal::RateLimited,
                502..=504 => Signal::Overloaded,
                _ => Signal::UrlError,
            };
        }
    }
    report
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) refusals: u32,
}
pub(crate) enum Next {
    Retry { after: std::time::Duration, requeue: bool },
    GiveUp(String),
    Done,
}
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) attempts_max: u32,
}
impl Attempt {
    pub(crate) fn first(_: http::Method) -> Self {
        Self { number: 1, refusals: 0 }
    }
    pub(crate) fn following(mut self, report: &Report, _delay: std::time::Duration) -> Self {
        self.number += 1;
        self.refusals += u32::from(report.signal == politely_core::signal::Signal::RateLimited);
        self
    }
}
impl Policy {
    pub(crate) fn crawler() -> Self {
        Self { attempts_max: 5 }
    }
    pub(crate) fn decide(&self, attempt: &Attempt, report: &Report, _rng: &mut Rng, _now: Timestamp) -> Next {
        use politely_core::signal::{Failure, Signal};
        let counted = attempt.number - attempt.refusals.min(attempt.number);
        match report.signal {
            Signal::Ok => Next::Done,
            Signal::RateLimited if attempt.refusals < 100 => {
                Next::Retry { after: std::time::Duration::ZERO, requeue: true }
            }
            Signal::Blocked => Next::GiveUp("blocked".into()),
            Signal::UrlError if report.status != Some(500) => Next::GiveUp("status".into()),
            _ if matches!(report.failure, Some(Failure::NoSuchHost | Failure::Tls | Failure::Malformed)) => {
                Next::GiveUp("permanent".into())
            }
            _ if counted >= self.attempts_max => Next::GiveUp(format!("failed {counted} times")),
            _ => Next::Retry { after: std::time::Duration::from_millis(300 << counted.min(5)), requeue: false },
        }
    }
}
