//! Leave to send: each key's own limit, and on top of it what the operator set for sites and for the run.
//!
//! A request names its host's key first: that one hears the outcome and learns. An operator's numbers for a
//! site or for the whole run are keys of their own with a fixed rate, which come after it and only know that
//! a request is over: a refusal by one host must not slow the others that share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use politely::cells::redis::Redis;
use politely::core::Timestamp;
use politely::core::key::KeyError;
use politely::{
    Clock, Config, Directions, Key, Limiter, Permit, Reason, Refusal, RefusalReason, Report, Signal,
};
use url::Url;

use super::frontier::{Lane, Refused};
use crate::config::{KeyKind, Settings};
use crate::exit::Wrong;
use crate::site_rps::SiteRps;
use crate::token;

/// All limits of a run.
pub(crate) struct Limits {
    limiter: Limiter,
    /// Where the hosts' permits come from, if not from `limiter`.
    fleet: Option<Limiter>,
    /// … who keeps its limits, in words.
    pub(crate) shared_by: &'static str,
    sites: Vec<(SiteRps, Key)>,
    run: Option<Key>,
    kind: KeyKind,
    /// Names of the ways out, one per proxy; empty: directly.
    egresses: Vec<String>,
    turn: AtomicUsize,
    per_host: usize,
    /// Each request is written down before it leaves.
    is_kept: bool,
    /// Of a host's key, if nothing else is set.
    burst: f64,
    /// Of a host that is not known, requests per second.
    rate_start: f64,
}

/// The keys one request names, the host's first.
pub(crate) type KeySet = Box<[Key]>;

/// Leave to send one request.
pub(crate) struct Leave {
    permit: Permit,
    /// Of this process's own keys, where `permit` is the fleet's.
    own: Option<Permit>,
    /// Which proxy to send through.
    pub(crate) egress: usize,
    /// The keys of this process that it names; empty without a state folder.
    keys: KeySet,
}

