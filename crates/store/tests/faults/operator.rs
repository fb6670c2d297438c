//! Operators: they hold keys and wait until the engine has confirmed it. A hold that is
//! acknowledged is committed.

use std::sync::Arc;
use std::time::Duration;

use politely_core::gate::HoldReason;
use politely_store::{Barrier, Event};

use super::dice::{MS, Micros, SECOND};
use super::world::{Own, World};

/// A hold whose operator waits.
pub(super) struct Unconfirmed {
    who: usize,
    life: u32,
    /// Its index in the books.
    held: usize,
    barrier: Arc<Barrier>,
}

impl World {
    /// Schedules the next hold by the operator of process `who`.
    pub(super) fn operates_later(&mut self, who: usize) {
        if self.plan.operates {
            let at = self.now + self.dice.whole(100 * MS, 3 * SECOND);
            self.to(who, at, Own::Operates);
        }
    }

    pub(super) fn operates(&mut self, who: usize) {
        if self.now >= self.plan.load {
            return;
        }
        let key = self.dice.whole(0, self.keys.len() as u64 - 1) as usize;
        let length: Micros = self.dice.span(50 * MS, 2 * SECOND);
        let by = (who, self.seats[who].life);
        let held = self.books.held.len();
        self.books.held(key, by, self.next, self.now, length);
        let hold = Event::Hold(Duration::from_micros(length), HoldReason::Operator);
        self.tell(who, key, hold);
        let barrier = Arc::new(Barrier::default());
        self.tell(who, key, Event::Barrier(Arc::clone(&barrier)));
        self.unconfirmed.push(Unconfirmed {
            who,
            life: by.1,
            held,
            barrier,
        });
        self.operates_later(who);
    }

    /// Ends the waits of operators of process `who` whose holds are confirmed.
    pub(super) fn hears_confirmed(&mut self, who: usize) {
        let life = self.seats[who].life;
        let mut waiting = std::mem::take(&mut self.unconfirmed);
        waiting.retain_mut(|one| {
            if one.who != who {
                return true;
            }
            if one.life != life {
                return false;
            }
            if !one.barrier.is_written() {
                return true;
            }
            let held = &self.books.held[one.held];
            if held.committed.is_none() {
                let wrong = format!("P6: acknowledged, and not in the engine: {held:?}");
                self.books.wrong(wrong);
            }
            self.books.acknowledged += 1;
            false
        });
        self.unconfirmed = waiting;
    }
}
