//! The effect of an answer, and of a call without an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use politely_api::client::CallError;
use politely_api::wire::{self, Answer, RefusedCode};
use politely_core::Timestamp;
use politely_core::gate::HoldReason;
use politely_core::host::Reason;
use politely_core::key::Key;
use politely_store::{renewed_after, safe_length};

use super::super::call::{Call, Reply, Sent};
use super::super::lines::{Open, Receiver};
use super::super::permit_guard::Granted;
use super::{Delivery, KNOWN_MAX, Known, Session};
use crate::backend::prefetch::AGAIN;
use crate::error::{AcquireError, RefusalReason};
use crate::leases::{Decision, Judged};

/// The maximum pause after the first call without an answer. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(50);
/// The upper bound of [`PAUSE`] when it doubles. It is short, so that work goes on soon after the
/// coordinator is back.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The maximum pause before an acquire request is sent again with a new idempotency key.
const SOON: Duration = Duration::from_millis(200);

/// The assumed length of a hold that parks a key, if the coordinator does not send it.
const PARKED: Duration = Duration::from_hours(2);

/// The meaning of an answer to one item.
enum Verdict {
    /// The acquire request returns to its place in the queue.
    Back,
    /// It returns to its place with a new idempotency key.
    Anew,
    Served(Result<Granted, No>),
}

/// A final refusal: the error of `acquire`, the reason of `try_acquire`, and how long it applies.
pub(super) struct No(AcquireError, RefusalReason, Duration);

