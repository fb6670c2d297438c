//! Health of the coordinator: whether it can keep changes, and whether its background tasks run.
//!
//! Background tasks are supervised. A task that ends makes the coordinator unready.

use std::thread;

use parking_lot::Mutex;
use politely::Limiter;
use politely::cells::{Risk, Severity};
use tokio::task::JoinSet;

use super::Coordinator;

/// The reason why no change is stored until a restart, if there is one.
#[derive(Default)]
pub(super) struct Health {
    died: Mutex<Option<String>>,
}

impl Coordinator {
    /// Runs `task` in `tasks`. If it returns or panics, [`Coordinator::last_error`] reports it.
    /// Aborting it is no error.
    pub(super) fn supervise<F>(
        &self,
        tasks: &mut JoinSet<()>,
        what: &'static str,
        task: impl FnOnce(Self) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let running = task(self.clone());
        let panics = Panics {
            coordinator: self.clone(),
            what,
        };
        tasks.spawn(async move {
            running.await;
            panics.coordinator.task_ended(what);
        });
    }

    pub(super) fn task_ended(&self, what: &str) {
        let why = format!("the task that {what} has ended; restart the coordinator");
        tracing::error!("{why}");
        self.0.health.died.lock().get_or_insert(why);
    }

    /// Returns why changes cannot be kept now, in one line: a background task ended, the disk
    /// refuses writes, or the engine does not answer.
    pub fn last_error(&self) -> Option<String> {
        self.broken()
            .or_else(|| engine_unavailable(&self.0.limiter))
    }

    /// Returns why the coordinator itself cannot keep changes, in one line. Ignores the engine.
    fn broken(&self) -> Option<String> {
        let died = self.0.health.died.lock().clone();
        died.or_else(|| self.0.store.as_ref()?.last_error())
    }

    /// Returns whether a background task has ended, so that some of its work may be missing.
    pub(super) fn has_lost_a_task(&self) -> bool {
        self.0.health.died.lock().is_some()
    }

    /// Returns why no permit can be granted, in one line: the journal refuses writes.
    pub(crate) fn no_permits(&self) -> Option<String> {
        let failing = self.journal()?.is_journal_failing();
        failing.then(|| {
            let why = self.broken().unwrap_or_default();
            format!("permits cannot be written to disk ({why}); ask again in a second")
        })
    }
}

/// Returns the trouble of the engine in one line, and the warnings about its settings.
///
/// A critical setting is trouble, though permits are granted and changes are made.
pub(crate) fn engine_trouble(limiter: &Limiter) -> (Option<String>, Vec<String>) {
    let (critical, warnings): (Vec<Risk>, Vec<Risk>) = limiter
        .risks()
        .into_iter()
        .partition(|risk| risk.severity == Severity::Critical);
    let forgets = || Some(format!("the engine {}", critical.first()?.text));
    let warnings = warnings.into_iter();
    let warnings = warnings.map(|risk| format!("the engine {}", risk.text));
    (
        engine_unavailable(limiter).or_else(forgets),
        warnings.collect(),
    )
}

fn engine_unavailable(limiter: &Limiter) -> Option<String> {
    let why = limiter.last_error()?;
    Some(format!("the engine is unavailable: {why}"))
}

/// Reports the panic of a supervised task when it is dropped. An aborted task is no error.
struct Panics {
    coordinator: Coordinator,
    what: &'static str,
}

impl Drop for Panics {
    fn drop(&mut self) {
        if thread::panicking() {
            self.coordinator.task_ended(self.what);
        }
    }
}
