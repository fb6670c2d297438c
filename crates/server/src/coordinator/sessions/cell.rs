//! A session in a cell of the engine, so that another coordinator can continue it.
//!
//! The content is [`Kept`] as JSON. The cell names the keys of the session's claims before the
//! claims are made.

use std::sync::Arc;
use std::time::Duration;

use politely::cells::Engine;
use politely::core::Timestamp;
use politely::core::key::Key;
use politely::core::lock::SessionId;
use serde::{Deserialize, Serialize};

use super::{Owner, Session, SessionError, name};
use crate::cells::{CellError, Cells, unseal};
use crate::coordinator::Coordinator;
use crate::coordinator::operate::NotSet;

/// The lifetime of a cell beyond the end of its session.
const KEEP: Duration = Duration::from_mins(1);

/// The content of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    owner: Owner,
    /// The end of the session in microseconds of the shared clock. 0 for a session that was ended.
    ends_us: u64,
    keys: Vec<String>,
}

/// Marks a session as ended for all coordinators.
pub(super) async fn end(cells: &Cells, id: SessionId, known: Option<&[u8]>) -> Result<(), NotSet> {
    let name = cell(id);
    let change = |found: Option<&[u8]>| {
        let kept = found.and_then(|value| decode(&name, value));
        let kept = kept.filter(|kept| kept.ends_us != 0);
        Ok::<_, NotSet>(kept.map(|kept| {
            Kept {
                ends_us: 0,
                keys: Vec::new(),
                ..kept
            }
            .to_json()
        }))
    };
    let known = known.map(<[u8]>::to_vec);
    cells.update(&name, known, KEEP, change).await?;
    Ok(())
}

fn cell(id: SessionId) -> Arc<str> {
    format!("politely:session:{}", name(id)).into()
}

fn decode(name: &Arc<str>, value: &[u8]) -> Option<Kept> {
    serde_json::from_slice(unseal(name, value).ok()?).ok()
}

impl Kept {
    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
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
        let _ = self.0.session_cells.set(Cells::new(engine));
    }

    /// Reads the cell of a session into the table. A session that was ended is removed.
    pub(super) async fn load_session(&self, id: SessionId) -> Result<(), SessionError> {
        let Some(cells) = self.0.session_cells.get() else {
            return Ok(());
        };
        let cell = cell(id);
        let value = cells.read(&cell).await.map_err(CellError::from)?;
        let kept = value.as_deref().and_then(|value| decode(&cell, value));
        let mut all = self.0.sessions.all.lock();
        let (Some(kept), Some(value)) = (kept, value) else {
            return Ok(());
        };
        let session = all.entry(id).or_insert_with(|| Session {
            ends: Timestamp::ZERO,
            confirmed: Timestamp::ZERO,
            ..Session::new(kept.owner.clone(), Timestamp::ZERO)
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
        let (known, keep) = {
            let all = self.0.sessions.all.lock();
            let session = all.get(&id).ok_or_else(ended)?;
            (session.cell.clone(), session.fixed.lasts() + KEEP)
        };
        let cell = cell(id);
        let change = |found: Option<&[u8]>| {
            let mut all = self.0.sessions.all.lock();
            let session = all.get_mut(&id).ok_or_else(ended)?;
            if session.cell.as_deref() != found {
                session.cell = found.map(<[u8]>::to_vec);
                let kept = found.and_then(|value| decode(&cell, value));
                if let (Some(kept), Some(value)) = (kept, found)
                    && !session.merge(&kept, value.to_vec())
                {
                    all.remove(&id);
                    return Err(ended());
                }
            }
            Ok::<_, SessionError>(Some(session.to_kept().to_json()))
        };
        let value = cells.update(&cell, known, keep, change).await?;
        let mut all = self.0.sessions.all.lock();
        all.get_mut(&id).ok_or_else(ended)?.cell = value;
        Ok(())
    }
}
