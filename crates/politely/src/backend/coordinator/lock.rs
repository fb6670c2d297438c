//! Locks at the coordinator, each in a session of its own.

use std::time::Duration;

use politely_api::client::{CallError, Client, LockFailure, LockWanted};
use politely_api::wire::LockMode;
use politely_core::key::Key;
use tokio::sync::{oneshot, watch};

use super::Coordinator;
use crate::lock_guard::{Held, LockGuard};
use crate::locks::{LockError, NO_LOCKS};

/// The time after which a lock ends if this process dies.
const TTL: Duration = Duration::from_secs(30);

/// The client for locks, and the worker's name.
pub(super) struct LockClient {
    pub(super) client: Client,
    pub(super) name: String,
}

impl Coordinator {
    /// Locks `key`, and keeps the lock in a task until the guard is dropped.
    pub(super) async fn lock_key(&self, key: &Key, max: u16) -> Result<LockGuard, LockError> {
        let LockClient { client, name } = self.0.locks.as_ref().ok_or(NO_LOCKS)?;
        let wanted = LockWanted {
            client: name.clone(),
            key: key.to_string(),
            max: max.max(1),
            mode: LockMode::Shared,
            ttl: TTL,
            wait: None,
            // The session has no other claim.
            id: "1".to_owned(),
        };
        let mut held = client.lock(&wanted).await.map_err(refused)?;
        let fencing = held.fencing();
        let (gone, mut is_gone) = oneshot::channel::<()>();
        let (lost, state) = watch::channel(false);
        tokio::spawn(async move {
            let is_lost = tokio::select! {
                _ = held.keep() => true,
                _ = &mut is_gone => false,
            };
            if is_lost {
                lost.send_replace(true);
            }
            held.release().await;
        });
        Ok(LockGuard::new(fencing, state, Held::There { _gone: gone }))
    }
}

fn refused(why: LockFailure) -> LockError {
    match why {
        LockFailure::Call(CallError::Unavailable(_) | CallError::Busy { .. }) => {
            LockError::Unconfirmed
        }
        why => LockError::Refused(why.to_string()),
    }
}
