//! The answer to each item of an acquire request: a permit, a time to retry, or an error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::gate::grace;
use politely::core::key::Key;
use politely::policy::Rule;
use politely::{AcquireError, Arrival, Permit, Plan, Reason, Refusal, RefusalReason};
use politely_api::wire::{self, Answer, KeyLimit, RefusedCode, SendBodies};

use super::super::Coordinator;
use super::super::keep::Leaving;
use super::super::names::{Name, Number};
use super::super::permits::{Entry, Out};
use super::super::report::ms_up;
use super::super::wanted::Wanted;
use super::super::wishes::Claim;
use super::{AGAIN, Call, SOON};

impl Call<'_> {
    pub(super) fn refuse_waiting(&mut self, wanted: &Wanted<'_>, why: &AcquireError) {
        let now = self.coordinator.now();
        let (code, at) = match why {
            AcquireError::Parked(_, rest) => (RefusedCode::Parked, now + *rest),
            AcquireError::Full => (RefusedCode::Full, now + AGAIN),
            AcquireError::QueueFull(_) => (RefusedCode::QueueFull, now + AGAIN),
            _ => (RefusedCode::Closing, now + AGAIN),
        };
        self.refuse(wanted, code, &why.to_string(), at);
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let item = match &answer {
            Answer::Granted(grant) => grant.item,
            Answer::Wait { item, .. }
            | Answer::Refused { item, .. }
            | Answer::Error { item, .. } => *item,
        };
        self.answers[item as usize] = Some(answer);
    }

    /// Registers the permit and answers its item.
    pub(super) fn grant(&mut self, wanted: &Wanted<'_>, permit: Permit) {
        let Coordinator(inner) = self.coordinator;
        let now = self.coordinator.now();
        let (slots, interval, lease) = (permit.slots(), permit.interval(), permit.lease());
        let start = permit.start().max(now);
        let number = inner.permits.numbers(slots);
        let name = Name {
            number,
            slots,
            mac: None,
            leases: permit.leases(),
        };
        if (wanted.claim.as_ref()).is_some_and(|claim| !claim.granted(number)) {
            // Dropping the permit refunds its tokens and slots.
            return self.id_is_used(wanted.item, "it was cancelled");
        }
        if let Some(share) = &wanted.share {
            share.granted();
        }
        let has_waited = permit.has_waited();
        inner
            .at_once
            .fetch_add(u64::from(!has_waited), Ordering::Relaxed);
        let name = inner.signer.sign(self.worker.name(), name);
        let wish = wanted.claim.as_ref().map_or(0, Claim::wish);
        let [key, others @ ..] = &wanted.keys[..] else {
            return;
        };
        let last = start + interval * u32::from(slots - 1);
        self.others
            .extend(others.iter().map(|key| (key.clone(), last)));
        for (i, permit) in permit.split().enumerate() {
            let number = Number(number.0 + i as u64);
            let start = permit.start().max(now);
            let out = Out {
                wish,
                interval,
                slots,
                resource: wanted.resource.filter(|_| slots == 1),
                plan: wanted.plan.clone(),
                ..Out::new(permit, &wanted.keys, Arc::clone(self.worker), start, lease)
            };
            inner.permits.put(number, out);
            self.granted.push(Leaving {
                number: number.0,
                key: key.clone(),
                start,
                lease,
                wish,
                others: others.into(),
                units: wanted.ask.units.clone(),
            });
        }
        self.worker.granted(slots);
        inner.watch.granted(now, key, slots);
        let waited = has_waited.then(|| now.since(self.began));
        let worker = self.worker.name();
        inner.usage.granted(now, worker, key, slots, waited);
        self.found += 1;
        let plan = wanted.plan.as_deref();
        let limit = self.coordinator.limit_of(wanted);
        let item = wanted.item;
        self.tell(item, &name, key, plan, start, lease, slots, interval, limit);
    }

    /// Answers an item with the permit that an earlier call granted for the same id.
    pub(super) fn again(&mut self, item: u32, number: Number) {
        let inner = &self.coordinator.0;
        let mut shard = inner.permits.shard(number);
        let told = match shard.get(number) {
            Some(Entry::Out(out)) if !out.expired => {
                let lease = out.until.since(out.start);
                let name = out.name(number, &inner.signer);
                let key = out.key.clone();
                let plan = out.plan.clone();
                Some((name, key, plan, out.start, lease, out.slots, out.interval))
            }
            _ => None,
        };
        drop(shard);
        if let Some((name, key, plan, start, lease, slots, interval)) = told {
            self.found += 1;
            let plan = plan.as_deref();
            self.tell(item, &name, &key, plan, start, lease, slots, interval, None);
        } else {
            self.id_is_used(item, "its permit was reported or has expired");
        }
    }

    pub(super) fn id_is_used(&mut self, item: u32, why: &str) {
        self.answer(Answer::Refused {
            item,
            code: RefusedCode::IdUsed,
            reason: format!("{why}: a new request needs a new id"),
            retry_in_ms: None,
        });
    }

    pub(super) fn has_too_many_keys(&mut self, item: u32, most: usize) {
        self.capped += 1;
        let client = self.worker.client();
        self.answer(Answer::Refused {
            item,
            code: RefusedCode::Full,
            reason: format!(
                "the client \"{client}\" would have more than {most} keys; \
                 use fewer keys, or raise --client-keys"
            ),
            retry_in_ms: Some(AGAIN.as_millis() as u64),
        });
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of an answer, from two sources"
    )]
    fn tell(
        &mut self,
        item: u32,
        name: &Name,
        key: &Key,
        plan: Option<&Plan>,
        start: Timestamp,
        lease: Duration,
        slots: u16,
        interval: Duration,
        limit: Option<KeyLimit>,
    ) {
        let now = self.coordinator.now();
        let start_in = start.since(now);
        // A repeated answer does not extend the permit's grace. Otherwise requests that start late
        // would start together.
        let valid_for = grace(interval);
        self.answer(Answer::Granted(wire::Grant {
            item,
            permit: name.to_text(),
            key: key.as_str().to_owned(),
            start_in_ms: ms_up(start_in),
            valid_for_ms: ms_up(valid_for.saturating_sub(now.since(start))),
            lease_ms: lease.saturating_sub(now.since(start)).as_millis() as u64,
            slots,
            interval_ms: interval.as_secs_f64() * 1e3,
            send_bodies: plan.and_then(Plan::rule).and_then(send_bodies),
            limit,
        }));
    }

    pub(super) fn refuse(
        &mut self,
        wanted: &Wanted<'_>,
        code: RefusedCode,
        reason: &str,
        at: Timestamp,
    ) {
        let now = self.coordinator.now();
        self.answer(Answer::Refused {
            item: wanted.item,
            code,
            reason: reason.to_owned(),
            retry_in_ms: (at != Timestamp::NEVER).then(|| ms_up(at.since(now))),
        });
    }

    /// Answers an item that was not granted in time, with the time to retry.
    pub(super) fn give_up(&mut self, wanted: &Wanted<'_>, refusal: &Refusal) {
        let limiter = &self.coordinator.0.limiter;
        let now = self.coordinator.now();
        let key = wanted.keys.get(refusal.index()).unwrap_or(&wanted.keys[0]);
        let plan = wanted.plan.as_ref();
        self.waits_for_own |= plan.is_some_and(|plan| plan.keys_of_caller().contains(key));
        let explained = limiter.explain(key);
        let position = limiter.position(key, wanted.arrival.unwrap_or(Arrival::LAST)) as u32;
        let wait = explained.as_ref().and_then(|explained| explained.wait);
        let rate = explained.as_ref().map_or(1.0, |explained| explained.rate);
        let priced = explained.map_or(now, |explained| {
            let cost = f64::from(wanted.ask.cost).min(explained.burst);
            let missing_s = ((cost - explained.tokens) / rate).max(0.0);
            now + Duration::try_from_secs_f64(missing_s).unwrap_or(politely::core::signal::WAIT_MAX)
        });
        // The explanation is of a request without units.
        let by_units = refusal.reason == RefusalReason::Wait(Reason::Budget);
        let by_units = by_units.then_some(refusal.at).filter(|at| *at > now);
        let first = wait.map_or(now, |wait| wait.at).max(priced);
        let first = first.max(wanted.rests_until).max(by_units.unwrap_or(now));
        // An item waits one interval for each item before it in the queue.
        let behind = Duration::try_from_secs_f64(f64::from(position) / rate).unwrap_or(AGAIN);
        let at = match wait {
            // A report frees a slot long before its lease ends.
            Some(wait) if wait.reason == Reason::InFlight => first.min(now + AGAIN),
            _ if first == Timestamp::NEVER => now + AGAIN,
            // If only the pace delays the item, it can be granted earlier by the horizon, with a
            // start time in the future.
            _ if by_units.is_some() => first + behind,
            Some(wait) if wait.reason != Reason::Pace => first + behind,
            _ => ((first + behind) - wanted.ask.horizon).max(wanted.rests_until),
        };
        let reason = match wait {
            _ if position > 0 => RefusalReason::Queue.to_string(),
            _ if wanted.rests_until > now || by_units.is_some() => refusal.reason.to_string(),
            Some(wait) => wait.reason.to_string(),
            None => refusal.reason.to_string(),
        };
        self.worker.waits();
        self.wait(wanted.item, at.max(now + SOON), &reason, position);
    }

    pub(super) fn wait(&mut self, item: u32, at: Timestamp, reason: &str, position: u32) {
        let now = self.coordinator.now();
        self.soonest = Some(self.soonest.map_or(at, |soonest| soonest.min(at)));
        self.answer(Answer::Wait {
            item,
            retry_in_ms: ms_up(at.since(now)),
            reason: reason.to_owned(),
            position,
        });
    }
}

/// Returns the answers whose bodies the rules about answers read.
fn send_bodies(rule: &Rule) -> Option<SendBodies> {
    if rule.needs_bodies() {
        Some(SendBodies::All)
    } else {
        (!rule.answers.is_empty()).then_some(SendBodies::Errors)
    }
}
