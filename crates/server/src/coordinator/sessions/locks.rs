//! Locks of sessions: claim, wait, release.

use std::hash::BuildHasher;
use std::time::Duration;

use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::lock::SessionId;
use politely::{Claimed, LockRequest};
use politely_api::wire::{
    self, ClaimLock, EventKind, HOLDERS_MAX, KeyLocks, LockAnswer, LockHolder, LockMode,
    LockReleased, ReleaseLock, SESSION_LOCKS_MAX,
};

use tokio::sync::watch;

use super::SessionError;
use crate::coordinator::Coordinator;
use crate::coordinator::operate::NotSet;
use crate::coordinator::report::{error, ms_up};
use crate::watch::SEPARATOR;

/// The time after which a waiting call should be repeated, in milliseconds.
const AGAIN_MS: u64 = 100;
/// The time for the log of the fleet to confirm the event of a lock.
const LOGGED: Duration = Duration::from_secs(2);

impl Coordinator {
    /// Claims a key for a session, and waits for it.
    pub(crate) async fn lock(
        &self,
        call: &ClaimLock,
        worker_of: impl Fn(&str) -> bool,
    ) -> Result<LockAnswer, SessionError> {
        let key = sound(call)?;
        self.refuse_if_in_trouble()?;
        let id = self.live_session(&call.session, worker_of).await?;
        self.touch_session(id).await?;
        let (_, worker) = self.note_claim(id, &key)?;
        let owned = self.0.owners.take(
            &worker,
            std::slice::from_ref(&key),
            &self.0.limiter,
            self.now(),
        );
        if let Err(too_many) = owned {
            let most = too_many.most;
            let detail = format!("{key} would be a new key, and one client may have {most}");
            return Err(SessionError::Capped(detail));
        }
        if self.0.session_cells.get().is_some() {
            self.save_session(id).await?;
        }
        let (ends, _) = self.note_claim(id, &key)?;
        let request = LockRequest {
            session: id,
            id: call.id.as_deref().map_or(0, call_id),
            max: call.max,
            lasts: ends.since(self.0.limiter.lock_time()),
        };
        let held = self.0.limiter.locks(&key);
        let was_held = held.is_some_and(|view| view.fencing(id).is_some());
        let wait = Duration::from_millis(u64::from(call.wait_ms.min(wire::WAIT_MAX_MS)));
        let claimed = match self.claim(id, &key, request, wait).await {
            Ok(claimed) => claimed,
            Err(why) => {
                if request.id == 0 {
                    self.forget_claim(id, &key);
                }
                return Err(why);
            }
        };
        match claimed {
            Claimed::Held { fencing } => {
                // A call that renewed the session meanwhile may have missed this claim.
                let (renewed, _) = self.note_claim(id, &key)?;
                if renewed > ends {
                    let lasts = renewed.since(self.0.limiter.lock_time());
                    self.0.limiter.renew_lock(&key, id, lasts).await?;
                }
                let text = format!("held by {}, fencing number {fencing}", client(&worker));
                // The answer to an earlier call may be lost, and its event with a coordinator.
                if !was_held || !self.0.watch.has_announced(EventKind::Lock, &key, &text) {
                    self.0.watch.announce(EventKind::Lock, Some(&key), &text);
                }
                self.keep_locks(std::slice::from_ref(&key)).await?;
                let left = self.session_left(id);
                let ended = || SessionError::Ended(call.session.clone());
                Ok(LockAnswer::Held {
                    key: key.to_string(),
                    fencing,
                    ttl_ms: ms_up(left.ok_or_else(ended)?),
                })
            }
            Claimed::Waiting { position } => {
                if request.id == 0 {
                    self.forget_claim(id, &key);
                }
                Ok(LockAnswer::Wait {
                    key: key.to_string(),
                    position: u32::try_from(position).unwrap_or(u32::MAX),
                    retry_in_ms: AGAIN_MS,
                })
            }
            Claimed::Twice { fencing } => Err(SessionError::Twice(key, fencing)),
            Claimed::QueueFull => {
                self.forget_claim(id, &key);
                Err(SessionError::QueueFull(key))
            }
            Claimed::Ended => {
                self.forget_claim(id, &key);
                Err(SessionError::Ended(call.session.clone()))
            }
        }
    }

    /// Waits for a claim, and renews its session meanwhile.
    async fn claim(
        &self,
        id: SessionId,
        key: &Key,
        request: LockRequest,
        wait: Duration,
    ) -> Result<Claimed, SessionError> {
        let claim = self.0.limiter.claim_lock(key, request, wait);
        tokio::pin!(claim);
        let mut closing = self.closing();
        let renew_every = request.lasts / 3;
        loop {
            tokio::select! {
                claimed = &mut claim => return Ok(claimed?),
                () = closed(&mut closing) => {
                    let why = "the coordinator is shutting down; repeat the call at another one";
                    return Err(NotSet::Refused(why.to_owned()).into());
                }
                () = tokio::time::sleep(renew_every) => {
                    self.note_claim(id, key)?;
                    self.touch_session(id).await?;
                }
            }
        }
    }

