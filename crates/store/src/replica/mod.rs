//! One shared key, as one process sees it: group commit.
//!
//! Everything that happens is applied to the state as it was last seen and written with one compare-and-set; while that is under
//! way the next batch gathers. Had somebody else written meanwhile, the engine's answer is the state to apply the batch to
//! again, at once; who gathered a batch while others wrote looks before it writes. A write without an answer may have been made
//! or not: the next answer tells, since each state names everybody's last write; what it granted leaves only once a later write
//! of ours is known to stand.
//!
//! Who has to wait for a slot or against others joins the key's line, which is part of the state: the first in it serves, a
//! moment's worth, and goes to the end. So nobody starves and one write is made per turn, not one per try.

mod commit;
mod ended_leases;
pub(crate) mod fallback;
mod line;
mod merge;
mod offline;

pub(crate) use self::commit::{Action, PendingGrant, Waiter, WaiterReply};

use self::commit::Commit;
use self::ended_leases::EndedLeases;
use self::fallback::FallbackShare;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::arrival::Arrival;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::gate::LeaseId;
use politely_core::host::{Directions, HORIZON, Host};

use crate::engine::{Version, Write};
use crate::event::Event;
use crate::node::NodeContext;
use crate::record::{NodeId, Record};
use crate::shared_clock::{QUIET, STALE};

/// Good news waits so long for something to be written with, unless slots are short: where a law learns from it, and where
/// none does (but for a quarter of its lease at most).
const LINGER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Whose turn it is has so long to take it.
const CLAIM: Duration = Duration::from_millis(250);
/// … one after the other, but no more than so many of them: those further behind do not wait for longer. Behind a fleet that was
/// killed again and again nobody would live to see his turn.
const HEIRS: usize = 4;
/// Of those in the key's line each takes what leaves within so long, then it is the next one's turn.
const QUANTUM: Duration = Duration::from_millis(20);
/// A notice may be lost: who waits for others looks this often.
const POLL: Duration = Duration::from_secs(1);
/// Until the engine was looked at, a look takes about so long.
const LOOK: Duration = Duration::from_millis(5);
/// What is under way at once, at most, in permits.
const BATCH: usize = 1024;
/// Events kept while nothing can be written; then the oldest goes. Its lease runs out by itself.
const EVENTS_MAX: usize = 1 << 14;
/// Where so many come at once and others write too, the next batch gathers for as long as this one took: who writes small batches all
/// the time is in everybody's way, and who waits for longer leaves the engine idle …
pub const CROWD: usize = 16;
/// … but no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// What cannot be read may be, after an upgrade.
const UNREADABLE: Duration = Duration::from_secs(1);
/// A cell that nobody writes is forgotten.
const KEEP: Duration = Duration::from_hours(24 * 30);
/// After a write without an answer, doubling up to 64 times as long.
const RETRY: Duration = Duration::from_millis(10);
/// Writes that take longer than this would be late for what may leave at once.
const SLOW: Duration = Duration::from_millis(20);
/// … and what takes longer than this was us, standing still: calls are given up before.
const SLOW_MAX: Duration = Duration::from_millis(500);
/// After so many writes without a pause there is one, as long as a write takes: somebody else who writes as long as we do would be
/// too late every time, and not even come to stand in line.
const BREATH: u32 = 16;
/// Which state was looked at so lately that an answer may be given from it.
const LATELY: Duration = Duration::from_millis(250);

