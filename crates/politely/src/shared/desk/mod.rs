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

mod answers;
mod attempt;
mod away;
mod ended;
mod keep;
mod shop;
mod took;
mod turn;

pub(super) use attempt::{Granting, Step, Told, Waiter};
pub(super) use shop::{Count, Shop};
pub(super) use took::Took;

use attempt::Attempt;
use ended::Ended;
use keep::keep;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::control::LawConfig;
use politely_core::gate::LeaseId;
use politely_core::host::{Directions, HORIZON, Host};

use super::alone::Alone;
use super::cell::{Cell, Who};
use super::epoch::{QUIET, STALE};
use super::event::Event;
use crate::cells::{Version, Write};
use crate::waiters::Turn;

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
pub(super) const CROWD: usize = 16;
/// … but no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// What cannot be read may be, after an upgrade.
const UNREADABLE: Duration = Duration::from_secs(1);
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
pub(super) struct Desk {
    name: Arc<str>,
    /// What the engine holds, as far as we know; `None`: nothing.
    base: Option<Arc<[u8]>>,
    /// When it was heard last, by our own clock; never: `base` is a guess.
    heard: Option<Timestamp>,
    reading: Reading,
    /// The state at `base`, and the latest time it knows of.
    view: Cell,
    /// The same with all `events` applied; `None`: there are none.
    ahead: Option<Box<Cell>>,
    /// … after so many corrections of shared time.
    ahead_of: u32,
    at: Timestamp,
    /// What is granted from while the engine is away and shares are allowed.
    alone: Option<Box<Alone>>,
    /// Not written yet, in order, and when each happened by our own clock; and by when the first that lingers must be.
    events: VecDeque<(Timestamp, Event)>,
    due: Timestamp,
    waiting: BTreeMap<(Turn, u64), Waiter>,
    under_way: Option<Attempt>,
    /// Since when what is to be written is tried.
    tried_since: Option<Timestamp>,
    /// Attempts on `base` of which nobody knows whether they were made.
    doubtful: Vec<Attempt>,
    /// Granted by an attempt that was made, as it turned out.
    owed: Vec<Granting>,
    ended: Ended,
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
    pub(super) remembered: Option<Box<Host>>,
    /// Something was learned since it was last kept.
    pub(super) learned: bool,
    /// How long a write takes, the slow ones remembered for a while.
    takes: Duration,
    /// When the last write was answered, and how many were made without a pause.
    answered: Timestamp,
    in_a_row: u32,
    /// Failures in a row; nothing is written before then.
    failures: u32,
    not_before: Timestamp,
    /// Notices of this key are asked for.
    pub(super) watched: bool,
}

/// Whether a read is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    No,
    Sent,
    /// It is, but what came meanwhile is newer.
    Overtaken,
}

impl Reading {
    fn is_overtaken(&mut self) {
        if *self == Self::Sent {
            *self = Self::Overtaken;
        }
    }
}

