//! Keys shared by many processes, each in a versioned cell of an [engine](crate::cells): the same [`Limiter`](crate::Limiter), for a fleet.
//!
//! ```no_run
//! # async fn example(key: politely::Key) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use politely::{Clock, Limiter, cells};
//!
//! let engine = Arc::new(cells::Memory::new(Clock::system())); // or cells::redis::Redis::connect("redis://…")?
//! let limiter = Limiter::builder().store(engine).build()?;
//! let permit = limiter.acquire(&key).await?;
//! # Ok(())
//! # }
//! ```
//!
//! What differs from a limiter of one's own:
//!
//! - All who share an engine are to have the same configuration; a state goes by the one of whoever changes it.
//! - Reports are written in the background, good ones with whatever comes next of their key (half a second later at most, five where no
//!   law learns from it).
//! - [`Limiter::try_acquire`](crate::Limiter::try_acquire) cannot ask: the first refusal makes a wish, which is asked for in the background; the permit is
//!   kept until the next call takes it or it lapses, and [`Limiter::ready`](crate::Limiter::ready) says when to call.
//!   [`Limiter::request`](crate::Limiter::request) asks and says yes or no.
//! - `configure` and `resume` change nothing; `explain`, `each`, `keys`, `snapshot` and `take_learned` know the keys that were
//!   used here. What `restore` is given is used for a key of which the engine knows nothing (any more).
//! - [`Permit::renew`](crate::Permit::renew) answers how much is left, and asks for more in the background from half the
//!   lease on. Once it says `None` the request must be aborted.
//!
//! While the engine is away nobody is let through and permits already given run out, unless [`Away::Share`] was chosen. What is promised when is told in
//! `docs/fleet.md`.
//!
//! | file | its part |
//! | --- | --- |
//! | `desk/` | one key: group commit, whose turn it is |
//! | `cell.rs`, `event.rs` | a key's state as it is stored; what changes it |
//! | `alone.rs` | a share of a key while the engine is away |
//! | `confirm.rs` | answers that wait for the engine |
//! | `epoch.rs` | the time all agree on, and whether anything was lost |
//! | `hub/` | all keys of a process: what the engine is asked next, what its answers mean |
//! | `courier.rs` | the thread that asks it |
//! | `claim.rs`, `lease.rs` | a permit's end here |
//! | `adopt.rs` | a permit whose end was elsewhere |

mod adopt;
mod alone;
mod builder;
mod cell;
mod claim;
mod confirm;
mod courier;
mod desk;
mod epoch;
mod event;
#[cfg(test)]
mod faults;
mod hub;
mod lease;
#[cfg(test)]
mod tests;
mod wish;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::gate::LeaseId;
use politely_core::host::{Ask, CrawlDelay, Explanation, HORIZON, Host, OperatorNumbers, Wait};
use politely_core::key::Key;
use tokio::sync::{Notify, oneshot};

use crate::asked::{AcquireError, Refusal, RefusalReason, alone, distinct};
use crate::clock::Clock;
use crate::elsewhere::{Elsewhere, Later, Operation};
use crate::permit::Permit;
use crate::snapshot::Snapshot;
use crate::stats::{Commits, Stats};
use crate::sync::sleep;
use crate::waiters::Turn;

pub use self::builder::{Away, StoreBuilder};

use self::claim::Claim;
use self::confirm::Look;
use self::epoch::PULSE;
use self::event::Event;
use self::hub::{Delivery, Granted, Hub, Ticket};
use self::wish::Wishes;

/// One lost answer is no refusal, nor is a server that is busy for a moment: an engine has so long to answer whoever begins.
const GREETED_WITHIN: Duration = Duration::from_secs(3);

/// A limiter's end of an engine. Dropped, it writes what is left to be written and asks for nothing more.
pub(crate) struct Shared(Arc<Inner>);

/// What callers, permits and the courier share.
struct Inner {
    state: Mutex<State>,
    clock: Clock,
    /// There is something for the courier to do.
    wake: Notify,
    /// Something was written, or could not be.
    said: Notify,
    wishes: Wishes,
    /// The thread that talks to the engine is gone.
    ended: AtomicBool,
}

struct State {
    hub: Hub,
    answers: HashMap<Ticket, oneshot::Sender<Answer>, foldhash::fast::RandomState>,
    closed: bool,
    /// Cells to be read for callers.
    looks: Vec<Look>,
    /// Version of the last snapshot of any key.
    snapshots: u64,
    /// Of those who waited.
    stats: Stats,
}

/// What one key says to one caller.
#[derive(Debug)]
enum Answer {
    Granted(Granted),
    No(Wait),
    Closed,
}

