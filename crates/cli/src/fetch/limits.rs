//! Permits: each key's own limit, and the operator's limits for sites and for the run.
//!
//! A request names its host's key first. That key gets the outcome and learns from it. An
//! operator's numbers for a site or for the whole run are keys of their own with a fixed rate. They
//! come after the host's key, and learn only that a request is over: a refusal by one host must not
//! slow the others that share them.

mod keys;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use politely::cells::{Risk, Severity};
use politely::core::Timestamp;
use politely::core::gate::HoldReason;
use politely::core::host::{Explanation, KeyRule, Source};
use politely::core::retry::Attempt;
use politely::core::signal::Signal;
use politely::{
    Arrival, Config, Directions, Key, Keys, Limiter, Permit, Plan, Reason, Recovery, Refusal,
    RefusalReason, Report,
};
use politely_otlp::Collector;

use super::fleet::{STORE, config, limiter, no_beginning};
use super::lanes::{KeySet, Lane, Refused};
use super::rules::read;
use super::trace::Trace;
use super::transport::answer::Came;
use super::transport::egresses::Bound;
use crate::config::{KeyKind, Settings};
use crate::exit::Wrong;
use crate::site_rps::SiteRps;
use keys::{egress_name, paced_by_site};

/// The share of the slots from which on they hold a host's rate back.
const SLOTS_BUSY: f64 = 0.7;

/// All limits of a run.
pub(crate) struct Limits {
    pub(super) limiter: Limiter,
    /// The name of the fleet's backend, for messages.
    pub(crate) shared_by: String,
    /// Whether no coordinator answers and the run does not wait for one.
    is_unavailable: AtomicBool,
    sites: Vec<(SiteRps, Key)>,
    run: Option<Key>,
    kind: KeyKind,
    /// Names of the egresses, one per proxy; empty if requests go directly.
    egresses: Vec<String>,
    turn: AtomicUsize,
    per_host: usize,
    /// Whether each request is recorded before it leaves.
    is_kept: bool,
    /// What a host's key follows if the operator set the rate of its site, and nothing else.
    paced_by_site: Option<Arc<KeyRule>>,
    /// The burst of a host's key, if nothing else is set.
    burst: f64,
    /// The start rate of an unknown host, in requests per second.
    rate_start: f64,
    /// The longest wait that keeps a run alive.
    give_up_after: Duration,
    trace: Trace,
    /// The method of requests, for rules about methods.
    pub(super) method: Method,
}

/// The permit of one request.
pub(crate) struct Leave {
    permit: Permit,
    /// What the policy says about the request.
    pub(super) plan: Option<Plan>,
    /// The proxy to send through.
    pub(crate) egress: usize,
    /// The keys of this process that the request names; empty without a state folder.
    keys: KeySet,
}

