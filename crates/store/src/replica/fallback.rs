//! A node's share of a key while the engine is unavailable.
//!
//! Each of the N nodes that shared the engine takes 1/N of the rate and of the slots. Their first
//! requests are sent one after the other, so together they exceed the limit of the key by N
//! requests at most. If there are fewer slots than nodes, some nodes wait. A node goes on with the
//! state that it knew, and joins that state with the engine's later, so nothing is forgotten.
//!
//! A node does not know what other nodes were granted last. Those requests start up to a horizon
//! ahead, so the share begins after that time. Nothing is reserved ahead, since the other nodes
//! would not know of it when the engine is available again.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::{Cohorts, Config};
use politely_core::gate::{LeaseId, Rate};
use politely_core::host::{Ask, Decision, HORIZON, Host};

use super::commit::{PendingGrant, WaiterReply};
use super::timers::Timer;
use super::{Replica, known::Known};
use crate::event::Event;
use crate::node::NodeContext;

/// The longest time for which a share is used. Afterwards nothing is granted until the engine
/// answers.
pub const LASTS: Duration = Duration::from_mins(1);

/// The state of one node's share of a key.
pub(super) struct FallbackShare {
    pub(super) host: Host,
    config: Config,
    /// Requests that the share granted. They are added to the engine's state afterwards.
    granted: u64,
}

impl FallbackShare {
    /// Creates the share of `host`, `None` if there are too few slots for all nodes.
    fn new(mut host: Host, context: &NodeContext, now: Timestamp) -> Option<Self> {
        let (rank, all) = context.clock.rank();
        let explained = host.look(now, &context.config);
        let (_, slots) = explained.in_flight;
        let all_slots = all as u32;
        let mine = slots / all_slots + u32::from((rank as u32) < slots % all_slots);
        if mine == 0 || explained.rate <= 0.0 {
            return None;
        }
        let mut config = Config::clone(&context.config);
        let rate = explained.rate / all as f64;
        config.limits = *host.limits(&context.config);
        config.cohorts = Cohorts::default();
        config.limits.rate_max = rate;
        config.limits.rate_start = config.limits.rate_start.min(rate);
        config.limits.burst = 1.0;
        config.limits.in_flight = mine;
        // The ids must differ from those of other nodes and from all earlier ones. Shared time may
        // be behind the engine's clock, which earlier ids follow.
        let later = (host.next_lease().0 >> 32) + 1;
        host.ids_from(LeaseId((later << 32) | ((rank as u64 + 1) << 20)));
        let turn = Rate::per_second(explained.rate).interval() * rank as u32;
        host.resume_after(now, now + HORIZON + turn, &config);
        config.declared = context.config.declared.share(all_slots);
        Some(Self {
            host,
            config,
            granted: 0,
        })
    }

    /// Applies an event to the share.
    pub(super) fn apply(&mut self, event: &Event, now: Timestamp, seed: u64) {
        event.apply(&mut self.host, now, &self.config, seed);
    }

    /// Decides on a request for one slot now.
    fn request(&mut self, now: Timestamp, ask: Ask) -> Decision {
        let ask = Ask {
            slots: 1,
            horizon: Duration::ZERO,
            ..ask
        };
        let decision = self.host.request(now, ask, &self.config);
        if let Decision::Granted(grant) = decision {
            self.granted += u64::from(grant.unused.cost);
        }
        decision
    }

    /// Returns the state at `now`, when the engine is available again.
    ///
    /// Shared time stood still meanwhile and the share's time did not, so the state is restored
    /// anew.
    fn into_host(self, now: Timestamp) -> Host {
        let restored = Host::restore(&self.host.snapshot(), now, &self.config);
        restored.unwrap_or(self.host)
    }
}

impl Replica {
    /// Serves the queue from this node's share. Returns the local time of the next call.
    pub(crate) fn step_on_fallback(
        &mut self,
        context: &NodeContext,
        local: Timestamp,
        replies: &mut Vec<WaiterReply>,
    ) -> Timestamp {
        let Known { heard_at, .. } = &self.known;
        if self.queue.is_empty() || heard_at.is_none() || self.is_unreadable() {
            return Timestamp::NEVER;
        }
        let now = self.known.now(context, local);
        if self.fallback.is_none() {
            let host = self.pending.record(&self.known).host.clone();
            self.fallback = FallbackShare::new(host, context, now).map(Box::new);
        }
        let Some(share) = &mut self.fallback else {
            return Timestamp::NEVER;
        };
        while let Some(((arrival, ticket), waiter)) = self.queue.first() {
            match share.request(now, waiter.ask.clone()) {
                Decision::Granted(grant) => {
                    self.queue.pop_first();
                    replies.push(WaiterReply::Granted(PendingGrant {
                        arrival,
                        ticket,
                        waiter,
                        grant,
                        has_waited: self.queue.has_waited(ticket),
                        starts: context.clock.local(grant.start),
                        unconfirmed_since: None,
                    }));
                }
                Decision::Wait(wait) => {
                    self.queue.note_wait();
                    return context.clock.local(wait.at);
                }
            }
        }
        Timestamp::NEVER
    }

    /// Ends the share, since the engine is available again. Its state becomes a pending event.
    pub(super) fn end_fallback(&mut self, context: &NodeContext, local: Timestamp) {
        if let Some(share) = self.fallback.take() {
            let granted = share.granted;
            let mut host = share.into_host(self.known.now(context, local));
            // A join keeps the larger of two charges, but the shares of all nodes add up.
            host.forget_spent();
            let events = [Event::Join(Box::new(host)), Event::Charge(granted)];
            self.pending.extend(local, events.into_iter());
            self.timers.set(Timer::Flush, local);
            self.pending.rebuild(&self.known, context);
        }
    }
}