impl Desk {
    pub(super) fn new(name: Arc<str>, shop: &Shop, mono: Timestamp) -> Self {
        let now = shop.epochs.now(mono);
        Self {
            name,
            base: None,
            heard: None,
            reading: Reading::No,
            view: Cell::new(Host::new(&shop.config, now)),
            ahead: None,
            ahead_of: 0,
            at: now,
            alone: None,
            events: VecDeque::new(),
            due: Timestamp::NEVER,
            waiting: BTreeMap::new(),
            under_way: None,
            tried_since: None,
            doubtful: Vec::new(),
            owed: Vec::new(),
            ended: Ended::default(),
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

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The state as far as we know it, what is not written yet included.
    pub(super) fn host(&mut self) -> &mut Host {
        match (&mut self.alone, &mut self.ahead) {
            (Some(alone), _) => &mut alone.host,
            (None, Some(ahead)) => &mut ahead.host,
            (None, None) => &mut self.view.host,
        }
    }

    /// Nothing leaves while the engine is away.
    pub(super) fn is_shut(&self) -> bool {
        self.alone.is_none()
    }

    pub(super) const fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    pub(super) fn before(&self, turn: Turn) -> usize {
        self.waiting.range(..(turn, 0)).count()
    }

    /// Others wait with us: we want to hear what they do.
    pub(super) fn wants_notices(&self, me: Who) -> bool {
        !self.waiting.is_empty() && self.view.head.line.contains(&me)
    }

    /// Nothing would be lost with it.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.events.is_empty()
            && self.under_way.is_none()
            && self.doubtful.is_empty()
            && self.owed.is_empty()
            && self.view.host.in_flight() == 0
    }

    /// Somebody waits for a permit.
    pub(super) fn ask(&mut self, turn: Turn, ticket: u64, waiter: Waiter) {
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
    pub(super) fn give_up(&mut self, turn: Turn, ticket: u64) -> bool {
        let waited = self.waiting.remove(&(turn, ticket)).is_some();
        if self.waiting.is_empty() {
            self.try_now();
        }
        waited
    }

    pub(super) fn give_up_all(&mut self, shop: &mut Shop) {
        for (_, ticket) in std::mem::take(&mut self.waiting).into_keys() {
            shop.gone.remove(&ticket);
        }
        self.try_now();
    }

    /// Something happened.
    pub(super) fn tell(
        &mut self,
        event: Event,
        shop: &Shop,
        mono: Timestamp,
    ) -> Option<Directions> {
        let now = self.now(shop, mono);
        if self.ahead.is_none() {
            self.ahead_of = shop.epochs.corrections();
        }
        let ahead = self
            .ahead
            .get_or_insert_with(|| Box::new(self.view.clone()));
        // Before the event: it is the slot it frees that somebody may wait for.
        let linger = event.can_linger().and_then(|lease| {
            let (taken, of) = ahead.host.slots(now, &shop.config);
            let left = ahead.host.lease_ends(lease).map(|ends| ends.since(now));
            let left = left.unwrap_or(Duration::MAX).saturating_sub(SLOW_MAX);
            (2 * taken <= of).then(|| linger(&shop.config).min(left / 2))
        });
        let directions = event.apply(&mut ahead.host, now, &shop.config, shop.seed);
        if let Some(alone) = &mut self.alone {
            event.apply(&mut alone.host, now, &alone.config, shop.seed);
        }
        self.due = self.due.min(mono + linger.unwrap_or_default());
        self.push(mono, event);
        if linger.is_none() {
            self.try_now();
        }
        directions
    }

    fn push(&mut self, mono: Timestamp, event: Event) {
        let fixed = self.under_way.as_ref().map_or(0, |attempt| attempt.events);
        let doubtful = self.doubtful.iter().map(|attempt| attempt.events).max();
        let fixed = fixed.max(doubtful.unwrap_or(0));
        if self.events.len() >= EVENTS_MAX && fixed < self.events.len() {
            self.events.remove(fixed);
        }
        self.events.push_back((mono, event));
    }

    /// Nothing is done before then, whatever is asked.
    pub(super) fn rests_until(&self) -> Timestamp {
        if self.under_way.is_some() || self.outdated && self.reading != Reading::No {
            Timestamp::NEVER
        } else {
            self.gathers_until
        }
    }

    /// By when what happened must be written.
    pub(super) const fn due(&self) -> Timestamp {
        self.due
    }

    /// Nothing of ours is unwritten.
    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.under_way.is_none() && self.doubtful.is_empty()
    }

    /// What lingers is written now.
    pub(super) fn flush(&mut self, mono: Timestamp) {
        if !self.events.is_empty() {
            self.due = self.due.min(mono);
        }
    }

    /// The configuration is another.
    pub(super) fn look_again(&mut self, mono: Timestamp) {
        if !self.waiting.is_empty() {
            self.try_at = mono;
        }
    }

    /// Compares what we know with what the engine holds.
    pub(super) fn check(&mut self) {
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

    fn now(&self, shop: &Shop, mono: Timestamp) -> Timestamp {
        shop.epochs.now(mono).max(self.at)
    }

    /// What to do at `mono`.
    pub(super) fn step(&mut self, shop: &mut Shop, mono: Timestamp, told: &mut Vec<Told>) -> Step {
        if self.rests_until() > mono {
            return Step::Wait(self.rests_until());
        }
        self.rejoin(shop, mono);
        let must = self.due <= mono || !self.owed.is_empty() || !self.doubtful.is_empty();
        let waits = !self.waiting.is_empty();
        let asks_again = self.asks_after_loss(shop);
        self.look |= asks_again.is_some_and(|at| at <= mono);
        let tries = (self.try_at <= mono && (self.look || waits || self.in_line(shop.me)))
            || (self.ask_first && waits);
        if self.unreadable && self.try_at > mono {
            return Step::Wait(self.try_at);
        }
        if !must && !tries {
            let try_at = if waits || self.look {
                self.try_at
            } else {
                asks_again.unwrap_or(Timestamp::NEVER)
            };
            return Step::Wait(self.due.min(try_at));
        }
        if self.unreadable || (self.look && !must && self.heard.is_some()) {
            self.look = false;
            self.try_at = mono + POLL;
            return self.read();
        }
        if self.not_before > mono {
            return Step::Wait(self.not_before);
        }
        if self.outdated {
            self.tried_since.get_or_insert(mono);
            return self.read();
        }
        // Somebody knows better what time it is, or something was lost of which our epoch does not tell yet; or the engine was away,
        // and may have been started again from what it had on disk.
        let doubted = if self.view.head.epoch > shop.epochs.number() {
            self.heard
        } else {
            self.lost_at
        };
        if shop.trouble.is_some() || doubted.is_some_and(|at| !shop.epochs.looked_since(at)) {
            shop.look = true;
            return Step::Wait(mono + LOOK);
        }
        if self.base.is_none() && shop.epochs.now(mono).since(shop.epochs.began()) < QUIET {
            if self.heard.is_none() {
                return self.read();
            }
            // Should it have been lost, whoever remembers it comes first.
            let at = shop.epochs.mono(shop.epochs.began() + QUIET);
            if !self.has_been_lost() {
                return Step::Wait(at.max(mono + Duration::from_millis(1)));
            }
        }
        self.build(shop, mono, told)
    }

    /// When all have said what they remember of what was lost, some of it perhaps what we ended.
    fn asks_after_loss(&self, shop: &Shop) -> Option<Timestamp> {
        let heard = self.heard.filter(|_| !self.ended.is_empty())?;
        let said = shop.epochs.mono(shop.epochs.began() + 2 * QUIET);
        (heard < said).then_some(said)
    }

    /// One at a time: nobody could tell the older answer from the newer.
    fn read(&mut self) -> Step {
        if self.reading != Reading::No {
            return Step::Wait(Timestamp::NEVER);
        }
        self.reading = Reading::Sent;
        Step::Read
    }

    /// Of what the engine holds, as far as we know.
    fn version(&self) -> Option<Version> {
        self.base.as_deref().and_then(Version::of)
    }

    fn in_line(&self, me: Who) -> bool {
        self.view.head.line.contains(&me)
    }

    fn build(&mut self, shop: &mut Shop, mono: Timestamp, told: &mut Vec<Told>) -> Step {
        let now = self.now(shop, mono);
        if self.ahead.is_some() && self.ahead_of != shop.epochs.corrections() {
            // Shared time is not what it was thought to be.
            self.apply_again(shop);
        }
        let mut cell = match &self.ahead {
            Some(ahead) => ahead.as_ref().clone(),
            None => self.view.clone(),
        };
        if self.base.is_none() {
            if let Some(remembered) = &self.remembered {
                cell.host.clone_from(remembered);
                self.apply_events(&mut cell.host, shop);
            }
            begin(&mut cell, shop, now, self.has_been_lost());
        } else if cell.head.epoch < shop.epochs.lost() {
            // What was granted last may not be in it: it is not granted again, nor is a burst. One that was made anew when the
            // loss was not known yet has nothing of it.
            let began = shop.epochs.began();
            let anew = cell.born + 2 * STALE > began;
            let newest = began + if anew { HORIZON } else { Duration::ZERO };
            cell.host.resume_after(now, newest, &shop.config);
        }
        cell.head.epoch = shop.epochs.number();
        let line = cell.head.line.clone();
        // Where writes are slow, what leaves does so once this one is heard of: before, it would be given back for being late.
        let now = if self.takes > SLOW {
            now.max(shop.epochs.now(mono) + self.takes)
        } else {
            now
        };
        let granted = self.serve(&mut cell, shop, now, mono, told);
        let changed = (self.due <= mono && !self.events.is_empty())
            || !granted.is_empty()
            || !self.owed.is_empty()
            || !self.doubtful.is_empty()
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
                self.try_at = mono + POLL;
                return self.read();
            }
            let waits = !self.waiting.is_empty();
            let try_at = if waits { self.try_at } else { Timestamp::NEVER };
            return Step::Wait(self.due.min(try_at));
        }
        shop.number += 1;
        self.tried_since.get_or_insert(mono);
        let notify = cell.others_wait(shop.me);
        let keep = keep(&cell.host, now);
        let value = cell.encode(shop.me, shop.number);
        self.under_way = Some(Attempt {
            number: shop.number,
            value: value.as_slice().into(),
            cell,
            events: self.events.len(),
            granted,
            began: mono,
        });
        self.at = now;
        self.due = Timestamp::NEVER;
        Step::Write(Write {
            cell: Arc::clone(&self.name),
            expected: self.version(),
            before: self.base.clone(),
            value,
            keep,
            notify,
        })
    }

