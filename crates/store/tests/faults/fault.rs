//! The faults: how they begin and end.

use super::engine::Health;
use super::log::What;
use super::plan::Fault;
use super::world::{Event, World};
use politely_store::testing::Record;

impl World {
    pub(super) fn goes_wrong(&mut self, index: usize) {
        let fault = self.plan.faults[index].1;
        self.books.faults_left += 1;
        self.log.note(self.now, None, What::Fault(fault));
        match fault {
            Fault::Stall(_) => {
                if self.engine.health() == Health::Up {
                    self.engine.fare(Health::Stalled, self.now);
                }
            }
            Fault::Restart(memory, _) => {
                self.engine.stop(self.now);
                self.backlog.clear();
                self.lose(|world| world.engine.forget(memory, world.now));
            }
            Fault::Failover { cut, down, .. } => {
                self.engine.cut_replica(self.now);
                if cut == 0 {
                    self.promote(index);
                }
                self.at(self.now + cut + down, Event::Over(index));
                if cut > 0 {
                    // The master dies now. Until then it went on without its replica.
                    self.at(self.now + cut, Event::Fault(index + self.plan.faults.len()));
                }
                return;
            }
            Fault::Flush => self.lose(|world| world.engine.flush(world.now)),
            Fault::Clock(by) => {
                self.engine.set_clock(by);
                self.books.clock_set(self.now);
            }
            Fault::Kill(who, _) => self.is_killed(who),
            Fault::KillUnheard(who, _) => self.seats[who].doomed = true,
            Fault::Stop(who, _) => {
                self.seats[who].stopped = true;
                self.books.someone_gone(who, self.now);
            }
            Fault::Freeze(who, _) => {
                self.stood_still(who);
                self.seats[who].frozen = true;
                self.books.someone_gone(who, self.now);
            }
            Fault::Cut(who, _) => {
                self.seats[who].cut = true;
                self.books.someone_gone(who, self.now);
            }
        }
        self.at(self.now + fault.lasts(), Event::Over(index));
    }

    pub(super) fn is_killed(&mut self, who: usize) {
        self.kill_all_of(who);
        self.hears_no_more(who);
        let seat = &mut self.seats[who];
        seat.alive = false;
        seat.frozen = false;
        seat.doomed = false;
        seat.held.clear();
        seat.life += 1;
        self.books.someone_gone(who, self.now);
    }

    fn promote(&mut self, index: usize) {
        let Fault::Failover { clock, zombie, .. } = self.plan.faults[index].1 else {
            return;
        };
        if let Some(lives) = zombie {
            self.part(lives);
        }
        self.engine.stop(self.now);
        self.backlog.clear();
        self.lose(|world| world.engine.fail_over(world.now, clock));
        self.books.clock_set(self.now);
    }

    pub(super) fn master_dies(&mut self, index: usize) {
        self.promote(index);
    }

    /// Makes the engine lose state, and notes the forgotten grants of each key.
    fn lose(&mut self, how: impl FnOnce(&mut Self)) {
        let held = |world: &Self| -> Vec<_> {
            let cells = world.keys.iter();
            cells
                .map(|(_, cell)| world.engine.cell(cell).cloned())
                .collect()
        };
        let (before, old) = (self.granted_of_all(), held(self));
        how(self);
        let (after, new) = (self.granted_of_all(), held(self));
        for key in 0..self.keys.len() {
            if old[key] != new[key] {
                let grants = before[key].saturating_sub(after[key]);
                self.books.lost(key, grants, self.now);
            }
        }
    }

    fn granted_of_all(&self) -> Vec<u64> {
        let granted = |(_, cell): &(_, std::sync::Arc<str>)| {
            let value = self.engine.cell(cell)?;
            let now = politely_core::Timestamp::ZERO;
            let (cell, _) = Record::decode(value, now, &self.config).ok()?;
            Some(cell.host.tally().granted)
        };
        let all = self.keys.iter();
        all.map(|key| granted(key).unwrap_or(0)).collect()
    }

    pub(super) fn is_over(&mut self, index: usize) {
        let fault = self.plan.faults[index].1;
        self.books.faults_left -= 1;
        self.books.quiet_since = self.now;
        self.log.note(self.now, None, What::Over(fault));
        match fault {
            Fault::Stall(_) => {
                if self.engine.health() == Health::Stalled {
                    self.engine.fare(Health::Up, self.now);
                    for id in std::mem::take(&mut self.backlog) {
                        self.receive(id);
                    }
                }
            }
            Fault::Restart(..) | Fault::Failover { .. } => {
                let run = self.dice.bits();
                self.engine.start(run, self.now);
            }
            Fault::Flush | Fault::Clock(_) => {}
            Fault::Kill(who, _) | Fault::KillUnheard(who, _) | Fault::Stop(who, _) => {
                self.seats[who].doomed = false;
                if self.seats[who].stopped && matches!(fault, Fault::Stop(..)) {
                    self.is_killed(who);
                }
                if !self.seats[who].alive {
                    let life = self.seats[who].life;
                    self.seats[who] = self.newcomer(life);
                    self.begin(who);
                }
            }
            Fault::Freeze(who, _) => self.thaw(who),
            Fault::Cut(who, _) => {
                self.seats[who].cut = false;
                for id in std::mem::take(&mut self.seats[who].backlog) {
                    let at = self.now + self.way();
                    self.at(at, Event::Request(id));
                }
            }
        }
    }

    /// Handles everything that was held back while the process was frozen.
    fn thaw(&mut self, who: usize) {
        let seat = &mut self.seats[who];
        if !seat.frozen {
            return;
        }
        seat.frozen = false;
        for event in std::mem::take(&mut seat.held) {
            self.happen(event);
        }
    }
}
