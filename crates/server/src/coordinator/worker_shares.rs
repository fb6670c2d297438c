//! The shares with which workers go on while this coordinator does not answer them.
//!
//! Without [`Coordinator::allow_shares`] workers wait. With it each call tells its worker its
//! place, and each grant the limit of its key. The turns of silent workers are charged to the keys,
//! and what they sent is charged to declared limits once they report it.

use std::sync::OnceLock;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::share::{Charge, Members, Place};
use politely::{Earlier, Explanation, Plan, SetError};
use politely_api::wire::{self, Item, KeyLimit, SharePlace, Told, ToldAnswer, WorkerShare};

use super::Coordinator;
use super::keep::Aftermath;
use super::names::{Name, Number};
use super::permits::Out;
use super::report::error;
use super::wanted::{Quick, Wanted};
use crate::watch::Worker;

/// The interval at which the turns of silent workers are charged, and how far ahead.
const CHARGE_EVERY: Duration = Duration::from_millis(20);
/// The interval at which silent workers are looked for. It is short beside the time that a worker
/// waits before its first turn.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The turns of a longer pause of this process are not charged: a full bucket allows for them.
const LATE_MAX: Duration = Duration::from_secs(1);
/// The time for which the slot of a reported request is taken while its body arrives.
const BODY_LEASE: Duration = Duration::from_mins(2);

/// The shares, if the operator allows them.
#[derive(Default)]
pub(super) struct WorkerShares(OnceLock<Mutex<Allowed>>);

struct Allowed {
    lasts: Duration,
    members: Members,
    /// The rates of the keys that were asked for in the last `lasts`.
    keys: HashMap<Key, Asked, foldhash::fast::RandomState>,
    /// The turns before this time are charged.
    charged: Timestamp,
}

struct Asked {
    rate: f64,
    at: Timestamp,
}

impl Allowed {
    /// Returns the turns of silent workers per key that are not charged yet, and whether there is
    /// such a worker.
    fn take_turns(&mut self, now: Timestamp) -> (Vec<(Key, f64)>, bool) {
        if self.members.is_empty() {
            // The first call after a restart tells whose turns were used since the start.
            return (Vec::new(), false);
        }
        let places: Vec<Place> = self.members.silent(now).collect();
        let (from, until) = (self.charged.max(now - LATE_MAX), now + CHARGE_EVERY);
        self.charged = until;
        let mut turns = Vec::new();
        if places.is_empty() {
            let lasts = self.lasts;
            self.keys.retain(|_, asked| now.since(asked.at) < lasts);
            return (turns, false);
        }
        for (key, &Asked { rate, .. }) in &self.keys {
            let of_key = places
                .iter()
                .map(|place| place.turns_between(rate, from, until));
            let sum: f64 = of_key.sum();
            if sum > 0.0 {
                turns.push((key.clone(), sum));
            }
        }
        (turns, true)
    }
}

fn place_of(told: SharePlace) -> Option<Place> {
    let SharePlace {
        workers: of,
        place: index,
    } = told;
    (of > 0).then_some(Place { index, of })
}

impl Coordinator {
    /// Lets workers go on with their shares while this coordinator does not answer them, for at
    /// most `lasts`.
    ///
    /// Coordinators that share an engine do not know each other's workers, so they must not allow
    /// it.
    #[must_use]
    pub fn allow_shares(self, lasts: Duration) -> Self {
        let now = self.now();
        let _ = self.0.worker_shares.0.set(Mutex::new(Allowed {
            lasts,
            members: Members::new(now, lasts),
            keys: HashMap::default(),
            charged: now,
        }));
        self
    }

    pub(super) fn allows_shares(&self) -> bool {
        self.0.worker_shares.0.get().is_some()
    }

    /// Notes a call of a worker, and the place that it was told last.
    pub(crate) fn hear_share(&self, worker: &str, told: Option<SharePlace>) {
        let Some(allowed) = self.0.worker_shares.0.get() else {
            return;
        };
        let (place, now) = (told.and_then(place_of), self.now());
        allowed.lock().members.hear(worker, place, now);
        self.charge_silent();
    }

    /// Returns the share to tell a worker.
    pub(crate) fn tell_share(&self, worker: &str, told: Option<SharePlace>) -> Option<WorkerShare> {
        let (allowed, _) = self.0.worker_shares.0.get().zip(told)?;
        let now = self.now();
        let mut allowed = allowed.lock();
        let Place { index, of } = allowed.members.tell(worker, now)?;
        Some(WorkerShare {
            workers: of,
            place: index,
            clock_us: now.as_micros(),
            lasts_ms: allowed.lasts.as_millis() as u64,
        })
    }

    /// Notes that the keys of a request are asked for.
    pub(super) fn note_asked(&self, keys: &[Key], now: Timestamp) {
        let Some(allowed) = self.0.worker_shares.0.get() else {
            return;
        };
        for key in keys {
            if let Some(asked) = allowed.lock().keys.get_mut(key) {
                asked.at = now;
            } else if let Some(known) = self.0.limiter.explain(key) {
                self.note_rate(key, &known, now);
            }
        }
    }

