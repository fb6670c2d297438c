//! Settings of an engine that lose writes: when a node reads them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use politely_core::config::Config;

use super::{memory, started};
use crate::backend::store::Unavailable;
use crate::limiter::Limiter;
use crate::sync::sleep;
use politely_store::{
    Engine, EngineError, Heartbeat, Memory, OnNotice, Pending, Risk, Severity, Write, Written,
};

/// An engine whose settings and run change.
#[derive(Clone)]
struct Changing {
    memory: Memory,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The severity of the only setting that loses writes, if there is one.
    severity: Option<Severity>,
    is_away: bool,
    hides_settings: bool,
    run: u64,
    /// The number of reads of the settings.
    reads: usize,
}

impl Engine for Changing {
    fn read(&self, cells: Vec<Arc<str>>) -> Pending<'_, Vec<Result<Option<Vec<u8>>, EngineError>>> {
        self.memory.read(cells)
    }

    fn compare_and_set(
        &self,
        writes: Vec<Write>,
    ) -> Pending<'_, Vec<Result<Written, EngineError>>> {
        self.memory.compare_and_set(writes)
    }

    fn heartbeat(&self, epoch: Arc<str>) -> Pending<'_, Result<Heartbeat, EngineError>> {
        Box::pin(async move {
            let (is_away, run) = {
                let state = self.state.lock();
                (state.is_away, state.run)
            };
            if is_away {
                return Err(away());
            }
            let heartbeat = self.memory.heartbeat(epoch).await?;
            Ok(Heartbeat { run, ..heartbeat })
        })
    }

    fn risks(&self) -> Pending<'_, Result<Vec<Risk>, EngineError>> {
        let mut state = self.state.lock();
        state.reads += 1;
        let risk = |severity| Risk {
            severity,
            text: "forgets".to_owned(),
        };
        let risks = state.severity.map(risk).into_iter().collect();
        let is_silent = state.is_away || state.hides_settings;
        let answer = if is_silent { Err(away()) } else { Ok(risks) };
        Box::pin(std::future::ready(answer))
    }

    fn listen(&self, hear: OnNotice) {
        self.memory.listen(hear);
    }

    fn watch(
        &self,
        more: Vec<Arc<str>>,
        less: Vec<Arc<str>>,
    ) -> Pending<'_, Result<(), EngineError>> {
        self.memory.watch(more, less)
    }
}

fn away() -> EngineError {
    EngineError("connection refused".to_owned())
}

impl Changing {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }

    fn reads(&self) -> usize {
        self.state.lock().reads
    }
}

fn running(change: impl FnOnce(&mut State)) -> (Limiter, Changing) {
    let engine = Changing {
        memory: memory(),
        state: Arc::default(),
    };
    engine.set(change);
    let config = Config::fixed(10.0, 1.0);
    let limiter = started(Arc::new(engine.clone()), config, Unavailable::Closed);
    (limiter, engine)
}

fn severities(limiter: &Limiter) -> Vec<Severity> {
    limiter.risks().iter().map(|risk| risk.severity).collect()
}

#[tokio::test(start_paused = true)]
async fn the_settings_are_read_at_the_start_and_each_minute() {
    let (limiter, engine) = running(|state| state.severity = Some(Severity::Critical));
    limiter.ping().await.expect("it answers");
    assert_eq!(severities(&limiter), [Severity::Critical]);
    assert_eq!(limiter.last_error(), None, "permits are granted");
    engine.set(|state| state.severity = None);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(severities(&limiter), []);
    engine.set(|state| state.severity = Some(Severity::Warning));
    sleep(Duration::from_secs(61)).await;
    assert_eq!(severities(&limiter), [Severity::Warning]);
    sleep(Duration::from_hours(1)).await;
    assert!((58..=64).contains(&engine.reads()), "{}", engine.reads());
}

#[tokio::test(start_paused = true)]
async fn the_settings_are_read_as_soon_as_another_server_may_answer() {
    type Change = fn(&mut State);
    let restarts: [(Change, Change); 2] = [
        (|state| state.is_away = true, |state| state.is_away = false),
        (|_| (), |state| state.run += 1),
    ];
    for (leave, come_back) in restarts {
        let (limiter, engine) = running(|_| ());
        limiter.ping().await.expect("it answers");
        assert_eq!(severities(&limiter), []);
        sleep(Duration::from_secs(5)).await;
        engine.set(leave);
        sleep(Duration::from_secs(3)).await;
        engine.set(|state| state.severity = Some(Severity::Critical));
        engine.set(come_back);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(severities(&limiter), [Severity::Critical]);
        assert!(engine.reads() < 40, "{}", engine.reads());
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_not_ready_until_its_settings_are_read() {
    let (limiter, engine) = running(|state| {
        state.hides_settings = true;
        state.severity = Some(Severity::Critical);
    });
    sleep(Duration::from_secs(5)).await;
    let why = limiter.last_error().expect("a reason");
    assert!(why.contains("settings have not been read"), "{why}");
    engine.set(|state| state.hides_settings = false);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(limiter.last_error(), None);
    assert_eq!(severities(&limiter), [Severity::Critical]);
    // The last known settings stay while the engine does not tell them.
    engine.set(|state| state.hides_settings = true);
    sleep(Duration::from_mins(3)).await;
    assert_eq!(severities(&limiter), [Severity::Critical]);
}