    /// Notes that a session will have a claim on `key`. Returns the end of the session, and the
    /// worker's name.
    fn note_claim(&self, id: SessionId, key: &Key) -> Result<(Timestamp, String), SessionError> {
        let mut all = self.0.sessions.all.lock();
        let ended = || SessionError::Ended(super::name(id));
        let session = all.get_mut(&id).ok_or_else(ended)?;
        if session.keys.len() >= SESSION_LOCKS_MAX && !session.keys.contains(key) {
            let detail = format!(
                "the session has {SESSION_LOCKS_MAX} locks; release some, or open another session"
            );
            return Err(SessionError::Capped(detail));
        }
        session.keys.insert(key.clone());
        Ok((session.ends, session.fixed.worker.clone()))
    }

    /// Ends the lock or the waiting claim of a session on a key.
    pub(crate) async fn release(
        &self,
        call: &ReleaseLock,
        worker_of: impl Fn(&str) -> bool,
    ) -> Result<LockReleased, SessionError> {
        let key = key(&call.key)?;
        let id = self.live_session(&call.session, worker_of).await?;
        if let Some(given) = call.fencing {
            let view = self.0.limiter.locks(&key);
            let held = view.and_then(|view| view.fencing(id));
            if held != Some(given) {
                if held.is_none() && self.forget_claim(id, &key) {
                    self.announce_release(&key);
                }
                return Err(SessionError::Stale(key, given, held));
            }
        }
        let had_claim = self.0.limiter.release_lock(&key, id).await?;
        // A noted claim that is gone was ended by an earlier call without an answer.
        if self.forget_claim(id, &key) || had_claim {
            self.announce_release(&key);
        }
        self.keep_locks(std::slice::from_ref(&key)).await?;
        self.touch_session(id).await?;
        Ok(LockReleased {
            released: had_claim,
        })
    }

    fn announce_release(&self, key: &Key) {
        let watch = &self.0.watch;
        watch.announce(EventKind::Lock, Some(key), "released");
    }

    /// Waits until the changes of the locks on `keys` are on disk, and their events in the log.
    pub(super) async fn keep_locks(&self, keys: &[Key]) -> Result<(), NotSet> {
        let kept = self.keep_now(keys).await;
        kept.map_err(|why| NotSet::Unkept(why.to_string()))?;
        let logged = tokio::time::timeout(LOGGED, self.0.watch.logged()).await;
        let late = "the fleet's log has not confirmed the event of a lock in 2 s; repeat the call";
        logged.map_err(|_| NotSet::Unkept(late.to_owned()))
    }

    /// Returns whether the claim was known.
    pub(super) fn forget_claim(&self, id: SessionId, key: &Key) -> bool {
        let mut all = self.0.sessions.all.lock();
        let session = all.get_mut(&id);
        session.is_some_and(|session| session.keys.remove(key))
    }

    /// Returns the locks of a key.
    pub(crate) async fn key_locks(&self, name: &str) -> Result<KeyLocks, SessionError> {
        let key = key(name)?;
        let refreshed = self.refresh(&key).await;
        refreshed.map_err(NotSet::Refused)?;
        let mut answer = KeyLocks {
            key: key.to_string(),
            ..KeyLocks::default()
        };
        let Some(view) = self.0.limiter.locks(&key) else {
            return Ok(answer);
        };
        let all = self.0.sessions.all.lock();
        let claims = view.locks.claims().iter();
        for claim in claims.filter(|claim| claim.ends > view.now) {
            let Some(fencing) = claim.fencing() else {
                answer.waiting += 1;
                continue;
            };
            let worker = all.get(&claim.session).map(|it| it.fixed.worker.as_str());
            answer.holders.push(LockHolder {
                fencing,
                max: claim.max,
                client: worker.map(|worker| client(worker).to_owned()),
                ends_in_ms: ms_up(claim.ends.since(view.now)),
            });
        }
        Ok(answer)
    }
}

/// Waits until the coordinator closes.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closed| *closed).await;
}

/// Returns a worker's own name, without the name of its token.
fn client(worker: &str) -> &str {
    worker
        .split_once(SEPARATOR)
        .map_or(worker, |(_, name)| name)
}

/// Returns the number of a call's id, which is never 0.
fn call_id(id: &str) -> u64 {
    // The hash is the same in every coordinator and after a restart.
    let hasher = foldhash::fast::FixedState::with_seed(0x706f_6c69_7465_6c79);
    hasher.hash_one(id).max(1)
}

fn key(name: &str) -> Result<Key, SessionError> {
    let wrong = |why: politely::core::key::KeyError| error("key", &why.to_string());
    Key::parse(name).map_err(|why| SessionError::Field(wrong(why)))
}

/// Checks the fields of a claim.
fn sound(call: &ClaimLock) -> Result<Key, SessionError> {
    let wrong = |field, detail| Err(SessionError::Field(error(field, detail)));
    if !(1..=HOLDERS_MAX).contains(&call.max) {
        return wrong("max", "must be from 1 to 1,000");
    }
    if call.mode == LockMode::Exclusive && call.max != 1 {
        return wrong("max", "must be 1 for an exclusive lock; leave it out");
    }
    let chars = call.id.as_deref().map_or(1, |id| id.chars().count());
    if !(1..=wire::NAME_MAX).contains(&chars) {
        return wrong("id", "must be 1 to 128 characters long");
    }
    key(&call.key)
}