/// A caller in a key's line; leaves it when dropped.
struct Asking<'a> {
    inner: &'a Arc<Inner>,
    key: &'a Key,
    turn: Turn,
    ticket: Ticket,
    comes: oneshot::Receiver<Answer>,
    heard: bool,
}

impl Shared {
    fn new(config: Arc<Config>, clock: Clock, capacity: usize, seed: u64, away: Away) -> Self {
        // Who we are must differ from process to process, whatever seed makes jitter repeatable.
        let drawn =
            foldhash::fast::RandomState::default().hash_one((std::process::id(), clock.now()));
        let who = (drawn >> 32) as u32 ^ drawn as u32;
        Self::known_as(who, config, clock, capacity, seed, away)
    }

    fn known_as(
        who: u32,
        config: Arc<Config>,
        clock: Clock,
        capacity: usize,
        seed: u64,
        away: Away,
    ) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                hub: Hub::new(who, seed, config, capacity, away == Away::Share),
                answers: HashMap::default(),
                closed: false,
                looks: Vec::new(),
                snapshots: 0,
                stats: Stats::default(),
            }),
            clock,
            wake: Notify::new(),
            said: Notify::new(),
            wishes: Wishes::default(),
            ended: AtomicBool::new(false),
        }))
    }

    /// One try: as many as may leave now.
    async fn try_once(&self, keys: &[Key], ask: Ask, turn: Turn) -> Result<Permit, Refusal> {
        let inner = &self.0;
        let ask = if keys.len() == 1 { ask } else { alone(ask) };
        let mut claim: Option<Claim> = None;
        for (index, key) in distinct(keys) {
            let refuse = |reason, at| Refusal {
                key: key.clone(),
                reason,
                at,
                index,
            };
            match inner.ask(key, ask, turn, true).await {
                Answer::Granted(granted) => match &mut claim {
                    None => claim = Some(Claim::new(inner, key, &granted)),
                    Some(claim) => claim.with(key, &granted),
                },
                Answer::No(wait) => return Err(refuse(RefusalReason::Wait(wait.reason), wait.at)),
                Answer::Closed => return Err(refuse(RefusalReason::Closed, Timestamp::NEVER)),
            }
        }
        Ok(claim.expect("a request needs a key").into_permit())
    }

    /// Does `key` not go by it yet, as far as we know? What is no news is not worth a write.
    fn is_news(&self, key: &Key, delay: CrawlDelay) -> bool {
        let mono = self.0.clock.now();
        let mut state = self.0.state.lock();
        let now = state.hub.shared_time(mono);
        let is_news = |host: &mut Host| host.crawl_delay_is_news(now, delay);
        state.hub.with_host(key, is_news).unwrap_or(true)
    }

    async fn quiet(&self) {
        loop {
            let said = self.0.said.notified();
            tokio::pin!(said);
            said.as_mut().enable();
            if self.0.state.lock().hub.is_quiet() {
                return;
            }
            said.await;
        }
    }
}

