//! One process's share of a key while the engine is away.
//!
//! Each of the N that were there takes 1/N of the rate and of the slots, and the first of each leave one after the other: so
//! all together send what the key may, beyond it by N at most. Whoever the slots do not suffice for waits. The state is driven
//! all the while and joined with the engine's when that is back, so that switching back sets nothing free.
//!
//! What others were granted last is not known here, and starts up to a horizon ahead: nobody leaves until that is over. And
//! nothing is reserved ahead: of that the others would know nothing when the engine is back.

use std::time::Duration;

use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::gate::{LeaseId, Rate};
use politely_core::host::{Ask, HORIZON, Host};

use crate::node::NodeContext;

/// So long at most; then nobody leaves until the engine is back.
pub const LASTS: Duration = Duration::from_mins(1);

pub(crate) struct FallbackShare {
    pub(crate) host: Host,
    pub(crate) config: Config,
}

impl FallbackShare {
    /// Our share of what `host` may; none if the slots are too few for all.
    pub(crate) fn new(mut host: Host, context: &NodeContext, now: Timestamp) -> Option<Self> {
        let (place, all) = context.clock.place();
        let explained = host.look(now, &context.config);
        let (_, slots) = explained.in_flight;
        let all_slots = all as u32;
        let mine = slots / all_slots + u32::from((place as u32) < slots % all_slots);
        if mine == 0 || explained.rate <= 0.0 {
            return None;
        }
        let mut config = Config::clone(&context.config);
        let rate = explained.rate / all as f64;
        config.limits.rate_max = rate;
        config.limits.rate_start = config.limits.rate_start.min(rate);
        config.limits.burst = 1.0;
        config.limits.in_flight = mine;
        // Ours must not be named like another's, nor like any before: shared time may be behind the engine's clock, which those go by.
        let later = (host.next_lease().0 >> 32) + 1;
        host.ids_from(LeaseId((later << 32) | ((place as u64 + 1) << 20)));
        let turn = Rate::per_second(explained.rate).interval() * place as u32;
        host.resume_after(now, now + HORIZON + turn, &config);
        Some(Self { host, config })
    }

    /// What is granted of `ask` at a time.
    pub(crate) fn now_or_not(ask: Ask) -> Ask {
        Ask {
            slots: 1,
            horizon: Duration::ZERO,
            ..ask
        }
    }

    /// The state, now that the engine is back at `now`: shared time stood still meanwhile, ours did not.
    pub(crate) fn back_at(self, now: Timestamp) -> Host {
        let restored = Host::restore(&self.host.snapshot(), now, &self.config);
        restored.unwrap_or(self.host)
    }
}
