//! What may happen beyond the limits while not all go by the same state: two masters are there, or each goes on with its share.

use politely_core::host::HORIZON;

use super::books::{Arrival, Books};
use super::dice::{CALL_TIMEOUT, Micros};
use super::plan::Plan;

/// Who knew of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    All,
    Apart,
    Perhaps,
}

impl Books {
    /// P7 for two masters: twice is what the old one grants while it is there, as much as the rate allows in that time and a horizon,
    /// since so far ahead may be reserved. It leaves up to a horizon, and two graces of 0.5 s, after. With `wait` nothing that it grants is ever answered.
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

    /// Beyond the limit by N in all, whenever the engine is away.
    pub(super) fn shared_out(plan: &Plan, (from, until): (f64, f64)) -> f64 {
        let aways = plan.aways().filter(|(began, over)| {
            let (began, over) = (*began as f64 / 1e6, *over as f64 / 1e6);
            began <= until && over + 2.0 >= from
        });
        (aways.count() * plan.coordinators) as f64
    }

    /// Whether the other master knew of it: not of what an old one granted or renewed while both were there. What was delivered just when
    /// the old one ended may be either's. With `wait` nothing that it granted leaves, but what it had granted before it goes on renewing.
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

    /// Granted as a share of what the engine gives out, by somebody who was gone before the engine was back and had been told: nobody
    /// else can know of it.
    pub(super) fn told_nobody(&self, plan: &Plan, arrival: &Arrival) -> bool {
        plan.aways().any(|(began, over)| {
            let by_itself = (began..=over).contains(&arrival.granted);
            let gone = arrival.granted..=over + CALL_TIMEOUT;
            let mut gone_then = self.gone.iter().filter(|(_, at)| gone.contains(at));
            by_itself && gone_then.any(|(who, _)| *who == arrival.who)
        })
    }

    /// Who heard of something then may have been alone with it.
    pub(super) fn were_apart(&self, plan: &Plan, from: Micros, until: Micros) -> bool {
        let splits = self.splits.iter().map(|split| (split.from, split.until));
        let mut apart = splits.chain(plan.aways());
        apart.any(|(began, over)| began <= until && over >= from)
    }
}
