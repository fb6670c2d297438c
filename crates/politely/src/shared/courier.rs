//! The thread that asks the engine: callers may live on any runtime, several, or none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely_core::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Inner;
use super::confirm::Look;
use super::hub::Calls;
use crate::cells::{Engine, EngineError, Notice, Pending, Pulse, Write, Written};
use crate::sync::sleep;

/// Calls with writes or reads under way at once: while they are, the next gathers.
const UNDER_WAY: usize = 4;
/// A call that is not answered by then counts as failed.
const CALL: Duration = Duration::from_secs(1);
/// A limiter that is gone waits so long for an engine that is away.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often wishes are looked through.
const SWEEP: Duration = Duration::from_millis(100);

/// What a call came to.
enum Done {
    Pulse(Timestamp, Result<Pulse, EngineError>),
    Writes(Vec<Arc<str>>, Vec<Result<Written, EngineError>>),
    Reads(Vec<Arc<str>>, Vec<Result<Option<Vec<u8>>, EngineError>>),
    Watch(Result<(), EngineError>),
    Looks(Vec<Look>, Vec<Result<Option<Vec<u8>>, EngineError>>),
}

/// Starts the thread. It ends when the limiter is gone and all is written.
pub(super) fn start(inner: Arc<Inner>, engine: Arc<dyn Engine>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime of one thread needs no more than a thread");
    inner.wishes.run_on(runtime.handle().clone());
    std::thread::Builder::new()
        .name("politely-cells".to_owned())
        .spawn(move || {
            let _ended = Ended(&inner);
            runtime.block_on(run(&inner, engine));
        })
        .expect("the system has a thread left");
}

/// Marks the thread as gone, however it ends.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let Self(inner) = self;
        let mut state = inner.state.lock();
        // Their callers must not wait.
        state.looks.clear();
        if !state.closed {
            tracing::error!("the thread that talks to the engine has ended; restart this process");
        }
        drop(state);
        inner.ended.store(true, Ordering::Relaxed);
        inner.said.notify_waiters();
    }
}

pub(super) async fn run(inner: &Arc<Inner>, engine: Arc<dyn Engine>) {
    let mut courier = Courier::new(inner, engine);
    let mut closed_at: Option<Timestamp> = None;
    let mut swept = Timestamp::ZERO;
    loop {
        let now = inner.clock.now();
        if now.since(swept) >= SWEEP {
            swept = now;
            inner.wishes.sweep(now);
        }
        let next = {
            let mut state = inner.state.lock();
            // Who has a permit or the limiter still, may yet report.
            if state.closed && Arc::strong_count(inner) == 1 {
                let since = *closed_at.get_or_insert(now);
                if state.hub.is_quiet() || now.since(since) > FAREWELL {
                    return;
                }
            }
            courier.look(std::mem::take(&mut state.looks));
            let asked = state.hub.calls(now, courier.under_way < UNDER_WAY);
            if asked.is_empty() {
                state.hub.next(now, courier.under_way < UNDER_WAY)
            } else {
                drop(state);
                courier.send(asked, now);
                inner.deliver();
                continue;
            }
        };
        inner.deliver();
        inner.said.notify_waiters();
        let next = next.min(now + SWEEP);
        tokio::select! {
            biased;
            Some(done) = courier.calls.join_next() => {
                // A call that panicked is the engine's: it would panic again.
                let Ok(done) = done else { return };
                courier.heard(done);
                while let Some(Ok(done)) = courier.calls.try_join_next() {
                    courier.heard(done);
                }
            }
            Some(notice) = courier.notices.recv() => courier.noticed(notice),
            () = inner.wake.notified() => {}
            () = sleep(next.since(now)) => {}
        }
    }
}

struct Courier<'a> {
    inner: &'a Arc<Inner>,
    engine: Arc<dyn Engine>,
    calls: JoinSet<Done>,
    under_way: usize,
    notices: mpsc::UnboundedReceiver<Notice>,
}

impl<'a> Courier<'a> {
    fn new(inner: &'a Arc<Inner>, engine: Arc<dyn Engine>) -> Self {
        let (tell, notices) = mpsc::unbounded_channel();
        engine.listen(Arc::new(move |notice| {
            let _ = tell.send(notice);
        }));
        Self {
            inner,
            engine,
            calls: JoinSet::new(),
            under_way: 0,
            notices,
        }
    }

    fn send(&mut self, asked: Calls, now: Timestamp) {
        let Calls {
            pulse,
            reads,
            writes,
            watch,
            unwatch,
        } = asked;
        if let Some(epoch) = pulse {
            let engine = Arc::clone(&self.engine);
            self.calls.spawn(async move {
                let pulse = in_time(engine.pulse(epoch), Err).await;
                Done::Pulse(now, pulse)
            });
        }
        if !writes.is_empty() {
            self.write(writes);
        }
        if !reads.is_empty() {
            self.under_way += 1;
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

    /// Reads cells for callers: one call, which counts for no limit, since callers wait for it.
    fn look(&mut self, looks: Vec<Look>) {
        if looks.is_empty() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        self.calls.spawn(async move {
            let cells = looks.iter().map(|look| Arc::clone(&look.cell)).collect();
            let failed = |late| vec![Err(late); looks.len()];
            let read = in_time(engine.read(cells), failed).await;
            Done::Looks(looks, read)
        });
    }

    fn write(&mut self, writes: Vec<Write>) {
        self.under_way += 1;
        let engine = Arc::clone(&self.engine);
        let names: Vec<_> = writes.iter().map(|write| Arc::clone(&write.cell)).collect();
        self.calls.spawn(async move {
            let failed = |late| vec![Err(late); names.len()];
            let written = in_time(engine.compare_and_set(writes), failed).await;
            Done::Writes(names, written)
        });
    }

    fn heard(&mut self, done: Done) {
        let now = self.inner.clock.now();
        let mut state = self.inner.state.lock();
        let hub = &mut state.hub;
        match done {
            Done::Pulse(sent, pulse) => {
                let write = hub.pulsed(sent, pulse, now);
                drop(state);
                if let Some(write) = write {
                    self.write(vec![write]);
                }
            }
            Done::Writes(names, results) => {
                self.under_way -= 1;
                for (name, result) in names.iter().zip(results) {
                    if let Some(took) = hub.was_written(name, result, now) {
                        metrics::histogram!("politely_commit_seconds").record(took.as_secs_f64());
                    }
                }
            }
            Done::Reads(names, results) => {
                self.under_way -= 1;
                for (name, result) in names.iter().zip(results) {
                    hub.was_read(name, result, now);
                }
            }
            Done::Looks(looks, results) => {
                for (look, result) in looks.into_iter().zip(results) {
                    look.was_read(result, hub, now);
                }
            }
            Done::Watch(watched) => {
                if watched.is_err() {
                    hub.unheard(None, now);
                }
            }
        }
    }

    fn noticed(&self, notice: Notice) {
        let now = self.inner.clock.now();
        let hub = &mut self.inner.state.lock().hub;
        match notice {
            Notice::Written { cell, value } => hub.noticed(&cell, &value, now),
            Notice::Unheard { cell } => hub.unheard(cell.as_deref(), now),
        }
    }
}

/// What `call` comes to, or what `failed` makes of its being late.
async fn in_time<T>(call: Pending<'_, T>, failed: impl FnOnce(EngineError) -> T) -> T {
    let called = tokio::time::timeout(CALL, call).await;
    called.unwrap_or_else(|_| failed(EngineError(format!("no answer in {} s", CALL.as_secs()))))
}