    fn note_rate(&self, key: &Key, known: &Explanation, now: Timestamp) {
        let rate = known.rate;
        if let Some(allowed) = self.0.worker_shares.0.get()
            && rate.is_finite()
            && rate > 0.0
        {
            allowed
                .lock()
                .keys
                .insert(key.clone(), Asked { rate, at: now });
        }
    }

    /// Returns the limit of a granted request that its worker may divide.
    ///
    /// There is none if the limit is not of one key alone, if the worker cannot know what is left
    /// of it (declared limits), or if other requests of the key may have further limits.
    pub(super) fn limit_of(&self, wanted: &Wanted<'_>) -> Option<KeyLimit> {
        self.0.worker_shares.0.get()?;
        let [key] = &wanted.keys[..] else { return None };
        let limiter = &self.0.limiter;
        let has_paths = limiter.policy().is_some_and(|book| book.has_paths());
        let rule = wanted.plan.as_deref().and_then(Plan::rule);
        if has_paths || rule.is_some_and(|rule| !rule.costs.is_empty()) {
            return None;
        }
        let known = limiter.explain(key)?;
        self.note_rate(key, &known, self.now());
        let rests = known.in_force.crawl_delay.is_some() || wanted.ask.crawl_delay.is_some();
        (known.rate.is_finite() && known.budgets.is_empty() && !rests).then_some(KeyLimit {
            rate: known.rate,
            in_flight: known.in_flight.1,
        })
    }

    pub(super) async fn keep_charging(self) {
        loop {
            let pause = if self.charge_silent() {
                CHARGE_EVERY / 2
            } else {
                LOOK_EVERY
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Charges the next turns of silent workers. Returns whether there are such workers.
    fn charge_silent(&self) -> bool {
        let Some(allowed) = self.0.worker_shares.0.get() else {
            return false;
        };
        let (turns, is_any) = allowed.lock().take_turns(self.now());
        for (key, turns) in turns {
            // Without room for the key, nothing of it is granted.
            let _ = self.0.limiter.charge_share(&key, &Charge::Turns(turns));
        }
        is_any
    }

    /// Applies the report of a request that left on a share. It is granted afterwards, and then
    /// reported as any other.
    pub(super) fn report_sent(
        &self,
        worker: &Worker,
        told: &Told,
        item: &Item,
        aftermath: &mut Aftermath,
    ) -> Result<ToldAnswer, wire::Error> {
        let asked = Item {
            id: Some(told.permit.clone()),
            slots: 1,
            ..item.clone()
        };
        let number = match self.understand(worker, 0, &asked, Duration::ZERO) {
            Ok(wanted) => self.grant_sent(worker, &wanted)?,
            Err(Quick::Granted(number)) => number,
            Err(Quick::Error(error)) => return Err(error),
            Err(Quick::AskedTwice | Quick::Cancelled | Quick::TooManyKeys(_)) => {
                return Err(error("sent", "is a request that cannot be counted now"));
            }
        };
        if told.status.is_none() && told.error.is_none() && told.meaning.is_none() {
            // The id stays known, so that a repeated report counts once.
            let out = self.0.permits.take(number, worker);
            if let Some(mut permit) = out.and_then(|mut out| out.permit.take()) {
                permit.sent();
                worker.cancelled();
            }
            return Ok(ToldAnswer::default());
        }
        let name = Name {
            number,
            slots: 1,
            mac: None,
            leases: Vec::new(),
        };
        let told = &Told {
            permit: self.0.signer.sign(worker.name(), name).to_text(),
            sent: None,
            ..told.clone()
        };
        self.try_report(worker, told, aftermath)
    }

    fn grant_sent(&self, worker: &Worker, wanted: &Wanted<'_>) -> Result<Number, wire::Error> {
        let (inner, now) = (&self.0, self.now());
        let charge = Charge::Sent(wanted.ask.clone());
        let earlier = Earlier {
            keys: &wanted.keys,
            start: now,
            lease: BODY_LEASE,
            estimate: &wanted.ask.units,
        };
        let full = |why: SetError| error("sent", &why.to_string());
        for key in &wanted.keys {
            self.with_room(|| Ok(inner.limiter.charge_share(key, &charge)?))
                .map_err(full)?;
        }
        let permit = self.with_room(|| inner.limiter.readmit(&earlier));
        let permit = permit.map_err(full)?;
        let number = inner.permits.numbers(1);
        let wish = wanted.claim.as_ref().map_or(0, |claim| {
            claim.granted(number);
            claim.wish()
        });
        inner.wishes.written(wish, number);
        let worker = self.worker(worker.name());
        worker.granted(1);
        inner.watch.granted(now, &wanted.keys[0], 1);
        (inner.usage).granted(now, worker.name(), &wanted.keys[0], 1, None);
        let out = Out {
            wish,
            resource: wanted.resource,
            plan: wanted.plan.clone(),
            ..Out::new(permit, &wanted.keys, worker, now, BODY_LEASE)
        };
        inner.permits.put(number, out);
        Ok(number)
    }
}
