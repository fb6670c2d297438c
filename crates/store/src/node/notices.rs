//! The cells whose notices a node subscribes to.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;

use super::Node;

/// The shortest interval between two subscriptions to all cells.
const PAUSE: Duration = Duration::from_millis(200);

/// The changes of subscriptions that the engine has not been told yet.
pub(super) struct Subscriptions {
    more: Vec<Arc<str>>,
    less: Vec<Arc<str>>,
    /// The time of the next subscription to all cells, [`Timestamp::NEVER`] for none.
    pub(super) renew_at: Timestamp,
    renewed_at: Timestamp,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            more: Vec::new(),
            less: Vec::new(),
            renew_at: Timestamp::NEVER,
            renewed_at: Timestamp::ZERO,
        }
    }
}

impl Node {
    /// Notes whether a replica wants notices of its cell.
    pub(super) fn update_subscription(&mut self, id: usize) {
        let me = self.context.me;
        if let Some(replica) = self.table.get_mut(id) {
            let wants = replica.wants_notices(me);
            if wants != replica.is_subscribed {
                replica.is_subscribed = wants;
                let Subscriptions { more, less, .. } = &mut self.subscriptions;
                if wants { more } else { less }.push(Arc::clone(replica.name()));
            }
        }
    }

    /// Returns the cells to subscribe to and the cells whose subscriptions end.
    pub(super) fn take_subscriptions(
        &mut self,
        local: Timestamp,
    ) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let subscriptions = &mut self.subscriptions;
        let mut more = std::mem::take(&mut subscriptions.more);
        if subscriptions.renew_at <= local {
            (subscriptions.renew_at, subscriptions.renewed_at) = (Timestamp::NEVER, local);
            let subscribed = self.table.all().filter(|replica| replica.is_subscribed);
            more = subscribed
                .map(|replica| Arc::clone(replica.name()))
                .collect();
        }
        (more, std::mem::take(&mut subscriptions.less))
    }

    /// Handles the end of the subscription to `cell`, or to all cells if it is `None`.
    ///
    /// The node subscribes to all its cells again, at once but not more often than every 200 ms.
    pub fn handle_lost_subscription(&mut self, cell: Option<&str>, local: Timestamp) {
        let is_subscribed = |cell| {
            let id = self.table.id_of_cell(cell);
            let replica = id.and_then(|id| self.table.get(id));
            replica.is_some_and(|replica| replica.is_subscribed)
        };
        if cell.is_none_or(is_subscribed) {
            let subscriptions = &mut self.subscriptions;
            let renew_at = local.max(subscriptions.renewed_at + PAUSE);
            subscriptions.renew_at = subscriptions.renew_at.min(renew_at);
        }
    }
}
