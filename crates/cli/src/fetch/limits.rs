//! Leave to send: each key's own limit, and on top of it what the operator set for sites and for the run.
//!
//! The hosts' limiter learns. An operator's number for a site or for the whole run is a limiter of its own
//! with a fixed rate: a refusal by one host must not slow the others that share it, so those limiters are only
//! told that a request is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::control::{AdviceConfig, AimdConfig, LawConfig};
use politely_core::gate::HoldReason;
use politely_core::host::{Directions, Explanation, Reason};
use politely_core::key::{Key, KeyError};
use politely_core::signal::{Report, Signal};
use url::Url;

use super::frontier::{Lane, Refused};
use super::seam::{Limiter, Permit, Refusal};
use crate::config::{KeyKind, LawName, Profile, Settings};
use crate::exit::Wrong;
use crate::site_rps::SiteRps;

/// All limits of a run.
pub(crate) struct Limits {
    hosts: Limiter,
    sites: Vec<(SiteRps, Shared)>,
    run: Option<Shared>,
    kind: KeyKind,
    /// Names of the ways out, one per proxy; empty: directly.
    egresses: Vec<String>,
    turn: AtomicUsize,
}

/// A limit that several keys share.
struct Shared {
    limiter: Limiter,
    key: Key,
}

/// Leave to send one request.
pub(crate) struct Leave {
    host: Permit,
    shared: Vec<Permit>,
    /// Which proxy to send through.
    pub(crate) egress: usize,
}

