//! The thread that carries out the commands of the [`Node`](politely_store::Node).
//!
//! It has a runtime of its own, so callers may live on any runtime, on several, or on none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use politely_store::{
    Commands, Engine, EngineError, Heartbeat, Notice, Pending, Risk, Write, Written,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Inner;
use super::confirm::Refresh;
use crate::sync::sleep;

/// The number of calls with reads or writes in flight. Meanwhile the next batch gathers.
const CALLS_MAX: usize = 4;
/// A call without an answer counts as failed after this time.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// After the limiter was dropped, the driver waits this long for an engine that is unavailable.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which expired prefetches are dropped.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// The result of a call.
enum Done {
    Heartbeat(Timestamp, Result<Heartbeat, EngineError>),
    Risks(Result<Vec<Risk>, EngineError>),
    Writes(Vec<Arc<str>>, Vec<Result<Written, EngineError>>),
    Reads(Vec<Arc<str>>, Vec<Result<Option<Vec<u8>>, EngineError>>),
    Watch(Result<(), EngineError>),
    Refreshes(Vec<Refresh>, Vec<Result<Option<Vec<u8>>, EngineError>>),
}

/// Starts the thread. It ends when the limiter is dropped and all events are written.
pub(super) fn start(inner: &Arc<Inner>, engine: Arc<dyn Engine>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    inner.prefetches.run_on(runtime.handle().clone());
    let inner = Arc::clone(inner);
    std::thread::Builder::new()
        .name("politely-cells".to_owned())
        .spawn(move || {
            let _ended = Ended(&inner);
            runtime.block_on(run(&inner, engine));
        })?;
    Ok(())
}

/// Marks the thread as ended when it is dropped, also by a panic.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let Self(inner) = self;
        let mut state = inner.state.lock();
        // The callers must not wait any longer.
        state.refreshes.clear();
        if !state.closed {
            tracing::error!("the thread that talks to the engine has ended; restart this process");
        }
        drop(state);
        inner.has_ended.store(true, Ordering::Relaxed);
        inner.progress.notify_waiters();
    }
}

pub(super) async fn run(inner: &Arc<Inner>, engine: Arc<dyn Engine>) {
    let mut driver = Driver::new(inner, engine);
    let mut closed_at: Option<Timestamp> = None;
    let mut swept = Timestamp::ZERO;
    loop {
        let now = inner.clock.now();
        if now.since(swept) >= SWEEP_EVERY {
            swept = now;
            inner.prefetches.sweep(now);
        }
        let next = {
            let mut state = inner.state.lock();
            // The holder of a permit or of the limiter may still report.
            if state.closed && Arc::strong_count(inner) == 1 {
                let since = *closed_at.get_or_insert(now);
                if state.node.is_flushed() || now.since(since) > CLOSE_TIMEOUT {
                    return;
                }
            }
            driver.refresh(std::mem::take(&mut state.refreshes));
            let commands = state.node.poll_commands(now, driver.in_flight < CALLS_MAX);
            if commands.is_empty() {
                state.node.next_wakeup(now, driver.in_flight < CALLS_MAX)
            } else {
                drop(state);
                driver.send(commands, now);
                inner.deliver();
                continue;
            }
        };
        inner.deliver();
        inner.progress.notify_waiters();
        let next = next.min(now + SWEEP_EVERY);
        tokio::select! {
            biased;
            Some(done) = driver.calls.join_next() => {
                // The adapter panicked, and it would panic again.
                let Ok(done) = done else { return };
                driver.handle_done(done);
                while let Some(Ok(done)) = driver.calls.try_join_next() {
                    driver.handle_done(done);
                }
            }
            Some(notice) = driver.notices.recv() => driver.handle_notice(notice),
            () = inner.wake.notified() => {}
            () = sleep(next.since(now)) => {}
        }
    }
}

struct Driver<'a> {
    inner: &'a Arc<Inner>,
    engine: Arc<dyn Engine>,
    calls: JoinSet<Done>,
    in_flight: usize,
    notices: mpsc::UnboundedReceiver<Notice>,
}

impl<'a> Driver<'a> {
    fn new(inner: &'a Arc<Inner>, engine: Arc<dyn Engine>) -> Self {
        let (tell, notices) = mpsc::unbounded_channel();
        engine.listen(Arc::new(move |notice| {
            let _ = tell.send(notice);
        }));
        Self {
            inner,
            engine,
            calls: JoinSet::new(),
            in_flight: 0,
            notices,
        }
    }

