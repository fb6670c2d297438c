//! A master that does not know that another took its place. It serves the clients that still reach
//! it.

use super::dice::Micros;
use super::engine::{Engine, Health};
use super::log::What;
use super::plan::Lives;
use super::world::{Event, World};

/// The old master, and when it ends.
pub(super) struct Zombie {
    engine: Engine,
    clients: u64,
    until: Micros,
}

impl World {
    /// Returns the engine that `who` reaches.
    pub(super) fn engine_of(&mut self, who: usize) -> &mut Engine {
        match &mut self.zombie {
            Some(zombie) if zombie.clients >> who & 1 == 1 => &mut zombie.engine,
            _ => &mut self.engine,
        }
    }

    /// Ends all subscriptions of `who`.
    pub(super) fn hears_no_more(&mut self, who: usize) {
        self.engine.forget_watcher(who);
        if let Some(zombie) = &mut self.zombie {
            zombie.engine.forget_watcher(who);
        }
    }

    /// Returns whether both processes reach the same engine.
    pub(super) fn are_joined(&self, one: usize, other: usize) -> bool {
        self.zombie.as_ref().is_none_or(|zombie| {
            let [one, other] = [one, other].map(|who| zombie.clients >> who & 1);
            one == other
        })
    }

    /// Keeps the old master alive beside the replica that takes its place.
    pub(super) fn part(&mut self, Lives { clients, lasts }: Lives) {
        if self.engine.health() != Health::Up {
            return;
        }
        let mut engine = self.engine.clone();
        engine.cut_replica(self.now);
        let until = self.now + lasts;
        self.zombie = Some(Zombie {
            engine,
            clients,
            until,
        });
        self.books.faults_left += 1;
        self.books.parted(clients, self.now, until);
        self.at(until, Event::Joins);
    }

    /// Ends the old master. Its clients find the other one.
    pub(super) fn joins(&mut self) {
        self.books.faults_left -= 1;
        self.books.quiet_since = self.now;
        if self.zombie.take_if(|old| old.until <= self.now).is_some() {
            self.books.clock_set(self.now);
            // Until now its clients got answers.
            self.engine.away_since = self.engine.away_since.map(|_| self.now);
            self.log.note(self.now, None, What::Joins);
        }
    }
}
