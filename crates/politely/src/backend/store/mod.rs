//! Keys that many processes share: a [`Limiter`](crate::Limiter) whose keys live in an
//! [engine](crate::cells).
//!
//! ```no_run
//! # async fn example(key: politely::Key) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use politely::{Clock, Limiter, cells};
//!
//! let engine = Arc::new(cells::Memory::new(Clock::system()));
//! // Or, with the feature `redis`: cells::redis::Redis::connect("redis://127.0.0.1:6379")?
//! // Or, with `zookeeper`: cells::zookeeper::ZooKeeper::connect("zookeeper://h1,h2,h3/politely")?
//! let limiter = Limiter::builder().store(engine).build()?;
//! let permit = limiter.acquire(&key).await?;
//! # Ok(())
//! # }
//! ```
//!
//! How it differs from a limiter of one process:
//!
//! - All processes that share an engine should have the same configuration. A key follows the
//!   configuration of the process that changes it.
//! - Reports are written in the background. A good report waits for the next write of its key, at
//!   most half a second, or five seconds if no law learns from it.
//! - [`Limiter::try_acquire`](crate::Limiter::try_acquire) cannot ask the engine. Its first refusal
//!   starts a prefetch in the background. The permit is kept until the next call takes it or it
//!   expires, and [`Limiter::ready`](crate::Limiter::ready) returns when to call.
//!   [`Limiter::request`](crate::Limiter::request) asks the engine and returns yes or no.
//! - A key of [`Limiter::configure`](crate::Limiter::configure) stays in this process, and no other
//!   process sees it. `readmit` and `resume` of other keys return
//!   [`Unsupported`](crate::Unsupported) errors. `explain`, `each`, `keys`, `snapshot` and
//!   `take_learned` cover the keys that this process used. `restore` takes effect for a key that
//!   the engine does not hold.
//! - [`Permit::renew`](crate::Permit::renew) returns the remaining time, and renews the lease in
//!   the background from half its length on. Once it returns `None`, the request must be aborted.
//!
//! While the engine is unavailable, no permit is granted and permits already granted expire, unless
//! [`Unavailable::Share`] was chosen. `docs/explanation/fleet.md` lists the promises.
//!
//! The protocol is the crate `politely-store`, which does no I/O. This module connects it to the
//! limiter and to a runtime:
//!
//! | file | its part |
//! | --- | --- |
//! | `driver.rs` | the thread that carries out the commands of the [`Node`] |
//! | `permit_guard.rs` | the caller's handle of a shared permit |
//! | `prefetch.rs` | the tasks that prefetch permits for `try_acquire` |
//! | `waiting.rs` | a caller in a key's queue |
//! | `adopt.rs` | permits that another process was granted |
//! | `confirm.rs` | callers that wait for the engine: a write is confirmed, a cell is read |
//! | `operations.rs`, `builder.rs` | the interface of the backend; [`StoreBuilder`] |
//! | `cells.rs` | the public names of engines |

mod adopt;
mod builder;
pub mod cells;
mod confirm;
mod driver;
mod operations;
mod permit_guard;
mod prefetch;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{AcquireRequest, CrawlDelay, HORIZON, Host, Wait};
use politely_core::key::Key;
use politely_store::{Event, Grant, Node, NodeId, NodeOptions, Ticket};
use tokio::sync::{Notify, oneshot};

use crate::backend::local::waiters::Arrival;
use crate::clock::Clock;
use crate::error::{AcquireError, Refusal, RefusalReason, alone, distinct, of_key};
use crate::locks::LockChanges;
use crate::permit::Permit;
use crate::stats::Stats;
use crate::sync::sleep;

pub use self::builder::{StoreBuilder, StoreError, Unavailable};

use self::confirm::Refresh;
use self::permit_guard::StoreGuard;
use self::prefetch::StorePrefetches;
use self::waiting::Waiting;

/// A limiter's connection to the keys of an engine. Dropping it writes the pending events and
/// grants nothing more.
pub(crate) struct Store(Arc<Inner>);

/// The state that callers, permits and the driver share.
struct Inner {
    state: Mutex<State>,
    clock: Clock,
    /// Wakes the driver.
    wake: Notify,
    /// Signals that the engine answered or failed to.
    progress: Notify,
    prefetches: StorePrefetches,
    lock_changes: LockChanges,
    /// The driver has ended.
    has_ended: AtomicBool,
}

