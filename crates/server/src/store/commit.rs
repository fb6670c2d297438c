//! The thread that commits, and its queue.
//!
//! One transaction runs at a time. States that must be kept now and arrive meanwhile share the next
//! transaction, so that a thousand holds cost two fsyncs. Learned states wait in a queue of their
//! own, so that a hold does not wait for a hundred thousand of them. They fill transactions up to a
//! bounded size.
//!
//! Every state has a version from the moment when it was read. Of two states of a key, the higher
//! version wins, in the queues and in the database. The order of the calls does not matter.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::count::Counts;
use super::journal::Journal;
use super::seal::Versioned;
use super::tables::Tables;

/// The interval between two writes of learned states. Learned states may be a second old, and half
/// of the second is for collecting them.
const LEARNED_EVERY: Duration = Duration::from_millis(500);

/// The most learned states in one transaction. A hold may have to wait for it for about 30 ms.
const LEARNED_PER_COMMIT: usize = 4_096;

/// The most states that wait while the disk refuses them, about 30 MB. More are dropped.
const WAITING_MAX: usize = 100_000;

/// Why a state was not kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeepError {
    /// The transaction failed, for all calls that shared it. Its states are written again with the
    /// learned states.
    #[error("politely.redb: {0}")]
    Write(Arc<str>),
    /// The store is closed.
    #[error("politely.redb: the store is closed")]
    Closed,
}

type Kept = Result<(), KeepError>;

/// The content of one transaction.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) states: BTreeMap<String, Versioned>,
    pub(super) config: Option<Versioned>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.states.is_empty() && self.config.is_none()
    }
}

/// Puts `state` into `queue` unless a newer one is there.
fn put(queue: &mut BTreeMap<String, Versioned>, key: String, state: Versioned) {
    match queue.entry(key) {
        Entry::Vacant(place) => {
            place.insert(state);
        }
        Entry::Occupied(mut place) if place.get().version < state.version => {
            place.insert(state);
        }
        Entry::Occupied(_) => {}
    }
}

fn newer(one: Option<Versioned>, other: Option<Versioned>) -> Option<Versioned> {
    [one, other]
        .into_iter()
        .flatten()
        .max_by_key(|value| value.version)
}

#[derive(Default)]
struct Queue {
    now: Batch,
    waiting: Vec<oneshot::Sender<Kept>>,
    learned: BTreeMap<String, Versioned>,
    /// Learned states of the current round, in the order of keys. Neighbours share pages of the
    /// database, which halves the work.
    turn: BTreeMap<String, Versioned>,
    closing: bool,
    /// Makes the thread panic, in tests.
    #[cfg(test)]
    dies: bool,
}

impl Queue {
    /// Moves up to `count` learned states into `batch`. States that arrive during a round wait for
    /// the next round.
    fn take_learned(&mut self, count: usize, batch: &mut BTreeMap<String, Versioned>) {
        if self.turn.is_empty() && count > 0 {
            self.turn = mem::take(&mut self.learned);
        }
        for _ in 0..count {
            let Some((key, state)) = self.turn.pop_first() else {
                break;
            };
            put(batch, key, state);
        }
    }
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    tables: Arc<Tables>,
    journal: Arc<Journal>,
    counts: Arc<Counts>,
    /// The shortest time between two files of the journal.
    replace_every: Duration,
}

