//! A master that does not know that another has taken its place: it goes on serving those who still reach it and not the other.

use super::dice::Micros;
use super::engine::{Engine, Health};
use super::log::What;
use super::plan::Lives;
use super::world::{Event, World};

/// The old master, and until when it lasts.
pub(super) struct Zombie {
    engine: Engine,
    clients: u64,
    until: Micros,
}

impl World {
    /// The engine as `who` sees it.
    pub(super) fn engine_of(&mut self, who: usize) -> &mut Engine {
        match &mut self.zombie {
            Some(zombie) if zombie.clients >> who & 1 == 1 => &mut zombie.engine,
            _ => &mut self.engine,
        }
    }

    /// Neither master tells `who` of changes any more.
    pub(super) fn hears_no_more(&mut self, who: usize) {
        self.engine.forget_watcher(who);
        if let Some(zombie) = &mut self.zombie {
            zombie.engine.forget_watcher(who);
        }
    }

    /// Whether both see the same engine.
    pub(super) fn are_joined(&self, one: usize, other: usize) -> bool {
        self.zombie.as_ref().is_none_or(|zombie| {
            let [one, other] = [one, other].map(|who| zombie.clients >> who & 1);
            one == other
        })
    }

    /// The replica is about to take the master's place, which goes on without it.
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

    /// The old master is gone; its clients find the other.
    pub(super) fn joins(&mut self) {
        self.books.faults_left -= 1;
        self.books.quiet_since = self.now;
        if self.zombie.take_if(|old| old.until <= self.now).is_some() {
            self.books.clock_set(self.now);
            // Until now its clients were answered.
            self.engine.away_since = self.engine.away_since.map(|_| self.now);
            self.log.note(self.now, None, What::Joins);
        }
    }
}
