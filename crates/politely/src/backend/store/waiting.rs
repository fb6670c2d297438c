//! A caller in a key's queue.

use std::sync::Arc;

use politely_core::host::Wait;
use politely_core::key::Key;
use politely_store::{Grant, Ticket};
use tokio::sync::oneshot;

use super::Inner;
use crate::backend::local::waiters::Turn;

/// A caller in a key's queue, which it leaves when this is dropped.
pub(super) struct Waiting<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) key: &'a Key,
    pub(super) turn: Turn,
    pub(super) ticket: Ticket,
    pub(super) reply: oneshot::Receiver<Result<Grant, Wait>>,
    pub(super) has_reply: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.has_reply {
            return;
        }
        let mut state = self.inner.state.lock();
        if state.callers.remove(&self.ticket).is_some() {
            state.node.cancel(self.key, self.turn, self.ticket);
        }
        drop(state);
        if let Ok(Ok(grant)) = self.reply.try_recv() {
            self.inner.give_back(self.key, grant);
        }
        self.inner.wake.notify_one();
    }
}
