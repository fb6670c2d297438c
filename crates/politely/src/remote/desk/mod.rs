//! What waits to be said and asked, which call is next, and what an answer changes: no clock, no socket.
//!
//! Nothing costs a call of its own. Reports ride in an exchange that does not wait, together with whoever is to be asked
//! for; who cannot be served at once is asked for in a call that is held open until somebody is. Of the first kind one
//! is under way at a time, of the second a few.
//!
//! Without an answer everything goes back to where it was and is said again, under the same ids, after a pause with full
//! jitter; one call at a time finds out whether the coordinator is back.

mod answers;
mod compose;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use politely_core::host::{Ask, CrawlDelay, Directions};
use politely_core::key::Key;
use politely_core::signal::{Report, Signal};
use politely_core::{Rng, Timestamp};
use tokio::sync::oneshot;

use super::call::{Kind, Sent};
use super::claim::{Granted, Lease};
use super::delays::Delays;
use super::lines::{Answer, KeySet, Lines, Who};
use super::wishes::{Found, Wishes};
use crate::asked::{AcquireError, RefusalReason};
use crate::permit::Judged;
use crate::stats::Stats;
use crate::wire::{KeyPatch, Told};

/// Callers in line, about 200 bytes each.
const WAITING_MAX: usize = 1 << 18;
/// Reports kept while the coordinator is away, about 300 bytes each; then the oldest goes.
const REPORTS_MAX: usize = 1 << 16;
/// Keys whose rate and hold are remembered.
const KNOWN_MAX: usize = 1 << 16;

/// Who hears what, to be told without the lock.
pub(super) type Delivery = (Answer, Result<Granted, AcquireError>);

pub(super) struct Desk {
    client: String,
    /// Tells our wishes from those of an earlier process of this name.
    prefix: String,
    rng: Rng,
    lines: Lines,
    wishes: Wishes,
    ready: Vec<Key>,
    patches: VecDeque<(Key, KeyPatch)>,
    reports: VecDeque<(Key, Told)>,
    /// By whether the request had left.
    cancels: [Vec<String>; 2],
    leases: BTreeMap<(Timestamp, u64), Weak<Lease>>,
    known: HashMap<Key, Known, foldhash::fast::RandomState>,
    delays: Delays,
    /// Who waits to be told what becomes of a request, by its permit.
    judges: HashMap<String, oneshot::Sender<Judged>, foldhash::fast::RandomState>,
    stats: Stats,
    counter: u64,
    claims: usize,
    under_way: UnderWay,
    last: Timestamp,
    failures: u32,
    not_before: Timestamp,
    trouble: Option<String>,
    /// The coordinator is called even if there is nothing to say.
    greet: bool,
    /// Calls that had an answer, or none.
    answers: u64,
    /// Something that was said was refused, and is not said again.
    unheard: bool,
    closed: bool,
}

/// Calls under way.
#[derive(Default)]
struct UnderWay {
    polls: usize,
    quick: bool,
    /// Patch, cancel, renew: one of these at a time.
    errand: bool,
}

#[derive(Clone, Copy)]
struct Known {
    rate: f64,
    hold_until: Timestamp,
}

impl UnderWay {
    fn began(&mut self, kind: Kind) {
        match kind {
            Kind::Quick => self.quick = true,
            Kind::Poll => self.polls += 1,
            Kind::Errand => self.errand = true,
        }
    }

    fn ended(&mut self, kind: Kind) {
        match kind {
            Kind::Quick => self.quick = false,
            Kind::Poll => self.polls -= 1,
            Kind::Errand => self.errand = false,
        }
    }
}

/// What is to be done.
pub(super) enum Step {
    Call(Sent),
    /// Nothing before then.
    Wait(Timestamp),
}

impl Desk {
    pub(super) fn new(client: String, seed: u64) -> Self {
        Self {
            client,
            prefix: format!("{seed:x}-"),
            rng: Rng::new(seed),
            lines: Lines::default(),
            wishes: Wishes::default(),
            ready: Vec::new(),
            patches: VecDeque::new(),
            reports: VecDeque::new(),
            cancels: [Vec::new(), Vec::new()],
            leases: BTreeMap::new(),
            known: HashMap::default(),
            delays: Delays::default(),
            judges: HashMap::default(),
            stats: Stats::default(),
            counter: 0,
            claims: 0,
            under_way: UnderWay::default(),
            last: Timestamp::ZERO,
            failures: 0,
            not_before: Timestamp::ZERO,
            trouble: None,
            greet: false,
            answers: 0,
            unheard: false,
            closed: false,
        }
    }

    /// A caller joins the line of `keys`.
    pub(super) fn ask(
        &mut self,
        keys: &[Key],
        ask: Ask,
        answer: Answer,
    ) -> Result<(), AcquireError> {
        if self.closed {
            return Err(AcquireError::Closed);
        }
        if self.lines.len() >= WAITING_MAX {
            return Err(AcquireError::LineFull(keys[0].clone()));
        }
        self.lines
            .join(KeySet::from(keys), ask, Who::Caller(answer));
        Ok(())
    }

