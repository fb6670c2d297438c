//! One try for a permit, without a place in a queue.

use politely_core::Timestamp;
use politely_core::host::Ask;
use politely_core::key::Key;

use super::permit_guard::PermitGuard;
use super::{Refused, Shared};
use crate::asked::{Refusal, RefusalReason, alone, distinct, of_key};
use crate::permit::Permit;
use crate::waiters::Turn;

impl Shared {
    /// Tries once and returns the permit or the first refusal.
    pub(super) async fn try_once(
        &self,
        keys: &[Key],
        ask: Ask,
        turn: Turn,
    ) -> Result<Permit, Refusal> {
        let inner = &self.0;
        let ask = if keys.len() == 1 { ask } else { alone(ask) };
        let mut guard: Option<PermitGuard> = None;
        for (index, key) in distinct(keys) {
            let refuse = |reason, at| Refusal {
                key: key.clone(),
                reason,
                at,
                index,
            };
            match inner.ask(key, of_key(ask, index), turn, true).await {
                Ok(grant) => match &mut guard {
                    None => guard = Some(PermitGuard::new(inner, key, &grant)),
                    Some(guard) => guard.add(key, &grant),
                },
                Err(Refused::Wait(wait)) => {
                    return Err(refuse(RefusalReason::Wait(wait.reason), wait.at));
                }
                Err(Refused::Closed) => {
                    return Err(refuse(RefusalReason::Closed, Timestamp::NEVER));
                }
            }
        }
        Ok(guard.expect("a request needs a key").into_permit())
    }
}
