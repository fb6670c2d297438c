//! Permits that their workers renew or give back.

use politely_api::wire::{self, Cancelled, Renewed, RenewedPermit};

use super::Coordinator;
use super::keep::Aftermath;
use super::names::{Name, Number};
use super::permits::Entry;
use super::wishes::{GivenUp, Wishes};
use crate::watch::Worker;

impl Coordinator {
    /// Extends the leases of `permits`.
    pub(crate) fn renew(&self, worker: &Worker, permits: &[String]) -> Renewed {
        let (mut answer, mut kept) = (Renewed::default(), Vec::new());
        let now = self.now();
        for name in permits {
            let renewed = self.held(worker, name).and_then(|number| {
                let mut shard = self.0.permits.shard(number);
                let Some(Entry::Out(out)) = shard.get(number) else {
                    return None;
                };
                if out.expired || !out.is_held_by(worker) {
                    return None;
                }
                let lease = match (&out.permit, &mut out.heard) {
                    (Some(permit), _) => permit.renew(),
                    (None, Some(heard)) => heard.0.renew(),
                    (None, None) => None,
                }?;
                out.until = now + lease;
                kept.push((number.0, out.until.since(out.start).as_millis() as u32));
                Some(RenewedPermit {
                    permit: name.clone(),
                    lease_ms: lease.as_millis() as u64,
                })
            });
            match renewed {
                Some(renewed) => answer.renewed.push(renewed),
                None => answer.lost.push(name.clone()),
            }
        }
        self.keep_renewed(&kept);
        answer
    }

    /// Returns the number of a permit if it was granted to `worker`.
    fn held(&self, worker: &Worker, permit: &str) -> Option<Number> {
        let (number, is_signed) = self.number(worker, permit, 0).ok()?;
        is_signed.then_some(number)
    }

    /// Cancels permits, given by their names or by their callers' ids. All departures of a permit
    /// that are not reported yet return.
    ///
    /// An id is known to the coordinator that was called under it, and to no other one.
    pub(crate) fn cancel(&self, worker: &Worker, permits: &[String], sent: bool) -> Cancelled {
        let (mut answer, mut ended) = (Cancelled::default(), Aftermath::default());
        for name in permits {
            let named = self.held(worker, name).zip(name.parse::<Name>().ok());
            let taken = named.and_then(|(first, Name { slots, .. })| {
                self.take_run(first, slots, worker, sent, &mut ended)
            });
            let cancelled = match taken {
                Some((out_wish, cancelled)) => {
                    if out_wish != 0 {
                        self.0.wishes.forget(out_wish);
                    }
                    cancelled
                }
                None => self.cancel_id(worker, name, sent, &mut ended),
            };
            if cancelled {
                answer.cancelled.push(name.clone());
            } else if self.0.limiter.is_shared() && !is_permit(name) {
                answer.unknown.push(name.clone());
            } else {
                answer.lost.push(name.clone());
            }
        }
        self.keep_ended(&ended);
        answer
    }

    /// Cancels the request that `worker` made under `id`. Returns whether it was known.
    fn cancel_id(&self, worker: &Worker, id: &str, sent: bool, ended: &mut Aftermath) -> bool {
        if id.is_empty() || id.chars().count() > wire::NAME_MAX {
            return false;
        }
        let wish = Wishes::hash(worker.name(), id);
        let arrival = self.0.limiter.arrival();
        let first = match self.0.wishes.give_up(wish, self.now(), arrival) {
            GivenUp::Granted(first) => first,
            GivenUp::Asked => return true,
            GivenUp::Unknown => return false,
        };
        let slots = match self.0.permits.shard(first).get(first) {
            Some(Entry::Out(out)) => out.slots,
            // The first slot may have been reported, so the count of slots is unknown.
            _ => wire::SLOTS_MAX,
        };
        let of_wish = (0..slots).filter(|slot| {
            let number = Number(first.0 + u64::from(*slot));
            self.0.permits.is_of_wish(number, wish)
        });
        let slots = of_wish.max().map_or(0, |last| last + 1);
        let taken = self.take_run(first, slots, worker, sent, ended);
        taken.is_some_and(|(_, cancelled)| cancelled)
    }

    /// Ends the departures of a permit of `worker` that are not reported yet, as
    /// [`Coordinator::take`] does.
    fn take_run(
        &self,
        first: Number,
        slots: u16,
        worker: &Worker,
        sent: bool,
        ended: &mut Aftermath,
    ) -> Option<(u64, bool)> {
        // The last slot comes first, because only the newest tokens can be refunded.
        let numbers = (0..u64::from(slots))
            .rev()
            .map(|slot| Number(first.0 + slot));
        let taken = numbers.filter_map(|number| self.take(number, worker, sent, ended));
        taken.reduce(|(wish, one), (_, other)| (wish, one | other))
    }

    /// Ends a permit of `worker`. Returns the hash of its request's id, and whether its lease still
    /// ran.
    fn take(
        &self,
        number: Number,
        worker: &Worker,
        sent: bool,
        ended: &mut Aftermath,
    ) -> Option<(u64, bool)> {
        let out = self.0.permits.take(number, worker)?;
        ended.gone.push(number.0);
        let expired = out.expired;
        if !expired && !sent {
            ended.settled.extend(out.keys());
        }
        match out.permit {
            Some(permit) if expired => permit.abandon(),
            Some(mut permit) if sent => permit.sent(),
            // Dropping the permit refunds its tokens and slots.
            _ => {}
        }
        if !expired {
            worker.cancelled();
        }
        Some((out.wish, !expired))
    }

    /// Takes back permits of a call that ended before its answer. Its requests keep their places in
    /// the queue.
    pub(crate) fn take_back(
        &self,
        worker: &Worker,
        granted: impl DoubleEndedIterator<Item = Number>,
    ) {
        let mut ended = Aftermath::default();
        for number in granted.rev() {
            if let Some((wish, _)) = self.take(number, worker, false, &mut ended)
                && wish != 0
            {
                self.0.wishes.unread(wish);
            }
        }
        self.keep_ended(&ended);
    }
}

/// Returns whether `name` is the signed name of a permit, and not a caller's id.
fn is_permit(name: &str) -> bool {
    name.parse::<Name>().is_ok_and(|name| name.mac.is_some())
}
