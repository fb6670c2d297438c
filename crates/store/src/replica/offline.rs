//! What a replica does while the engine is away, and when it is back.

use politely_core::Timestamp;
use politely_core::host::Decision;

use super::{FallbackShare, PendingGrant, Replica, WaiterReply};
use crate::event::Event;
use crate::node::NodeContext;

impl Replica {
    /// What to do at `mono` while the engine is away: our share of what the key may, of the state as it was last known.
    pub(crate) fn step_alone(
        &mut self,
        context: &NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Timestamp {
        if self.waiting.is_empty() || self.heard.is_none() || self.unreadable {
            return Timestamp::NEVER;
        }
        let now = self.now(context, local);
        if self.alone.is_none() {
            let known = self.ahead.as_deref().unwrap_or(&self.view);
            self.alone = FallbackShare::new(known.host.clone(), context, now).map(Box::new);
        }
        let Some(alone) = &mut self.alone else {
            return Timestamp::NEVER;
        };
        while let Some((&(turn, ticket), &waiter)) = self.waiting.first_key_value() {
            let ask = FallbackShare::now_or_not(waiter.ask);
            match alone.host.request(now, ask, &alone.config) {
                Decision::Granted(grant) => {
                    self.waiting.pop_first();
                    replies.push(WaiterReply::Granted(PendingGrant {
                        turn,
                        ticket,
                        waiter,
                        grant,
                        starts: context.clock.local(grant.start),
                        unsure: None,
                    }));
                }
                Decision::Wait(wait) => return context.clock.local(wait.at),
            }
        }
        Timestamp::NEVER
    }

    /// The engine is back: what was granted meanwhile becomes part of the state.
    pub(super) fn rejoin(&mut self, context: &NodeContext, local: Timestamp) {
        if let Some(alone) = self.alone.take() {
            let host = alone.back_at(self.now(context, local));
            self.events.push_back((local, Event::Join(Box::new(host))));
            self.due = local;
            self.apply_again(context);
        }
    }
}
