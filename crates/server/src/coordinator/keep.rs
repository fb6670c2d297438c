//! What survives a kill: handed to the store before it is told, or within a second.
//!
//! | what | when it is kept |
//! | --- | --- |
//! | permits granted, and those that came back | before the answer leaves |
//! | holds, breakers, quarantines, what operators set | on disk before the answer leaves |
//! | learned rates | within a second |

use std::sync::Arc;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::host::Host;
use politely::core::key::Key;
use politely::wire::{self, ConfigPatch};

use super::names::Number;
use super::permits::Out;
use super::report::error;
use super::{Coordinator, Settings, StartError};
use crate::store::{Granted, Kept, Store};
use crate::watch::Worker;

/// How often what was learned is handed to the store.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// What is still to be written into an engine's cells has so long.
const WRITTEN: Duration = Duration::from_secs(2);

/// What a call of reports leaves to be done before it is answered.
#[derive(Default)]
pub(crate) struct Aftermath {
    /// Permits that are out no more.
    pub(crate) gone: Vec<u64>,
    /// Keys whose hold, breaker or quarantine must survive a kill.
    pub(crate) held: Vec<Key>,
}

/// A departure just granted.
pub(super) struct Leaving {
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) start: Timestamp,
    pub(super) lease: Duration,
    pub(super) wish: u64,
}

impl Coordinator {
    /// A coordinator that goes on where the one before it, killed or not, left off: what it learned and held stands, its
    /// permits may be reported, and nothing leaves earlier than it could have.
    ///
    /// # Errors
    /// A number that makes no sense, or a store that cannot be read.
    pub fn resume(settings: Settings, store: Store, mut kept: Kept) -> Result<Self, StartError> {
        let patch = match &kept.config {
            None => ConfigPatch::default(),
            Some(json) => serde_json::from_slice(json).map_err(|_| StartError::KeptConfig)?,
        };
        let limiter = super::limiter(&settings).build()?;
        let coordinator = Self::with(settings, kept.boot, limiter, Some(store));
        coordinator
            .apply(&patch)
            .map_err(|_| StartError::KeptConfig)?;
        coordinator.set_back(&mut kept)?;
        coordinator.restore_keys(&kept)?;
        coordinator.readmit(kept);
        Ok(coordinator)
    }

    /// Should the clock have been set back while nobody ran, permits start as long ago as they do. By how much it was, the keys'
    /// states tell; each brings its own times within reach by itself.
    fn set_back(&self, kept: &mut Kept) -> Result<(), StartError> {
        let Some(store) = &self.0.store else {
            return Ok(());
        };
        let latest = self.now() + Duration::from_millis(u64::from(wire::AHEAD_MAX_MS));
        if kept
            .newest
            .values()
            .all(|&micros| Timestamp::from_micros(micros) <= latest)
        {
            return Ok(());
        }
        let mut back = Duration::ZERO;
        store.for_each_key(|_, state| {
            let written = Host::written_at(state).unwrap_or(Timestamp::ZERO);
            back = back.max(written.since(self.now()));
        })?;
        let live = kept.live.iter_mut().map(|granted| &mut granted.start_us);
        for micros in live.chain(kept.newest.values_mut()) {
            let start = Timestamp::from_micros(*micros);
            if start > latest {
                *micros = (start - back).as_micros();
            }
        }
        Ok(())
    }

    fn restore_keys(&self, kept: &Kept) -> Result<(), StartError> {
        let Some(store) = &self.0.store else {
            return Ok(());
        };
        let now = self.now();
        let newest = |name: &str| {
            let micros = kept.newest.get(name).copied();
            now.max(micros.map_or(now, Timestamp::from_micros))
        };
        let mut lost = 0_u64;
        let limiter = &self.0.limiter;
        store.for_each_key(|name, state| {
            let resumed = Key::parse(name)
                .ok()
                .and_then(|key| limiter.resume(&key, Some(state), newest(name)).ok());
            lost += u64::from(resumed.is_none());
        })?;
        for name in kept.newest.keys() {
            if let Ok(key) = Key::parse(name)
                && limiter.explain(&key).is_none()
            {
                lost += u64::from(limiter.resume(&key, None, newest(name)).is_err());
            }
        }
        if lost > 0 {
            tracing::warn!(keys = lost, "states that could not be read begin anew");
        }
        Ok(())
    }

    fn readmit(&self, kept: Kept) {
        let now = self.now();
        for granted in kept.live {
            let Ok(key) = Key::parse(&granted.key) else {
                continue;
            };
            let start = Timestamp::from_micros(granted.start_us);
            let lease = Duration::from_millis(u64::from(granted.lease_ms));
            if start + lease <= now {
                continue;
            }
            let Ok(permit) = self.0.limiter.readmit(&key, start, lease) else {
                continue;
            };
            let worker = self.0.watch.workers.named(&granted.client, now);
            worker.granted(1);
            let number = Number(granted.permit);
            if granted.wish != 0 {
                let turn = self.0.limiter.turn();
                self.0.wishes.restore(granted.wish, turn, now, number);
            }
            let out = Out {
                permit: Some(permit),
                heard: None,
                expired: false,
                key,
                worker,
                wish: granted.wish,
                start,
                until: start + lease,
                interval: Duration::ZERO,
                slots: 1,
            };
            self.0.permits.put(number, out);
        }
    }