/// At the end of a run the fleet has so long to hear the last reports.
const SETTLE: Duration = Duration::from_secs(3);
/// … which is either this, or a coordinator.
const STORE: &str = "the store";
/// With it the slots of a process that was killed return after this long; a request that takes longer renews them.
const STORE_LEASE: Duration = Duration::from_secs(20);
/// Waits longer than this are not waited for: the host is set aside.
const WAIT_MAX: Duration = Duration::from_hours(1);

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Wrong> {
        let config = config(settings);
        let per_host = config.limits.in_flight as usize;
        let start = config.limits.start();
        let clock = Clock::system();
        let limiter = Limiter::builder()
            .clock(clock.clone())
            .config(config)
            // Every host of the run may be known at once.
            .capacity(usize::MAX)
            .build()
            .map_err(|why| Wrong(why.to_string()))?;
        let shared = |name: &str, rps: f64, burst: f64, in_flight: u32| {
            let mut config = Config::fixed(rps, burst.max(1.0));
            config.limits.in_flight = in_flight;
            let key = Key::custom(name).map_err(|why| Wrong(format!("{name}: {why}")))?;
            limiter
                .configure(&key, config)
                .map_err(|why| Wrong(format!("{name}: {why}")))?;
            Ok::<_, Wrong>(key)
        };
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
            fleet: fleet(settings, clock)?,
            limiter,
            sites,
            run,
            shared_by: if settings.store.is_some() {
                STORE
            } else {
                "the coordinator"
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
            burst: start.burst,
            rate_start: start.rate,
        })
    }

    /// Requests in flight per host, at most.
    pub(crate) fn per_host(&self) -> usize {
        self.per_host
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.limiter.now()
    }

    /// The keys of requests to `url`: one set, or one per egress; none if its address has to be known first.
    pub(crate) fn keys(&self, url: &Url) -> Result<Box<[KeySet]>, KeyError> {
        let host = Key::of_url(url)?;
        let first: Vec<Key> = match self.kind {
            KeyKind::Host => vec![host],
            KeyKind::Site => vec![Key::site_of_url(url)?],
            KeyKind::EgressHost if self.egresses.is_empty() => vec![host],
            KeyKind::EgressHost => {
                let each = self
                    .egresses
                    .iter()
                    .map(|egress| Key::egress_host(egress, host.as_str()));
                each.collect::<Result<_, _>>()?
            }
            // Behind a proxy nobody knows the address; the host is the nearest thing.
            KeyKind::Address if !self.egresses.is_empty() => vec![host],
            KeyKind::Address => match url.host() {
                Some(url::Host::Ipv4(address)) => vec![Key::address(address.into())],
                Some(url::Host::Ipv6(address)) => vec![Key::address(address.into())],
                _ => Vec::new(),
            },
        };
        Ok(first
            .into_iter()
            .map(|key| self.with_shared(key, url))
            .collect())
    }

    /// `key`, and after it what the operator set for sites of `url` and for the run.
    pub(crate) fn with_shared(&self, key: Key, url: &Url) -> KeySet {
        let mut set = vec![key];
        if !self.sites.is_empty() {
            let host = url.host_str().unwrap_or_default().trim_end_matches('.');
            let site = Key::site_of_url(url).ok();
            let domain = site
                .as_ref()
                .and_then(|site| site.as_str().strip_prefix("site/"));
            let covering = self
                .sites
                .iter()
                .filter(|(site, _)| site.covers(host, domain));
            set.extend(covering.map(|(_, key)| key.clone()));
        }
        set.extend(self.run.clone());
        set.into_boxed_slice()
    }

    /// May a request of `lane` leave now?
    pub(crate) fn may_leave(&self, lane: &Lane) -> Result<Leave, Refused> {
        // A turn is taken by leaving, not by asking; asking is done under the frontier's lock.
        let ways = self.egresses.len().max(1);
        let turn = self.turn.load(Ordering::Relaxed) % ways;
        let leave = |(permit, own), egress, keys: &KeySet| {
            self.turn.store(egress + 1, Ordering::Relaxed);
            let own_keys = &keys[usize::from(self.fleet.is_some())..];
            Ok(Leave {
                permit,
                own,
                egress,
                keys: if self.is_kept {
                    own_keys.into()
                } else {
                    KeySet::default()
                },
            })
        };
        if let [keys] = self.keys_now(lane) {
            return match self.ask(keys) {
                Ok(permits) => leave(permits, turn, keys),
                Err(refusal) => Err(self.refused(refusal)),
            };
        }
        // The egress whose turn it is, or the next that may.
        let mut soonest: Option<Refusal> = None;
        let count = lane.keys.len();
        for egress in (0..count).map(|i| (turn + i) % count) {
            match self.ask(&lane.keys[egress]) {
                Ok(permits) => return leave(permits, egress, &lane.keys[egress]),
                Err(refusal) if soonest.as_ref().is_none_or(|known| refusal.at < known.at) => {
                    soonest = Some(refusal);
                }
                Err(_) => {}
            }
        }
        Err(soonest.map_or(Refused::At(Timestamp::NEVER), |refusal| {
            self.refused(refusal)
        }))
    }

    /// Our own keys first: a permit of the fleet's that waited for them would lapse.
    fn ask(&self, keys: &KeySet) -> Result<(Permit, Option<Permit>), Refusal> {
        let Some(fleet) = &self.fleet else {
            return Ok((self.limiter.try_acquire(&**keys)?, None));
        };
        let own = match &keys[1..] {
            [] => None,
            own => Some(self.limiter.try_acquire(own)?),
        };
        Ok((fleet.try_acquire(&keys[0])?, own))
    }

    fn refused(&self, refusal: Refusal) -> Refused {
        let now = self.now();
        if refusal.at.since(now) > WAIT_MAX && refusal.at != Timestamp::NEVER {
            let why = self
                .limiter
                .explain(&refusal.key)
                .map_or_else(|| refusal.reason.to_string(), |known| known.line(now));
            return Refused::SetAside(format!("{} {why}, longer than is waited for", refusal.key));
        }
        if self.is_shared(&refusal.key) {
            return Refused::Shared(refusal.at, refusal.key);
        }
        match refusal.reason {
            RefusalReason::Asked => Refused::Asked(refusal.at),
            // Their end is a report; the time is only when a lease runs out.
            RefusalReason::Wait(Reason::InFlight | Reason::Breaker | Reason::Quarantine) => {
                Refused::Slot(refusal.at, refusal.key)
            }
            _ => Refused::At(refusal.at),
        }
    }

    /// Do many lanes name this key?
    fn is_shared(&self, key: &Key) -> bool {
        matches!(self.kind, KeyKind::Site | KeyKind::Address)
            || self.run.as_ref() == Some(key)
            || self.sites.iter().any(|(_, site)| site == key)
    }

    /// The keys that a request of `lane` may leave under: with a Crawl-delay those of the first egress alone, since it is the
    /// host's, whichever way requests leave.
    fn keys_now<'a>(&self, lane: &'a Lane) -> &'a [KeySet] {
        let Some(delay) = lane.robots.crawl_delay(self.now()) else {
            return &lane.keys;
        };
        let first = &lane.keys[..lane.keys.len().min(1)];
        for keys in first {
            let limiter = self.fleet.as_ref().unwrap_or(&self.limiter);
            // Where there is no room for the key, who asks for a permit is told so.
            let _ = limiter.crawl_delay(&keys[0], delay);
        }
        first
    }

    /// The operator's own number for `lane`, requests per second.
    pub(crate) fn operator_rps(&self, lane: &Lane) -> Option<f64> {
        let keys = lane.keys.first()?;
        self.sites
            .iter()
            .find(|(_, key)| keys.contains(key))
            .map(|(site, _)| site.rps)
    }

    /// Requests per second that leave for `key`, as far as it is known here.
    pub(crate) fn rate(&self, key: &Key) -> Option<f64> {
        self.fleet.as_ref().unwrap_or(&self.limiter).rate(key)
    }

    /// Why `key` waits, in words; a coordinator's keys explain themselves there.
    pub(crate) fn explain(&self, key: &Key) -> Option<String> {
        let now = self.now();
        let fleet = self.fleet.as_ref().and_then(|fleet| fleet.explain(key));
        fleet
            .or_else(|| self.limiter.explain(key))
            .map(|explained| explained.line(now))
    }

    /// Waits until it is worth asking again for some hosts, and says for which; for ever without a fleet.
    pub(crate) async fn ready(&self) -> Vec<Key> {
        match &self.fleet {
            Some(fleet) => fleet.ready().await,
            None => std::future::pending().await,
        }
    }

    /// Does whoever keeps the fleet's limits, if there is a fleet, listen to us?
    pub(crate) async fn greet(&self) -> Result<(), Wrong> {
        match &self.fleet {
            Some(fleet) => fleet
                .greet()
                .await
                .map_err(|why| Wrong(no_beginning(self.shared_by, &why))),
            None => Ok(()),
        }
    }

    /// Why they do not answer, if they do not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.fleet.as_ref()?.trouble()
    }

    /// Gives back what is not used and waits until all is reported.
    pub(crate) async fn settle(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.close();
            fleet.settled(SETTLE).await;
        }
    }

    /// What was learned about `key`, to be kept.
    pub(crate) fn snapshot(&self, key: &Key) -> Option<politely::Snapshot> {
        match &self.fleet {
            Some(_) => None,
            None => self.limiter.snapshot(key),
        }
    }

    /// Goes on with `key` after a kill. Unless a whole burst has been earned since `newest`,
    /// nothing leaves for one interval.
    pub(crate) fn resume(&self, key: &Key, state: Option<&[u8]>, newest: Timestamp) {
        if let Some(state) = state {
            // A state that cannot be read is a state not known.
            _ = self.limiter.restore(key, state);
        }
        let site = self.sites.iter().find(|(_, site)| site == key);
        let burst = site.map_or(self.burst, |(site, _)| site.rps.max(1.0));
        let rate = self.limiter.rate(key).unwrap_or(self.rate_start);
        let earned = self.now().since(newest).as_secs_f64() * rate;
        if earned < burst {
            _ = self.limiter.resume(key, None, newest);
        }
    }

    /// What an earlier run learned about `key`; a state that cannot be read is a state not known.
    pub(crate) fn restore(&self, key: &Key, state: &[u8]) {
        if self.fleet.is_none() {
            _ = self.limiter.restore(key, state);
        }
    }
}

