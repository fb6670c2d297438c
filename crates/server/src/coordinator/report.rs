//! Outcome reports, and the advice on retries in their answers.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use politely::core::Timestamp;
use politely::core::fault::Failures;
use politely::core::fault::machine::{PROBE_EVERY, Trouble};
use politely::core::gate::HoldReason;
use politely::core::key::Key;
use politely::core::retry::{Attempt, Next as Decided};
use politely::core::signal::{
    BODY_SCANNED, COUNT_MAX, Failure, Outcome, Quota, Report, Resource, SPAN_MAX, Signal, WAIT_MAX,
};
use politely::policy::{AnswerRule, Rule};
use politely::{Directions, Permit, Plan, UnitCosts, wall_clock};
use politely_api::wire::{self, EventKind, Meaning, Next, Told, ToldAnswer, ToldScope};

use super::answers::Answered;
use super::keep::Aftermath;
use super::names::{Name, NoName, Number};
use super::permits::Entry;
use super::{Coordinator, Inner};
use crate::watch::{BLOCK_SHARE, Worker};

/// The longest latency that a report may bring. Longer ones are reduced to it.
const LATENCY_MAX: Duration = Duration::from_hours(1);

impl Coordinator {
    /// Applies one report and returns its answer.
    pub(crate) fn report(
        &self,
        worker: &Worker,
        told: &Told,
        aftermath: &mut Aftermath,
    ) -> ToldAnswer {
        let tried = match &told.sent {
            Some(item) => self.report_sent(worker, told, item, aftermath),
            None => self.try_report(worker, told, aftermath),
        };
        match tried {
            // A request that left on a share has an id of its worker's own.
            Ok(answer) => ToldAnswer {
                permit: told.permit.clone(),
                ..answer
            },
            Err(error) => ToldAnswer {
                permit: told.permit.clone(),
                error: Some(error),
                ..ToldAnswer::default()
            },
        }
    }

    /// Records a report for operators: numbers, the audit and events.
    fn record(
        &self,
        now: Timestamp,
        worker: &Worker,
        key: &Key,
        report: &Report,
        directions: &Directions,
        block_share: Option<f64>,
    ) {
        if directions.late {
            worker.late();
        } else {
            worker.reported(report.signal);
        }
        let block_share = block_share.unwrap_or(BLOCK_SHARE);
        self.0
            .watch
            .reported(now, key, report, directions, block_share);
        self.0.usage.reported(now, worker.name(), key, report);
        if directions.event {
            self.0.watch.event(now, &self.0.limiter, key);
        }
    }

