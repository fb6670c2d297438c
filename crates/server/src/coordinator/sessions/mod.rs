//! Sessions of workers: their time-outs, their locks and their permits.
//!
//! | coordinator | where a session lives |
//! | --- | --- |
//! | alone | in memory, and as a row of the state folder from its start to its end |
//! | shared | in a cell of the engine, so that every coordinator can continue it |
//!
//! The lock itself is part of the state of its key (`politely_core::lock`). A session knows the
//! keys that it has claims on, and renews those claims. If no coordinator renews them, they end by
//! themselves.

mod cell;
mod locks;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use hashbrown::HashMap;
use parking_lot::Mutex;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::lock::SessionId;
use politely::{LockError, Snapshot};
use politely_api::wire::{self, EventKind, HeldLock, SessionClosed, SessionState};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::operate::NotSet;
use super::report::ms_up;
use super::{Coordinator, Number};
use crate::cells::CellError;
use crate::watch::Worker;

/// The prefix of a session's row in the state folder. No key begins with it.
pub(super) const ROW: &str = "\u{1}session/";
/// The most sessions of one coordinator.
const SESSIONS_MAX: usize = 1 << 20;
/// The number of claims that are renewed at a time.
const RENEWED_AT_A_TIME: usize = 64;

/// The sessions that this coordinator knows.
#[derive(Default)]
pub(super) struct Sessions {
    all: Mutex<HashMap<SessionId, Session, foldhash::fast::RandomState>>,
}

/// One session.
#[derive(Clone, Debug)]
struct Session {
    fixed: Owner,
    /// When the session ends, by the clock of the locks.
    ends: Timestamp,
    /// The end that this coordinator has confirmed for the session and for all its claims.
    confirmed: Timestamp,
    /// The keys that the session has claims on.
    keys: BTreeSet<Key>,
    /// Whether permits were granted to the session by this coordinator.
    has_permits: bool,
    /// The value of the session's cell, if it has one.
    cell: Option<Vec<u8>>,
    /// The number of the last row in the state folder.
    row: u64,
}

/// The part of a session that never changes, and the content of its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The name of the worker, with the name of its token.
    worker: String,
    ttl_ms: u32,
}

impl Owner {
    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(u64::from(self.ttl_ms))
    }

    /// Returns the time that a renewal gives. Calls in the third beyond the time-out find that the
    /// whole time-out is left, so they write nothing.
    fn lasts(&self) -> Duration {
        self.ttl() + self.ttl() / 3
    }
}

impl Session {
    /// Returns a session without claims that is renewed at `now`.
    fn new(fixed: Owner, now: Timestamp) -> Self {
        let ends = now + fixed.lasts();
        Self {
            fixed,
            ends,
            confirmed: ends,
            keys: BTreeSet::new(),
            has_permits: false,
            cell: None,
            row: 1,
        }
    }
}

/// Why a call of a session failed.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// The session has ended, or this coordinator does not know it.
    Ended(String),
    /// A field of the call is invalid.
    Field(wire::Error),
    /// The session has a claim of another call on the key.
    Twice(Key, Option<u64>),
    /// The session does not hold the key under the given fencing number.
    Stale(Key, u64, Option<u64>),
    /// The key's queue is full.
    QueueFull(Key),
    /// The client, or the coordinator, is at a cap.
    Capped(String),
    /// The change could not be kept or confirmed.
    NotSet(NotSet),
}

impl From<CellError> for SessionError {
    fn from(why: CellError) -> Self {
        Self::NotSet(why.into())
    }
}

impl From<LockError> for SessionError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Full(full) => Self::Capped(full.to_string()),
            other => Self::NotSet(NotSet::Unkept(other.to_string())),
        }
    }
}

impl From<NotSet> for SessionError {
    fn from(not_set: NotSet) -> Self {
        Self::NotSet(not_set)
    }
}

/// Returns the name of a session on the wire.
fn name(id: SessionId) -> String {
    format!("{:016x}", id.0)
}