impl Leave {
    /// The keys of this process that it names.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The request leaves.
    pub(crate) fn sent(&mut self) {
        self.permit.sent();
        if let Some(own) = &mut self.own {
            own.sent();
        }
    }

    /// Sends it: as long as that takes, its slots are its own.
    pub(crate) async fn during<T>(&self, sending: impl Future<Output = T>) -> T {
        match &self.own {
            Some(own) => own.during(self.permit.during(sending)).await,
            None => self.permit.during(sending).await,
        }
    }

    /// What happened to it.
    pub(crate) fn report(self, report: &Report) -> Directions {
        if let Some(own) = self.own {
            // A limit to be kept: it hears no refusal.
            let bytes = report.bytes;
            own.report(&Report {
                bytes,
                ..Report::of(Signal::Ok)
            });
        }
        self.permit.report(report)
    }
}

/// The limiter shared with other processes, if there are any.
fn fleet(settings: &Settings, clock: Clock) -> Result<Option<Limiter>, Wrong> {
    match (&settings.coordinator, &settings.store) {
        (Some(url), _) => coordinator(settings, url, clock).map(Some),
        (None, Some(url)) => store(settings, url, clock).map(Some),
        (None, None) => Ok(None),
    }
}

/// Why a run cannot begin with whoever keeps the fleet's limits, and what to do.
fn no_beginning(shared_by: &str, why: &str) -> String {
    let hint = match shared_by {
        // The engine's complaints that we know say it themselves.
        _ if why.contains("; ") => "",
        STORE => {
            "; start it, or correct the URL (docs/explanation/fleet.md says what it must allow)"
        }
        _ => token::advice(why),
    };
    format!("{shared_by} refuses us: {why}{hint}")
}