    pub(super) fn try_report(
        &self,
        worker: &Worker,
        told: &Told,
        aftermath: &mut Aftermath,
    ) -> Result<ToldAnswer, wire::Error> {
        let (number, is_signed) = self.number(worker, &told.permit, told.slot)?;
        let now = self.now();
        let mut shard = self.0.permits.shard(number);
        let out = match shard.get(number) {
            Some(Entry::Out(_)) if !is_signed => {
                return Err(error("permit", "another client holds it"));
            }
            Some(Entry::Answered(answered)) if is_signed => {
                worker.late();
                return Ok(answered.clone().answer(told, now, true));
            }
            // The permit may come from an earlier run without a state folder, so its report counts
            // as late.
            None | Some(Entry::Answered(_)) => {
                drop(shard);
                return self.unknown(worker, told, now);
            }
            Some(Entry::Out(out)) => out,
        };
        if !out.is_held_by(worker) {
            return Err(error("permit", "another client holds it"));
        }
        if let Some(heard) = &mut out.heard {
            let (body, answered) = &mut **heard;
            if told.body_coming {
                return Ok(answered.clone().answer(told, now, true));
            }
            let used = used(told)?;
            body.received(told.bytes);
            body.settle(&used);
            let answered = answered.clone();
            // The body has come, so its slot is free.
            out.heard = None;
            if told.bytes > 0 || !used.is_empty() {
                aftermath.settle(out.keys(), &self.0.limiter);
            }
            let answer = answered.clone().answer(told, now, out.expired);
            self.0.permits.settle(&mut shard, number, answered);
            aftermath.gone.push(number.0);
            return Ok(answer);
        }
        let plan = out.plan.clone();
        let rule = plan.as_ref().and_then(|plan| plan.rule());
        let (mut report, of_rule) = self.classify(told, rule)?;
        report.used = used(told)?;
        report.resource = report.resource.or(out.resource);
        let attempt = attempt(told)?;
        let Some(permit) = out.permit.take() else {
            drop(shard);
            return self.unknown(worker, told, now);
        };
        let key = out.key.clone();
        if is_of_own_machine(worker, told, &key, now) {
            let answered = self.of_own_machine(worker, permit, &key);
            self.0.permits.settle(&mut shard, number, answered.clone());
            aftermath.gone.push(number.0);
            return Ok(answered.answer(told, now, false));
        }
        let about = plan
            .as_deref()
            .map(|plan| self.0.limiter.hear_scope(plan, &mut report));
        let about = about.unwrap_or_default();
        let (directions, body) = if told.body_coming && !out.expired {
            let (directions, body) = permit.report_head(&report);
            (directions, Some(body))
        } else {
            (permit.report(&report), None)
        };
        if report.bytes > 0 || !report.used.is_empty() {
            aftermath.settle(out.keys(), &self.0.limiter);
        }
        let meaning = directions.meaning(&report);
        let is_told = of_rule.is_some() || meaning != report.signal;
        report.signal = meaning;
        let held_until = self.follow_rule(plan.as_deref(), &about, &key, &report, of_rule);
        aftermath.held.extend(about);
        let next = self.next(&attempt, &report, &directions, &key, plan.as_deref());
        let answered = Answered {
            next,
            signal: is_told.then_some(meaning.into()),
            rate: directions.rate,
            hold_until: directions.hold_until.max(held_until),
            url_fault: directions.url_fault,
            target_after: report.target_after.unwrap_or_default(),
        };
        let answer = answered.clone().answer(told, now, directions.late);
        if let (Some(body), Some(Entry::Out(out))) = (body, shard.get(number)) {
            out.heard = Some(Box::new((body, answered)));
            aftermath.correct(number, &report.used);
        } else {
            self.0.permits.settle(&mut shard, number, answered);
            aftermath.gone.push(number.0);
        }
        drop(shard);
        let block_share = rule.and_then(|rule| rule.block_share);
        self.record(now, worker, &key, &report, &directions, block_share);
        let is_held = of_rule.is_some_and(|answer| answer.hold.is_some());
        let is_held = is_held || report.signal != Signal::Ok && directions.hold_until > now;
        let held = (is_held || directions.event).then_some(key);
        aftermath.held.extend(held);
        Ok(answer)
    }

    /// Ends a request whose failure was its worker's own, and says nothing about the host.
    fn of_own_machine(&self, worker: &Worker, mut permit: Permit, key: &Key) -> Answered {
        permit.sent();
        drop(permit);
        worker.cancelled();
        Answered {
            next: Next::Retry {
                after_ms: PROBE_EVERY.as_millis() as u64,
                free: true,
            },
            signal: None,
            rate: self.0.limiter.rate(key).unwrap_or_default(),
            hold_until: self.now(),
            url_fault: false,
            target_after: Duration::ZERO,
        }
    }

    /// Returns the number of a permit's slot, and whether the permit was granted to `worker`.
    pub(super) fn number(
        &self,
        worker: &Worker,
        permit: &str,
        slot: u16,
    ) -> Result<(Number, bool), wire::Error> {
        let not_a_name = |why: NoName| error("permit", &why.to_string());
        let name: Name = permit.parse().map_err(not_a_name)?;
        if !name.leases.is_empty() && !self.0.limiter.is_shared() {
            return Err(not_a_name(NoName));
        }
        let is_signed = self.0.signer.is_signed(worker.name(), &name);
        let slots = name.slots;
        let Some(name) = name.later(slot) else {
            let detail = format!("the permit has {slots} departures, counted from 0");
            return Err(error("slot", &detail));
        };
        Ok((name.number, is_signed))
    }

    /// Answers the report of an unknown permit, which was reported long ago or never granted. The
    /// advice on retries does not depend on the permit.
    fn unknown(
        &self,
        worker: &Worker,
        told: &Told,
        now: Timestamp,
    ) -> Result<ToldAnswer, wire::Error> {
        worker.late();
        let ((report, _), attempt) = (self.classify(told, None)?, attempt(told)?);
        let key =
            Key::custom("unknown-permits").map_err(|why| error("permit", &why.to_string()))?;
        let directions = Directions::unknown(now);
        Ok(ToldAnswer {
            permit: told.permit.clone(),
            next: self.next(&attempt, &report, &directions, &key, None),
            late: true,
            ..ToldAnswer::default()
        })
    }