/// Returns the session with this name on the wire.
pub(super) fn parse(name: &str) -> Option<SessionId> {
    let is_hex = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(name, 16).ok().filter(|_| is_hex)?;
    Some(SessionId(id))
}

/// Reads the row of a session from the state folder.
pub(super) fn of_row(row: &str, state: &[u8]) -> Option<(SessionId, Owner)> {
    let id = parse(row.strip_prefix(ROW)?)?;
    Some((id, serde_json::from_slice(state).ok()?))
}

impl Coordinator {
    /// Opens a session for `worker`.
    pub(crate) async fn open_session(
        &self,
        worker: &Worker,
        ttl_ms: u32,
    ) -> Result<SessionState, SessionError> {
        if !(wire::SESSION_TTL_MIN_MS..=wire::SESSION_TTL_MAX_MS).contains(&ttl_ms) {
            let detail = "must be from 1,000 to 3,600,000".to_owned();
            let field = "ttl_ms".to_owned();
            return Err(SessionError::Field(wire::Error { field, detail }));
        }
        self.refuse_if_in_trouble()?;
        let mut random = [0; 8];
        let drawn = SystemRandom::new().fill(&mut random);
        drawn.map_err(|_| NotSet::Refused("the system has no randomness".to_owned()))?;
        let id = SessionId(u64::from_le_bytes(random));
        let fixed = Owner {
            worker: worker.name().to_owned(),
            ttl_ms,
        };
        let session = Session::new(fixed, self.0.limiter.lock_time());
        let row = session.fixed.clone();
        {
            let mut all = self.0.sessions.all.lock();
            if all.len() >= SESSIONS_MAX {
                let detail = format!("the coordinator has {SESSIONS_MAX} sessions; end some");
                return Err(SessionError::Capped(detail));
            }
            all.insert(id, session);
        }
        let kept = match self.0.session_cells.get() {
            Some(_) => self.save_session(id).await,
            None => self.keep_row(id, Some(&row), 1).await.map_err(Into::into),
        };
        if let Err(why) = kept {
            self.0.sessions.all.lock().remove(&id);
            return Err(why);
        }
        Ok(SessionState {
            session: name(id),
            ttl_ms: u64::from(ttl_ms),
            ..SessionState::default()
        })
    }

    /// Renews a session and its locks.
    pub(crate) async fn renew_session(
        &self,
        session: &str,
        worker_of: impl Fn(&str) -> bool,
    ) -> Result<SessionState, SessionError> {
        let id = self.live_session(session, worker_of).await?;
        self.extend_session(id).await
    }

    /// Ends a session, its locks and its permits.
    pub(crate) async fn close_session(
        &self,
        session: &str,
        worker_of: impl Fn(&str) -> bool,
    ) -> Result<SessionClosed, SessionError> {
        let id = self.live_session(session, worker_of).await?;
        let ended = self.0.sessions.all.lock().remove(&id);
        let Some(ended) = ended else {
            return Err(SessionError::Ended(session.to_owned()));
        };
        let (released, permits) = self.end_session(id, &ended).await?;
        Ok(SessionClosed {
            released: released.iter().map(Key::to_string).collect(),
            permits,
        })
    }

    /// Returns the session with this name, if it has not ended and `worker_of` accepts its worker.
    async fn live_session(
        &self,
        session: &str,
        worker_of: impl Fn(&str) -> bool,
    ) -> Result<SessionId, SessionError> {
        let ended = || SessionError::Ended(session.to_owned());
        let id = parse(session).ok_or_else(ended)?;
        let find = || {
            let now = self.0.limiter.lock_time();
            let all = self.0.sessions.all.lock();
            let known = all.get(&id).filter(|session| session.ends > now)?;
            Some(worker_of(&known.fixed.worker))
        };
        let found = match find() {
            None if self.0.session_cells.get().is_some() => {
                self.load_session(id).await?;
                find()
            }
            found => found,
        };
        match found {
            Some(true) => Ok(id),
            _ => Err(ended()),
        }
    }

