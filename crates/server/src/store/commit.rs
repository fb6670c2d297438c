//! The thread that commits, and the queue before it.
//!
//! One transaction is under way at a time; whatever must be kept now and arrived meanwhile rides in the next one, together,
//! so that a thousand holds cost two fsyncs. Learned states wait for their turn in a room of their own, since a hold should
//! not wait for a hundred thousand of them: they fill up transactions of bounded size. Both rooms hold only the newest state of
//! a key: a state to be kept now throws an older one out of the learned, and is itself committed before a newer
//! learned one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::count::Counts;
use super::journal::Journal;
use super::tables::Tables;

/// How often learned states are written. Half of the second they may be old, for those who gather them need time too.
const LEARNED_EVERY: Duration = Duration::from_millis(500);

/// Learned states in one transaction, about 30 ms that a hold may have to wait for.
const LEARNED_PER_COMMIT: usize = 4_096;

/// States that wait while the disk refuses them, about 30 MB. More are given up.
const WAITING_MAX: usize = 100_000;

/// What was not kept, and why.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeepError {
    /// It could not be written; shared by all who rode in the same transaction. Key states are tried again with the
    /// learned ones, a configuration is not.
    #[error("politely.redb: {0}")]
    Write(Arc<redb::Error>),
    /// The store is closed.
    #[error("politely.redb: the store is closed")]
    Closed,
}

type Kept = Result<(), KeepError>;

/// What one transaction writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// An empty state: the key is forgotten.
    pub(super) states: BTreeMap<String, Vec<u8>>,
    pub(super) config: Option<Vec<u8>>,
}

#[derive(Default)]
struct Queue {
    now: Batch,
    waiting: Vec<oneshot::Sender<Kept>>,
    learned: BTreeMap<String, Vec<u8>>,
    /// Learned states whose turn it is. In the order of keys: neighbours share pages, which halves the work.
    turn: BTreeMap<String, Vec<u8>>,
    closing: bool,
}

impl Queue {
    /// Moves up to `count` learned states into `batch`. Those that arrive during a turn wait for the next.
    fn take_learned(&mut self, count: usize, batch: &mut BTreeMap<String, Vec<u8>>) {
        if self.turn.is_empty() && count > 0 {
            self.turn = mem::take(&mut self.learned);
        }
        for _ in 0..count {
            let Some((key, state)) = self.turn.pop_first() else {
                break;
            };
            batch.insert(key, state);
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

    pub(super) fn learned(&self, states: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let mut queue = self.shared.queue.lock();
        if !queue.closing {
            // The thread wakes by itself.
            queue.learned.extend(states);
        }
    }

    /// Resolves once `add` was committed. Dropping the answer takes nothing back.
    pub(super) fn now(&self, add: Batch) -> oneshot::Receiver<Kept> {
        let (told, hear) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            if queue.closing {
                let _ = told.send(Err(KeepError::Closed));
                return hear;
            }
            for (key, state) in add.states {
                queue.learned.remove(&key);
                queue.turn.remove(&key);
                queue.now.states.insert(key, state);
            }
            queue.now.config = add.config.or(queue.now.config.take());
            queue.waiting.push(told);
        }
        self.shared.arrived.notify_one();
        hear
    }

    /// Writes all that waits and ends the thread.
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
        let _ended = Ended(&self.queue);
        let mut learned_at = Instant::now();
        let mut replaced_at = learned_at;
        loop {
            let mut queue = self.queue.lock();
            let next = learned_at + LEARNED_EVERY;
            while queue.waiting.is_empty() && !queue.closing && Instant::now() < next {
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

    /// Commits all that is to be kept now and up to `learned` learned states. `false`: there is no reason to go on at once.
    fn commit(&self, learned: usize) -> bool {
        let (mut batch, waiting) = {
            let mut queue = self.queue.lock();
            let mut batch = mem::take(&mut queue.now);
            queue.take_learned(learned, &mut batch.states);
            (batch, mem::take(&mut queue.waiting))
        };
        if batch.states.is_empty() && batch.config.is_none() && waiting.is_empty() {
            return false;
        }
        let kept = match self.tables.write(&batch) {
            Ok(()) => {
                self.counts.committed(batch.states.len());
                Ok(())
            }
            Err(why) => {
                let dropped = self.put_back(mem::take(&mut batch.states));
                self.counts.failed(&why, dropped);
                Err(KeepError::Write(Arc::new(why)))
            }
        };
        let goes_on = kept.is_ok();
        for told in waiting {
            let _ = told.send(kept.clone());
        }
        goes_on
    }

    /// States whose transaction failed wait for the next with the learned ones, unless there are newer ones. How many had
    /// no room.
    fn put_back(&self, states: BTreeMap<String, Vec<u8>>) -> usize {
        let queue = &mut *self.queue.lock();
        for (key, state) in states {
            let newer = queue.now.states.contains_key(&key) || queue.turn.contains_key(&key);
            if !newer {
                queue.learned.entry(key).or_insert(state);
            }
        }
        let waiting = queue.learned.len() + queue.turn.len();
        let dropped = waiting.saturating_sub(WAITING_MAX);
        for _ in 0..dropped {
            let _ = queue.turn.pop_last().or_else(|| queue.learned.pop_last());
        }
        dropped
    }
}

/// However the thread ended: nobody waits for it.
struct Ended<'a>(&'a Mutex<Queue>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closing = true;
        queue.waiting.clear();
    }
}
