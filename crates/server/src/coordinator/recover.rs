//! Continues from the state of an earlier run, even if that run was killed.

use std::time::Duration;

use politely::core::Timestamp;
use politely::core::host::{Host, LATE};
use politely::core::key::Key;
use politely::{Earlier, Recovery, SetError};
use politely_api::wire;

use super::names::Number;
use super::permits::Out;
use super::{Coordinator, Settings, StartError, metadata, sessions};
use crate::store::{Kept, Store};

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
        let limiter = super::limiter(&settings).saved_states(store.saved_states());
        let limiter = limiter.build()?;
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
            if kept.newest.contains_key(name) || kept.spent.contains_key(name) {
                return;
            }
            let key = Key::parse(name).ok();
            let resumed = key.map(|key| {
                let resumed = limiter.resume(&key, &recovery(kept, name, Some(state)));
                self.resume_claims(&key);
                resumed
            });
            // A key without room is read again when it is asked for.
            let is_there = matches!(resumed, Some(Ok(()) | Err(SetError::Full(_))));
            lost += u64::from(!is_there);
        });
        read.map_err(StartError::Store)?;
        let only_spent = |name: &&String| !kept.newest.contains_key(*name);
        let names = kept.newest.keys();
        for name in names.chain(kept.spent.keys().filter(only_spent)) {
            let Ok(key) = Key::parse(name) else { continue };
            let state = store.state_of(name).map_err(StartError::Store)?;
            let recovery = recovery(kept, name, state.as_deref());
            let resumed = self.with_room(|| limiter.resume(&key, &recovery));
            self.resume_claims(&key);
            lost += u64::from(resumed.is_err());
        }
        if lost > 0 {
            tracing::warn!(keys = lost, "states that could not be read begin anew");
        }
        Ok(())
    }

    /// Calls `restore`, and once more if saved keys had to make room.
    pub(super) fn with_room<T>(
        &self,
        restore: impl Fn() -> Result<T, SetError>,
    ) -> Result<T, SetError> {
        let saves = |store: &Store| store.save_all(self.learned());
        match restore() {
            Err(SetError::Full(_)) if self.0.store.as_ref().is_some_and(saves) => restore(),
            done => done,
        }
    }

    fn readmit(&self, kept: Kept) {
        let now = self.now();
        for granted in kept.live {
            let Ok(key) = Key::parse(&granted.key) else {
                continue;
            };
            let start = Timestamp::from_micros(granted.start_us);
            let lease = Duration::from_millis(u64::from(granted.lease_ms));
            if start + lease.max(LATE) <= now {
                continue;
            }
            let is_ended = start + lease <= now;
            let others: Result<Vec<Key>, _> =
                granted.others.iter().map(|key| Key::parse(key)).collect();
            let keys = [vec![key], others.unwrap_or_default()].concat();
            let earlier = Earlier {
                keys: &keys,
                start,
                lease,
                estimate: &granted.units,
            };
            let readmitted = self.with_room(|| self.0.limiter.readmit(&earlier));
            let Ok(permit) = readmitted else {
                continue;
            };
            let worker = self.0.watch.workers.named(&granted.client, now);
            worker.granted(1);
            let number = Number(granted.permit);
            if granted.wish != 0 && !is_ended {
                let arrival = self.0.limiter.arrival();
                self.0.wishes.restore(granted.wish, arrival, now, number);
            }
            let out = Out {
                wish: if is_ended { 0 } else { granted.wish },
                // A late report has its time from now on.
                until: (start + lease).max(now),
                ..Out::new(permit, &keys, worker, start, lease)
            };
            self.0.permits.put(number, out);
        }
        // The leases that ended while no coordinator ran have expired.
        self.sweep(now);
    }
}

/// Returns what is known of the key `name`, whose state on disk is `state`.
fn recovery<'a>(kept: &'a Kept, name: &str, state: Option<&'a [u8]>) -> Recovery<'a> {
    Recovery {
        state,
        spent: kept.spent.get(name).map(Vec::as_slice),
        newest: Timestamp::from_micros(kept.newest.get(name).copied().unwrap_or(0)),
    }
}
