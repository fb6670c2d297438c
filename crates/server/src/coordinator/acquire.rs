//! Acquire requests: permits are granted at once if the keys allow it, and otherwise as soon as
//! possible within the caller's patience.
//!
//! Items that must wait join the queues of their keys ([`Limiter::acquire_in_turn`]). An item with
//! an id keeps its place between calls, if the caller repeats the request with the same id. A
//! request for `any` n items puts all items into the queues until n are granted. The other items
//! then leave the queues without having consumed tokens or slots.
//!
//! [`Limiter::acquire_in_turn`]: politely::Limiter::acquire_in_turn

mod answer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::{Arrival, Permit, Reason, Refusal, RefusalReason};
use politely_api::wire::{Answer, Item, RefusedCode, Want};

use super::Coordinator;
use super::keep::{JournalWrite, Leaving};
use super::names::Number;
use super::wanted::{Quick, Wanted};
use crate::watch::Worker;

/// The most items that wait at a time, over all calls. Each needs about 2 KB. Beyond the cap, the
/// answer is a time to retry.
const WAITING_MAX: usize = 1 << 18;
/// The time for the engine to answer. After that it counts as unavailable.
pub(super) const ENGINE_TIME: Duration = Duration::from_secs(1);
/// The shortest retry time of an item that waits.
const SOON: Duration = Duration::from_millis(1);
/// The retry time when the coordinator cannot compute one.
const AGAIN: Duration = Duration::from_secs(1);
/// The reason for which nothing is granted before the limits of all coordinators are known.
const UNREAD: &str = "the configuration and the policy are not read from the engine yet";

/// The result of an acquire call.
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Answer>,
    pub(crate) retry_in: Option<Duration>,
    /// The permits that this call granted.
    pub(crate) granted: Vec<Number>,
    /// The number of items that were refused because the client has too many keys.
    pub(crate) capped: usize,
    /// The granted items that waited, and why.
    pub(crate) waited: Vec<(u32, RefusalReason)>,
    /// Whether an item waits for a key that its caller's name or labels select.
    pub(crate) waits_for_own: bool,
}

impl Coordinator {
    /// Answers `items`. Waits up to `wait` for items that cannot be granted at once.
    ///
    /// `gone` are permits that the same call reported. The journal records them together with the
    /// granted permits in one write. Without an engine, with no time to wait and with room for new
    /// keys, the future is complete at its first poll.
    pub(crate) async fn acquire(
        &self,
        worker: &Arc<Worker>,
        items: &[Item],
        want: Want,
        wait: Duration,
        gone: Vec<u64>,
    ) -> Outcome {
        let call = self.grant(worker, items, want, wait, gone).await;
        call.outcome(want, JournalWrite::AtOnce).await
    }

    /// Does the same as [`Coordinator::acquire`], but first lets other calls that are ready enter
    /// their permits, so that one write of the journal serves all of them.
    pub(crate) async fn acquire_with_others(
        &self,
        worker: &Arc<Worker>,
        items: &[Item],
        want: Want,
        wait: Duration,
        gone: Vec<u64>,
    ) -> Outcome {
        let call = self.grant(worker, items, want, wait, gone).await;
        call.outcome(want, JournalWrite::WithOthers).await
    }