    /// Moves the end of a session, and of its claims, to its time-out from now on.
    async fn extend_session(&self, id: SessionId) -> Result<SessionState, SessionError> {
        let ended = || SessionError::Ended(name(id));
        let (lasts, ends) = {
            let mut all = self.0.sessions.all.lock();
            let session = all.get_mut(&id).ok_or_else(ended)?;
            let lasts = session.fixed.lasts();
            let ends = self.0.limiter.lock_time() + lasts;
            session.ends = session.ends.max(ends);
            (lasts, ends)
        };
        if self.0.session_cells.get().is_some() {
            self.save_session(id).await?;
        }
        // Another coordinator may have added keys to the cell.
        let keys = {
            let all = self.0.sessions.all.lock();
            all.get(&id).ok_or_else(ended)?.keys.clone()
        };
        let limiter = &self.0.limiter;
        let renewed = stream::iter(keys).map(async |key| {
            let renewed = limiter.renew_lock(&key, id, lasts).await;
            (key, renewed)
        });
        let renewed: Vec<_> = renewed.buffer_unordered(RENEWED_AT_A_TIME).collect().await;
        let mut state = SessionState {
            session: name(id),
            ..SessionState::default()
        };
        for (key, renewed) in renewed {
            match renewed? {
                Some(fencing) => state.locks.push(HeldLock {
                    key: key.to_string(),
                    fencing,
                }),
                None if self.has_claim(&key, id) => state.waiting.push(key.to_string()),
                None => {
                    self.forget_claim(id, &key);
                    state.lost.push(key.to_string());
                }
            }
        }
        state.locks.sort_by(|a, b| a.key.cmp(&b.key));
        state.waiting.sort();
        state.lost.sort();
        if let Some(session) = self.0.sessions.all.lock().get_mut(&id) {
            session.confirmed = session.confirmed.max(ends);
        }
        state.ttl_ms = ms_up(self.session_left(id).ok_or_else(ended)?);
        Ok(state)
    }

    /// Renews a session, unless its whole time-out is left.
    async fn touch_session(&self, id: SessionId) -> Result<(), SessionError> {
        let now = self.0.limiter.lock_time();
        let is_whole = {
            let all = self.0.sessions.all.lock();
            let session = all.get(&id).ok_or_else(|| SessionError::Ended(name(id)))?;
            session.confirmed.since(now) >= session.fixed.ttl()
        };
        if !is_whole {
            self.extend_session(id).await?;
        }
        Ok(())
    }

    /// Returns the time for which a session lasts for certain, at most its time-out.
    fn session_left(&self, id: SessionId) -> Option<Duration> {
        let now = self.0.limiter.lock_time();
        let all = self.0.sessions.all.lock();
        let session = all.get(&id)?;
        Some(session.confirmed.since(now).min(session.fixed.ttl()))
    }

    fn has_claim(&self, key: &Key, id: SessionId) -> bool {
        let view = self.0.limiter.locks(key);
        view.is_some_and(|view| view.locks.of(id).is_some())
    }

    /// Ends the claims and permits of a session that was removed from the table. Returns the keys
    /// and the number of permits.
    async fn end_session(
        &self,
        id: SessionId,
        session: &Session,
    ) -> Result<(Vec<Key>, u64), SessionError> {
        let permits = if session.has_permits {
            self.end_permits(id)
        } else {
            0
        };
        let limiter = &self.0.limiter;
        let released = stream::iter(session.keys.clone()).map(async |key| {
            let had_one = limiter.release_lock(&key, id).await;
            (key, had_one)
        });
        let released: Vec<_> = released.buffer_unordered(RENEWED_AT_A_TIME).collect().await;
        let mut keys = Vec::new();
        for (key, had_one) in released {
            if had_one? {
                let text = "released: its session has ended";
                self.0.watch.announce(EventKind::Lock, Some(&key), text);
                keys.push(key);
            }
        }
        keys.sort();
        self.keep_locks(&keys).await?;
        match self.0.session_cells.get() {
            Some(cells) => cell::end(cells, id, session.cell.as_deref()).await?,
            None => self.keep_row(id, None, session.row + 1).await?,
        }
        Ok((keys, permits))
    }

