//! Where permits come from, if not from this process's registry: a coordinator, or an engine's cells.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::gate::{HoldReason, LeaseId};
use politely_core::host::{Ask, CrawlDelay, Explanation, OperatorNumbers};
use politely_core::key::Key;

use crate::asked::{AcquireError, Refusal, SetError, Unsupported};
use crate::permit::Permit;
use crate::snapshot::Snapshot;
use crate::stats::{Commits, Stats};
use crate::waiters::Turn;

/// What takes its time.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A limiter's source of permits. What is not written for one is nothing it knows of.
pub(crate) trait Elsewhere: Send + Sync {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        turn: Turn,
    ) -> Later<'a, Result<Permit, AcquireError>>;

    /// A permit kept for whoever asks again, or a wish for one.
    fn try_acquire(&self, keys: &[Key], ask: Ask) -> Result<Permit, Refusal>;

    /// Yes or no, as soon as that is known.
    fn request<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        _turn: Turn,
    ) -> Later<'a, Result<Permit, Refusal>> {
        Box::pin(async move { self.try_acquire(keys, ask) })
    }

    /// A permit that another process was granted; nothing where none can be taken over.
    fn adopt<'a>(
        &'a self,
        _leases: &'a [(Key, LeaseId)],
        _patience: Duration,
    ) -> Later<'a, Option<Permit>> {
        Box::pin(async { None })
    }

    /// Keys for which a wished permit came.
    fn ready(&self) -> Later<'_, Vec<Key>>;

    fn operate(&self, key: &Key, operation: Operation);

    fn reconfigure(&self, config: &Config) -> Result<(), Unsupported>;

    /// Whether [`Operation::Set`] of `numbers` will be in force.
    fn supports_numbers(&self, _numbers: OperatorNumbers) -> Result<(), SetError> {
        Ok(())
    }

    fn explain(&self, _key: &Key) -> Option<Explanation> {
        None
    }

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    /// How many wait for `key` who came before.
    fn position(&self, _key: &Key, _turn: Turn) -> usize {
        0
    }

    fn numbers(&self, key: &Key) -> Result<OperatorNumbers, Unsupported>;

    fn snapshot(&self, _key: &Key) -> Option<Snapshot> {
        None
    }

    /// A state that an earlier run kept, should nobody else know better.
    fn remember(&self, key: &Key, state: &[u8]) -> Result<(), Unsupported>;

    /// The states that learned something since this was last called.
    fn take_learned(&self) -> Vec<(Key, Snapshot)> {
        Vec::new()
    }

    fn rate(&self, key: &Key) -> Option<f64> {
        self.explain(key).map(|explained| explained.rate)
    }

    fn stats(&self) -> Stats;

    fn commits(&self) -> Option<Commits> {
        None
    }

    /// All that was said has arrived.
    fn settled(&self, patience: Duration) -> Later<'_, bool>;

    /// Waits until what was said about `key` has arrived, at most for `patience`.
    fn confirm<'a>(&'a self, _key: &'a Key, patience: Duration) -> Later<'a, bool> {
        self.settled(patience)
    }

    /// Reads the state of `key` from where it is kept; says whether it is known.
    fn refresh<'a>(&'a self, key: &'a Key, _patience: Duration) -> Later<'a, Result<bool, String>> {
        Box::pin(async move { Ok(self.explain(key).is_some()) })
    }

    /// It can be reached, and will listen to us.
    fn greet(&self) -> Later<'_, Result<(), String>>;

    /// Why it did not answer, if it did not.
    fn trouble(&self) -> Option<String>;

    fn close(&self);
}

/// What an operator may do to a key, or a reader of robots.txt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Set(OperatorNumbers),
    CrawlDelay(CrawlDelay),
    Hold(Duration, HoldReason),
    Unpark,
    Forget,
}