#[expect(
    clippy::struct_excessive_bools,
    reason = "what is to be done next; each is set and cleared by itself"
)]
pub(crate) struct Replica {
    name: Arc<str>,
    /// What the engine holds, as far as we know; `None`: nothing.
    base: Option<Arc<[u8]>>,
    /// When it was heard last, by our own clock; never: `base` is a guess.
    heard: Option<Timestamp>,
    reading: ReadState,
    /// The state at `base`, and the latest time it knows of.
    view: Record,
    /// The same with all `events` applied; `None`: there are none.
    ahead: Option<Box<Record>>,
    /// … after so many corrections of shared time.
    ahead_of: u32,
    at: Timestamp,
    /// What is granted from while the engine is away and shares are allowed.
    alone: Option<Box<FallbackShare>>,
    /// Not written yet, in order, and when each happened by our own clock; and by when the first that lingers must be.
    events: VecDeque<(Timestamp, Event)>,
    due: Timestamp,
    waiting: BTreeMap<(Arrival, u64), Waiter>,
    under_way: Option<Commit>,
    /// Since when what is to be written is tried.
    tried_since: Option<Timestamp>,
    /// Attempts on `base` of which nobody knows whether they were made.
    in_doubt: Vec<Commit>,
    /// Granted by an attempt that was made, as it turned out.
    late_confirmed: Vec<PendingGrant>,
    ended: EndedLeases,
    /// Our last write here that stood.
    last: u64,
    /// Nothing is tried before then, unless something happens.
    try_at: Timestamp,
    /// … and then the cell is read, not written.
    look: bool,
    /// Somebody wants an answer that what we know is too old for.
    ask_first: bool,
    /// Since when it would have been the turn of those before us.
    open_since: Option<Timestamp>,
    /// Met somebody else's write since the last turn.
    contended: bool,
    /// The present batch has met somebody else's write.
    met: bool,
    /// Nothing is done before then: the next batch gathers.
    gathers_until: Timestamp,
    /// … and others write while it does: what is known is too old to write upon, and is read first.
    outdated: bool,
    unreadable: bool,
    /// When the engine was last found to hold less than it did.
    lost_at: Option<Timestamp>,
    /// What this process knew of the key before it was started again: for an engine that knows nothing.
    pub(crate) remembered: Option<Box<Host>>,
    /// Something was learned since it was last kept.
    pub(crate) learned: bool,
    /// How long a write takes, the slow ones remembered for a while.
    takes: Duration,
    /// When the last write was answered, and how many were made without a pause.
    answered: Timestamp,
    in_a_row: u32,
    /// Failures in a row; nothing is written before then.
    failures: u32,
    not_before: Timestamp,
    /// Notices of this key are asked for.
    pub(crate) watched: bool,
}

/// Whether a read is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    No,
    Sent,
    /// It is, but what came meanwhile is newer.
    Overtaken,
}

impl ReadState {
    fn is_overtaken(&mut self) {
        if *self == Self::Sent {
            *self = Self::Overtaken;
        }
    }
}

