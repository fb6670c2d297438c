//! State that survives a kill.
//!
//! | state | when it is kept |
//! | --- | --- |
//! | permits granted, reported, cancelled and expired | before the answer is sent |
//! | the quantities that are spent of declared limits | before the answer is sent |
//! | holds, breakers, quarantines, operators' settings | on disk before the answer is sent |
//! | learned rates | within a second |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::key::Key;
use politely::{Limiter, Snapshot, UnitCosts};
use politely_api::wire::Answer;

use super::Coordinator;
use super::config_changes::Changes;
use super::names::Number;
use super::operate::NotSet;
use crate::store::{Granted, KeepError, Store};
use crate::watch::Worker;

/// The interval at which learned states are handed to the store.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// The shortest time between two saves that make room for new keys. Without it, each unknown key
/// would cost a write while no key can leave.
const ROOM_EVERY: Duration = Duration::from_millis(50);

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
    /// Keys of which less or more is spent of declared limits than was granted.
    pub(crate) settled: Vec<Key>,
    /// Permits whose bodies are coming, with what they used so far.
    pub(crate) corrected: Vec<(u64, UnitCosts)>,
    /// For each key in `held`, the index of the report that changed it.
    pub(crate) held_by: Vec<usize>,
    /// Keys of which a report spent more than was granted, while the engine does not hold it yet.
    owed: Vec<Key>,
    /// For each key in `owed`, the index of the report that spent it.
    owed_by: Vec<usize>,
}

impl Aftermath {
    /// Notes the keys of a report that corrected what is spent.
    pub(super) fn settle(&mut self, keys: impl Iterator<Item = Key>, limiter: &Limiter) {
        if limiter.is_shared() {
            self.owed.extend(keys.filter(|key| limiter.owes(key)));
        } else {
            self.settled.extend(keys);
        }
    }

    /// Ends the notes of the report with index `at`.
    pub(crate) fn reported(&mut self, at: usize) {
        self.held_by.resize(self.held.len(), at);
        self.owed_by.resize(self.owed.len(), at);
    }

    /// Notes what a permit used so far. Its body is coming.
    pub(super) fn correct(&mut self, number: Number, used: &UnitCosts) {
        if !used.is_empty() {
            self.corrected.push((number.0, used.clone()));
        }
    }
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
    /// The further keys of its request.
    pub(super) others: Box<[Key]>,
    /// The estimated costs of its request in named units.
    pub(super) units: UnitCosts,
}

impl Coordinator {
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
        self.enter_departed(store, leaving.iter().map(|leaving| &leaving.key), others);
        let granted: Vec<_> = leaving
            .iter()
            .map(|leaving| Granted {
                permit: leaving.number,
                key: leaving.key.as_str().into(),
                start_us: leaving.start.as_micros(),
                lease_ms: leaving.lease.as_millis() as u32,
                wish: leaving.wish,
                client: worker.name().into(),
                others: leaving
                    .others
                    .iter()
                    .map(|key| key.as_str().into())
                    .collect(),
                units: leaving.units.clone(),
            })
            .collect();
        match write {
            JournalWrite::AtOnce => store.granted(&granted, gone),
            JournalWrite::WithOthers => store.granted_with_others(&granted, gone).await,
        }
    }

    /// Enters what the records of permits do not hold: the departures of the `others`, and what all
    /// keys spent of their declared limits. Returns whether there is anything.
    fn enter_departed<'a>(
        &self,
        store: &Store,
        keys: impl Iterator<Item = &'a Key>,
        others: &'a [(Key, Timestamp)],
    ) -> bool {
        let mut departures: BTreeMap<&Key, Option<Timestamp>> =
            keys.map(|key| (key, None)).collect();
        for (key, start) in others {
            let latest = departures.entry(key).or_default();
            *latest = Some(*start).max(*latest);
        }
        let departed = departures.into_iter().filter_map(|(key, start)| {
            let spent = self.0.limiter.spent(key);
            let is_news = start.is_some() || spent.is_some();
            is_news.then(|| (key.as_str(), start.unwrap_or_default(), spent))
        });
        let departed: Vec<_> = departed.collect();
        if departed.is_empty() {
            return false;
        }
        store.enter_departed(departed);
        true
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
            corrected,
            held_by,
            owed,
            owed_by,
        } = aftermath;
        if let Some(store) = self.journal()
            && self.enter_departed(store, settled.iter(), &[])
        {
            store.corrected(&corrected);
        }
        let mut not_durable = Vec::new();
        if !held.is_empty() || !owed.is_empty() {
            let (confirmed, kept, paid) = tokio::join!(
                self.confirm(&held),
                self.keep_now(&held),
                self.confirm(&owed)
            );
            if let Err(why) = &kept {
                tracing::error!("a hold is not on disk yet: {why}");
            }
            let by = held_by.into_iter().zip(confirmed);
            let lost = by.filter(|(_, confirmed)| !confirmed || kept.is_err());
            not_durable.extend(lost.map(|(by, _)| by));
            let unpaid = owed_by.into_iter().zip(paid).filter(|(_, paid)| !paid);
            not_durable.extend(unpaid.map(|(by, _)| by));
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
            store.learned(self.learned());
        }
    }

    /// Returns the states that changed since the last call, for the store.
    pub(super) fn learned(&self) -> Vec<(String, Snapshot)> {
        let learned = self.0.limiter.take_learned().into_iter();
        learned
            .map(|(key, state)| (key.as_str().to_owned(), state))
            .collect()
    }

    /// Saves all states, so that idle keys can make room. `seen` is the number of such saves before
    /// the caller found no room. Returns `false` if there is no disk, or it refused.
    pub(super) async fn save_for_room(&self, seen: u64) -> bool {
        if self.journal().is_none() {
            return false;
        }
        let one = Arc::clone(&self.0.room).lock_owned().await;
        if self.saves_for_room() > seen {
            return true;
        }
        let coordinator = self.clone();
        let saved = tokio::task::spawn_blocking(move || {
            let store = coordinator.journal()?;
            Some(store.keep_all_now(coordinator.learned()))
        });
        let is_saved = match saved.await {
            Ok(Some(saved)) => saved.await.is_ok(),
            _ => false,
        };
        // The registry looks for room again, because more keys may leave.
        self.hand_over();
        self.0.saves_for_room.fetch_add(1, Ordering::Release);
        tokio::spawn(async move {
            tokio::time::sleep(ROOM_EVERY).await;
            drop(one);
        });
        is_saved
    }

    /// Returns the number of saves that made room.
    pub(super) fn saves_for_room(&self) -> u64 {
        self.0.saves_for_room.load(Ordering::Acquire)
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
            coordinator.0.usage.save_last(coordinator.now());
            let store = coordinator.0.store.as_ref();
            let is_kept = store.is_none_or(|store| {
                store.close();
                !store.is_failing()
            });
            is_kept && !coordinator.has_lost_a_task()
        });
        saved.await.unwrap_or(false)
    }

    /// Records that permits have ended, together with what they gave back.
    pub(super) fn keep_ended(&self, ended: &Aftermath) {
        if let Some(store) = self.journal() {
            self.enter_departed(store, ended.settled.iter(), &[]);
        }
        self.keep_gone(&ended.gone);
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
