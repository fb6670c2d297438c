//! The books of a world after every step.

use super::*;

impl World {
    pub(super) fn check_books(&self) {
        let tally = self.host.tally();
        assert_eq!(
            tally.granted,
            tally.reported + tally.cancelled + tally.expired + tally.live,
            "P3: {tally:?}"
        );
        assert_eq!(tally.granted, self.granted);
        assert_eq!(
            self.host.in_flight(),
            self.live.len(),
            "P3: slots and leases"
        );
    }

    /// Asserts P1 over every window, and P3 at the end: every slot is free after its lease expires.
    pub(crate) fn close(mut self) {
        let last = self.live.values().map(|out| out.expires).max();
        self.now = last.unwrap_or(self.now).max(self.now);
        self.latest = self.latest.max(self.now);
        self.expire();
        self.host.evictable(self.now, false, &self.config);
        assert_eq!(self.host.in_flight(), 0, "P3: slots return");
        self.check_books();

        self.arrivals.sort_unstable();
        let burst = match self.config.limits.refill {
            Refill::Continuous => self.burst_max,
            // A refill may come on top of the remaining tokens, which gives twice the burst, as
            // with every fixed window.
            Refill::Interval(_) => 2.0 * self.burst_max,
        };
        for (i, from) in self.arrivals.iter().enumerate() {
            for (j, to) in self.arrivals.iter().enumerate().skip(i) {
                let window = to.since(*from).as_secs_f64();
                let most = burst + self.rate_max * (window + TIMER_SLACK) + 1.0;
                let count = (j - i + 1) as f64;
                assert!(
                    count <= most + 1e-3,
                    "P1: {count} in {window} s, at most {most}"
                );
            }
        }
    }

    pub(crate) fn arrived(&self) -> usize {
        self.arrivals.len()
    }
}
