//! The excess that is allowed while not all nodes share one state: with two masters, or with
//! fallback shares.

use politely_core::host::HORIZON;

use super::books::{Arrival, Books};
use super::dice::{CALL_TIMEOUT, Micros};
use super::plan::Plan;

/// The masters that knew of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    All,
    Apart,
    Perhaps,
}

impl Books {
    /// P7 with two masters: the permits that the old master granted while it lived may be granted
    /// twice.
    ///
    /// That is the rate times its life and a horizon, since so far ahead may be reserved. Those
    /// requests are sent until a horizon and two graces of 0.5 s later. With `wait` the old master
    /// confirms no grant.
    pub(super) fn granted_apart(&self, plan: &Plan, (from, until): (f64, f64)) -> f64 {
        if plan.waits {
            return 0.0;
        }
        let ahead = HORIZON.as_secs_f64();
        let splits = self.splits.iter();
        let splits = splits.map(|split| (split.from as f64 / 1e6, split.until as f64 / 1e6));
        let within = splits.filter(|(began, over)| *began <= until && over + ahead + 1.0 >= from);
        let length: f64 = within.map(|(began, over)| over - began + ahead).sum();
        plan.config.limits.rate_start * length
    }

    /// Returns the excess of fallback shares: N requests in each outage of the engine.
    pub(super) fn shared_out(plan: &Plan, (from, until): (f64, f64)) -> f64 {
        let aways = plan.aways().filter(|(began, over)| {
            let (began, over) = (*began as f64 / 1e6, *over as f64 / 1e6);
            began <= until && over + 2.0 >= from
        });
        (aways.count() * plan.coordinators) as f64
    }

    /// Returns which masters knew of a permit.
    ///
    /// The other master does not know what the old one granted or renewed while both lived. A grant
    /// delivered when the old one ended may be of either. With `wait` the old master confirms no
    /// grant, but it still renews earlier leases.
    pub(super) fn known_to(&self, plan: &Plan, arrival: &Arrival) -> Known {
        let lease = plan.config.lease.as_micros() as Micros;
        let renewed = arrival.end > arrival.granted + lease;
        let mut splits = self.splits.iter().filter(|_| !plan.waits || renewed);
        let split = splits.find(|split| {
            split.clients >> arrival.who & 1 == 1
                && arrival.granted <= split.until + plan.wire.longest()
                && arrival.end >= split.from
        });
        match split {
            None => Known::All,
            Some(split) if arrival.granted <= split.until => Known::Apart,
            Some(_) => Known::Perhaps,
        }
    }

    /// Returns whether a permit was granted from a fallback share by a process that ended before it
    /// could write it. No other process knows of such a permit.
    pub(super) fn told_nobody(&self, plan: &Plan, arrival: &Arrival) -> bool {
        plan.aways().any(|(began, over)| {
            let by_itself = (began..=over).contains(&arrival.granted);
            let gone = arrival.granted..=over + CALL_TIMEOUT;
            let mut gone_then = self.gone.iter().filter(|(_, at)| gone.contains(at));
            by_itself && gone_then.any(|(who, _)| *who == arrival.who)
        })
    }

    /// Returns whether a process may have been alone with its state in this time.
    pub(super) fn were_apart(&self, plan: &Plan, from: Micros, until: Micros) -> bool {
        let splits = self.splits.iter().map(|split| (split.from, split.until));
        let mut apart = splits.chain(plan.aways());
        apart.any(|(began, over)| began <= until && over >= from)
    }
}