/// The longest wait for the last reports to the fleet at the end of a run.
const SETTLE: Duration = Duration::from_secs(3);
/// The longest hold that a run waits for. A host with a longer one is set aside.
const WAIT_MAX: Duration = Duration::from_hours(1);

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Wrong> {
        let config = config(settings);
        let per_host = config.limits.in_flight as usize;
        let start = config.limits.start();
        // The limiter may have to know every host of the run at once.
        let limiter = limiter(settings, usize::MAX)?;
        let shared = |name: &str, rps: f64, burst: f64, in_flight: u32| {
            let mut config = Config::fixed(rps, burst.max(1.0));
            config.limits.in_flight = in_flight;
            let key = Key::custom(name).map_err(|why| Wrong(format!("{name}: {why}")))?;
            limiter
                .configure(&key, config)
                .map_err(|why| Wrong(format!("{name}: {why}")))?;
            Ok::<_, Wrong>(key)
        };
        if let Some(file) = &settings.policy {
            limiter.set_policy(read(file, settings)?);
        }
        let mut sites = Vec::new();
        for site in &settings.sites.0 {
            let key = shared(
                &format!("site-rps/{}", site.site),
                site.rps,
                site.rps,
                site.in_flight(),
            )?;
            sites.push((site.clone(), key));
        }
        let run = settings
            .global_rps
            .map(|rps| shared("max-rps", rps, 1.0, settings.concurrency))
            .transpose()?;
        Ok(Self {
            limiter,
            sites,
            run,
            is_unavailable: AtomicBool::new(false),
            shared_by: match &settings.coordinator {
                Some(url) => format!("the coordinator {url}"),
                // The URL of an engine may contain a password.
                None => STORE.to_owned(),
            },
            kind: settings.key,
            egresses: settings
                .proxies
                .iter()
                .map(|proxy| egress_name(proxy))
                .collect(),
            turn: AtomicUsize::new(0),
            per_host,
            is_kept: settings.state.is_some(),
            paced_by_site: paced_by_site(settings),
            burst: start.burst,
            rate_start: start.rate,
            give_up_after: settings.give_up_after,
            trace: Trace::default(),
            method: settings.request.method(),
        })
    }

    /// Sends spans of the acquires to `collector`.
    pub(crate) fn traced_by(mut self, collector: Option<Collector>) -> Self {
        self.trace = Trace::new(collector, &self.limiter);
        self
    }

    /// Returns the maximum of requests in flight per host.
    pub(crate) fn per_host(&self) -> usize {
        self.per_host
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.limiter.now()
    }

    /// Returns a permit if a request of `lane` may leave now. It leaves through the egress `bound`,
    /// if there is one.
    pub(crate) fn may_leave(&self, lane: &Lane, bound: Option<Bound>) -> Result<Leave, Refused> {
        // An egress's turn passes when a request leaves, not when permits are asked for, which
        // happens under the lanes' lock.
        let ways = self.egresses.len().max(1);
        let turn = self.turn.load(Ordering::Relaxed) % ways;
        let turn = bound.map_or(turn, |bound| bound.egress);
        if let [keys] = self.keys_now(lane) {
            return self.leave(lane, keys, turn);
        }
        if let Some(bound) = bound
            && let Some(keys) = lane.keys.get(bound.egress)
        {
            return self.leave(lane, keys, bound.egress).map_err(|refused| {
                match refused {
                    // Other pages may leave through other egresses.
                    Refused::At(at) | Refused::Slot(at, _) if bound.is_of_page => Refused::Page(at),
                    other => other,
                }
            });
        }
        // This asks the egress that is next in turn, and then the others.
        let mut soonest: Option<Refused> = None;
        let count = lane.keys.len();
        for egress in (0..count).map(|i| (turn + i) % count) {
            match self.leave(lane, &lane.keys[egress], egress) {
                Ok(leave) => return Ok(leave),
                Err(refused)
                    if soonest
                        .as_ref()
                        .is_none_or(|known| refused.at() < known.at()) =>
                {
                    soonest = Some(refused);
                }
                Err(_) => {}
            }
        }
        Err(soonest.unwrap_or(Refused::At(Timestamp::NEVER)))
    }

    /// Asks for the permit of `keys`, to leave through `egress`.
    fn leave(&self, lane: &Lane, keys: &KeySet, egress: usize) -> Result<Leave, Refused> {
        let plan = self.plan(lane, &keys[0])?;
        let permit = match &plan {
            None => self.limiter.try_acquire(&keys[..]),
            Some(plan) => {
                let all: Vec<Key> = [plan.keys().as_slice(), &keys[1..]].concat();
                let all = Keys::planned(&all);
                self.limiter
                    .try_in_turn(all, plan.ask().clone(), Arrival::LAST)
            }
        };
        let permit = permit.map_err(|refusal| self.refused(lane, refusal, plan.as_ref()))?;
        self.turn.store(egress + 1, Ordering::Relaxed);
        self.trace.granted(lane, &keys[0], self.now());
        let of_host = match &plan {
            _ if self.is_fleet() => &[],
            None => &keys[..1],
            Some(plan) => plan.keys().as_slice(),
        };
        let keys = if self.is_kept {
            [of_host, &keys[1..]].concat().into()
        } else {
            KeySet::default()
        };
        Ok(Leave {
            permit,
            plan,
            egress,
            keys,
        })
    }

    fn refused(&self, lane: &Lane, refusal: Refusal, plan: Option<&Plan>) -> Refused {
        lane.waits_for.set(Some(refusal.reason));
        if refusal.reason == RefusalReason::Unavailable {
            self.is_unavailable.store(true, Ordering::Relaxed);
        }
        let now = self.now();
        // A declared limit frees at a known time, and the operator chose its window.
        let is_declared = refusal.reason == RefusalReason::Wait(Reason::Budget);
        let is_long = refusal.at.since(now) > WAIT_MAX && !is_declared;
        let why = || {
            let explained = self.explain(&refusal.key);
            let why = explained.unwrap_or_else(|| refusal.reason.to_string());
            format!("{} {why}, longer than is waited for", refusal.key)
        };
        if is_long && refusal.at != Timestamp::NEVER {
            return Refused::SetAside(why());
        }
        let added = plan.map_or(&[][..], |plan| &plan.keys().as_slice()[1..]);
        let is_held = matches!(refusal.reason, RefusalReason::Wait(Reason::Hold(_)));
        if is_held && lane.by_page && added.contains(&refusal.key) {
            return Refused::Page(refusal.at);
        }
        if added.contains(&refusal.key) || self.is_shared(&refusal.key) {
            return Refused::Shared(refusal.at, refusal.key);
        }
        match refusal.reason {
            RefusalReason::Asked => Refused::Asked(refusal.at),
            RefusalReason::Wait(Reason::Hold(HoldReason::RetryAfter))
                if refusal.at.since(now) > self.give_up_after =>
            {
                Refused::Held(refusal.at, why())
            }
            // These waits end with a report. The given time is only the end of a lease.
            RefusalReason::Wait(Reason::InFlight | Reason::Breaker | Reason::Quarantine) => {
                Refused::Slot(refusal.at, refusal.key)
            }
            _ => Refused::At(refusal.at),
        }
    }

    /// Returns whether other processes use the same limits.
    pub(crate) fn is_fleet(&self) -> bool {
        self.limiter.is_shared()
    }

    /// Returns whether many lanes name this key.
    fn is_shared(&self, key: &Key) -> bool {
        matches!(self.kind, KeyKind::Site | KeyKind::Address)
            || self.run.as_ref() == Some(key)
            || self.sites.iter().any(|(_, site)| site == key)
    }

    /// Returns the rate of `key` in requests per second, if this process knows it.
    pub(crate) fn rate(&self, key: &Key) -> Option<f64> {
        self.limiter.rate(key)
    }

    /// Returns why `key` waits. A coordinator explains its own keys.
    pub(crate) fn explain(&self, key: &Key) -> Option<String> {
        let explained = self.limiter.explain(key);
        explained.map(|explained| explained.line(self.now()))
    }

    /// Returns how `key` stands, if this process knows it.
    pub(crate) fn explanation(&self, key: &Key) -> Option<Explanation> {
        self.limiter.explain(key)
    }

    /// Returns why the rate of `key` is not higher, in a few words.
    pub(crate) fn held_back_by(&self, key: &Key) -> String {
        let Some(explained) = self.limiter.explain(key) else {
            return "-".to_owned();
        };
        let (rate, cap) = (explained.rate, explained.in_force.in_flight.0);
        let in_flight = explained
            .latency
            .map_or(0.0, |(median, _)| median.as_secs_f64() * rate);
        if explained.in_force.crawl_delay.is_some() {
            "Crawl-delay".to_owned()
        } else if explained.refused > 0 {
            "the host's limit".to_owned()
        } else if in_flight > f64::from(cap) * SLOTS_BUSY {
            format!("{cap} in flight")
        } else if matches!(explained.in_force.rate.1, Source::Learned) {
            "still rising".to_owned()
        } else {
            "the profile's maximum".to_owned()
        }
    }

    /// Waits until some hosts may have a permit, and returns their keys. Never returns without a
    /// fleet.
    pub(crate) async fn ready(&self) -> Vec<Key> {
        self.limiter.ready().await
    }

    /// Checks that the coordinator or engine accepts this process, if there is a fleet, and that
    /// the engine does not lose what it acknowledges.
    pub(crate) async fn ping(&self) -> Result<(), Wrong> {
        let accepted = self.limiter.ping().await;
        accepted.map_err(|why| Wrong(no_beginning(&self.shared_by, &why)))?;
        self.risks().first().map_or(Ok(()), |risk| {
            Err(Wrong(format!("{} {}", self.shared_by, risk.text)))
        })
    }

    /// Returns the settings with which the engine loses writes while it runs. A run does not
    /// report what a restart of the engine loses.
    pub(crate) fn risks(&self) -> Vec<Risk> {
        let mut risks = self.limiter.risks();
        risks.retain(|risk| risk.severity == Severity::Critical);
        risks
    }

    /// Returns why the coordinator or engine does not answer, if so.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.limiter.last_error()
    }

    /// Returns whether the run ends because no coordinator answers.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_unavailable.load(Ordering::Relaxed)
    }

    /// Returns unused permits to the fleet, and waits until everything is reported.
    pub(crate) async fn settle(&self) {
        if self.is_fleet() {
            self.limiter.close();
            self.limiter.flush(SETTLE).await;
        }
    }

    /// Returns the learned state of `key`, for storage.
    pub(crate) fn snapshot(&self, key: &Key) -> Option<politely::Snapshot> {
        let snapshot = || self.limiter.snapshot(key);
        (!self.is_fleet()).then(snapshot).flatten()
    }

    /// Returns what `key` spent of its declared limits, for storage.
    pub(crate) fn spent(&self, key: &Key) -> Option<politely::Snapshot> {
        let spent = || self.limiter.spent(key);
        (!self.is_fleet()).then(spent).flatten()
    }

    /// Restores `key` after a kill. Nothing leaves for one interval, unless a whole burst has been
    /// earned since `newest`.
    pub(crate) fn resume(&self, key: &Key, recovery: &Recovery<'_>) {
        if let Some(state) = recovery.state {
            // A state that cannot be read counts as unknown.
            _ = self.limiter.restore(key, state);
        }
        let site = self.sites.iter().find(|(_, site)| site == key);
        let burst = site.map_or(self.burst, |(site, _)| site.rps.max(1.0));
        let rate = self.limiter.rate(key).unwrap_or(self.rate_start);
        let earned = self.now().since(recovery.newest).as_secs_f64() * rate;
        if earned < burst || recovery.spent.is_some() {
            let without_state = Recovery {
                state: None,
                ..*recovery
            };
            _ = self.limiter.resume(key, &without_state);
        }
    }

    /// Restores what an earlier run learned about `key`. A state that cannot be read counts as
    /// unknown.
    pub(crate) fn restore(&self, key: &Key, state: &[u8]) {
        if !self.is_fleet() {
            _ = self.limiter.restore(key, state);
        }
    }
}

impl Leave {
    /// Returns the keys of this process that the request names.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Marks that the request leaves.
    pub(crate) fn sent(&mut self) {
        self.permit.sent();
    }

    /// Returns whether rules of the coordinator read the bodies of good answers.
    pub(crate) fn needs_body(&self) -> bool {
        self.permit.needs_body()
    }

    /// Shows the answer to rules of the coordinator. The future is the meaning that a rule gives
    /// it: await it after the report.
    pub(crate) fn show(
        &mut self,
        came: &Came,
        attempt: &Attempt,
    ) -> Option<impl Future<Output = Option<Signal>> + Send + use<>> {
        self.permit.show(&came.outcome(), attempt)
    }

    /// Runs `sending` and renews the slots until it ends.
    pub(crate) async fn during<T>(&self, sending: impl Future<Output = T>) -> T {
        self.permit.during(sending).await
    }

    /// Reports the outcome of the request.
    pub(crate) fn report(self, report: &Report) -> Directions {
        self.permit.report(report)
    }
}
