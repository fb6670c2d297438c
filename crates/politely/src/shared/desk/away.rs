//! What a desk does while the engine is away, and when it is back.

use politely_core::Timestamp;
use politely_core::host::Decision;

use super::super::alone::Alone;
use super::super::event::Event;
use super::{Desk, Granting, Shop, Told};

impl Desk {
    /// What to do at `mono` while the engine is away: our share of what the key may, of the state as it was last known.
    pub(in crate::shared) fn step_alone(
        &mut self,
        shop: &Shop,
        mono: Timestamp,
        told: &mut Vec<Told>,
    ) -> Timestamp {
        if self.waiting.is_empty() || self.heard.is_none() || self.unreadable {
            return Timestamp::NEVER;
        }
        let now = self.now(shop, mono);
        if self.alone.is_none() {
            let known = self.ahead.as_deref().unwrap_or(&self.view);
            self.alone = Alone::new(known.host.clone(), shop, now).map(Box::new);
        }
        let Some(alone) = &mut self.alone else {
            return Timestamp::NEVER;
        };
        while let Some((&(turn, ticket), &waiter)) = self.waiting.first_key_value() {
            let ask = Alone::now_or_not(waiter.ask);
            match alone.host.request(now, ask, &alone.config) {
                Decision::Granted(grant) => {
                    self.waiting.pop_first();
                    told.push(Told::Granted(Granting {
                        turn,
                        ticket,
                        waiter,
                        grant,
                        starts: shop.epochs.mono(grant.start),
                        unsure: None,
                    }));
                }
                Decision::Wait(wait) => return shop.epochs.mono(wait.at),
            }
        }
        Timestamp::NEVER
    }

    /// The engine is back: what was granted meanwhile becomes part of the state.
    pub(super) fn rejoin(&mut self, shop: &Shop, mono: Timestamp) {
        if let Some(alone) = self.alone.take() {
            let host = alone.back_at(self.now(shop, mono));
            self.events.push_back((mono, Event::Join(Box::new(host))));
            self.due = mono;
            self.apply_again(shop);
        }
    }
}
