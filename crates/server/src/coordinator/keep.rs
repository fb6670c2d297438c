//! State that survives a kill.
//!
//! | state | when it is kept |
//! | --- | --- |
//! | permits granted, reported, cancelled and expired; what was spent of declared limits | before the answer is sent |
//! | holds, breakers, quarantines, operators' settings | on disk before the answer is sent |
//! | learned rates | within a second |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::host::Host;
use politely::core::key::Key;
use politely_api::wire::{self, Answer};

use super::config_changes::Changes;
use super::names::Number;
use super::operate::NotSet;
use super::permits::Out;
use super::{Coordinator, Settings, StartError};
use super::{metadata, sessions};
use crate::store::{Granted, KeepError, Kept, Store};
use crate::watch::Worker;

/// The interval at which learned states are handed to the store.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// The time for the last writes into an engine's cells.
const WRITTEN: Duration = Duration::from_secs(2);

/// The time for the engine to confirm a change. After that, the answer says that the change may be
/// lost.
const CONFIRMED: Duration = Duration::from_secs(2);

/// The retry time of a caller whose permit could not be written to disk, in milliseconds.
const DISK_AGAIN_MS: u64 = 1_000;

/// Returns the answer for an item whose permit cannot be written to disk.
pub(crate) fn wait_for_disk(item: u32, reason: &str) -> Answer {
    Answer::Wait {
        item,
        retry_in_ms: DISK_AGAIN_MS,
        reason: reason.to_owned(),
        position: 0,
    }
}

/// When a call's permits are written to the journal.
#[derive(Clone, Copy)]
pub(super) enum JournalWrite {
    /// At once.
    AtOnce,
    /// Together with those of other calls that are ready.
    WithOthers,
}

/// The work that remains after the reports of a call were applied and before they are answered.
#[derive(Default)]
pub(crate) struct Aftermath {
    /// Permits that have ended.
    pub(crate) gone: Vec<u64>,
    /// Keys whose hold, breaker or quarantine must survive a kill.
    pub(crate) held: Vec<Key>,
    /// Keys whose reports corrected what was spent, and the departures of these requests.
    pub(crate) settled: Vec<(Key, Timestamp)>,
    /// For each key in `held`, the index of the report that changed it.
    pub(crate) held_by: Vec<usize>,
}

/// The result of an [`Aftermath`].
pub(crate) struct Seen {
    /// Permits that have ended. They are recorded together with the permits that the same call
    /// grants.
    pub(crate) gone: Vec<u64>,
    /// Indexes of reports whose hold may be lost if the coordinator stops.
    pub(crate) not_durable: Vec<usize>,
}

/// A slot that was just granted.
pub(super) struct Leaving {
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) start: Timestamp,
    pub(super) lease: Duration,
    pub(super) wish: u64,
}

impl Coordinator {
    /// Creates a coordinator that continues from the state of an earlier run, even if that run was
    /// killed.
    ///
    /// Learned rates and holds remain in force. Permits of the earlier run can be reported. No
    /// request starts earlier than the earlier run would have allowed.
    ///
    /// # Errors
    /// A setting is invalid, or the store cannot be read.
    pub fn resume(settings: Settings, store: Store, mut kept: Kept) -> Result<Self, StartError> {
        let limiter = super::limiter(&settings).build()?;
        let coordinator = Self::with(settings, kept.boot, limiter, Some(store));
        if let Some(json) = &kept.config {
            coordinator.apply_kept(json)?;
        }
        coordinator.set_back(&mut kept)?;
        coordinator.restore_keys(&kept)?;
        coordinator.readmit(kept);
        Ok(coordinator)
    }

    /// Applies the configuration of an earlier run.
    pub(super) fn apply_kept(&self, json: &[u8]) -> Result<(), StartError> {
        let changes = serde_json::from_slice(json).map_err(|_| StartError::KeptConfig)?;
        let version = self.operated_now().1 + 1;
        let applied = self.replace_config(&changes, version);
        applied.map_err(|_| StartError::KeptConfig)
    }