    fn send(&mut self, commands: Commands, now: Timestamp) {
        let Commands {
            heartbeat,
            settings,
            reads,
            writes,
            watch,
            unwatch,
        } = commands;
        if let Some(epoch) = heartbeat {
            let engine = Arc::clone(&self.engine);
            self.calls.spawn(async move {
                let heartbeat = in_time(engine.heartbeat(epoch), Err).await;
                Done::Heartbeat(now, heartbeat)
            });
        }
        if settings {
            let engine = Arc::clone(&self.engine);
            self.calls
                .spawn(async move { Done::Risks(in_time(engine.risks(), Err).await) });
        }
        if !writes.is_empty() {
            self.write(writes);
        }
        if !reads.is_empty() {
            self.in_flight += 1;
            let engine = Arc::clone(&self.engine);
            let names = reads.clone();
            self.calls.spawn(async move {
                let failed = |late| vec![Err(late); names.len()];
                let read = in_time(engine.read(reads), failed).await;
                Done::Reads(names, read)
            });
        }
        if !watch.is_empty() || !unwatch.is_empty() {
            let engine = Arc::clone(&self.engine);
            self.calls.spawn(async move {
                let watched = in_time(engine.watch(watch, unwatch), Err).await;
                Done::Watch(watched)
            });
        }
    }

    /// Reads cells for callers in one call. It does not count as in flight, since callers wait.
    fn refresh(&mut self, refreshes: Vec<Refresh>) {
        if refreshes.is_empty() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        self.calls.spawn(async move {
            let cells = refreshes
                .iter()
                .map(|refresh| Arc::clone(&refresh.cell))
                .collect();
            let failed = |late| vec![Err(late); refreshes.len()];
            let read = in_time(engine.read(cells), failed).await;
            Done::Refreshes(refreshes, read)
        });
    }

    fn write(&mut self, writes: Vec<Write>) {
        self.in_flight += 1;
        let engine = Arc::clone(&self.engine);
        let names: Vec<_> = writes.iter().map(|write| Arc::clone(&write.cell)).collect();
        self.calls.spawn(async move {
            let failed = |late| vec![Err(late); names.len()];
            let written = in_time(engine.compare_and_set(writes), failed).await;
            Done::Writes(names, written)
        });
    }

    fn handle_done(&mut self, done: Done) {
        let now = self.inner.clock.now();
        let mut state = self.inner.state.lock();
        let node = &mut state.node;
        match done {
            Done::Heartbeat(sent, heartbeat) => {
                let write = node.handle_heartbeat(sent, heartbeat, now);
                drop(state);
                if let Some(write) = write {
                    self.write(vec![write]);
                }
            }
            Done::Risks(risks) => node.handle_risks(risks),
            Done::Writes(names, results) => {
                self.in_flight -= 1;
                for (name, result) in names.iter().zip(results) {
                    if let Some(took) = node.handle_write(name, result, now) {
                        crate::recorder::record_commit(took);
                    }
                }
            }
            Done::Reads(names, results) => {
                self.in_flight -= 1;
                for (name, result) in names.iter().zip(results) {
                    node.handle_read(name, result, now);
                }
            }
            Done::Refreshes(refreshes, results) => {
                for (refresh, result) in refreshes.into_iter().zip(results) {
                    refresh.handle_read(result, node, now);
                }
            }
            Done::Watch(watched) => {
                if watched.is_err() {
                    node.handle_lost_subscription(None, now);
                }
            }
        }
    }

    fn handle_notice(&self, notice: Notice) {
        let now = self.inner.clock.now();
        let node = &mut self.inner.state.lock().node;
        match notice {
            Notice::Written { cell, value } => node.handle_notice(&cell, &value, now),
            Notice::Unheard { cell } => node.handle_lost_subscription(cell.as_deref(), now),
        }
    }
}

/// Returns the result of `call`, or of `failed` if the call takes too long.
async fn in_time<T>(call: Pending<'_, T>, failed: impl FnOnce(EngineError) -> T) -> T {
    let called = tokio::time::timeout(CALL_TIMEOUT, call).await;
    called.unwrap_or_else(|_| {
        failed(EngineError(format!(
            "no answer in {} s",
            CALL_TIMEOUT.as_secs()
        )))
    })
}