/// What `--store` names.
fn store(settings: &Settings, url: &str, clock: Clock) -> Result<Limiter, Wrong> {
    let url = token::store_url(url, settings.store_password_file.as_deref())?;
    let engine = Redis::connect(&url).map_err(|why| Wrong(format!("--store: {why}")))?;
    let mut config = config(settings);
    config.lease = settings.lease.unwrap_or(STORE_LEASE);
    let builder = Limiter::builder().config(config).clock(clock);
    let builder = builder.store(Arc::new(engine));
    let limiter = builder.when_away(settings.store_away.into()).build();
    limiter.map_err(|why| Wrong(why.to_string()))
}

/// The limiter that `--coordinator` names.
fn coordinator(settings: &Settings, url: &str, clock: Clock) -> Result<Limiter, Wrong> {
    let builder = Limiter::builder().clock(clock).coordinator(url);
    let builder = match token::read(settings.token_file.as_deref())? {
        Some(token) => builder.token(token.text),
        None => builder,
    };
    let limiter = builder
        .build()
        .map_err(|why| Wrong(format!("--coordinator: {why}")))?;
    Ok(limiter)
}

/// The profile, and over it the operator's numbers.
fn config(settings: &Settings) -> Config {
    settings.profile.config(settings.law, settings.numbers)
}

/// A proxy's name without its credentials.
fn egress_name(proxy: &str) -> String {
    Url::parse(proxy)
        .ok()
        .and_then(|url| {
            Some(format!(
                "{}:{}",
                url.host_str()?,
                url.port_or_known_default().unwrap_or(0)
            ))
        })
        .unwrap_or_else(|| "proxy".to_owned())
}