impl Replica {
    pub(crate) fn new(name: Arc<str>, context: &NodeContext, local: Timestamp) -> Self {
        let now = context.clock.now(local);
        Self {
            name,
            base: None,
            heard: None,
            reading: ReadState::No,
            view: Record::new(Host::new(&context.config, now)),
            ahead: None,
            ahead_of: 0,
            at: now,
            alone: None,
            events: VecDeque::new(),
            due: Timestamp::NEVER,
            waiting: BTreeMap::new(),
            under_way: None,
            tried_since: None,
            in_doubt: Vec::new(),
            late_confirmed: Vec::new(),
            ended: EndedLeases::default(),
            last: 0,
            try_at: Timestamp::ZERO,
            look: false,
            ask_first: false,
            open_since: None,
            contended: false,
            met: false,
            gathers_until: Timestamp::ZERO,
            outdated: false,
            unreadable: false,
            lost_at: None,
            remembered: None,
            learned: false,
            takes: Duration::ZERO,
            answered: Timestamp::ZERO,
            in_a_row: 0,
            failures: 0,
            not_before: Timestamp::ZERO,
            watched: false,
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The state as far as we know it, what is not written yet included.
    pub(crate) fn host(&mut self) -> &mut Host {
        match (&mut self.alone, &mut self.ahead) {
            (Some(alone), _) => &mut alone.host,
            (None, Some(ahead)) => &mut ahead.host,
            (None, None) => &mut self.view.host,
        }
    }

    /// Nothing leaves while the engine is away.
    pub(crate) fn is_shut(&self) -> bool {
        self.alone.is_none()
    }

    pub(crate) const fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    pub(crate) fn before(&self, turn: Arrival) -> usize {
        self.waiting.range(..(turn, 0)).count()
    }

    /// Others wait with us: we want to hear what they do.
    pub(crate) fn wants_notices(&self, me: NodeId) -> bool {
        !self.waiting.is_empty() && self.view.head.line.contains(&me)
    }

    /// Nothing would be lost with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.events.is_empty()
            && self.under_way.is_none()
            && self.in_doubt.is_empty()
            && self.late_confirmed.is_empty()
            && self.view.host.in_flight() == 0
    }

    /// Somebody waits for a permit.
    pub(crate) fn ask(&mut self, turn: Arrival, ticket: u64, waiter: Waiter) {
        self.waiting.insert((turn, ticket), waiter);
        if waiter.once
            || self
                .waiting
                .first_key_value()
                .is_some_and(|(first, _)| first.1 == ticket)
        {
            self.try_now();
        }
    }

    /// … and does no more.
    pub(crate) fn cancel(&mut self, turn: Arrival, ticket: u64) -> bool {
        let waited = self.waiting.remove(&(turn, ticket)).is_some();
        if self.waiting.is_empty() {
            self.try_now();
        }
        waited
    }

    pub(crate) fn cancel_all(&mut self, context: &mut NodeContext) {
        for (_, ticket) in std::mem::take(&mut self.waiting).into_keys() {
            context.gone.remove(&ticket);
        }
        self.try_now();
    }

    /// Something happened.
    pub(crate) fn tell(
        &mut self,
        event: Event,
        context: &NodeContext,
        local: Timestamp,
    ) -> Option<Directions> {
        let now = self.now(context, local);
        if self.ahead.is_none() {
            self.ahead_of = context.clock.corrections();
        }
        let ahead = self
            .ahead
            .get_or_insert_with(|| Box::new(self.view.clone()));
        // Before the event: it is the slot it frees that somebody may wait for.
        let linger = event.can_linger().and_then(|lease| {
            let (taken, of) = ahead.host.slots(now, &context.config);
            let left = ahead.host.lease_ends(lease).map(|ends| ends.since(now));
            let left = left.unwrap_or(Duration::MAX).saturating_sub(SLOW_MAX);
            (2 * taken <= of).then(|| linger(&context.config).min(left / 2))
        });
        let directions = event.apply(&mut ahead.host, now, &context.config, context.seed);
        if let Some(alone) = &mut self.alone {
            event.apply(&mut alone.host, now, &alone.config, context.seed);
        }
        self.due = self.due.min(local + linger.unwrap_or_default());
        self.push(local, event);
        if linger.is_none() {
            self.try_now();
        }
        directions
    }

    fn push(&mut self, local: Timestamp, event: Event) {
        let fixed = self.under_way.as_ref().map_or(0, |attempt| attempt.events);
        let in_doubt = self.in_doubt.iter().map(|attempt| attempt.events).max();
        let fixed = fixed.max(in_doubt.unwrap_or(0));
        if self.events.len() >= EVENTS_MAX && fixed < self.events.len() {
            self.events.remove(fixed);
        }
        self.events.push_back((local, event));
    }

    /// Nothing is done before then, whatever is asked.
    pub(crate) fn rests_until(&self) -> Timestamp {
        if self.under_way.is_some() || self.outdated && self.reading != ReadState::No {
            Timestamp::NEVER
        } else {
            self.gathers_until
        }
    }

    /// By when what happened must be written.
    pub(crate) const fn due(&self) -> Timestamp {
        self.due
    }

    /// Nothing of ours is unwritten.
    pub(crate) fn is_flushed(&self) -> bool {
        self.events.is_empty() && self.under_way.is_none() && self.in_doubt.is_empty()
    }

    /// What lingers is written now.
    pub(crate) fn flush(&mut self, local: Timestamp) {
        if !self.events.is_empty() {
            self.due = self.due.min(local);
        }
    }

    /// The configuration is another.
    pub(crate) fn look_again(&mut self, local: Timestamp) {
        if !self.waiting.is_empty() {
            self.try_at = local;
        }
    }

    /// Compares what we know with what the engine holds.
    pub(crate) fn check(&mut self) {
        if self.heard.is_some() {
            self.look = true;
            self.try_at = Timestamp::ZERO;
        }
    }

    fn try_now(&mut self) {
        self.try_at = Timestamp::ZERO;
        self.look = false;
    }

    fn try_unless_unreadable(&mut self) {
        if !self.unreadable {
            self.try_now();
        }
    }

    fn now(&self, context: &NodeContext, local: Timestamp) -> Timestamp {
        context.clock.now(local).max(self.at)
    }

    /// What to do at `mono`.
    pub(crate) fn step(
        &mut self,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Action {
        if self.rests_until() > local {
            return Action::Wait(self.rests_until());
        }
        self.rejoin(context, local);
        let must =
            self.due <= local || !self.late_confirmed.is_empty() || !self.in_doubt.is_empty();
        let waits = !self.waiting.is_empty();
        let asks_again = self.asks_after_loss(context);
        self.look |= asks_again.is_some_and(|at| at <= local);
        let tries = (self.try_at <= local && (self.look || waits || self.in_line(context.me)))
            || (self.ask_first && waits);
        if self.unreadable && self.try_at > local {
            return Action::Wait(self.try_at);
        }
        if !must && !tries {
            let try_at = if waits || self.look {
                self.try_at
            } else {
                asks_again.unwrap_or(Timestamp::NEVER)
            };
            return Action::Wait(self.due.min(try_at));
        }
        if self.unreadable || (self.look && !must && self.heard.is_some()) {
            self.look = false;
            self.try_at = local + POLL;
            return self.read();
        }
        if self.not_before > local {
            return Action::Wait(self.not_before);
        }
        if self.outdated {
            self.tried_since.get_or_insert(local);
            return self.read();
        }
        // Somebody knows better what time it is, or something was lost of which our epoch does not tell yet; or the engine was away,
        // and may have been started again from what it had on disk.
        let doubted = if self.view.head.epoch > context.clock.number() {
            self.heard
        } else {
            self.lost_at
        };
        if context.last_error.is_some() || doubted.is_some_and(|at| !context.clock.looked_since(at))
        {
            context.look = true;
            return Action::Wait(local + LOOK);
        }
        if self.base.is_none() && context.clock.now(local).since(context.clock.began()) < QUIET {
            if self.heard.is_none() {
                return self.read();
            }
            // Should it have been lost, whoever remembers it comes first.
            let at = context.clock.local(context.clock.began() + QUIET);
            if !self.has_been_lost() {
                return Action::Wait(at.max(local + Duration::from_millis(1)));
            }
        }
        self.build(context, local, replies)
    }

    /// When all have said what they remember of what was lost, some of it perhaps what we ended.
    fn asks_after_loss(&self, context: &NodeContext) -> Option<Timestamp> {
        let heard = self.heard.filter(|_| !self.ended.is_empty())?;
        let said = context.clock.local(context.clock.began() + 2 * QUIET);
        (heard < said).then_some(said)
    }

    /// One at a time: nobody could tell the older answer from the newer.
    fn read(&mut self) -> Action {
        if self.reading != ReadState::No {
            return Action::Wait(Timestamp::NEVER);
        }
        self.reading = ReadState::Sent;
        Action::Read
    }

    /// Of what the engine holds, as far as we know.
    fn version(&self) -> Option<Version> {
        self.base.as_deref().and_then(Version::of)
    }

    fn in_line(&self, me: NodeId) -> bool {
        self.view.head.line.contains(&me)
    }

    fn build(
        &mut self,
        context: &mut NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Action {
        let now = self.now(context, local);
        if self.ahead.is_some() && self.ahead_of != context.clock.corrections() {
            // Shared time is not what it was thought to be.
            self.apply_again(context);
        }
        let mut cell = match &self.ahead {
            Some(ahead) => ahead.as_ref().clone(),
            None => self.view.clone(),
        };
        if self.base.is_none() {
            if let Some(remembered) = &self.remembered {
                cell.host.clone_from(remembered);
                self.apply_events(&mut cell.host, context);
            }
            begin(&mut cell, context, now, self.has_been_lost());
        } else if cell.head.epoch < context.clock.lost() {
            // What was granted last may not be in it: it is not granted again, nor is a burst. One that was made anew when the
            // loss was not known yet has nothing of it.
            let began = context.clock.began();
            let anew = cell.born + 2 * STALE > began;
            let newest = began + if anew { HORIZON } else { Duration::ZERO };
            cell.host.resume_after(now, newest, &context.config);
        }
        cell.head.epoch = context.clock.number();
        let line = cell.head.line.clone();
        // Where writes are slow, what leaves does so once this one is heard of: before, it would be given back for being late.
        let now = if self.takes > SLOW {
            now.max(context.clock.now(local) + self.takes)
        } else {
            now
        };
        let granted = self.serve(&mut cell, context, now, local, replies);
        let changed = (self.due <= local && !self.events.is_empty())
            || !granted.is_empty()
            || !self.late_confirmed.is_empty()
            || !self.in_doubt.is_empty()
            || cell.head.line != line;
        if !changed {
            self.tried_since = None;
            if self.events.is_empty() {
                // Looking has counted tokens and leases: it is not worth a write, but goes with the next.
                self.view = cell;
                self.ahead = None;
                self.at = now;
                self.due = Timestamp::NEVER;
            }
            if std::mem::take(&mut self.ask_first) {
                self.look = false;
                self.try_at = local + POLL;
                return self.read();
            }
            let waits = !self.waiting.is_empty();
            let try_at = if waits { self.try_at } else { Timestamp::NEVER };
            return Action::Wait(self.due.min(try_at));
        }
        context.number += 1;
        self.tried_since.get_or_insert(local);
        let notify = cell.others_wait(context.me);
        let value = cell.encode(context.me, context.number);
        self.under_way = Some(Commit {
            number: context.number,
            value: value.as_slice().into(),
            cell,
            events: self.events.len(),
            granted,
            began: local,
        });
        self.at = now;
        self.due = Timestamp::NEVER;
        Action::Write(Write {
            cell: Arc::clone(&self.name),
            expected: self.version(),
            before: self.base.clone(),
            value,
            keep: KEEP,
            notify,
        })
    }

    /// What was known of it is to be joined with what it is now.
    fn has_been_lost(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|(_, event)| matches!(event, Event::Join(_)))
    }

    fn apply_again(&mut self, context: &NodeContext) {
        self.ahead = None;
        if self.events.is_empty() {
            return;
        }
        self.ahead_of = context.clock.corrections();
        let mut ahead = Box::new(self.view.clone());
        self.apply_events(&mut ahead.host, context);
        self.ahead = Some(ahead);
    }

    /// Each as of when it happened, by what shared time is known to have been then.
    fn apply_events(&self, host: &mut Host, context: &NodeContext) {
        for (local, event) in &self.events {
            let now = self.now(context, *local);
            event.apply(host, now, &context.config, context.seed);
        }
    }
}

fn linger(config: &Config) -> Duration {
    match config.law {
        LawConfig::Fixed | LawConfig::Advice(_) => LINGER.1.min(config.lease / 4),
        _ => LINGER.0,
    }
}

/// A key that nobody knows. After a loss it may be one that was forgotten, whose last permits have yet to leave; one that
/// `has_been_lost` here is, whether the epoch says so already or not.
fn begin(cell: &mut Record, context: &NodeContext, now: Timestamp, has_been_lost: bool) {
    let lost_at = if has_been_lost {
        now
    } else {
        context.clock.began()
    };
    cell.born = now;
    let newest = lost_at + HORIZON;
    if newest > now {
        cell.host.resume_after(now, newest, &context.config);
    }
    // Whoever else may make it anew, now or after a loss that is not known here yet, names no lease the same.
    let maker = u64::from(context.me.0 & 0xf_ffff) << 12;
    cell.host
        .ids_from(LeaseId((u64::from(context.clock.number()) << 32) | maker));
}