    /// Where permits are written down: an engine's are in its cells.
    fn journal(&self) -> Option<&Store> {
        let store = self.0.store.as_ref();
        store.filter(|_| !self.0.limiter.is_shared())
    }

    /// Writes down what is about to be told.
    pub(super) fn keep_granted(&self, worker: &Worker, leaving: &[Leaving], gone: &[u64]) {
        let Some(store) = self.journal() else { return };
        if leaving.is_empty() {
            return self.keep_gone(gone);
        }
        let granted: Vec<_> = leaving
            .iter()
            .map(|leaving| Granted {
                permit: leaving.number,
                key: leaving.key.as_str().into(),
                start_us: leaving.start.as_micros(),
                lease_ms: leaving.lease.as_millis() as u32,
                wish: leaving.wish,
                client: worker.name().into(),
            })
            .collect();
        store.granted(&granted, gone);
    }

    /// Writes down what reports have changed, before they are answered.
    pub(crate) async fn see_to(&self, aftermath: Aftermath) {
        let gone = self.see_to_held(aftermath).await;
        self.keep_gone(&gone);
    }

    /// … but for the permits that are out no more: they are written with those granted by the same call.
    pub(crate) async fn see_to_held(&self, aftermath: Aftermath) -> Vec<u64> {
        let Aftermath { gone, held } = aftermath;
        if let Some(store) = &self.0.store
            && !held.is_empty()
        {
            self.keep_now(store, &held).await;
        }
        gone
    }

    /// The state of `keys` is on disk when this returns, or the disk is full: then it is tried again with what is
    /// learned, and the fleet goes on.
    async fn keep_now(&self, store: &Store, keys: &[Key]) {
        let states = keys.iter().filter_map(|key| {
            let state = self.0.limiter.snapshot(key)?;
            Some((key.as_str().to_owned(), state))
        });
        if let Err(why) = store.keep_now(states.collect()).await {
            tracing::error!(%why, "a hold is not on disk yet");
        }
    }

    /// [`Coordinator::keep_now`] for what an operator set.
    pub(super) async fn keep_operated(&self, key: &Key) {
        if let Some(store) = &self.0.store {
            self.keep_now(store, std::slice::from_ref(key)).await;
        }
    }

    /// Keeps what operators changed of the configuration.
    pub(super) async fn keep_config(&self, patch: &ConfigPatch) -> Result<(), wire::Error> {
        let Some(store) = &self.0.store else {
            return Ok(());
        };
        let json = serde_json::to_vec(patch).unwrap_or_default();
        let kept = store.keep_config(json).await;
        kept.map_err(|why| {
            error(
                "crawling",
                &format!("holds, but not beyond a restart: {why}"),
            )
        })
    }

    /// Hands what was learned to the store, until the coordinator is closed.
    pub(super) async fn keep_learned(&self) {
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            let coordinator = self.clone();
            // A million states take their time; calls must not wait for it.
            let _ = tokio::task::spawn_blocking(move || coordinator.hand_over()).await;
        }
    }

    fn hand_over(&self) {
        if let Some(store) = &self.0.store {
            let learned = self.0.limiter.take_learned();
            store.learned(
                learned
                    .into_iter()
                    .map(|(key, state)| (key.as_str().to_owned(), state)),
            );
        }
    }

    /// Keeps all there is to keep. Call it last.
    pub async fn save(&self) -> bool {
        if self.0.limiter.is_shared() {
            // Those that are out may be brought to the other coordinators.
            self.0.permits.abandon();
            self.0.limiter.settled(WRITTEN).await;
        }
        let coordinator = self.clone();
        let saved = tokio::task::spawn_blocking(move || {
            coordinator.hand_over();
            let store = coordinator.0.store.as_ref();
            store.is_none_or(|store| {
                store.close();
                !store.is_failing()
            })
        });
        saved.await.unwrap_or(false)
    }

    /// A permit came back or ran out.
    pub(super) fn keep_gone(&self, gone: &[u64]) {
        if let Some(store) = self.journal()
            && !gone.is_empty()
        {
            store.gone(gone);
        }
    }

    /// Leases that now end later.
    pub(super) fn keep_renewed(&self, renewed: &[(u64, u32)]) {
        if let Some(store) = self.journal()
            && !renewed.is_empty()
        {
            store.renewed(renewed);
        }
    }

    /// Who is named so.
    pub(crate) fn worker(&self, name: &str) -> Arc<Worker> {
        self.0.watch.workers.named(name, self.now())
    }
}