    /// Decides whether the request is retried.
    fn next(
        &self,
        attempt: &Attempt,
        report: &Report,
        directions: &Directions,
        key: &Key,
        plan: Option<&Plan>,
    ) -> Next {
        let Inner {
            retries, policy, ..
        } = &*self.0;
        let resends = plan.is_some_and(|plan| plan.resends(&attempt.method));
        let mut attempt = attempt.as_resent(resends, report);
        let by_rule = plan.map(|plan| plan.retry_policy(policy));
        let policy = by_rule.as_deref().unwrap_or(policy);
        match retries.decide(policy, &mut attempt, report, directions, key, self.now()) {
            Decided::Done => Next::Done,
            Decided::Retry { after, is_charged } => Next::Retry {
                after_ms: after.as_millis() as u64,
                free: !is_charged,
            },
            Decided::GiveUp(reason) => Next::GiveUp {
                reason: reason.to_string(),
            },
        }
    }

    /// Applies the hold of a rule about answers, and announces the answer. `about` is held already.
    /// Returns when the hold of the request's keys by its rule ends.
    fn follow_rule(
        &self,
        plan: Option<&Plan>,
        about: &[Key],
        key: &Key,
        report: &Report,
        answer: Option<&AnswerRule>,
    ) -> Timestamp {
        let (now, own) = (self.now(), std::slice::from_ref(key));
        let held = plan.map_or(own, |plan| plan.held_by(about));
        let of_account = report.retry_after.filter(|_| held != own);
        let until = of_account.map_or(now, |wait| now + wait);
        let Some(answer) = answer else { return until };
        if answer.notify {
            let status = report
                .status
                .map_or_else(String::new, |status| status.to_string());
            let text = format!(
                "{status} fits the rule of line {}: {}",
                answer.line,
                answer.signal.as_str()
            );
            self.0.watch.announce(EventKind::Answer, Some(key), &text);
        }
        let Some(hold) = answer.hold else {
            return until;
        };
        for key in held {
            // If there is no room for the key, there is no request of it to hold.
            let _ = self.0.limiter.hold(key, hold, HoldReason::Operator);
        }
        until.max(now + hold)
    }

    /// Returns the meaning of an answer, and the rule about answers that gave it.
    fn classify<'a>(
        &self,
        told: &Told,
        rule: Option<&'a Rule>,
    ) -> Result<(Report, Option<&'a AnswerRule>), wire::Error> {
        let latency_s = told.latency_ms / 1e3;
        if latency_s.is_nan() || latency_s < 0.0 {
            return Err(error("latency_ms", "must be a number of at least 0"));
        }
        let latency = Duration::try_from_secs_f64(latency_s)
            .unwrap_or(LATENCY_MAX)
            .min(LATENCY_MAX);
        let resource = told.resource.as_deref().map(Resource::of);
        if let (Some(status), Some(rule), None) = (told.status, rule, &told.body_start)
            && told.error.is_none()
            && let Some(answer) = rule.needs_body_of(status)
        {
            let detail = format!(
                "the rule of line {} reads the body of an answer with status {status}; send its \
                 first 16 KiB, or \"\" if there is none",
                answer.line
            );
            return Err(error("body_start", &detail));
        }
        let headers;
        let outcome = match (told.status, told.error) {
            (Some(status), None) => {
                headers = header_map(told);
                Outcome::Answered {
                    status: StatusCode::from_u16(status)
                        .map_err(|_| error("status", "must be from 100 to 999"))?,
                    headers: &headers,
                    body_start: told
                        .body_start
                        .as_deref()
                        .map_or(&[], |body| &body.as_bytes()[..body.len().min(BODY_SCANNED)]),
                }
            }
            (None, Some(kind)) => Outcome::Failed(Failure::from(kind)),
            _ if told.meaning.is_some() => Outcome::Failed(Failure::Malformed),
            (Some(_), Some(_)) => return Err(error("error", "there was a status as well")),
            (None, None) => return Err(error("status", "a status or an error must be told")),
        };
        let (classifier, clock) = (&self.0.classifier, wall_clock());
        let mut report = match &told.meaning {
            Some(meaning) => judged(told, meaning, latency),
            None => classifier.classify(&outcome, clock, latency, told.bytes),
        };
        report.resource = resource;
        let answer = rule.and_then(|rule| rule.judge(&outcome, clock, &mut report));
        Ok((report, answer))
    }
}