    /// A permit that came for an earlier call, or a wish for the next.
    pub(super) fn try_ask(
        &mut self,
        keys: &[Key],
        ask: Ask,
        now: Timestamp,
    ) -> Result<Granted, (RefusalReason, Timestamp)> {
        if self.closed {
            return Err((RefusalReason::Closed, Timestamp::NEVER));
        }
        let refused = match self.wishes.call(keys, now) {
            Found::Permit(granted) => return Ok(granted),
            Found::No(reason, at) => (reason, at),
            Found::New(keys) => {
                let number = self.lines.join(Arc::clone(&keys), ask, Who::Wish);
                self.wishes.joined(&keys, number);
                (RefusalReason::Asked, now + super::wishes::AGAIN)
            }
        };
        self.stats.turned_away += 1;
        Err(refused)
    }

    /// A report, and what is known of its key by now.
    pub(super) fn tell(
        &mut self,
        key: &Key,
        told: Told,
        report: &Report,
        now: Timestamp,
    ) -> Directions {
        self.stats.reported += 1;
        self.stats.refused += u64::from(report.signal == Signal::RateLimited);
        self.tell_again(key, told);
        let known = self.known.get(key).copied();
        let asked = now + report.retry_after.unwrap_or_default();
        Directions {
            hold_until: known.map_or(asked, |known| known.hold_until.max(asked)),
            rate: known.map_or(0.0, |known| known.rate),
            event: false,
            late: false,
            url_fault: false,
        }
    }

    /// `judge` is to hear what becomes of the request of `permit`, once that is reported.
    pub(super) fn asks(&mut self, permit: String, judge: oneshot::Sender<Judged>) {
        self.judges.insert(permit, judge);
    }

    pub(super) fn tell_again(&mut self, key: &Key, told: Told) {
        if self.reports.len() >= REPORTS_MAX {
            if let Some((_, dropped)) = self.reports.pop_front() {
                self.judges.remove(&dropped.permit);
            }
            self.stats.late += 1;
        }
        self.reports.push_back((key.clone(), told));
    }

    /// A permit that will not be used.
    pub(super) fn cancel(&mut self, permit: String, sent: bool) {
        self.stats.cancelled += 1;
        self.judges.remove(&permit);
        let cancels = &mut self.cancels[usize::from(sent)];
        // What does not fit runs out by itself.
        if cancels.len() < REPORTS_MAX {
            cancels.push(permit);
        }
    }

    /// An operator's word on `key`.
    pub(super) fn patch(&mut self, key: &Key, patch: KeyPatch) {
        if self.patches.len() < REPORTS_MAX {
            self.patches.push_back((key.clone(), patch));
        }
    }

    /// The host of `key` asks for this in its robots.txt.
    pub(super) fn crawl_delay(&mut self, key: &Key, told: CrawlDelay, now: Timestamp) {
        self.delays.tell(key, told, now);
    }

    /// Somebody holds `granted`: its lease is renewed at half its length.
    pub(super) fn hold(&mut self, granted: &Granted, lease: &Arc<Lease>) {
        self.stats.granted += 1;
        self.claims += 1;
        self.renew_at(granted.start + granted.lease / 2, Arc::downgrade(lease));
    }

    /// A claim is over.
    pub(super) fn let_go(&mut self) {
        self.claims -= 1;
    }

    fn renew_at(&mut self, at: Timestamp, lease: Weak<Lease>) {
        self.counter += 1;
        self.leases.insert((at, self.counter), lease);
    }

    /// Keys for which a wished permit came since the last call.
    pub(super) fn take_ready(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.ready)
    }

    /// The rate and the hold of `key` as the coordinator said them last.
    pub(super) fn rate(&self, key: &Key) -> Option<f64> {
        self.known.get(key).map(|known| known.rate)
    }

    /// Why the last call had no answer, or was refused.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            waiting: self.lines.len() as u64,
            ..self.stats
        }
    }

    pub(super) fn waited(&mut self, waited: Duration) {
        self.stats.waits += 1;
        self.stats.waited += waited;
    }

    /// Calls the coordinator even if there is nothing to say; how many calls were answered before.
    pub(super) const fn greet(&mut self) -> u64 {
        self.greet = true;
        self.answers
    }

    /// What came of calls since `before` were answered: `Some(Err)` if the last was refused.
    pub(super) fn greeted(&self, before: u64) -> Option<Result<(), String>> {
        (self.answers > before).then(|| match &self.trouble {
            Some(why) if self.failures == 0 => Err(why.clone()),
            _ => Ok(()),
        })
    }

    /// Nobody is served any more; what is to be said is said.
    pub(super) fn close(&mut self) -> Vec<Delivery> {
        self.closed = true;
        for kept in self.wishes.drain() {
            self.cancel(kept.permit, false);
        }
        let open = self.lines.drain().into_iter();
        let callers = open.filter_map(|open| match open.who {
            Who::Caller(answer) => Some((answer, Err(AcquireError::Closed))),
            Who::Wish => None,
        });
        callers.collect()
    }

    /// Has all been said?
    pub(super) fn is_quiet(&self) -> bool {
        self.patches.is_empty()
            && self.reports.is_empty()
            && self.cancels.iter().all(Vec::is_empty)
            && !self.under_way.quick
            && !self.under_way.errand
    }

    /// Once all has been said: whether nothing of it was refused.
    pub(super) fn was_heard(&self) -> Option<bool> {
        self.is_quiet().then_some(!self.unheard)
    }

    /// Closed, and nothing is left to be said or will be.
    pub(super) fn is_over(&self) -> bool {
        self.closed && self.is_quiet() && self.claims == 0
    }

    /// Closed, and the coordinator is away.
    pub(super) fn is_hopeless(&self) -> bool {
        self.closed && self.failures > 0
    }
}