    /// Grants what can be granted of `items`.
    async fn grant<'a>(
        &'a self,
        worker: &'a Arc<Worker>,
        items: &[Item],
        want: Want,
        wait: Duration,
        gone: Vec<u64>,
    ) -> Call<'a> {
        self.0.signer.agree().await;
        let enough = match want {
            Want::All => usize::MAX,
            Want::Any(n) => n as usize,
        };
        let mut call = Call {
            coordinator: self,
            worker,
            began: self.now(),
            answers: vec![None; items.len()],
            granted: Vec::with_capacity(items.len()),
            others: Vec::new(),
            gone,
            found: 0,
            soonest: None,
            capped: 0,
            waited: Vec::new(),
            waits_for_own: false,
        };
        if !self.has_read_limits().await {
            let why = self.last_error();
            let why = why.as_deref().unwrap_or(UNREAD);
            let again = self.now() + AGAIN;
            (0..items.len()).for_each(|item| call.wait(item as u32, again, why, 0));
            return call;
        }
        if matches!(want, Want::Any(_)) {
            // An earlier answer may have been lost. Its permits count first, before new ones are
            // granted.
            for (item, asked) in items.iter().enumerate() {
                if call.found < enough
                    && let Some(number) = self.granted_before(worker, asked)
                {
                    call.again(item as u32, number);
                }
            }
        }
        let mut waiting = Vec::new();
        for (item, asked) in items.iter().enumerate() {
            if call.found >= enough {
                break;
            }
            if call.answers[item].is_some() {
                continue;
            }
            let item = item as u32;
            let understood = self.understand(worker, item, asked, wait);
            if let Ok(wanted) = &understood
                && let Err(probe) = (worker.own_machine).may_send(call.began, &wanted.keys[0])
            {
                call.wait(item, probe, "the worker's own network fails", 0);
                continue;
            }
            match understood {
                Err(Quick::Error(error)) => call.answer(Answer::Error { item, error }),
                Err(Quick::Granted(number)) => call.again(item, number),
                Err(Quick::AskedTwice) => call.wait(item, call.began + AGAIN, "asked already", 0),
                Err(Quick::Cancelled) => call.id_is_used(item, "it was cancelled"),
                Err(Quick::TooManyKeys(most)) => call.has_too_many_keys(item, most),
                Ok(wanted) if wanted.rests_until > call.began => {
                    let refusal = wanted.rest();
                    waiting.push((wanted, refusal));
                }
                Ok(wanted) if self.0.limiter.is_shared() => {
                    let refusal = Refusal::asked(&wanted.keys[0], call.began);
                    waiting.push((wanted, refusal));
                }
                Ok(wanted) => match self.try_with_room(worker, asked, &wanted).await {
                    Ok(permit) => call.grant(&wanted, permit),
                    Err(refusal) => {
                        let code = match refusal.reason {
                            RefusalReason::Wait(Reason::Parked(_)) => RefusedCode::Parked,
                            RefusalReason::Closed => RefusedCode::Closing,
                            RefusalReason::Full => RefusedCode::Full,
                            _ => {
                                waiting.push((wanted, refusal));
                                continue;
                            }
                        };
                        call.refuse(&wanted, code, &refusal.reason.to_string(), refusal.at);
                    }
                },
            }
        }
        let asked = items.len() as u64;
        self.0.asked.fetch_add(asked, Ordering::Relaxed);
        if wait.is_zero() && self.0.limiter.is_shared() {
            call.ask_the_engine(waiting, enough).await;
        } else if call.found > 0 || wait.is_zero() {
            for (wanted, refusal) in waiting {
                call.give_up(&wanted, &refusal);
            }
        } else {
            call.stand_in_line(waiting, enough, wait).await;
        }
        call
    }

    /// Tries an item, and once more after saved keys made room for its keys.
    async fn try_with_room(
        &self,
        worker: &Worker,
        asked: &Item,
        wanted: &Wanted<'_>,
    ) -> Result<Permit, Refusal> {
        let saves = self.saves_for_room();
        let tried = self.try_now(wanted);
        let is_full = |refusal: &Refusal| refusal.reason == RefusalReason::Full;
        if !tried.as_ref().is_err_and(is_full) || !self.save_for_room(saves).await {
            return tried;
        }
        // The keys that had no room do not follow their rules yet.
        self.follow_rules(worker, asked);
        self.try_now(wanted)
    }

    fn try_now(&self, wanted: &Wanted<'_>) -> Result<Permit, Refusal> {
        let arrival = wanted.arrival.unwrap_or(Arrival::LAST);
        self.0
            .limiter
            .try_in_turn(wanted.keys(), wanted.ask.clone(), arrival)
    }
}

/// The state of one acquire call.
struct Call<'a> {
    coordinator: &'a Coordinator,
    worker: &'a Arc<Worker>,
    began: Timestamp,
    /// One answer per item.
    answers: Vec<Option<Answer>>,
    granted: Vec<Leaving>,
    /// The further keys of the granted permits, and the departures.
    others: Vec<(Key, Timestamp)>,
    gone: Vec<u64>,
    /// The number of items with a permit so far, including permits of an earlier answer.
    found: usize,
    /// The earliest time at which an item that must wait can be granted.
    soonest: Option<Timestamp>,
    /// The number of items that were refused because the client has too many keys.
    capped: usize,
    waited: Vec<(u32, RefusalReason)>,
    waits_for_own: bool,
}