    /// What was known of it is to be joined with what it is now.
    fn has_been_lost(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|(_, event)| matches!(event, Event::Join(_)))
    }

    fn apply_again(&mut self, shop: &Shop) {
        self.ahead = None;
        if self.events.is_empty() {
            return;
        }
        self.ahead_of = shop.epochs.corrections();
        let mut ahead = Box::new(self.view.clone());
        self.apply_events(&mut ahead.host, shop);
        self.ahead = Some(ahead);
    }

    /// Each as of when it happened, by what shared time is known to have been then.
    fn apply_events(&self, host: &mut Host, shop: &Shop) {
        for (mono, event) in &self.events {
            let now = self.now(shop, *mono);
            event.apply(host, now, &shop.config, shop.seed);
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
fn begin(cell: &mut Cell, shop: &Shop, now: Timestamp, has_been_lost: bool) {
    let lost_at = if has_been_lost {
        now
    } else {
        shop.epochs.began()
    };
    cell.born = now;
    let newest = lost_at + HORIZON;
    if newest > now {
        cell.host.resume_after(now, newest, &shop.config);
    }
    // Whoever else may make it anew, now or after a loss that is not known here yet, names no lease the same.
    let maker = u64::from(shop.me.0 & 0xf_ffff) << 12;
    cell.host
        .ids_from(LeaseId((u64::from(shop.epochs.number()) << 32) | maker));
}