impl Elsewhere for Shared {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        turn: Turn,
    ) -> Later<'a, Result<Permit, AcquireError>> {
        Box::pin(async move { Ok(self.0.acquire(keys, ask, turn).await?.into_permit()) })
    }

    fn try_acquire(&self, keys: &[Key], ask: Ask) -> Result<Permit, Refusal> {
        assert!(!keys.is_empty(), "a request needs a key");
        let found = Wishes::call(&self.0, keys, ask);
        found
            .map(Claim::into_permit)
            .map_err(|(reason, at)| Refusal {
                key: keys[0].clone(),
                reason,
                at,
                index: 0,
            })
    }

    fn request<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        turn: Turn,
    ) -> Later<'a, Result<Permit, Refusal>> {
        Box::pin(self.try_once(keys, ask, turn))
    }

    fn adopt<'a>(
        &'a self,
        leases: &'a [(Key, LeaseId)],
        patience: Duration,
    ) -> Later<'a, Option<Permit>> {
        Box::pin(self.0.adopt(leases, patience))
    }

    fn ready(&self) -> Later<'_, Vec<Key>> {
        Box::pin(self.0.wishes.ready())
    }

    fn operate(&self, key: &Key, operation: Operation) {
        let event = match operation {
            Operation::CrawlDelay(delay) if !self.is_news(key, delay) => return,
            Operation::CrawlDelay(delay) => Event::CrawlDelay(delay),
            Operation::Set(numbers) => Event::Set(numbers),
            Operation::Hold(length, reason) => Event::Hold(length, reason),
            Operation::Unpark => Event::Unpark,
            Operation::Forget => Event::Forget,
        };
        self.0.tell(key, event);
    }

    fn reconfigure(&self, config: &Config) {
        let now = self.0.clock.now();
        let config = Arc::new(config.clone());
        self.0.state.lock().hub.set_config(config, now);
        self.0.wake.notify_one();
    }

    fn explain(&self, key: &Key) -> Option<Explanation> {
        let now = self.0.clock.now();
        self.0.state.lock().hub.explain(key, now)
    }

    fn keys(&self) -> Vec<Key> {
        self.0.state.lock().hub.keys().cloned().collect()
    }

    fn position(&self, key: &Key, turn: Turn) -> usize {
        self.0.state.lock().hub.position(key, turn)
    }

    fn numbers(&self, key: &Key) -> OperatorNumbers {
        let numbers = |host: &mut Host| host.operator_numbers();
        let mut state = self.0.state.lock();
        state.hub.with_host(key, numbers).unwrap_or_default()
    }

    fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        self.0.snapshot(key)
    }

    fn remember(&self, key: &Key, state: &[u8]) {
        self.0.state.lock().hub.remember(key, state);
    }

    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        self.0.take_learned()
    }

    fn stats(&self) -> Stats {
        let state = self.0.state.lock();
        let count = state.hub.count();
        Stats {
            keys: state.hub.len() as u64,
            granted: count.granted,
            reported: count.reported,
            refused: count.refused,
            cancelled: count.cancelled,
            late: count.late,
            waiting: state.answers.len() as u64,
            memory: state.hub.memory() as u64,
            ..state.stats
        }
    }

    fn commits(&self) -> Option<Commits> {
        let state = self.0.state.lock();
        let count = state.hub.count();
        let (took_p50, took_p99) = state.hub.took();
        Some(Commits {
            commits: count.commits,
            conflicts: count.conflicts,
            unknown: count.unknown,
            reads: count.reads,
            items: count.items,
            lost: count.lost,
            coordinators: state.hub.members() as u64,
            took_p50,
            took_p99,
        })
    }

    fn settled(&self, patience: Duration) -> Later<'_, bool> {
        let now = self.0.clock.now();
        self.0.state.lock().hub.flush(now);
        self.0.wake.notify_one();
        Box::pin(async move { tokio::time::timeout(patience, self.quiet()).await.is_ok() })
    }

    fn confirm<'a>(&'a self, key: &'a Key, patience: Duration) -> Later<'a, bool> {
        Box::pin(self.wait_until_written(key, patience))
    }

    fn refresh<'a>(&'a self, key: &'a Key, patience: Duration) -> Later<'a, Result<bool, String>> {
        Box::pin(self.read_now(key, patience))
    }

    fn greet(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async {
            let began = self.0.clock.now();
            loop {
                let said = self.0.said.notified();
                tokio::pin!(said);
                said.as_mut().enable();
                let now = self.0.clock.now();
                let answered = {
                    let state = self.0.state.lock();
                    state.hub.has_tried().then(|| state.hub.trouble(now))
                };
                match answered {
                    Some(None) => return Ok(()),
                    Some(Some(why)) if now.since(began) >= GREETED_WITHIN => return Err(why),
                    _ => drop(tokio::time::timeout(PULSE, said).await),
                }
            }
        })
    }

    fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Inner {
    async fn acquire(
        self: &Arc<Self>,
        keys: &[Key],
        ask: Ask,
        turn: Turn,
    ) -> Result<Claim, AcquireError> {
        let began = self.clock.now();
        let claim = match keys {
            [] => return Err(AcquireError::NoKey),
            [key] => self.acquire_one(key, ask, turn).await?,
            keys => {
                let keys: Vec<&Key> = distinct(keys).map(|(_, key)| key).collect();
                self.acquire_all(&keys, alone(ask), turn).await?
            }
        };
        let waited = self.clock.now().since(began);
        metrics::histogram!("politely_wait_seconds").record(waited.as_secs_f64());
        let stats = &mut self.state.lock().stats;
        stats.waits += 1;
        stats.waited += waited;
        Ok(claim)
    }

    async fn acquire_one(
        self: &Arc<Self>,
        key: &Key,
        ask: Ask,
        turn: Turn,
    ) -> Result<Claim, AcquireError> {
        let asked = Ask {
            horizon: ask.horizon.max(HORIZON),
            ..ask
        };
        loop {
            let granted = match self.ask(key, asked, turn, false).await {
                Answer::Granted(granted) => granted,
                Answer::No(wait) => {
                    let rest = wait.at.since(self.clock.now());
                    return Err(AcquireError::Parked(key.clone(), rest));
                }
                Answer::Closed => return Err(AcquireError::Closed),
            };
            let (start, valid_until) = (granted.start, granted.valid_until);
            let claim = Claim::new(self, key, &granted);
            let early = start.since(self.clock.now()).saturating_sub(ask.horizon);
            if !early.is_zero() {
                sleep(early).await;
            }
            // One that was slept over goes back, and another is asked for.
            if self.clock.now() <= valid_until {
                return Ok(claim);
            }
        }
    }

    /// Waits for the key that is in the way, then tries the others at once.
    async fn acquire_all(
        self: &Arc<Self>,
        keys: &[&Key],
        ask: Ask,
        turn: Turn,
    ) -> Result<Claim, AcquireError> {
        let mut first = 0;
        'again: loop {
            let mut claim: Option<Claim> = None;
            let others = (0..keys.len()).filter(|index| *index != first);
            for index in std::iter::once(first).chain(others) {
                let key = keys[index];
                match self.ask(key, ask, turn, claim.is_some()).await {
                    Answer::Granted(part) => match &mut claim {
                        None => claim = Some(Claim::new(self, key, &part)),
                        Some(claim) => claim.with(key, &part),
                    },
                    Answer::No(wait) if claim.is_some() => {
                        first = index;
                        // Not to go round in circles with somebody who wants the same in another order.
                        drop(claim);
                        sleep(
                            wait.at
                                .since(self.clock.now())
                                .min(Duration::from_millis(5)),
                        )
                        .await;
                        continue 'again;
                    }
                    Answer::No(wait) => {
                        let rest = wait.at.since(self.clock.now());
                        return Err(AcquireError::Parked(key.clone(), rest));
                    }
                    Answer::Closed => return Err(AcquireError::Closed),
                }
            }
            let mut claim = claim.ok_or(AcquireError::NoKey)?;
            // The first may be over by the time the last is there.
            if self.clock.now() > claim.valid_until {
                continue;
            }
            claim.in_order(keys[0]);
            return Ok(claim);
        }
    }

    async fn ask(self: &Arc<Self>, key: &Key, ask: Ask, turn: Turn, once: bool) -> Answer {
        let (answer, comes) = oneshot::channel();
        let (mut asking, news) = {
            let mut state = self.state.lock();
            if state.closed {
                return Answer::Closed;
            }
            let now = self.clock.now();
            let ticket = state.hub.ask(key, turn, ask, once, now);
            state.answers.insert(ticket, answer);
            let asking = Asking {
                inner: self,
                key,
                turn,
                ticket,
                comes,
                heard: false,
            };
            (asking, state.hub.take_news())
        };
        if news {
            self.wake.notify_one();
        }
        let answer = (&mut asking.comes).await;
        asking.heard = true;
        answer.unwrap_or(Answer::Closed)
    }

    fn tell(&self, key: &Key, event: Event) -> politely_core::host::Directions {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let directions = state.hub.tell(key, event, now);
        let news = state.hub.take_news();
        drop(state);
        if news {
            self.wake.notify_one();
        }
        directions
    }

    /// A permit that nobody came to take.
    fn give_back(&self, key: &Key, granted: &Granted) {
        for event in Event::cancelled(granted.lease, granted.slots, granted.unused) {
            self.tell(key, event);
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let answers = std::mem::take(&mut state.answers);
        state.hub.close(answers.keys().copied());
        state.hub.flush(self.clock.now());
        drop(state);
        for answer in answers.into_values() {
            let _ = answer.send(Answer::Closed);
        }
        self.wishes.close();
        self.wake.notify_one();
    }

    /// Tells who waited.
    fn deliver(&self) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        for delivery in state.hub.take_deliveries(now) {
            let (ticket, answer) = match delivery {
                Delivery::Granted(ticket, granted) => (ticket, Answer::Granted(granted)),
                Delivery::No(ticket, wait) => (ticket, Answer::No(wait)),
            };
            if let Some(sender) = state.answers.remove(&ticket) {
                // Whoever waits is there: they take the sender out before they go.
                let _ = sender.send(answer);
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.heard {
            return;
        }
        let mut state = self.inner.state.lock();
        if state.answers.remove(&self.ticket).is_some() {
            state.hub.give_up(self.key, self.turn, self.ticket);
        }
        drop(state);
        if let Ok(Answer::Granted(granted)) = self.comes.try_recv() {
            self.inner.give_back(self.key, &granted);
        }
        self.inner.wake.notify_one();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}
