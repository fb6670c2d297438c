//! A session in a cell of the engine, so that another coordinator can continue it.
//!
//! The value is a version of 16 bytes and [`Kept`] as JSON. The cell names the keys of the
//! session's claims before the claims are made.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use politely::cells::{Engine, EngineError, Version, Write, Written};
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::lock::SessionId;
use serde::{Deserialize, Serialize};

use super::{Owner, Session, SessionError, name};
use crate::coordinator::operate::NotSet;
use crate::coordinator::{Coordinator, acquire};

/// The lifetime of a cell beyond the end of its session.
const KEEP: Duration = Duration::from_mins(1);
/// The most attempts of a write while other coordinators write.
const TRIES: u32 = 16;

/// The content of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    owner: Owner,
    /// The end of the session in microseconds of the shared clock. 0 for a session that was ended.
    ends_us: u64,
    keys: Vec<String>,
}

/// The engine that holds the cells of sessions.
pub(in crate::coordinator) struct SessionCells {
    engine: Arc<dyn Engine>,
    writer: u64,
    writes: AtomicU64,
}

impl SessionCells {
    pub(in crate::coordinator) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            writer: RandomState::new().hash_one(std::process::id()),
            writes: AtomicU64::new(0),
        }
    }

    async fn read(&self, id: SessionId) -> Result<Option<Vec<u8>>, EngineError> {
        let read = self.engine.read(vec![cell(id)]);
        let read = tokio::time::timeout(acquire::ENGINE_TIME, read).await;
        let first = read.map(|read| read.into_iter().next());
        first.ok().flatten().unwrap_or_else(|| Err(late()))
    }

    async fn write(
        &self,
        id: SessionId,
        before: Option<&[u8]>,
        value: Vec<u8>,
        keep: Duration,
    ) -> Result<Written, EngineError> {
        let write = Write {
            cell: cell(id),
            expected: before.and_then(Version::of),
            before: before.map(Arc::from),
            value,
            keep,
            notify: false,
        };
        let written = self.engine.compare_and_set(vec![write]);
        let written = tokio::time::timeout(acquire::ENGINE_TIME, written).await;
        let first = written.map(|written| written.into_iter().next());
        first.ok().flatten().unwrap_or_else(|| Err(late()))
    }

    fn encode(&self, kept: &Kept) -> Vec<u8> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let mut value = Vec::with_capacity(128);
        value.extend_from_slice(&self.writer.to_le_bytes());
        value.extend_from_slice(&number.to_le_bytes());
        value.extend(serde_json::to_vec(kept).unwrap_or_default());
        value
    }

    /// Marks the session as ended for all coordinators.
    pub(super) async fn end(&self, id: SessionId, known: Option<&[u8]>) -> Result<(), NotSet> {
        let mut before = known.map(<[u8]>::to_vec);
        for _ in 0..TRIES {
            let Some(mut kept) = before.as_deref().and_then(decode) else {
                return Ok(());
            };
            if kept.ends_us == 0 {
                return Ok(());
            }
            (kept.ends_us, kept.keys) = (0, Vec::new());
            let value = self.encode(&kept);
            match self.write(id, before.as_deref(), value, KEEP).await {
                Ok(Written::Done) => return Ok(()),
                Ok(Written::Conflict(found)) => before = found,
                Err(why) => return Err(away(&why)),
            }
        }
        Err(busy())
    }
}

fn cell(id: SessionId) -> Arc<str> {
    format!("politely:session:{}", name(id)).into()
}

fn decode(value: &[u8]) -> Option<Kept> {
    serde_json::from_slice(value.get(Version::LEN..)?).ok()
}

fn late() -> EngineError {
    EngineError("no answer in 1 s".to_owned())
}

fn away(why: &EngineError) -> NotSet {
    NotSet::Unkept(format!("the engine is unavailable: {why}"))
}

fn busy() -> NotSet {
    NotSet::Unkept("other coordinators change the session all the time".to_owned())
}

impl Session {
    fn to_kept(&self) -> Kept {
        Kept {
            owner: self.fixed.clone(),
            ends_us: self.ends.as_micros(),
            keys: self.keys.iter().map(Key::to_string).collect(),
        }
    }

    /// Takes over what another coordinator wrote. Returns `false` if the session was ended.
    fn merge(&mut self, kept: &Kept, value: Vec<u8>) -> bool {
        let keys = kept.keys.iter().filter_map(|key| Key::parse(key).ok());
        self.keys.extend(keys);
        self.ends = self.ends.max(Timestamp::from_micros(kept.ends_us));
        self.cell = Some(value);
        kept.ends_us != 0
    }
}

impl Coordinator {
    /// Shares sessions with all coordinators of `engine`.
    pub(in crate::coordinator) fn share_sessions(&self, engine: Arc<dyn Engine>) {
        let _ = self.0.session_cells.set(SessionCells::new(engine));
    }

    /// Reads the cell of a session into the table. A session that was ended is removed.
    pub(super) async fn load_session(&self, id: SessionId) -> Result<(), SessionError> {
        let Some(cells) = self.0.session_cells.get() else {
            return Ok(());
        };
        let value = cells.read(id).await.map_err(|why| away(&why))?;
        let kept = value.as_deref().and_then(decode);
        let mut all = self.0.sessions.all.lock();
        let (Some(kept), Some(value)) = (kept, value) else {
            return Ok(());
        };
        let session = all.entry(id).or_insert_with(|| Session {
            fixed: kept.owner.clone(),
            ends: Timestamp::ZERO,
            keys: BTreeSet::new(),
            has_permits: false,
            cell: None,
            row: 0,
        });
        if !session.merge(&kept, value) {
            session.ends = Timestamp::ZERO;
        }
        Ok(())
    }

    /// Writes a session to its cell, together with what other coordinators wrote.
    pub(super) async fn save_session(&self, id: SessionId) -> Result<(), SessionError> {
        let Some(cells) = self.0.session_cells.get() else {
            return Ok(());
        };
        let ended = || SessionError::Ended(name(id));
        for _ in 0..TRIES {
            let (before, kept, keep) = {
                let all = self.0.sessions.all.lock();
                let session = all.get(&id).ok_or_else(ended)?;
                let keep = session.fixed.ttl() + KEEP;
                (session.cell.clone(), session.to_kept(), keep)
            };
            let value = cells.encode(&kept);
            let written = cells
                .write(id, before.as_deref(), value.clone(), keep)
                .await;
            let mut all = self.0.sessions.all.lock();
            let session = all.get_mut(&id).ok_or_else(ended)?;
            match written {
                Ok(Written::Done) => {
                    session.cell = Some(value);
                    return Ok(());
                }
                Ok(Written::Conflict(None)) => session.cell = None,
                Ok(Written::Conflict(Some(value))) => match decode(&value) {
                    Some(kept) => {
                        if !session.merge(&kept, value) {
                            all.remove(&id);
                            return Err(ended());
                        }
                    }
                    None => session.cell = Some(value),
                },
                Err(why) => return Err(away(&why).into()),
            }
        }
        Err(busy().into())
    }
}
