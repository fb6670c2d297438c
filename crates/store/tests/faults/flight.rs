//! Requests are sent when they may be, and reported, as `politely`'s `permit_guard.rs` does it.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::signal::{Failure, Report, Signal};

use super::books::Arrival;
use super::dice::{MS, Micros, SECOND};
use super::log::{End, What};
use super::world::{Own, World};
use politely_store::{Event, HeldLease, renewed_after};

/// A permit's lease of one key.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) key: usize,
    pub(super) lease: Arc<HeldLease>,
    pub(super) start: Timestamp,
    /// The delay with which the grant was delivered, if its start had passed.
    pub(super) late: Duration,
    pub(super) valid_until: Timestamp,
    pub(super) lasts: Duration,
    pub(super) arrival: Option<usize>,
}

/// A permit in use.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) who: usize,
    pub(super) life: u32,
    pub(super) worker: usize,
    pub(super) parts: Vec<Part>,
    pub(super) granted: Micros,
    pub(super) left: bool,
    pub(super) served: Micros,
    pub(super) end: End,
    pub(super) body: Option<Micros>,
    pub(super) lazy: bool,
    pub(super) over: bool,
}

impl World {
    /// Sends the request, since its start has come.
    pub(super) fn leaves(&mut self, id: usize) {
        let flight = &self.flights[id];
        let (who, worker) = (flight.who, flight.worker);
        let local = self.local(who);
        let valid_until = flight.parts.iter().map(|part| part.valid_until).min();
        if valid_until.is_none_or(|until| local > until) {
            let parts = self.flights[id].parts.clone();
            self.flights[id].over = true;
            self.give_back(who, &parts);
            self.rests(who, worker);
            return;
        }
        let (takes, end) = self.fate();
        let arrivals = self.books.arrivals.len();
        let away = self.engine_of(who).away_since;
        let away = away.map_or(0, |since| self.now - since);
        let flight = &mut self.flights[id];
        flight.left = true;
        flight.end = end;
        flight.served = self.now + takes;
        for (i, part) in flight.parts.iter_mut().enumerate() {
            part.arrival = Some(arrivals + i);
            let late = local.since(part.start) + part.late;
            let (at, granted, key) = (self.now, flight.granted, part.key);
            let late = late.as_micros() as Micros;
            let end = Micros::MAX;
            self.books.arrivals.push(Arrival {
                key,
                who,
                at,
                late,
                granted,
                end,
                away,
            });
            let what = What::Leaves {
                key,
                lease: part.lease.id().0,
            };
            self.log.note(self.now, Some(who), what);
        }
        flight.lazy = self.dice.chance(self.plan.work.lazy);
        let has_body =
            matches!(end, End::Ok | End::Refused) && self.dice.chance(self.plan.work.body);
        if has_body {
            let head = self.now + takes / 2;
            flight.body = Some(head);
            self.to(who, head, Own::Answered(id));
        }
        self.to(who, self.now + takes, Own::Ends(id));
        self.looks(id);
    }

    /// Draws how long the target takes, and its answer.
    fn fate(&mut self) -> (Micros, End) {
        let work = &self.plan.work;
        let dice = &mut self.dice;
        let takes = dice.span(work.service.0, work.service.1);
        let end = if dice.chance(work.killed) {
            End::Killed
        } else if dice.chance(work.cancel) {
            End::Cancelled
        } else if dice.chance(work.timeout) {
            End::Timeout
        } else if dice.chance(work.refused) {
            if dice.chance(work.retry_after) {
                End::RetryAfter(dice.span(200 * MS, 4 * SECOND))
            } else {
                End::Refused
            }
        } else {
            End::Ok
        };
        (takes, end)
    }

    /// Reports the head of the response, whose body is still coming.
    pub(super) fn is_answered(&mut self, id: usize) {
        let flight = &self.flights[id];
        if !flight.over {
            let (who, part) = (flight.who, flight.parts[0].clone());
            let report = report(flight.end);
            self.reports(who, &part, report, true);
        }
    }

    fn reports(&mut self, who: usize, part: &Part, report: Report, body_coming: bool) {
        let (key, lease) = (part.key, *part.lease.id());
        if let Some(after) = report.retry_after {
            self.next += 1;
            let by = (who, self.seats[who].life);
            self.books
                .held(key, by, self.next, self.now, after.as_micros() as Micros);
        }
        self.tell(
            who,
            key,
            Event::Report {
                lease,
                report,
                body_coming,
            },
        );
    }

    /// Ends the request: the target has answered, or the worker is killed.
    pub(super) fn ends(&mut self, id: usize) {
        if self.flights[id].over {
            return;
        }
        let end = self.flights[id].end;
        self.is_over_for(id, end);
    }