struct State {
    node: Node,
    callers: HashMap<Ticket, oneshot::Sender<Result<Grant, Wait>>, foldhash::fast::RandomState>,
    closed: bool,
    /// Cells to read for callers.
    refreshes: Vec<Refresh>,
    /// The version of the last snapshot of any key.
    snapshots: u64,
    /// The waits of all callers so far.
    stats: Stats,
}

/// The reason why a key granted no permit.
#[derive(Debug)]
enum Refused {
    Wait(Wait),
    Closed,
}

impl Store {
    fn new(
        config: Arc<Config>,
        clock: Clock,
        capacity: usize,
        seed: u64,
        unavailable: Unavailable,
    ) -> Self {
        // The node id must differ between processes, even if the seed makes jitter repeatable.
        let drawn =
            foldhash::fast::RandomState::default().hash_one((std::process::id(), clock.now()));
        let id = (drawn >> 32) as u32 ^ drawn as u32;
        Self::with_id(NodeId(id), config, clock, capacity, seed, unavailable)
    }

    fn with_id(
        id: NodeId,
        config: Arc<Config>,
        clock: Clock,
        capacity: usize,
        seed: u64,
        unavailable: Unavailable,
    ) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                node: Node::new(NodeOptions {
                    id,
                    seed,
                    config,
                    keys_max: capacity,
                    shares_when_unavailable: unavailable == Unavailable::Share,
                }),
                callers: HashMap::default(),
                closed: false,
                refreshes: Vec::new(),
                snapshots: 0,
                stats: Stats::default(),
            }),
            clock,
            wake: Notify::new(),
            progress: Notify::new(),
            prefetches: StorePrefetches::default(),
            lock_changes: LockChanges::default(),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// Tries once and returns the permit or the first refusal.
    async fn try_once(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<Permit, Refusal> {
        let inner = &self.0;
        let ask = if keys.len() == 1 { ask } else { alone(ask) };
        let mut guard: Option<StoreGuard> = None;
        for (index, key) in distinct(keys) {
            let refuse = |reason, at| Refusal {
                key: key.clone(),
                reason,
                at,
                index,
            };
            match inner.ask(key, of_key(&ask, index), arrival, true).await {
                Ok(grant) => match &mut guard {
                    None => guard = Some(StoreGuard::new(inner, key, &grant)),
                    Some(guard) => guard.add(key, &grant),
                },
                Err(Refused::Wait(wait)) => {
                    return Err(refuse(RefusalReason::Wait(wait.reason), wait.at));
                }
                Err(Refused::Closed) => {
                    return Err(refuse(RefusalReason::Closed, Timestamp::NEVER));
                }
            }
        }
        Ok(guard.expect("a request needs a key").into_permit())
    }

    /// Returns whether `delay` changes `key`, as far as this process knows. A write would be wasted
    /// otherwise.
    fn is_news(&self, key: &Key, delay: CrawlDelay) -> bool {
        let local = self.0.clock.now();
        let mut state = self.0.state.lock();
        let now = state.node.shared_time(local);
        let is_news = |host: &mut Host| host.crawl_delay_is_news(now, delay);
        state.node.with_host(key, is_news).unwrap_or(true)
    }

    async fn flushed(&self) {
        loop {
            let progress = self.0.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.0.state.lock().node.is_flushed() {
                return;
            }
            progress.await;
        }
    }
}