impl Answered {
    fn answer(self, told: &Told, now: Timestamp, late: bool) -> ToldAnswer {
        ToldAnswer {
            permit: told.permit.clone(),
            next: self.next,
            signal: self.signal,
            late,
            rate: finite(self.rate),
            hold_ms: ms_up(self.hold_until.since(now)),
            url_fault: self.url_fault,
            target_after_ms: ms_up(self.target_after),
            durable: None,
            error: None,
        }
    }
}

/// Returns whether a failure is its worker's own. An answer shows that the worker has a network.
fn is_of_own_machine(worker: &Worker, told: &Told, key: &Key, now: Timestamp) -> bool {
    let machine = &worker.own_machine;
    match (told.status, told.error) {
        (_, Some(kind)) => machine.failed(now, key, Trouble::of(kind.into())),
        (Some(_), None) => {
            machine.answered(now, key);
            false
        }
        (None, None) => false,
    }
}

/// Returns the report of a worker that classifies answers itself. Its values are limited like
/// values in response headers.
fn judged(told: &Told, meaning: &Meaning, latency: Duration) -> Report {
    let span = |ms: Option<u64>| ms.map(|ms| Duration::from_millis(ms).min(SPAN_MAX));
    let quotas = meaning.quotas.iter().map(|quota| Quota {
        unit: quota.unit.into(),
        limit: quota.limit.map(|limit| limit.min(COUNT_MAX)),
        window: span(quota.window_ms),
        remaining: quota.remaining.map(|left| left.min(COUNT_MAX)),
        reset: span(quota.reset_ms),
        of_account: quota.of_account,
    });
    Report {
        status: told.status,
        failure: told.error.map(Failure::from),
        latency,
        bytes: told.bytes,
        retry_after: meaning
            .retry_after_ms
            .filter(|ms| *ms > 0)
            .map(|ms| Duration::from_millis(ms).min(WAIT_MAX)),
        quotas: quotas.filter(|quota| quota.limit != Some(0)).collect(),
        scope: (meaning.scope.as_ref()).and_then(ToldScope::read),
        may_retry: meaning.may_retry,
        ..Report::of(meaning.signal.into())
    }
}

/// Returns the reported headers. Skips names and values that are invalid in HTTP.
fn header_map(told: &Told) -> HeaderMap {
    let headers = told.headers.iter().filter_map(|(name, value)| {
        Some((
            HeaderName::from_bytes(name.as_bytes()).ok()?,
            HeaderValue::from_str(value).ok()?,
        ))
    });
    headers.collect()
}

/// Returns the amounts of named units that the request used.
fn used(told: &Told) -> Result<UnitCosts, wire::Error> {
    let used = told
        .used
        .iter()
        .map(|(name, amount)| (name.as_str(), *amount));
    UnitCosts::new(used).map_err(|why| error("used", &why.to_string()))
}

fn attempt(told: &Told) -> Result<Attempt, wire::Error> {
    let method = match &told.method {
        None => Method::GET,
        Some(method) => {
            Method::from_bytes(method.as_bytes()).map_err(|_| error("method", "is not a method"))?
        }
    };
    let (number, free) = (u32::from(told.attempt.max(1)), u32::from(told.free));
    // A worker does not say which free attempts were refusals, so all of them count as such.
    Ok(Attempt {
        number,
        refusals: free,
        failures: Failures::counted((number - 1).saturating_sub(free)),
        ..Attempt::first(method)
    })
}

pub(super) fn error(field: &str, detail: &str) -> wire::Error {
    wire::Error {
        field: field.to_owned(),
        detail: detail.to_owned(),
    }
}

/// Limits `rate` to a finite number, because JSON has no infinity.
pub(crate) fn finite(rate: f64) -> f64 {
    rate.min(1e9)
}

/// Returns whole milliseconds, rounded up so that a caller does not retry too early.
pub(crate) fn ms_up(length: Duration) -> u64 {
    length.as_micros().div_ceil(1_000) as u64
}