    fn is_over_for(&mut self, id: usize, end: End) {
        let flight = &mut self.flights[id];
        flight.over = true;
        let (who, worker) = (flight.who, flight.worker);
        let parts = std::mem::take(&mut flight.parts);
        let heard = flight.body.is_some_and(|head| head <= self.now);
        let at = self.now.min(flight.served);
        for (i, part) in parts.iter().enumerate() {
            let (key, lease) = (part.key, *part.lease.id());
            if let Some(arrival) = part.arrival {
                self.books.arrivals[arrival].end = at;
            }
            self.note(
                who,
                What::Ends {
                    key,
                    lease: lease.0,
                    how: end,
                },
            );
            match end {
                End::Killed => self.books.abandoned += 1,
                End::Cancelled | End::LeaseOver if !(heard && i == 0) => {
                    self.books.cancelled += 1;
                    self.books.lease_over += u64::from(end == End::LeaseOver);
                    self.tell(
                        who,
                        key,
                        Event::Cancel {
                            lease,
                            unused: None,
                        },
                    );
                }
                _ if heard || i > 0 => {
                    self.books.reported += 1;
                    self.books.lease_over += u64::from(end == End::LeaseOver);
                    self.tell(who, key, Event::Release { lease, bytes: 0 });
                }
                _ => {
                    self.books.reported += 1;
                    self.reports(who, part, report(end), false);
                }
            }
        }
        self.rests(who, worker);
    }

    /// Checks the lease, and renews it from half its length on.
    pub(super) fn looks(&mut self, id: usize) {
        let flight = &self.flights[id];
        if flight.over {
            return;
        }
        let who = flight.who;
        let local = self.local(who);
        let left = flight.parts.iter().map(|part| part.lease.left(local)).min();
        let Some(left) = left.flatten() else {
            self.lease_over(id);
            return;
        };
        let lasts = flight.parts.iter().map(|part| part.lasts).min();
        let lasts = lasts.expect("a key");
        let mut renews = Vec::new();
        if !flight.lazy && left < lasts.saturating_sub(renewed_after(lasts)) {
            renews.clone_from(&flight.parts);
        }
        for part in renews {
            if part.lease.begin_renewal() {
                let lease = part.lease.id().0;
                self.note(
                    who,
                    What::Renews {
                        key: part.key,
                        lease,
                    },
                );
                self.tell(who, part.key, Event::Renew(part.lease));
            }
        }
        // The worker checks several times per lease, so it learns in time that the lease is gone.
        let next = (local + lasts / 8).min(local + left);
        let at = self.seats[who].when(next);
        self.to(who, at, Own::Looks(id));
    }

    /// Aborts the request. A frozen process could not do so earlier, and that is not counted.
    fn lease_over(&mut self, id: usize) {
        self.is_over_for(id, End::LeaseOver);
    }

    /// Kills a process. Its workers die with it, or go on alone until their requests or leases end.
    pub(super) fn kill_all_of(&mut self, who: usize) {
        let life = self.seats[who].life;
        for caller in &mut self.callers {
            caller.over |= caller.who == who && caller.life == life;
        }
        for id in 0..self.flights.len() {
            let flight = &self.flights[id];
            if flight.over || flight.who != who || flight.life != life {
                continue;
            }
            // The leases of a frozen process ended before, see `stood_still`.
            let mut at = self.now.min(flight.served);
            if self.plan.work.outlive {
                let until = flight.parts.iter().map(|part| part.lease.until()).min();
                at = flight
                    .served
                    .min(self.seats[who].when(until.expect("a key")));
            }
            self.books.abandoned += flight.parts.len() as u64;
            let flight = &mut self.flights[id];
            flight.over = true;
            for part in &flight.parts {
                if let Some(arrival) = part.arrival {
                    self.books.arrivals[arrival].end = at;
                }
            }
        }
    }

    /// Freezes a process. Its requests stay at the target until they are answered, and its leases
    /// expire.
    pub(super) fn stood_still(&mut self, who: usize) {
        for id in 0..self.flights.len() {
            let flight = &self.flights[id];
            if flight.over || flight.who != who || flight.life != self.seats[who].life {
                continue;
            }
            let until = flight.parts.iter().map(|part| part.lease.until()).min();
            let until = self.seats[who].when(until.expect("a key"));
            let flight = &mut self.flights[id];
            flight.served = flight.served.min(until);
        }
    }
}

fn report(end: End) -> Report {
    match end {
        End::RetryAfter(after) => Report {
            status: Some(429),
            retry_after: Some(Duration::from_micros(after)),
            ..Report::of(Signal::RateLimited)
        },
        End::Refused => Report {
            status: Some(429),
            ..Report::of(Signal::RateLimited)
        },
        End::Timeout => Report {
            failure: Some(Failure::Timeout),
            ..Report::of(Signal::Overloaded)
        },
        _ => Report::of(Signal::Ok),
    }
}