    /// Corrects start times of permits if the clock was set back while no coordinator ran.
    ///
    /// The step of the clock is measured by the times of the keys' states. Each state corrects its
    /// own times when it is restored.
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
        let read = store.for_each_key(|_, state| {
            let written = Host::written_at(state).unwrap_or(Timestamp::ZERO);
            back = back.max(written.since(self.now()));
        });
        read.map_err(StartError::Store)?;
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
        let limiter = &self.0.limiter;
        let newest = |name: &str| {
            let micros = kept.newest.get(name).copied();
            micros.map_or(Timestamp::ZERO, Timestamp::from_micros)
        };
        let resumed = |key: &Key, state: Option<&[u8]>| {
            let spent = kept.spent.get(key.as_str());
            let known = politely::Kept {
                state,
                spent: spent.map(Vec::as_slice),
                newest: newest(key.as_str()),
            };
            limiter.resume(key, &known).ok()
        };
        let mut lost = 0_u64;
        let read = store.for_each_key(|name, state| {
            // The rows of sessions come before those of keys.
            if name.starts_with(sessions::ROW) {
                if let Some((id, owner)) = sessions::of_row(name, state) {
                    self.resume_session(id, owner);
                }
                return;
            }
            if name.starts_with(metadata::ROW) {
                return self.resume_metadata(name, state);
            }
            let resumed = Key::parse(name).ok().and_then(|key| {
                let resumed = resumed(&key, Some(state));
                self.resume_claims(&key);
                resumed
            });
            lost += u64::from(resumed.is_none());
        });
        read.map_err(StartError::Store)?;
        for name in kept.newest.keys() {
            if let Ok(key) = Key::parse(name)
                && limiter.explain(&key).is_none()
            {
                lost += u64::from(resumed(&key, None).is_none());
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
                let arrival = self.0.limiter.arrival();
                self.0.wishes.restore(granted.wish, arrival, now, number);
            }
            let out = Out {
                permit: Some(permit),
                heard: None,
                expired: false,
                key,
                others: Box::default(),
                worker,
                wish: granted.wish,
                start,
                until: start + lease,
                interval: Duration::ZERO,
                slots: 1,
                resource: None,
                ruled: None,
                session: None,
            };
            self.0.permits.put(number, out);
        }
    }

    /// Returns the store that records permits. It is `None` if an engine keeps them in its cells.
    pub(super) fn journal(&self) -> Option<&Store> {
        let store = self.0.store.as_ref();
        store.filter(|_| !self.0.limiter.is_shared())
    }

    /// Records granted and ended permits before they are answered. Returns `false` if that failed,
    /// and the granted permits must be taken back.
    pub(super) async fn keep_granted(
        &self,
        worker: &Worker,
        leaving: &[Leaving],
        others: &[(Key, Timestamp)],
        gone: &[u64],
        write: JournalWrite,
    ) -> bool {
        let Some(store) = self.journal() else {
            return true;
        };
        if leaving.is_empty() {
            self.keep_gone(gone);
            return true;
        }
        let first = leaving.iter().map(|leaving| (&leaving.key, leaving.start));
        let others = others.iter().map(|(key, start)| (key, *start));
        self.enter_departed(store, first, others);
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
        match write {
            JournalWrite::AtOnce => store.granted(&granted, gone),
            JournalWrite::WithOthers => store.granted_with_others(&granted, gone).await,
        }
    }

    /// Enters the departures that the records of the permits do not hold: what the `first` keys
    /// spent of their declared limits, and the departures of the `others`. Returns whether there
    /// are any.
    fn enter_departed<'a>(
        &self,
        store: &Store,
        first: impl Iterator<Item = (&'a Key, Timestamp)>,
        others: impl Iterator<Item = (&'a Key, Timestamp)>,
    ) -> bool {
        let mut latest: BTreeMap<&Key, (Timestamp, bool)> = BTreeMap::new();
        let first = first.map(|(key, start)| (key, start, false));
        for (key, start, is_other) in first.chain(others.map(|(key, start)| (key, start, true))) {
            let known = latest.entry(key).or_insert((start, is_other));
            *known = (known.0.max(start), known.1 || is_other);
        }
        let departed = latest.into_iter().filter_map(|(key, (start, is_other))| {
            let spent = self.0.limiter.spent(key);
            (is_other || spent.is_some()).then_some((key.as_str(), start, spent))
        });
        let departed: Vec<_> = departed.collect();
        let is_any = !departed.is_empty();
        store.enter_departed(departed);
        is_any
    }

    /// Lets repeated calls get the permits of `leaving`, which are in the journal now. A permit
    /// that was cancelled meanwhile ends in the journal too.
    pub(super) fn release_written(&self, leaving: &[Leaving]) {
        let cancelled = |slot: &&Leaving| {
            slot.wish != 0 && !self.0.wishes.written(slot.wish, Number(slot.number))
        };
        let gone: Vec<_> = leaving
            .iter()
            .filter(cancelled)
            .map(|slot| slot.number)
            .collect();
        self.keep_gone(&gone);
    }

    /// Takes back permits that could not be recorded, and tells the caller to retry.
    pub(super) fn revoke_unwritten(
        &self,
        worker: &Worker,
        leaving: &[Leaving],
        answers: &mut [Option<Answer>],
    ) {
        for leaving in leaving {
            if leaving.wish != 0 {
                self.0.wishes.forget(leaving.wish);
            }
            if self
                .0
                .permits
                .take(Number(leaving.number), worker)
                .is_some()
            {
                worker.cancelled();
            }
        }
        // After a failed fsync the journal holds the permits.
        let gone: Vec<_> = leaving.iter().map(|leaving| leaving.number).collect();
        self.keep_gone(&gone);
        let reason = self.no_permits();
        let reason = reason.unwrap_or_else(|| "the permit could not be written to disk".to_owned());
        for answer in answers.iter_mut().flatten() {
            if let Answer::Granted(grant) = answer {
                *answer = wait_for_disk(grant.item, &reason);
            }
        }
    }

    /// Keeps the changes of reports before the reports are answered. Returns the indexes of reports
    /// whose changes may be lost.
    pub(crate) async fn see_to(&self, aftermath: Aftermath) -> Vec<usize> {
        let seen = self.see_to_held(aftermath).await;
        self.keep_gone(&seen.gone);
        seen.not_durable
    }

    /// Keeps the holds that reports caused. The permits that ended are returned, because they are
    /// recorded together with the permits that the same call grants.
    pub(crate) async fn see_to_held(&self, aftermath: Aftermath) -> Seen {
        let Aftermath {
            gone,
            held,
            settled,
            held_by,
        } = aftermath;
        if let Some(store) = self.journal().filter(|_| !settled.is_empty()) {
            let settled = settled.iter().map(|(key, start)| (key, *start));
            if self.enter_departed(store, settled, std::iter::empty()) {
                // A failure is counted. The permits' estimates are recorded in any case.
                let _ = store.write();
            }
        }
        let mut not_durable = Vec::new();
        if !held.is_empty() {
            let (confirmed, kept) = tokio::join!(self.confirm(&held), self.keep_now(&held));
            if let Err(why) = &kept {
                tracing::error!("a hold is not on disk yet: {why}");
            }
            let by = held_by.into_iter().zip(confirmed);
            let lost = by.filter(|(_, confirmed)| !confirmed || kept.is_err());
            not_durable.extend(lost.map(|(by, _)| by));
        }
        Seen { gone, not_durable }
    }

    /// Waits until the engine has confirmed the changes of `keys`. An element is `false` if the
    /// engine did not confirm in time. Without an engine, all are confirmed at once.
    async fn confirm(&self, keys: &[Key]) -> Vec<bool> {
        let limiter = &self.0.limiter;
        let confirmed = keys.iter().map(|key| limiter.confirm(key, CONFIRMED));
        futures_util::future::join_all(confirmed).await
    }

    /// Writes the states of `keys` to disk, if there is a store. Returns when they are on disk.
    pub(super) async fn keep_now(&self, keys: &[Key]) -> Result<(), KeepError> {
        let Some(store) = &self.0.store else {
            return Ok(());
        };
        let states = keys.iter().filter_map(|key| {
            let state = self.0.limiter.snapshot(key)?;
            Some((key.as_str().to_owned(), state))
        });
        store.keep_now(states.collect()).await
    }

    /// Waits until an operator's change of `key` is confirmed by the engine and on disk.
    pub(super) async fn keep_operated(&self, key: &Key) -> Result<(), NotSet> {
        self.keep_all_operated(std::slice::from_ref(key)).await
    }

    /// Waits until an operator's changes of `keys` are confirmed by the engine and on disk.
    pub(super) async fn keep_all_operated(&self, keys: &[Key]) -> Result<(), NotSet> {
        let (confirmed, kept) = tokio::join!(self.confirm(keys), self.keep_now(keys));
        if confirmed.contains(&false) {
            let why = "the engine has not confirmed the change";
            let away = self.0.limiter.last_error();
            let why = away.map_or_else(|| why.to_owned(), |away| format!("{why}: {away}"));
            return Err(NotSet::Unkept(why));
        }
        kept.map_err(|why| NotSet::Unkept(why.to_string()))
    }

    /// Keeps the operators' changes of the configuration. Of two calls, the higher `version` wins.
    pub(super) async fn keep_config(&self, changes: &Changes, version: u64) -> Result<(), NotSet> {
        let Some(store) = &self.0.store else {
            return Ok(());
        };
        let json = serde_json::to_vec(changes).unwrap_or_default();
        let kept = store.keep_config(json, version).await;
        kept.map_err(|why| NotSet::Unkept(why.to_string()))
    }

    /// Keeps the shared configuration in the state folder too, in case the engine loses everything.
    pub(super) async fn keep_config_too(&self) {
        let (changes, version) = self.operated_now();
        if let Err(NotSet::Unkept(why)) = self.keep_config(&changes, version).await {
            tracing::error!(
                "the configuration is in the engine, but not in the state folder: {why}"
            );
        }
    }

    /// Hands learned states to the store, repeatedly.
    pub(super) async fn keep_learned(self) {
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            let coordinator = self.clone();
            // A million states take long, so this runs outside the async threads.
            let handed = tokio::task::spawn_blocking(move || coordinator.hand_over()).await;
            if handed.is_err_and(|why| why.is_panic()) {
                return;
            }
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

    /// Keeps the whole state and closes the store. No other call may follow. Returns whether
    /// everything was kept.
    pub async fn save(&self) -> bool {
        if self.0.limiter.is_shared() {
            // Their holders may report them to the other coordinators.
            self.0.permits.abandon();
            self.0.limiter.flush(WRITTEN).await;
        }
        let coordinator = self.clone();
        let saved = tokio::task::spawn_blocking(move || {
            coordinator.hand_over();
            coordinator.0.usage.save(coordinator.now());
            let store = coordinator.0.store.as_ref();
            let is_kept = store.is_none_or(|store| {
                store.close();
                !store.is_failing()
            });
            is_kept && !coordinator.has_lost_a_task()
        });
        saved.await.unwrap_or(false)
    }

    /// Records that permits have ended.
    pub(super) fn keep_gone(&self, gone: &[u64]) {
        if let Some(store) = self.journal()
            && !gone.is_empty()
        {
            store.gone(gone);
        }
    }

    /// Records the later ends of renewed leases.
    pub(super) fn keep_renewed(&self, renewed: &[(u64, u32)]) {
        if let Some(store) = self.journal()
            && !renewed.is_empty()
        {
            store.renewed(renewed);
        }
    }

    /// Returns the worker with this name.
    pub(crate) fn worker(&self, name: &str) -> Arc<Worker> {
        self.0.watch.workers.named(name, self.now())
    }
}