/// Waits longer than this are not waited for: the host is set aside.
const WAIT_MAX: Duration = Duration::from_secs(3600);

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Wrong> {
        let config = config(settings);
        config.validate().map_err(|why| Wrong(why.to_string()))?;
        let shared = |name: &str, rps: f64, burst: f64, in_flight: u32| {
            let mut config = Config::fixed(rps, burst.max(1.0));
            config.limits.in_flight = in_flight;
            config.lease = config.lease.max(settings.timeout * 2);
            let key = Key::custom(name).map_err(|why| Wrong(format!("{name}: {why}")))?;
            Ok(Shared { limiter: Limiter::new(config), key })
        };
        let mut sites = Vec::new();
        for site in &settings.sites.0 {
            sites.push((site.clone(), shared(&site.site, site.rps, site.rps, site.in_flight())?));
        }
        let run = settings.global_rps.map(|rps| shared("run", rps, 1.0, settings.concurrency)).transpose()?;
        Ok(Self {
            hosts: Limiter::new(config),
            sites,
            run,
            kind: settings.key,
            egresses: settings.proxies.iter().map(|proxy| egress_name(proxy)).collect(),
            turn: AtomicUsize::new(0),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.hosts.now()
    }

    /// The keys of requests to `url`: one, or one per egress; none if its address has to be known first.
    pub(crate) fn keys(&self, url: &Url) -> Result<Box<[Key]>, KeyError> {
        Ok(match self.kind {
            KeyKind::Host => Box::new([Key::of_url(url)?]),
            KeyKind::Site => Box::new([Key::site_of_url(url)?]),
            KeyKind::EgressHost if self.egresses.is_empty() => Box::new([Key::of_url(url)?]),
            KeyKind::EgressHost => {
                let host = Key::of_url(url)?;
                let keys: Result<_, _> =
                    self.egresses.iter().map(|egress| Key::egress_host(egress, host.as_str())).collect();
                keys?
            }
            // Behind a proxy nobody knows the address; the host is the nearest thing.
            KeyKind::Address if !self.egresses.is_empty() => Box::new([Key::of_url(url)?]),
            KeyKind::Address => match url.host() {
                Some(url::Host::Ipv4(address)) => Box::new([Key::address(address.into())]),
                Some(url::Host::Ipv6(address)) => Box::new([Key::address(address.into())]),
                _ => {
                    Key::of_url(url)?;
                    Box::new([])
                }
            },
        })
    }

    /// The operator's sites that cover `url`.
    pub(crate) fn sites_of(&self, url: &Url) -> Box<[u16]> {
        if self.sites.is_empty() {
            return Box::default();
        }
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let site = Key::site_of_url(url).ok();
        let domain = site.as_ref().and_then(|site| site.as_str().strip_prefix("site/"));
        (0_u16..).zip(&self.sites).filter(|(_, (site, _))| site.covers(host, domain)).map(|(i, _)| i).collect()
    }

    /// May a request of `lane` leave now?
    pub(crate) fn may_leave(&self, lane: &Lane) -> Result<Leave, Refused> {
        let turn = if self.egresses.len() > 1 { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let (host, egress) = self.by_host(lane, turn)?;
        let mut shared = Vec::new();
        for limit in lane.sites.iter().map(|&site| &self.sites[site as usize].1).chain(&self.run) {
            // What was granted so far is given back, unsent.
            shared.push(limit.limiter.try_acquire(&limit.key).map_err(|refusal| self.refused(refusal))?);
        }
        Ok(Leave { host, shared, egress })
    }

    fn by_host(&self, lane: &Lane, turn: usize) -> Result<(Permit, usize), Refused> {
        let count = lane.keys.len();
        if count <= 1 {
            let Some(key) = lane.keys.first() else { return Err(Refused::At(self.now())) };
            let egress = if self.egresses.is_empty() { 0 } else { turn % self.egresses.len() };
            return Ok((self.hosts.try_acquire(key).map_err(|refusal| self.refused(refusal))?, egress));
        }
        // The egress whose turn it is, or the next that may.
        let mut soonest: Option<Refusal> = None;
        for egress in (0..count).map(|i| (turn + i) % count) {
            match self.hosts.try_acquire(&lane.keys[egress]) {
                Ok(permit) => return Ok((permit, egress)),
                Err(refusal) if soonest.as_ref().is_none_or(|known| refusal.wait.at < known.wait.at) => {
                    soonest = Some(refusal);
                }
                Err(_) => {}
            }
        }
        Err(soonest.map_or(Refused::At(self.now()), |refusal| self.refused(refusal)))
    }

    fn refused(&self, refusal: Refusal) -> Refused {
        let wait = refusal.wait;
        match wait.reason {
            // Its end is another request's report; the time is only when that one's lease runs out.
            Reason::InFlight => Refused::Slot(wait.at, refusal.key),
            Reason::Breaker | Reason::Quarantine if wait.at.since(self.now()) <= WAIT_MAX => {
                Refused::Slot(wait.at, refusal.key)
            }
            _ if wait.at.since(self.now()) > WAIT_MAX => Refused::SetAside(format!(
                "{}: {}; longer than {} s is not waited for",
                refusal.key.as_str(),
                self.hosts.explain(&refusal.key).line(self.now()),
                WAIT_MAX.as_secs()
            )),
            _ => Refused::At(wait.at),
        }
    }

    /// Nothing leaves for `lane` for `pause` (robots.txt: Crawl-delay).
    pub(crate) fn pause(&self, lane: &Lane, pause: Duration) {
        for key in &lane.keys {
            self.hosts.hold(key, self.now() + pause, HoldReason::CrawlDelay);
        }
    }

    pub(crate) fn explain(&self, key: &Key) -> Explanation {
        self.hosts.explain(key)
    }

    /// What was learned about `key`, to be kept.
    pub(crate) fn snapshot(&self, key: &Key) -> Option<Vec<u8>> {
        self.hosts.snapshot(key)
    }

    /// What an earlier run learned about `key`.
    pub(crate) fn restore(&self, key: &Key, state: &[u8]) {
        self.hosts.restore(key, state);
    }
}

impl Leave {
    /// The request leaves.
    pub(crate) fn sent(&mut self) {
        self.host.sent();
        for permit in &mut self.shared {
            permit.sent();
        }
    }

    /// What happened to it.
    pub(crate) fn report(self, report: &Report) -> Directions {
        if !self.shared.is_empty() {
            let over = Report { signal: Signal::Ok, retry_after: None, quota: None, ..report.clone() };
            for permit in self.shared {
                permit.report(&over);
            }
        }
        self.host.report(report)
    }
}

/// The profile, and over it the operator's numbers.
fn config(settings: &Settings) -> Config {
    let mut config = match settings.profile {
        Profile::Crawler => Config::crawler(),
        Profile::Api => Config::api(),
    };
    match settings.law {
        Some(LawName::Aimd) => config.law = LawConfig::Aimd(Arc::new(AimdConfig::default())),
        Some(LawName::Fixed) => config.law = LawConfig::Fixed,
        Some(LawName::Advice) => config.law = LawConfig::Advice(AdviceConfig::default()),
        None => {}
    }
    let limits = &mut config.limits;
    if let Some(rate) = settings.rate {
        limits.rate_max = rate;
        // With a law that does not move, the operator's number is the rate; else only its bound.
        let moves = matches!(config.law, LawConfig::Aimd(_));
        limits.rate_start = if moves { limits.rate_start.min(rate) } else { rate };
    }
    limits.burst = settings.burst.unwrap_or(limits.burst);
    limits.in_flight = settings.in_flight.unwrap_or(limits.in_flight);
    // A request must not outlive its lease.
    config.lease = config.lease.max(settings.timeout * 2);
    config
}

/// A proxy's name without its credentials.
fn egress_name(proxy: &str) -> String {
    Url::parse(proxy)
        .ok()
        .and_then(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default().unwrap_or(0))))
        .unwrap_or_else(|| "proxy".to_owned())
}
