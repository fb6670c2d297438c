//! The counters of one host, in bounded memory.

use std::time::Duration;

use politely_core::Timestamp;

use super::holds::Holds;
use super::rates::{Last, Peak};
use crate::log::{Entry, Kind};

/// Pages above this number count as accepted but not as different pages. The bits take 2 MB per
/// host.
pub(crate) const PAGES_MAX: u32 = 16_000_000;

/// One bit per page that was served.
#[derive(Debug, Default)]
struct PageSet {
    words: Vec<u64>,
    distinct: u64,
    again: u64,
}

impl PageSet {
    fn insert(&mut self, page: u32) {
        if page >= PAGES_MAX {
            return;
        }
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if self.words[word] & bit == 0 {
            self.words[word] |= bit;
            self.distinct += 1;
        } else {
            self.again += 1;
        }
    }
}

/// Counts arrivals and departures, which come in the order of time.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(super) arrivals: u64,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) blocked: u64,
    pub(super) failed: u64,
    pub(super) left: u64,
    pub(super) during_hold: u64,
    in_flight: u64,
    pub(super) in_flight_max: u64,
    pub(super) gap_min: Option<Duration>,
    last_arrival: Option<Timestamp>,
    pub(super) peak_1s: Peak,
    pub(super) peak_5s: Peak,
    holds: Holds,
    pages: PageSet,
    pub(super) first_arrival: Option<Timestamp>,
    pub(super) first_accepted: Option<Timestamp>,
    pub(super) last_accepted: Option<Timestamp>,
    pub(super) last_10s: Last,
}

impl Counters {
    pub(crate) const fn new(grace: Duration) -> Self {
        Self {
            arrivals: 0,
            accepted: 0,
            refused: 0,
            blocked: 0,
            failed: 0,
            left: 0,
            during_hold: 0,
            in_flight: 0,
            in_flight_max: 0,
            gap_min: None,
            last_arrival: None,
            peak_1s: Peak::new(Duration::from_secs(1)),
            peak_5s: Peak::new(Duration::from_secs(5)),
            holds: Holds::new(grace),
            pages: PageSet {
                words: Vec::new(),
                distinct: 0,
                again: 0,
            },
            first_arrival: None,
            first_accepted: None,
            last_accepted: None,
            last_10s: Last::new(Duration::from_secs(10)),
        }
    }

    pub(crate) fn arrive(&mut self, now: Timestamp) {
        self.arrivals += 1;
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
        self.first_arrival.get_or_insert(now);
        if let Some(last) = self.last_arrival.replace(now) {
            let gap = now.since(last);
            self.gap_min = Some(self.gap_min.map_or(gap, |least| least.min(gap)));
        }
        self.peak_1s.arrive(now);
        self.peak_5s.arrive(now);
        self.during_hold += u64::from(self.holds.forbid(now));
    }

    /// Records a refusal that announces a hold.
    pub(crate) fn announce(&mut self, now: Timestamp, hold: Duration) {
        self.holds.announce(now, hold);
    }

    pub(crate) fn depart(&mut self, entry: &Entry) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match entry.kind {
            Kind::Accepted => {
                self.accepted += 1;
                self.first_accepted.get_or_insert(entry.arrived());
                self.last_accepted = Some(Timestamp::from_micros(entry.departed_us));
                self.last_10s.accept(entry.arrived());
                if let Some(page) = entry.page
                    && entry.status == 200
                {
                    self.pages.insert(page);
                }
            }
            Kind::Refused => self.refused += 1,
            Kind::Blocked => self.blocked += 1,
            Kind::Failed => self.failed += 1,
            Kind::Left => self.left += 1,
        }
    }

    pub(super) const fn pages(&self) -> u64 {
        self.pages.distinct
    }

    pub(super) const fn duplicates(&self) -> u64 {
        self.pages.again
    }
}