pub(super) struct Committer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(super) fn start(
        (tables, journal, counts): (Arc<Tables>, Arc<Journal>, Arc<Counts>),
        replace_every: Duration,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            tables,
            journal,
            counts,
            replace_every,
        });
        let run = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("politely-store".into())
            .spawn(move || run.run())?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn learned(&self, states: impl IntoIterator<Item = (String, Versioned)>) {
        let mut queue = self.shared.queue.lock();
        if !queue.closing {
            // The thread is not notified, because it wakes on a timer.
            for (key, state) in states {
                put(&mut queue.learned, key, state);
            }
        }
    }

    /// Returns all learned states that wait, for [`Committer::now`].
    pub(super) fn take_learned(&self) -> BTreeMap<String, Versioned> {
        let queue = &mut *self.shared.queue.lock();
        let mut states = mem::take(&mut queue.turn);
        for (key, state) in mem::take(&mut queue.learned) {
            put(&mut states, key, state);
        }
        states
    }

    /// Queues `add`. The receiver resolves once it was committed. Dropping the receiver cancels
    /// nothing.
    pub(super) fn now(&self, add: Batch) -> oneshot::Receiver<Kept> {
        let (told, hear) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            if queue.closing {
                let _ = told.send(Err(KeepError::Closed));
                return hear;
            }
            for (key, state) in add.states {
                // A newer learned state replaces it, because that state includes this change.
                let learned = newer(queue.learned.remove(&key), queue.turn.remove(&key));
                let state = newer(learned, Some(state)).unwrap_or_default();
                put(&mut queue.now.states, key, state);
            }
            queue.now.config = newer(add.config, queue.now.config.take());
            queue.waiting.push(told);
        }
        self.shared.arrived.notify_one();
        hear
    }

    /// Makes the thread panic.
    #[cfg(test)]
    pub(super) fn die(&self) {
        self.shared.queue.lock().dies = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            thread.join().expect_err("it panics");
        }
    }

    /// Writes all queued states and ends the thread.
    pub(super) fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    #[expect(
        clippy::disallowed_methods,
        reason = "how often it writes; nothing is decided by it"
    )]
    fn run(&self) {
        let _ended = Ended(self);
        let mut learned_at = Instant::now();
        let mut replaced_at = learned_at;
        loop {
            let mut queue = self.queue.lock();
            #[cfg(test)]
            assert!(!queue.dies, "a test ends this thread");
            let next = learned_at + LEARNED_EVERY;
            while queue.waiting.is_empty() && !queue.closing && Instant::now() < next {
                #[cfg(test)]
                if queue.dies {
                    break;
                }
                self.arrived.wait_until(&mut queue, next);
            }
            let closing = queue.closing;
            drop(queue);
            if !closing && Instant::now() < next {
                self.commit(0);
            } else {
                learned_at = Instant::now();
                while self.commit(LEARNED_PER_COMMIT) {}
            }
            if closing {
                return;
            }
            if replaced_at.elapsed() >= self.replace_every
                && self.journal.replace_if_full(&self.counts)
            {
                replaced_at = Instant::now();
            }
        }
    }

    /// Commits the states that must be kept now, and up to `learned` learned states. Returns
    /// `false` if nothing was left or the transaction failed.
    fn commit(&self, learned: usize) -> bool {
        let (mut batch, waiting) = {
            let mut queue = self.queue.lock();
            let mut batch = mem::take(&mut queue.now);
            queue.take_learned(learned, &mut batch.states);
            (batch, mem::take(&mut queue.waiting))
        };
        // While the disk refuses writes, an empty transaction tests whether it accepts them again.
        if batch.is_empty() && waiting.is_empty() && !self.counts.is_database_failing() {
            return false;
        }
        let kept = match self.tables.write(&batch) {
            Ok(commits) => {
                self.counts.committed(batch.states.len());
                self.journal.committed(commits, &self.counts);
                Ok(())
            }
            Err(why) => {
                let dropped = self.put_back(mem::take(&mut batch));
                self.counts.failed(&why, dropped);
                Err(KeepError::Write(why.into()))
            }
        };
        let goes_on = kept.is_ok();
        for told in waiting {
            let _ = told.send(kept.clone());
        }
        goes_on
    }

    /// Queues the content of a failed transaction again, except states for which a newer one waits.
    /// Returns the number of states that were dropped for lack of room.
    fn put_back(&self, batch: Batch) -> usize {
        let queue = &mut *self.queue.lock();
        queue.now.config = newer(batch.config, queue.now.config.take());
        for (key, state) in batch.states {
            if let Some(waiting) = queue.now.states.get(&key)
                && waiting.version >= state.version
            {
                continue;
            }
            put(&mut queue.learned, key, state);
        }
        let waiting = queue.learned.len() + queue.turn.len();
        let dropped = waiting.saturating_sub(WAITING_MAX);
        for _ in 0..dropped {
            let _ = queue.turn.pop_last().or_else(|| queue.learned.pop_last());
        }
        dropped
    }
}

/// Closes the queue when the thread ends for any reason, so that no call waits for it.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        if !mem::replace(&mut queue.closing, true) {
            self.0.counts.thread_ended();
        }
        queue.waiting.clear();
    }
}