    /// Writes the row of a session to the state folder, or removes it.
    async fn keep_row(
        &self,
        id: SessionId,
        row: Option<&Owner>,
        version: u64,
    ) -> Result<(), NotSet> {
        let Some(store) = &self.0.store else {
            return Ok(());
        };
        let state = row.map_or_else(Vec::new, |row| serde_json::to_vec(row).unwrap_or_default());
        let kept = store.keep_now(vec![(
            format!("{ROW}{}", name(id)),
            Snapshot { version, state },
        )]);
        kept.await.map_err(|why| NotSet::Unkept(why.to_string()))
    }

    /// Continues the sessions of an earlier run, each for its whole time-out, and their claims.
    pub(super) fn resume_session(&self, id: SessionId, fixed: Owner) {
        let session = Session::new(fixed, self.0.limiter.lock_time());
        self.0.sessions.all.lock().insert(id, session);
    }

    /// Continues the claims on `key` whose sessions are known, and ends the other ones.
    pub(super) fn resume_claims(&self, key: &Key) {
        let Some(before) = self.0.limiter.locks(key) else {
            return;
        };
        let mut all = self.0.sessions.all.lock();
        for claim in before.locks.claims() {
            if let Some(session) = all.get_mut(&claim.session) {
                session.keys.insert(key.clone());
            }
        }
        let lasts = |id: SessionId| all.get(&id).map(|session| session.fixed.lasts());
        self.0.limiter.resume_locks(key, lasts);
    }

    /// Ends the sessions whose time is over.
    pub(super) fn sweep_sessions(&self) {
        let now = self.0.limiter.lock_time();
        let over: Vec<_> = {
            let all = self.0.sessions.all.lock();
            let over = all.iter().filter(|(_, session)| session.ends <= now);
            over.map(|(id, _)| *id).collect()
        };
        for id in over {
            let coordinator = self.clone();
            tokio::spawn(async move { coordinator.end_if_over(id).await });
        }
    }

    async fn end_if_over(&self, id: SessionId) {
        if self.0.session_cells.get().is_some() && self.load_session(id).await.is_err() {
            // The engine is unavailable. The claims end by themselves.
            return;
        }
        let now = self.0.limiter.lock_time();
        let ended = {
            let mut all = self.0.sessions.all.lock();
            let is_over = all.get(&id).is_some_and(|session| session.ends <= now);
            is_over.then(|| all.remove(&id)).flatten()
        };
        if let Some(ended) = ended
            && let Err(why) = self.end_session(id, &ended).await
        {
            tracing::warn!("a session that timed out could not be ended: {why:?}");
        }
    }

    /// Binds permits to a session, so that they end with it.
    pub(crate) fn bind_permits(&self, session: &str, permits: &[Number]) {
        let Some(id) = parse(session) else {
            return;
        };
        if !permits.is_empty()
            && let Some(session) = self.0.sessions.all.lock().get_mut(&id)
        {
            session.has_permits = true;
        }
        for number in permits {
            self.0.permits.bind(*number, id);
        }
    }

    /// Renews the session of a call that acquires permits.
    pub(crate) async fn use_session(
        &self,
        session: &str,
        worker_of: impl Fn(&str) -> bool,
    ) -> Result<(), SessionError> {
        let id = self.live_session(session, worker_of).await?;
        self.touch_session(id).await
    }

    /// Ends the permits of a session. Their requests may have left.
    fn end_permits(&self, id: SessionId) -> u64 {
        let mut gone = Vec::new();
        let ended = self.0.permits.take_of_session(id);
        for (number, out) in ended {
            gone.push(number.0);
            if out.wish != 0 {
                self.0.wishes.forget(out.wish);
            }
            if !out.expired {
                out.worker.cancelled();
            }
            if let Some(mut permit) = out.permit {
                permit.sent();
            }
        }
        self.keep_gone(&gone);
        gone.len() as u64
    }

    /// Returns the number of sessions that this coordinator knows.
    pub(crate) fn sessions(&self) -> usize {
        self.0.sessions.all.lock().len()
    }
}