impl Call<'_> {
    async fn stand_in_line(
        &mut self,
        waiting: Vec<(Wanted<'_>, Refusal)>,
        enough: usize,
        wait: Duration,
    ) {
        self.coordinator.keep_gone(&std::mem::take(&mut self.gone));
        let room = Room::take(&self.coordinator.0.waiting, waiting.len());
        if room.is_none() {
            for (wanted, refusal) in waiting {
                self.give_up(&wanted, &refusal);
            }
            return;
        }
        let limiter = &self.coordinator.0.limiter;
        let mut lines: FuturesUnordered<_> = waiting
            .iter()
            .enumerate()
            .map(|(index, (wanted, _))| async move {
                let patience = wanted.patience.min(wait);
                let arrival = wanted.arrival.unwrap_or_else(|| limiter.arrival());
                let served = async {
                    let rest = wanted.rests_until.since(limiter.now());
                    if !rest.is_zero() {
                        tokio::time::sleep(rest).await;
                    }
                    let ask = wanted.ask.clone();
                    limiter.acquire_in_turn(wanted.keys(), ask, arrival).await
                };
                (index, tokio::time::timeout(patience, served).await)
            })
            .collect();
        let mut open: Vec<bool> = vec![true; waiting.len()];
        let before = self.found;
        while self.found < enough {
            // After the first permit, the loop collects only permits that are ready now. A permit
            // that waits for other permits would expire.
            let next = if self.found > before {
                lines.next().now_or_never().flatten()
            } else {
                lines.next().await
            };
            let Some((index, served)) = next else { break };
            let (wanted, refusal) = &waiting[index];
            open[index] = false;
            match served {
                Ok(Ok(permit)) => {
                    self.waited.push((wanted.item, refusal.reason));
                    self.grant(wanted, permit);
                }
                Ok(Err(why)) => self.refuse_waiting(wanted, &why),
                Err(_elapsed) => self.give_up(wanted, refusal),
            }
        }
        drop(lines);
        for ((wanted, refusal), _) in waiting.iter().zip(open).filter(|(_, open)| *open) {
            self.give_up(wanted, refusal);
        }
    }

    /// Answers each item as soon as the engine has answered, and after [`ENGINE_TIME`] without an
    /// answer.
    async fn ask_the_engine(&mut self, waiting: Vec<(Wanted<'_>, Refusal)>, enough: usize) {
        let limiter = &self.coordinator.0.limiter;
        let (resting, waiting): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|(wanted, _)| wanted.rests_until > self.began);
        for (wanted, refusal) in resting {
            self.give_up(&wanted, &refusal);
        }
        let asking = waiting.into_iter().map(|(wanted, refusal)| async move {
            let arrival = wanted.arrival.unwrap_or_else(|| limiter.arrival());
            let request = limiter.request(wanted.keys(), wanted.ask.clone(), arrival);
            let answer = tokio::time::timeout(ENGINE_TIME, request).await;
            (wanted, answer.unwrap_or(Err(refusal)))
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        while let Some((wanted, answer)) = asking.next().await {
            match answer {
                // A permit beyond `enough` is dropped, which refunds it.
                Ok(permit) if self.found < enough => self.grant(&wanted, permit),
                Ok(_) => self.wait(wanted.item, self.coordinator.now(), "enough others", 0),
                Err(refusal) => match refusal.reason {
                    RefusalReason::Wait(Reason::Parked(_)) => {
                        let reason = refusal.reason.to_string();
                        self.refuse(&wanted, RefusedCode::Parked, &reason, refusal.at);
                    }
                    RefusalReason::Closed => {
                        let reason = refusal.reason.to_string();
                        self.refuse(&wanted, RefusedCode::Closing, &reason, refusal.at);
                    }
                    _ => self.give_up(&wanted, &refusal),
                },
            }
        }
    }

    /// Records the granted permits, and returns the answers.
    async fn outcome(mut self, want: Want, write: JournalWrite) -> Outcome {
        let any = matches!(want, Want::Any(_));
        let now = self.coordinator.now();
        self.worker.waited(now.since(self.began));
        let coordinator = self.coordinator;
        let (granted, others, gone) = (&self.granted, &self.others, &self.gone);
        let kept = coordinator.keep_granted(self.worker, granted, others, gone, write);
        if !kept.await {
            let unwritten = std::mem::take(&mut self.granted);
            coordinator.revoke_unwritten(self.worker, &unwritten, &mut self.answers);
        }
        coordinator.release_written(&self.granted);
        let told = |answer: &Answer| !(any && matches!(answer, Answer::Wait { .. }));
        let answers = std::mem::take(&mut self.answers).into_iter().flatten();
        let granted = std::mem::take(&mut self.granted).into_iter();
        Outcome {
            answers: answers.filter(told).collect(),
            retry_in: self.soonest.map(|at| at.since(now)),
            granted: granted.map(|leaving| Number(leaving.number)).collect(),
            capped: self.capped,
            waited: std::mem::take(&mut self.waited),
            waits_for_own: self.waits_for_own,
        }
    }
}

/// Takes the permits back if the caller hung up before the answer was complete.
impl Drop for Call<'_> {
    fn drop(&mut self) {
        let granted = self.granted.iter().map(|leaving| Number(leaving.number));
        self.coordinator.take_back(self.worker, granted);
    }
}

/// Places for waiting items. They are released when dropped.
struct Room<'a>(&'a AtomicUsize, usize);

impl<'a> Room<'a> {
    fn take(waiting: &'a AtomicUsize, count: usize) -> Option<Self> {
        let more = |waiting: usize| (waiting + count <= WAITING_MAX).then_some(waiting + count);
        let taken = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then_some(Self(waiting, count))
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}
