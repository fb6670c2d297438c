//! Random operations on one host, checked by an independent model.
//!
//! The [`World`] calls a [`Host`] with [`Op`]s. It keeps its own record of the grants, their
//! holders and the server's answers, as plain lists and sequence numbers. After every step it
//! compares this record with the host.

mod books;
mod poke;

use std::collections::BTreeMap;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId, Refill};
use politely_core::host::{AcquireRequest, CrawlDelay, Decision, Host, OperatorNumbers, Unused};
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};

use crate::model::Op;

/// `TIMER_SLACK_S` in `gate/pace.rs`: the extra time for which a full bucket keeps filling, in
/// seconds.
const TIMER_SLACK: f64 = 0.005;

/// The model of a breaker: a gate that lets a single probe pass.
#[derive(Clone, Debug, Default)]
struct Door {
    run: u16,
    /// When the gate was shut, and the id of the first permit that is its probe.
    shut: Option<(Timestamp, u64)>,
}

impl Door {
    fn failed(&mut self, now: Timestamp, granted: u64, trip_after: u16) {
        if self.shut.is_none() {
            self.run += 1;
            if self.run >= trip_after {
                self.shut = Some((now, granted));
            }
        }
    }

    fn passed(&mut self, lease: u64) {
        match self.shut {
            Some((_, first)) if lease < first => {}
            _ => *self = Self::default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Out {
    /// The time at which the request leaves, in true time.
    leaves: Timestamp,
    expires: Timestamp,
}

/// The host, its clock, and the model of both.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) now: Timestamp,
    /// The latest time that the clock has shown.
    latest: Timestamp,
    /// The true time, as the server measures it. It goes on when the client's clock steps back.
    truly: Timestamp,
    live: BTreeMap<u64, Out>,
    /// Permits that were reported, cancelled or expired. A late report may still come.
    done: Vec<u64>,
    arrivals: Vec<Timestamp>,
    rate_max: f64,
    burst_max: f64,
    floor: Timestamp,
    /// The Crawl-delay in force, and its end.
    pause: Option<(Duration, Timestamp)>,
    breaker: Door,
    quarantine: Door,
    /// Id of the first permit granted after the last congestion event was known.
    event: u64,
    striking: bool,
    operator: bool,
    granted: u64,
    /// Number of permits of evicted hosts. The ids start again with each new host.
    forgotten: u64,
}

impl World {
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        let now = Timestamp::from_micros(1_000_000_000);
        let mut world = Self {
            host: Host::new(&config, now),
            rate_max: 0.0,
            burst_max: config.limits.burst,
            config,
            rng: Rng::new(seed),
            now,
            latest: now,
            truly: now,
            live: BTreeMap::new(),
            done: Vec::new(),
            arrivals: Vec::new(),
            floor: Timestamp::ZERO,
            pause: None,
            breaker: Door::default(),
            quarantine: Door::default(),
            event: 0,
            striking: false,
            operator: false,
            granted: 0,
            forgotten: 0,
        };
        world.note_rate();
        world
    }

    pub(crate) fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
        }
    }

    pub(crate) fn step(&mut self, op: &Op) {
        match *op {
            Op::Request { slots, horizon_ms } => self.request(slots, horizon_ms),
            Op::Report { which, ref report } => {
                if let Some(lease) = pick(self.live.keys().copied(), which) {
                    self.report(lease, report);
                }
            }
            Op::ReportAgain { which, ref report } => {
                if let Some(lease) = pick(self.done.iter().copied(), which) {
                    self.report(lease, report);
                }
            }
            Op::Cancel { which, sent } => {
                if let Some(lease) = pick(self.live.keys().copied(), which) {
                    self.cancel(lease, sent);
                }
            }
            Op::Renew { which } => {
                if let Some(lease) = pick(self.live.keys().copied(), which) {
                    self.renew(lease);
                }
            }
            Op::Ahead { micros } => {
                self.now = self.now + Duration::from_micros(micros);
                self.latest = self.latest.max(self.now);
                self.truly = self.truly + Duration::from_micros(micros);
            }
            Op::Back { micros } => {
                self.now = self.now - Duration::from_micros(micros);
                // After the clock was set back, a rest may begin no later than this clock's time.
                for door in [&mut self.breaker, &mut self.quarantine] {
                    if let Some((since, _)) = &mut door.shut {
                        *since = self.now.min(*since);
                    }
                }
            }
            Op::SetRate { rate, burst } => {
                self.host
                    .set(self.now, OperatorNumbers::rate(rate, burst), &self.config);
                self.burst_max = self.burst_max.max(burst);
                self.operator = true;
            }
            Op::Hold { millis } => {
                let until = self.now + Duration::from_millis(millis);
                self.host.hold(self.now, until, HoldReason::Operator);
                self.floor = self.floor.max(until);
            }
            Op::CrawlDelay { millis, fresh_ms } => self.crawl_delay(CrawlDelay {
                pause: Duration::from_millis(millis),
                fresh: Duration::from_millis(fresh_ms),
            }),
            Op::Unpark => {
                self.host.unpark(self.now, &self.config);
                self.pause = None;
                self.floor = Timestamp::ZERO;
                self.breaker = Door::default();
                self.quarantine = Door::default();
                self.striking = false;
            }
            Op::Evict => self.evict(),
            Op::Restore => self.restore(),
        }
        self.note_rate();
        self.check_books();
    }

    fn crawl_delay(&mut self, told: CrawlDelay) {
        let news = self.host.crawl_delay(self.now, told, &self.config);
        let until = self.now + told.fresh;
        match self.known_pause() {
            Some(known) if told.pause < known => assert!(!news),
            Some(known) if told.pause == known => {
                if news {
                    self.pause = Some((known, until));
                }
            }
            _ => {
                assert_eq!(news, !told.pause.is_zero());
                if news {
                    self.pause = Some((told.pause, until));
                    self.rest(self.now);
                }
            }
        }
    }

    /// Returns the Crawl-delay that is in force now.
    fn known_pause(&self) -> Option<Duration> {
        let (pause, _) = self.pause.filter(|(_, until)| *until > self.now)?;
        Some(pause)
    }

    /// Starts the rest of a request that ended at `ended`.
    fn rest(&mut self, ended: Timestamp) {
        match self.known_pause() {
            // A rest that was over when it was reported stays over, even if the clock is set back.
            Some(pause) if ended + pause > self.now => self.floor = self.floor.max(ended + pause),
            Some(_) => {}
            None => self.pause = None,
        }
    }

    fn request(&mut self, slots: u16, horizon_ms: u64) {
        let horizon = Duration::from_millis(horizon_ms);
        let ask = AcquireRequest {
            slots,
            horizon,
            ..AcquireRequest::default()
        };
        self.expire();
        let grant = match self.host.request(self.now, ask, &self.config) {
            Decision::Granted(grant) => grant,
            Decision::Wait(wait) => {
                assert!(wait.at > self.now, "told to ask again at once: {wait:?}");
                return;
            }
        };
        assert!(grant.slots >= 1 && grant.slots <= slots);
        assert_eq!(grant.lease, LeaseId(self.granted), "numbers count up");
        assert!(grant.start >= self.now && grant.start <= self.latest.max(self.now) + horizon);
        assert!(
            grant.start >= self.floor,
            "P4: granted for {} before {}",
            grant.start,
            self.floor
        );
        self.check_doors(grant.start, grant.slots);
        if self.known_pause().is_some() {
            assert!(
                grant.slots == 1 && self.live.is_empty(),
                "one at a time where a Crawl-delay holds"
            );
        }
        if self.striking {
            assert!(
                grant.slots == 1 && self.live.is_empty(),
                "one at a time after a refusal"
            );
        }
        for i in 0..grant.slots {
            let start = grant.start + grant.interval() * u32::from(i);
            let out = Out {
                leaves: self.truly + start.since(self.now),
                expires: start + self.config.lease,
            };
            self.live.insert(self.granted, out);
            self.granted += 1;
        }
        let cap = self.config.limits.in_flight as usize;
        assert!(
            self.live.len() <= cap,
            "P2: {} in flight of {cap}",
            self.live.len()
        );
    }

    fn check_doors(&self, start: Timestamp, slots: u16) {
        let doors = [
            (&self.breaker, &self.config.breaker),
            (&self.quarantine, &self.config.quarantine),
        ];
        for (door, config) in doors {
            if let Some((since, first)) = door.shut {
                assert_eq!(slots, 1, "a probe is single");
                assert_eq!(
                    self.live.range(first..).count(),
                    0,
                    "one probe at a time: {door:?}"
                );
                // If the clock was set back to a time before the rest began, the model does not
                // know its length.
                assert!(
                    start < since || start >= since + config.rest_min,
                    "rests are kept"
                );
            }
        }
    }

    fn report(&mut self, lease: u64, report: &Report) {
        self.expire();
        let known = self.live.remove(&lease);
        let told = self.host.report(
            self.now,
            LeaseId(lease),
            report,
            &self.config,
            &mut self.rng,
        );
        assert_eq!(told.late, known.is_none());
        self.rest(self.now);
        // The wait of a missing page, or of a page that fails by itself, is for that page alone.
        let alone = matches!(report.signal, Signal::Ok | Signal::UrlError);
        if let Some(after) = report.retry_after.filter(|_| !alone) {
            self.floor = self.floor.max(self.now + after);
        }
        let Some(out) = known else {
            assert!(!told.event, "a late report is no event");
            return;
        };
        self.arrivals.push(out.leaves);
        self.done.push(lease);
        self.judge(lease, report, told.event);
    }

    fn judge(&mut self, lease: u64, report: &Report, event: bool) {
        let in_trouble = report.status.is_some_and(|status| status >= 500);
        let (now, granted) = (self.now, self.granted);
        let knowing = lease >= self.event;
        match report.signal {
            Signal::Ok | Signal::UrlError => {
                if in_trouble {
                    self.breaker
                        .failed(now, granted, self.config.breaker.trip_after);
                } else {
                    self.breaker.passed(lease);
                }
                self.quarantine.passed(lease);
                if knowing {
                    self.striking = false;
                }
                assert!(!event);
                return;
            }
            Signal::Overloaded | Signal::Unreachable => {
                self.breaker
                    .failed(now, granted, self.config.breaker.trip_after);
            }
            Signal::Blocked => {
                self.quarantine
                    .failed(now, granted, self.config.quarantine.trip_after);
            }
            Signal::RateLimited => {}
        }
        assert_eq!(
            event, knowing,
            "an event is what happened to a permit granted after the last one was noticed"
        );
        if event {
            self.event = self.granted;
            self.striking |= matches!(report.signal, Signal::RateLimited | Signal::Overloaded);
        }
    }

    fn cancel(&mut self, lease: u64, sent: bool) {
        if let Some(out) = self.live.remove(&lease) {
            if sent {
                self.arrivals.push(out.leaves);
                self.rest(self.now);
            }
            self.done.push(lease);
        }
        self.host
            .cancel(self.now, LeaseId(lease), unused(sent), &self.config);
    }

    fn renew(&mut self, lease: u64) {
        self.expire();
        let renewed = self.host.renew(self.now, LeaseId(lease), &self.config);
        let until = self.now + self.config.lease;
        let known = self.live.get_mut(&lease);
        assert_eq!(renewed, known.is_some());
        if let Some(out) = known {
            // Leases last whole milliseconds.
            let more_ms = until.since(out.expires).as_micros().div_ceil(1_000) as u64;
            out.expires = out.expires + Duration::from_millis(more_ms);
        }
    }

    /// Evicts the key from the registry and creates it again at once.
    fn evict(&mut self) {
        self.expire();
        if !self.host.evictable(self.now, false, &self.config) {
            return;
        }
        assert!(self.live.is_empty(), "a lease is out");
        assert!(self.floor <= self.now, "a hold would be forgotten");
        assert!(self.breaker.shut.is_none() && self.quarantine.shut.is_none());
        assert!(
            !self.striking && !self.operator,
            "a strike or number would be forgotten"
        );
        let told = self.host.explain(self.now, &self.config);
        assert_eq!(told.law.ceiling, None, "a ceiling would be forgotten");
        assert_eq!(self.known_pause(), None, "a Crawl-delay would be forgotten");
        self.pause = None;
        self.host = Host::new(&self.config, self.now);
        self.forgotten += self.granted;
        self.granted = 0;
        self.event = 0;
        self.floor = Timestamp::ZERO; // The hold has passed, even if the clock steps back.
        self.done.clear();
        self.breaker = Door::default();
        self.quarantine = Door::default();
    }

    fn restore(&mut self) {
        let bytes = self.host.snapshot();
        let (shared, read_at) = Host::thaw(&bytes, self.now, &self.config).unwrap();
        assert_eq!(
            shared, self.host,
            "read by others, whatever their clock shows"
        );
        assert!(read_at >= self.now && read_at <= self.latest);
        // After the clock was set back, a restore moves the times. Another test covers that.
        if self.now < self.latest {
            return;
        }
        assert!(bytes.len() <= 1024, "{} bytes", bytes.len());
        let host = Host::restore(&bytes, self.now, &self.config).unwrap();
        assert_eq!(host.snapshot(), bytes);
        assert_eq!(host, self.host, "a restore changes nothing");
        self.host = host;
    }

    fn expire(&mut self) {
        let now = self.now;
        let expired: Vec<u64> = self
            .live
            .iter()
            .filter(|(_, out)| out.expires <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in expired {
            self.rest(self.live[&id].expires);
            // The request may have been sent, so it counts as an arrival.
            self.arrivals.push(self.live[&id].leaves);
            self.live.remove(&id);
            self.done.push(id);
        }
    }

    fn note_rate(&mut self) {
        let told = self.host.explain(self.now, &self.config);
        self.rate_max = self.rate_max.max(told.rate);
    }
}

fn pick(ids: impl Iterator<Item = u64>, which: usize) -> Option<u64> {
    let ids: Vec<u64> = ids.collect();
    (!ids.is_empty()).then(|| ids[which % ids.len()])
}

/// Returns the refund of a permit for one plain request.
pub(crate) fn unused(sent: bool) -> Option<Unused> {
    (!sent).then(|| AcquireRequest::default().unused())
}
