//! Assertions of the promises P1, P2 and P4 (docs/reference/promises.md), by the hosts' log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use politely_target::{Entry, arrivals_above};

use super::Fleet;
use super::notes::{Note, What};
use super::worker::host;

/// The numbers that the operator sets for every key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) rate: f64,
    pub(crate) burst: f64,
    pub(crate) in_flight: u64,
}

/// How late a busy machine sends a request whose permit was granted before, in microseconds.
const SENT_LATE_US: u64 = 100_000;

impl Numbers {
    pub(crate) fn args(self) -> Vec<String> {
        let args = [
            ("--law", "fixed".to_owned()),
            ("--rate", self.rate.to_string()),
            ("--burst", self.burst.to_string()),
            ("--in-flight", self.in_flight.to_string()),
        ];
        args.into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect()
    }
}

impl Fleet {
    /// Asserts P1, that every window of any length saw at most burst + rate x length + 1 requests.
    /// Asserts P2, that at most as many requests as the cap were in flight.
    pub(super) fn demand_limits(&self, numbers: Numbers) {
        let judge = self.target.judge();
        let mut worst = 0.0_f64;
        for row in &judge.hosts {
            let entries = self.arrivals(&row.host);
            let most = arrivals_above(entries.iter().map(Entry::arrived), numbers.rate);
            worst = worst.max(most);
            assert!(
                most <= numbers.burst + 1.0,
                "{} had {most:.2} above the rate\n{}",
                row.host,
                self.story()
            );
            assert!(
                row.in_flight_max <= numbers.in_flight,
                "{} had {} in flight\n{}",
                row.host,
                row.in_flight_max,
                self.story()
            );
        }
        eprintln!(
            "P1: at most {worst:.2} above the rate, {} allowed",
            numbers.burst + 1.0
        );
    }

    /// Returns the requests of one host, ordered by arrival.
    pub(super) fn arrivals(&self, name: &str) -> Vec<Entry> {
        let mut entries = self.target.entries(name);
        entries.sort_by_key(|entry| entry.arrived_us);
        entries
    }

    /// Asserts P4. After a Retry-After was reported to the coordinator, only permits that were
    /// granted earlier may be used, and only for the time `good_for_us`. Then no request arrives
    /// before the end of the hold. Returns the number of holds that were reported.
    pub(super) fn demand_holds(&self, good_for_us: u64) -> usize {
        let mut holds = 0;
        let heard = self.refusals_heard();
        for row in &self.target.judge().hosts {
            let Some(heard) = heard.get(&row.addr.to_string()) else {
                continue;
            };
            let entries = self.arrivals(&row.host);
            for refusal in &entries {
                let (Some(page), Some(hold_ms)) = (refusal.page, refusal.hold_ms) else {
                    continue;
                };
                let end = refusal.departed_us + hold_ms * 1_000;
                // The first report of this page after the refusal is the report of this refusal.
                let Some(&heard_us) = heard
                    .get(&page)
                    .and_then(|heard| heard.range(refusal.arrived_us..).next())
                else {
                    continue;
                };
                holds += 1;
                let last_us = heard_us + good_for_us + SENT_LATE_US;
                let early = entries
                    .iter()
                    .find(|entry| (last_us..end).contains(&entry.arrived_us));
                assert!(
                    early.is_none(),
                    "{}: {refusal:?} was heard at {heard_us}, and {early:?} came before {end}\n{}",
                    row.host,
                    self.story()
                );
            }
        }
        holds
    }

    /// Returns the times at which refusals were reported, by host and page. Times are on the hosts'
    /// clock.
    fn refusals_heard(&self) -> BTreeMap<String, BTreeMap<u32, BTreeSet<u64>>> {
        let mut heard: BTreeMap<String, BTreeMap<u32, BTreeSet<u64>>> = BTreeMap::new();
        for note in self.notes() {
            let page = note
                .url
                .rsplit('/')
                .next()
                .and_then(|page| page.parse().ok());
            if note.what == What::Heard
                && note.status == 429
                && let Some(page) = page
            {
                let pages = heard.entry(host(&note.url).to_owned()).or_default();
                let at_us = note.at_us.saturating_sub(self.began_us);
                pages.entry(page).or_default().insert(at_us);
            }
        }
        heard
    }
}

/// Asserts that every permit was granted once, to one worker. Returns the number of permits.
pub(super) fn demand_permits_differ(notes: &[Note]) -> usize {
    let granted = notes.iter().filter(|note| note.what == What::Granted);
    let mut seen = BTreeSet::new();
    for note in granted {
        assert!(
            seen.insert(&note.permit),
            "{} was told twice: {note:?}",
            note.permit
        );
    }
    seen.len()
}

/// Returns the requests per second that were not refused, in a period counted from the first
/// request.
pub(super) fn used(entries: &[Entry], secs: Range<u64>) -> f64 {
    let Some(first) = entries.first() else {
        return 0.0;
    };
    let between =
        first.arrived_us + secs.start * 1_000_000..first.arrived_us + secs.end * 1_000_000;
    let within = entries
        .iter()
        .filter(|entry| between.contains(&entry.arrived_us))
        .filter(|entry| !matches!(entry.status, 403 | 429 | 503));
    within.count() as f64 / (secs.end - secs.start) as f64
}