impl Inner {
    async fn acquire(
        self: &Arc<Self>,
        keys: &[Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<StoreGuard, AcquireError> {
        let began = self.clock.now();
        let guard = match keys {
            [] => return Err(AcquireError::NoKey),
            [key] => self.acquire_one(key, ask, arrival).await?,
            keys => {
                let keys: Vec<&Key> = distinct(keys).map(|(_, key)| key).collect();
                self.acquire_all(&keys, alone(ask), arrival).await?
            }
        };
        if !guard.has_waited() {
            return Ok(guard);
        }
        let waited = self.clock.now().since(began);
        crate::recorder::record_wait(waited);
        let stats = &mut self.state.lock().stats;
        stats.waits += 1;
        stats.waited += waited;
        Ok(guard)
    }

    async fn acquire_one(
        self: &Arc<Self>,
        key: &Key,
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<StoreGuard, AcquireError> {
        let asked = AcquireRequest {
            horizon: ask.horizon.max(HORIZON),
            ..ask.clone()
        };
        loop {
            let grant = match self.ask(key, asked.clone(), arrival, false).await {
                Ok(grant) => grant,
                Err(Refused::Wait(wait)) => {
                    let rest = wait.at.since(self.clock.now());
                    return Err(AcquireError::Parked(key.clone(), rest));
                }
                Err(Refused::Closed) => return Err(AcquireError::Closed),
            };
            let (start, valid_until) = (grant.start, grant.valid_until);
            let guard = StoreGuard::new(self, key, &grant);
            let early = start.since(self.clock.now()).saturating_sub(ask.horizon);
            if !early.is_zero() {
                sleep(early).await;
            }
            // A permit that expired while this task slept goes back, and the key is asked again.
            if self.clock.now() <= valid_until {
                return Ok(guard);
            }
        }
    }

    /// Waits for the key that refused last, then tries the other keys without waiting.
    async fn acquire_all(
        self: &Arc<Self>,
        keys: &[&Key],
        ask: AcquireRequest,
        arrival: Arrival,
    ) -> Result<StoreGuard, AcquireError> {
        let mut first = 0;
        'again: loop {
            let mut guard: Option<StoreGuard> = None;
            let others = (0..keys.len()).filter(|index| *index != first);
            for index in std::iter::once(first).chain(others) {
                let key = keys[index];
                let ask = of_key(&ask, index);
                match self.ask(key, ask, arrival, guard.is_some()).await {
                    Ok(grant) => match &mut guard {
                        None => guard = Some(StoreGuard::new(self, key, &grant)),
                        Some(guard) => guard.add(key, &grant),
                    },
                    Err(Refused::Wait(wait)) if guard.is_some() => {
                        first = index;
                        // Callers with the same keys in different orders would otherwise block each
                        // other again.
                        drop(guard);
                        sleep(
                            wait.at
                                .since(self.clock.now())
                                .min(Duration::from_millis(5)),
                        )
                        .await;
                        continue 'again;
                    }
                    Err(Refused::Wait(wait)) => {
                        let rest = wait.at.since(self.clock.now());
                        return Err(AcquireError::Parked(key.clone(), rest));
                    }
                    Err(Refused::Closed) => return Err(AcquireError::Closed),
                }
            }
            let mut guard = guard.ok_or(AcquireError::NoKey)?;
            // The first grant may have expired before the last one came.
            if self.clock.now() > guard.valid_until {
                continue;
            }
            guard.put_first(keys[0]);
            return Ok(guard);
        }
    }

    async fn ask(
        self: &Arc<Self>,
        key: &Key,
        ask: AcquireRequest,
        arrival: Arrival,
        once: bool,
    ) -> Result<Grant, Refused> {
        let (sender, reply) = oneshot::channel();
        let (mut waiting, wake) = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(Refused::Closed);
            }
            let now = self.clock.now();
            let ticket = state.node.acquire(key, arrival, ask, once, now);
            state.callers.insert(ticket, sender);
            let waiting = Waiting {
                inner: self,
                key,
                arrival,
                ticket,
                reply,
                has_reply: false,
            };
            (waiting, state.node.take_wake())
        };
        if wake {
            self.wake.notify_one();
        }
        let reply = (&mut waiting.reply).await;
        waiting.has_reply = true;
        // Closing the limiter drops the sender.
        reply.map_err(|_| Refused::Closed)?.map_err(Refused::Wait)
    }

    fn apply(&self, key: &Key, event: Event) -> politely_core::host::Directions {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let directions = state.node.apply(key, event, now);
        let wake = state.node.take_wake();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        directions
    }

    /// Gives a grant that no caller took to the next caller, or cancels it.
    fn give_back(&self, key: &Key, grant: Grant) {
        let now = self.clock.now();
        self.state.lock().node.give_back(key, grant, now);
        self.wake.notify_one();
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let callers = std::mem::take(&mut state.callers);
        state.node.close(callers.keys().copied());
        state.node.flush(self.clock.now());
        drop(state);
        drop(callers);
        self.prefetches.close();
        self.lock_changes.close();
        self.wake.notify_one();
    }

    /// Passes the node's replies on to the callers.
    fn deliver(&self) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        for reply in state.node.poll_replies(now) {
            if let Some(sender) = state.callers.remove(&reply.ticket) {
                // The receiver exists: a caller removes its sender before it leaves.
                let _ = sender.send(reply.result);
            }
        }
        let changed = state.node.take_lock_changes();
        drop(state);
        self.lock_changes.notify(&changed);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.0.close();
    }
}
