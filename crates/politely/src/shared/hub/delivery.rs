//! From a write to the callers it granted permits to, and back where they are gone.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::gate::{LeaseId, grace};
use politely_core::host::{Unused, Wait};

use super::{Hub, Ticket};
use crate::shared::desk::{Granting, Told};
use crate::shared::event::Event;
use crate::shared::lease::safely;

/// A permit, its times made our own clock's.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::shared) struct Granted {
    pub(in crate::shared) lease: LeaseId,
    pub(in crate::shared) slots: u16,
    pub(in crate::shared) start: Timestamp,
    pub(in crate::shared) valid_until: Timestamp,
    pub(in crate::shared) rate: f64,
    /// It is over this long after its start.
    pub(in crate::shared) lasts: Duration,
    /// What the first gives back if it does not leave.
    pub(in crate::shared) unused: Unused,
}

/// What a caller hears.
#[derive(Debug)]
pub(in crate::shared) enum Delivery {
    Granted(Ticket, Granted),
    No(Ticket, Wait),
}

impl Hub {
    /// What callers hear now. Permits of those who gave up meanwhile go back.
    pub(in crate::shared) fn take_deliveries(&mut self, mono: Timestamp) -> Vec<Delivery> {
        let told = std::mem::take(&mut self.told);
        let mut deliveries = Vec::with_capacity(told.len());
        for (id, delivery) in told {
            let (Delivery::Granted(ticket, _) | Delivery::No(ticket, _)) = delivery;
            if !self.shop.gone.remove(&ticket) {
                deliveries.push(delivery);
            } else if let Delivery::Granted(_, granted) = delivery {
                let cancelled = Event::cancelled(granted.lease, granted.slots, granted.unused);
                self.give_back(id, cancelled, mono);
            }
        }
        deliveries
    }

    fn give_back(&mut self, id: usize, cancelled: impl Iterator<Item = Event>, mono: Timestamp) {
        if let Some(desk) = &mut self.desks[id] {
            cancelled.for_each(|event| {
                desk.tell(event, &self.shop, mono);
            });
        }
        self.wake(id);
    }

    pub(super) fn hear(&mut self, id: usize, told: &mut Vec<Told>, mono: Timestamp) {
        for told in told.drain(..) {
            match told {
                // Nobody overtakes those who wait to be sure.
                Told::Granted(mut granting)
                    if granting.unsure.is_some()
                        || self.unsure.iter().any(|(_, of, _)| *of == id) =>
                {
                    granting.unsure.get_or_insert(self.shop.epochs.lost());
                    self.unsure.push((mono, id, granting));
                    self.pulse_at = mono;
                }
                Told::Granted(granting) => self.deliver(id, &granting, mono),
                Told::No(ticket, wait) => {
                    let at = self.shop.epochs.mono(wait.at);
                    let no = Delivery::No(ticket, Wait { at, ..wait });
                    self.told.push((id, no));
                }
            }
        }
    }

    pub(super) fn deliver(&mut self, id: usize, granting: &Granting, mono: Timestamp) {
        let grant = &granting.grant;
        let start = self.shop.epochs.mono(grant.start).min(granting.starts);
        let grace = grace(grant.interval());
        if start + grace < mono {
            // It took too long to hear of it: leaving now it would be one of a crowd.
            self.take_back(id, granting, mono);
            return;
        }
        self.shop.count.granted += u64::from(grant.slots);
        // Who comes late has no more of the lease for it.
        let late = mono.since(start);
        let granted = Granted {
            lease: grant.lease,
            slots: grant.slots,
            start: start.max(mono),
            valid_until: start.max(mono) + grace,
            rate: grant.rate,
            lasts: safely(self.shop.config.lease).saturating_sub(late),
            unused: grant.unused,
        };
        let granted = Delivery::Granted(granting.ticket, granted);
        self.told.push((id, granted));
    }

    pub(super) fn take_back(&mut self, id: usize, granting: &Granting, mono: Timestamp) {
        let grant = &granting.grant;
        let cancelled = Event::cancelled(grant.lease, grant.slots, grant.unused);
        self.give_back(id, cancelled, mono);
        if let Some(desk) = &mut self.desks[id] {
            desk.wait_again(granting, &mut self.shop);
        }
    }
}