impl Session {
    /// Applies the result of a call, and returns the results for its callers.
    pub(in super::super) fn answered(
        &mut self,
        sent: Sent,
        reply: Result<Reply, CallError>,
        now: Timestamp,
    ) -> Vec<Delivery> {
        self.under_way.ended(sent.kind);
        self.answers += 1;
        match reply {
            Ok(reply) => {
                (self.failures, self.last_error) = (0, None);
                self.fallback.note_answer();
                self.not_before = self.not_before.min(now);
                self.apply(sent, reply, now)
            }
            Err(error) => {
                self.last_error = Some(error.to_string());
                if matches!(error, CallError::Unavailable(_)) {
                    self.fallback.note_away(now);
                } else {
                    self.fallback.note_answer();
                }
                let pause = match &error {
                    CallError::Rejected { .. } | CallError::Unreadable(_) => {
                        return self.refused(sent, &error.to_string(), now);
                    }
                    CallError::Busy { retry_after, .. } => {
                        *retry_after + self.jitter(*retry_after / 2)
                    }
                    CallError::Unavailable(_) => {
                        self.jitter(PAUSE_MAX.min(PAUSE * (1 << self.failures.min(5))))
                    }
                };
                self.failures = self.failures.saturating_add(1);
                self.not_before = self.not_before.max(now + pause);
                self.take_back(sent, now);
                if self.fallback.is_away() {
                    self.stop_if_unavailable(&error.to_string(), now)
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// Returns full jitter: a random time below `most`.
    fn jitter(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.unit())
    }

    /// Takes a call without an answer back, so that everything in it is sent again.
    fn take_back(&mut self, sent: Sent, now: Timestamp) {
        for number in sent.requests.into_iter().rev() {
            self.lines.back(number);
        }
        match sent.call {
            Call::Exchange(call, keys) => {
                for outcome in keys.into_iter().zip(call.report).rev() {
                    self.reports.push_front(outcome);
                }
            }
            Call::Cancel(call) => self.cancels[usize::from(call.sent)].extend(call.permits),
            Call::Patch(key, patch) => self.patches.push_front((key, patch)),
            Call::Renew(_, leases) => {
                for lease in leases {
                    self.renew_at(now, &lease);
                }
            }
        }
    }

    /// Drops the content of a rejected call, since it would be rejected again. Its callers get an
    /// error.
    fn refused(&mut self, sent: Sent, why: &str, now: Timestamp) -> Vec<Delivery> {
        self.failures = 0;
        tracing::warn!(%why, "the coordinator refuses a call");
        match &sent.call {
            Call::Exchange(call, _) => {
                for outcome in &call.report {
                    self.judges.remove(&outcome.permit);
                }
                self.has_rejected |= !call.report.is_empty();
            }
            Call::Patch(..) | Call::Cancel(_) => self.has_rejected = true,
            Call::Renew(..) => {}
        }
        let until = now + AGAIN;
        let mut deliveries = Vec::new();
        for open in sent
            .requests
            .into_iter()
            .filter_map(|number| self.lines.served(number))
        {
            match open.receiver {
                Receiver::Caller(sender) => {
                    deliveries.push((sender, Err(AcquireError::Coordinator(why.to_owned()))));
                }
                Receiver::Prefetch => {
                    self.prefetches
                        .refused(&open.keys, RefusalReason::Refused, until);
                }
            }
        }
        deliveries
    }

    fn apply(&mut self, sent: Sent, reply: Reply, now: Timestamp) -> Vec<Delivery> {
        match (sent.call, reply) {
            (Call::Exchange(call, keys), Reply::Exchanged(answers)) => {
                let permits = call.report.iter().map(|outcome| &outcome.permit);
                for ((key, permit), answer) in keys.into_iter().zip(permits).zip(answers.report) {
                    self.learn(key, &answer, now);
                    self.judge(permit, answer);
                }
                self.fallback.tell(answers.share, sent.at, now);
                self.serve(&sent.requests, answers.acquire, now)
            }
            (Call::Renew(_, leases), Reply::Renewed(answer)) => {
                let renewed: BTreeMap<String, u64> = answer
                    .renewed
                    .into_iter()
                    .map(|renewed| (renewed.permit, renewed.lease_ms))
                    .collect();
                for lease in leases {
                    if let Some(ms) = renewed.get(lease.id()) {
                        let length = Duration::from_millis(*ms);
                        lease.extend(sent.at + safe_length(length));
                        self.renew_at(sent.at + renewed_after(length), &lease);
                    } else {
                        lease.end();
                    }
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn learn(&mut self, key: Key, answer: &wire::ToldAnswer, now: Timestamp) {
        self.stats.late += u64::from(answer.late);
        if let Some(error) = &answer.error {
            self.has_rejected = true;
            tracing::warn!(%key, permit = answer.permit, field = error.field, detail = error.detail, "report refused");
        } else if !answer.late || answer.rate > 0.0 {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            let hold_until = now + Duration::from_millis(answer.hold_ms);
            self.fallback.rate(&key, answer.rate);
            self.known.insert(
                key,
                Known {
                    rate: answer.rate,
                    hold_until,
                },
            );
        }
    }

    /// Delivers the coordinator's decision about the request of `permit`. If the coordinator could
    /// not decode the report, nothing is delivered, and the worker decides alone.
    fn judge(&mut self, permit: &str, answer: wire::ToldAnswer) {
        let Some(judge) = self.judges.remove(permit) else {
            return;
        };
        let next = match answer.next {
            wire::Next::Retry { after_ms, free } => Some(Judged::Retry {
                after: Duration::from_millis(after_ms),
                is_charged: !free,
            }),
            wire::Next::GiveUp { reason } => Some(Judged::GiveUp(reason)),
            wire::Next::Done => None,
        };
        let judged = Decision {
            signal: answer.signal.map(Into::into),
            next,
        };
        // The receiver is gone if the worker does not wait for the decision.
        let _ = judge.send(judged);
    }

    fn serve(&mut self, requests: &[u64], answers: Vec<Answer>, now: Timestamp) -> Vec<Delivery> {
        let mut open: Vec<bool> = vec![true; requests.len()];
        let mut deliveries = Vec::new();
        for answer in answers {
            let item = item_of(&answer) as usize;
            let Some(&number) = requests.get(item).filter(|_| open[item]) else {
                continue;
            };
            match self.verdict(number, answer, now) {
                Verdict::Back => {}
                Verdict::Anew => {
                    open[item] = false;
                    self.lines.rename(number);
                }
                Verdict::Served(result) => {
                    open[item] = false;
                    if let Some(served) = self.lines.served(number) {
                        deliveries.extend(self.deliver(served, result, now));
                    }
                }
            }
        }
        for (&number, _) in requests.iter().zip(open).rev().filter(|(_, open)| *open) {
            self.lines.back(number);
        }
        deliveries
    }

    fn verdict(&mut self, number: u64, answer: Answer, now: Timestamp) -> Verdict {
        let Some(keys) = self.lines.keys(number).cloned() else {
            // The session was closed meanwhile.
            if let Answer::Granted(grant) = answer {
                self.cancel(grant.permit, false);
            }
            return Verdict::Back;
        };
        let key = keys[0].clone();
        let no = |error, reason, rest| Verdict::Served(Err(No(error, reason, rest)));
        match answer {
            Answer::Granted(grant) => {
                let start = now + Duration::from_millis(grant.start_in_ms);
                if keys.len() == 1 {
                    self.fallback.limit(&key, grant.limit, now);
                }
                let slot = self.fallback.slot(&key);
                Verdict::Served(Ok(Granted {
                    permit: grant.permit,
                    key,
                    start,
                    valid_until: start + Duration::from_millis(grant.valid_for_ms),
                    lasts: Duration::from_millis(grant.lease_ms),
                    send_bodies: grant.send_bodies,
                    sent: None,
                    slot,
                }))
            }
            Answer::Wait { .. } => Verdict::Back,
            Answer::Refused {
                code,
                reason,
                retry_in_ms,
                ..
            } => match code {
                RefusedCode::Parked => {
                    let (rest, why) = parked(&reason, retry_in_ms);
                    no(
                        AcquireError::Parked(key, rest),
                        RefusalReason::Wait(why),
                        rest,
                    )
                }
                RefusedCode::Full => no(AcquireError::Full, RefusalReason::Full, AGAIN),
                RefusedCode::QueueFull => {
                    no(AcquireError::QueueFull(key), RefusalReason::Asked, AGAIN)
                }
                // The permit of this idempotency key is gone, or the coordinator is shutting down.
                // A new key is sent a little later.
                RefusedCode::IdUsed | RefusedCode::Closing => {
                    self.not_before = self.not_before.max(now + self.jitter(SOON));
                    Verdict::Anew
                }
            },
            Answer::Error { error, .. } => {
                let detail = format!("{}: {}", error.field, error.detail);
                self.last_error = Some(format!("refuses requests of {key}: {detail}"));
                no(
                    AcquireError::Coordinator(detail),
                    RefusalReason::Refused,
                    AGAIN,
                )
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        served: Open,
        result: Result<Granted, No>,
        now: Timestamp,
    ) -> Option<Delivery> {
        match served.receiver {
            Receiver::Caller(sender) => Some((sender, result.map_err(|No(error, ..)| error))),
            Receiver::Prefetch => {
                match result {
                    Ok(granted) => {
                        if let Some(unwanted) = self.prefetches.granted(&served.keys, granted) {
                            self.cancel(unwanted.permit, false);
                        }
                    }
                    Err(No(_, reason, rest)) => {
                        self.prefetches.refused(&served.keys, reason, now + rest);
                    }
                }
                None
            }
        }
    }
}

fn item_of(answer: &Answer) -> u32 {
    match answer {
        Answer::Granted(grant) => grant.item,
        Answer::Wait { item, .. } | Answer::Refused { item, .. } | Answer::Error { item, .. } => {
            *item
        }
    }
}

/// Returns how long a key is parked, and the reason.
fn parked(text: &str, rest_ms: Option<u64>) -> (Duration, Reason) {
    let all = [
        HoldReason::RetryAfter,
        HoldReason::QuotaSpent,
        HoldReason::Backoff,
        HoldReason::CrawlDelay,
        HoldReason::Operator,
    ];
    let reason = all
        .into_iter()
        .find(|reason| text.ends_with(reason.as_str()));
    let rest = rest_ms.map_or(PARKED, Duration::from_millis);
    (
        rest,
        Reason::Parked(reason.unwrap_or(HoldReason::RetryAfter)),
    )
}
