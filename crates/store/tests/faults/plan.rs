//! The schedule that a seed stands for: the nodes, their work, and the faults.

use std::time::Duration;

use politely_core::config::Config;

use super::dice::{Dice, MS, Micros, SECOND};

/// From this seed on, a schedule may have a zombie master or fallback shares. Earlier seeds give
/// the same schedules as before, because some of them have found defects.
pub(super) const WIDER: u64 = 1_000_000;

/// From this seed on, operators hold keys and wait for the engine. Processes are killed between a
/// write and its answer, and their background tasks end.
pub(super) const OPERATED: u64 = 5_000_000;

/// From this seed on, sessions lock keys. In half of the schedules the engine loses nothing.
pub(super) const LOCKED: u64 = 6_000_000;

/// The writes that an engine still has after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Nothing,
    /// Its state from this long ago.
    Snapshot(Micros),
    Everything,
}

/// A replaced master goes on for this long, for the clients whose bits are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lives {
    pub(super) clients: u64,
    pub(super) lasts: Micros,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The engine stalls for this long, and then carries out the calls that came meanwhile.
    Stall(Micros),
    /// The engine is killed and starts again after this long.
    Restart(Memory, Micros),
    /// The replica, cut off this long before, takes over after this long with another clock.
    Failover {
        cut: Micros,
        down: Micros,
        clock: i64,
        zombie: Option<Lives>,
    },
    /// All cells are deleted.
    Flush,
    /// The engine's clock is set.
    Clock(i64),
    /// A process is killed, and another takes its place after this long.
    Kill(usize, Micros),
    /// A process is killed when its next write is made and not answered. Another takes its place
    /// after this long.
    KillUnheard(usize, Micros),
    /// The task of a process that talks to the engine ends. Another process takes its place after
    /// this long.
    Stop(usize, Micros),
    /// A process is frozen for this long.
    Freeze(usize, Micros),
    /// A process does not reach the engine for this long.
    Cut(usize, Micros),
}

impl Fault {
    /// Returns the time from the beginning of the fault to its end, without the recovery.
    pub(super) const fn lasts(self) -> Micros {
        match self {
            Self::Stall(long)
            | Self::Restart(_, long)
            | Self::Kill(_, long)
            | Self::KillUnheard(_, long)
            | Self::Stop(_, long)
            | Self::Freeze(_, long)
            | Self::Cut(_, long) => long,
            Self::Failover {
                cut, down, zombie, ..
            } => match zombie {
                Some(Lives { lasts, .. }) if lasts > down => cut + lasts,
                None | Some(_) => cut + down,
            },
            Self::Flush | Self::Clock(_) => 0,
        }
    }
}

/// The network between processes and engine.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    /// The usual and the largest one-way delay.
    pub(super) latency: (Micros, Micros),
    /// The chance and the length of a spike.
    pub(super) spike: (f64, Micros),
    pub(super) lost_request: f64,
    pub(super) lost_reply: f64,
    /// The chance that a request is carried out long after its time-out.
    pub(super) delayed: f64,
    /// The chance that a connection breaks after the first few writes of a call.
    pub(super) broken: f64,
    /// Whether messages of one connection stay in order.
    pub(super) ordered: bool,
    /// Whether the messages of a process that is cut off arrive later.
    pub(super) cut_keeps: bool,
    pub(super) lost_notice: f64,
}

impl Wire {
    pub(super) fn loses_nothing(&self) -> bool {
        self.lost_request + self.lost_reply + self.delayed + self.broken == 0.0
    }

    fn reaches_all(&mut self) {
        (self.lost_request, self.lost_reply) = (0.0, 0.0);
        (self.delayed, self.broken) = (0.0, 0.0);
    }

    /// Returns the largest delay of an answer that arrives in time.
    pub(super) fn longest(&self) -> Micros {
        self.spike.1.max(self.latency.1)
    }
}

/// The work of the callers.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) think: Micros,
    pub(super) service: (Micros, Micros),
    pub(super) several_keys: f64,
    pub(super) once: f64,
    pub(super) run: f64,
    pub(super) give_up: f64,
    pub(super) cancel: f64,
    pub(super) killed: f64,
    pub(super) lazy: f64,
    pub(super) body: f64,
    pub(super) refused: f64,
    pub(super) retry_after: f64,
    pub(super) timeout: f64,
    /// Whether workers go on when their process is killed.
    pub(super) outlive: bool,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent options of a schedule"
)]
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) fixed: bool,
    pub(super) coordinators: usize,
    pub(super) workers: usize,
    pub(super) keys: usize,
    /// The time for which workers ask for permits.
    pub(super) load: Micros,
    pub(super) wire: Wire,
    pub(super) work: Work,
    /// Whether operators hold keys.
    pub(super) operates: bool,
    /// Whether sessions lock keys.
    pub(super) locks: bool,
    /// Whether fallback shares are allowed.
    pub(super) shares: bool,
    /// Whether a write is answered only once the replica has it.
    pub(super) waits: bool,
    /// The lag of the replica.
    pub(super) lag: Micros,
    pub(super) faults: Vec<(Micros, Fault)>,
    /// The generator for everything else.
    pub(super) dice: Dice,
}

impl Plan {
    /// Returns whether there is no fault and no delay that makes a grant late.
    pub(super) fn is_calm(&self) -> bool {
        let wire = &self.wire;
        let tame = wire.loses_nothing() && wire.spike.0 == 0.0 && !self.waits;
        tame && self.faults.is_empty()
    }

    pub(super) fn draw(seed: u64) -> Self {
        let mut first = Dice::new(seed ^ 0x0066_6175_6c74_7321);
        // Neighbouring seeds have nothing in common.
        let mut dice = first.split();
        let fixed = dice.chance(0.85);
        let config = config(&mut dice, fixed);
        let rate = config.limits.rate_start;
        let load = dice.whole(6, 24) * SECOND;
        let coordinators = dice.among(&[1, 2, 2, 3, 3, 4, 5, 8]);
        let wire = wire(&mut dice);
        let work = work(&mut dice, rate);
        let mut plan = Self {
            config,
            fixed,
            coordinators,
            workers: dice.whole(1, 5) as usize,
            keys: dice.among(&[1, 1, 1, 2, 3]),
            load,
            wire,
            work,
            operates: false,
            locks: false,
            shares: false,
            waits: dice.chance(0.3),
            lag: dice.span(MS, 200 * MS),
            faults: Vec::new(),
            dice: dice.split(),
        };
        // One schedule in eight has no fault, so that errors without a fault are seen.
        let count = dice.among(&[0, 1, 1, 2, 2, 3, 4, 6]);
        for _ in 0..count {
            // The first seconds are for the nodes to find one another.
            let at = dice.whole(3 * SECOND / 2, load);
            let fault = fault(&mut dice, coordinators);
            plan.faults.push((at, fault));
        }
        if seed >= LOCKED {
            plan.lock(&mut dice);
        } else if seed >= OPERATED {
            plan.operate(&mut dice);
        } else if seed >= WIDER {
            plan.widen(&mut dice);
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    fn lock(&mut self, dice: &mut Dice) {
        self.locks = true;
        if dice.chance(0.5) {
            self.faults.retain(|(_, fault)| {
                matches!(
                    fault,
                    Fault::Stall(_) | Fault::Kill(..) | Fault::Freeze(..) | Fault::Cut(..)
                )
            });
        }
        let at = dice.whole(3 * SECOND / 2, self.load);
        let who = dice.whole(0, self.coordinators as u64 - 1) as usize;
        let long = dice.span(200 * MS, 8 * SECOND);
        let fault = match dice.whole(0, 2) {
            0 => Fault::KillUnheard(who, long),
            1 => Fault::Freeze(who, long),
            _ => Fault::Restart(Memory::Everything, long),
        };
        self.faults.push((at, fault));
    }

    fn operate(&mut self, dice: &mut Dice) {
        self.operates = true;
        for _ in 0..dice.whole(1, 3) {
            let at = dice.whole(3 * SECOND / 2, self.load);
            let who = dice.whole(0, self.coordinators as u64 - 1) as usize;
            let long = dice.span(200 * MS, 5 * SECOND);
            let fault = if dice.chance(0.7) {
                Fault::KillUnheard(who, long)
            } else {
                Fault::Stop(who, long)
            };
            self.faults.push((at, fault));
        }
    }

    fn widen(&mut self, dice: &mut Dice) {
        if dice.chance(0.5) {
            self.share(dice);
            return;
        }
        let at = dice.whole(3 * SECOND / 2, self.load);
        let zombie = Lives {
            clients: dice.bits(),
            lasts: dice.span(100 * MS, 10 * SECOND),
        };
        self.faults.push((at, failover(dice, Some(zombie))));
    }

    /// Returns the outages for all processes. For a process that alone is cut off, only its share
    /// is promised.
    fn share(&mut self, dice: &mut Dice) {
        self.shares = true;
        self.load += 60 * SECOND;
        self.wire.reaches_all();
        for (at, fault) in &mut self.faults {
            let long = dice.span(500 * MS, 90 * SECOND);
            *at = dice.whole(3 * SECOND / 2, self.load / 2);
            *fault = match *fault {
                Fault::Kill(..) | Fault::Freeze(..) => *fault,
                Fault::Stall(_) => Fault::Stall(long),
                _ => Fault::Restart(Memory::Everything, long),
            };
        }
    }

    /// Returns the times at which the engine answers no process.
    pub(super) fn aways(&self) -> impl Iterator<Item = (Micros, Micros)> {
        self.faults
            .iter()
            .filter_map(|(at, fault)| match fault {
                Fault::Stall(_) | Fault::Restart(..) => Some((*at, at + fault.lasts())),
                _ => None,
            })
            .filter(|_| self.shares)
    }
}

fn config(dice: &mut Dice, fixed: bool) -> Config {
    let rate = dice.magnitude(0.5, 200.0);
    let mut config = if fixed {
        Config::fixed(rate, dice.whole(1, 5) as f64)
    } else if dice.chance(0.5) {
        Config::api()
    } else {
        let aimd = politely_core::control::LawConfig::Aimd(std::sync::Arc::default());
        Config::api().with_law(aimd)
    };
    config.limits.in_flight = dice.whole(1, 8) as u32;
    config.limits.rate_max = config.limits.rate_max.min(200.0);
    config.lease = Duration::from_micros(dice.span(5 * SECOND, 20 * SECOND));
    config.backoff_max = Duration::from_secs(1);
    config.breaker.rest_max = Duration::from_secs(2);
    config
}

fn wire(dice: &mut Dice) -> Wire {
    let least = dice.span(20, 500);
    let most = least + dice.span(100, 5 * MS);
    let bad = |dice: &mut Dice, often: f64, p: f64| if dice.chance(often) { p } else { 0.0 };
    Wire {
        latency: (least, most),
        spike: if dice.chance(0.25) {
            (0.02, dice.span(20 * MS, 400 * MS))
        } else {
            (0.0, 0)
        },
        lost_request: bad(dice, 0.2, 0.05),
        lost_reply: bad(dice, 0.3, 0.1),
        delayed: bad(dice, 0.2, 0.03),
        broken: bad(dice, 0.2, 0.05),
        ordered: dice.chance(0.6),
        cut_keeps: dice.chance(0.5),
        lost_notice: dice.among(&[0.0, 0.0, 0.3, 1.0]),
    }
}

fn work(dice: &mut Dice, rate: f64) -> Work {
    let some = |dice: &mut Dice, often: f64, p: f64| if dice.chance(often) { p } else { 0.0 };
    let interval = (1e6 / rate) as Micros;
    let least = dice.span(MS, 50 * MS);
    Work {
        think: if dice.chance(0.4) {
            0
        } else {
            dice.span(MS, 4 * interval + 100 * MS)
        },
        service: (
            least,
            dice.among(&[2 * least, 4 * least, SECOND, 2 * SECOND, 12 * SECOND]),
        ),
        several_keys: some(dice, 0.4, 0.4),
        once: some(dice, 0.4, 0.3),
        run: some(dice, 0.4, 0.3),
        give_up: some(dice, 0.4, 0.2),
        cancel: some(dice, 0.4, 0.1),
        killed: some(dice, 0.2, 0.05),
        lazy: some(dice, 0.3, 0.3),
        body: some(dice, 0.3, 0.3),
        refused: some(dice, 0.4, 0.1),
        retry_after: dice.among(&[0.0, 0.5, 1.0]),
        timeout: some(dice, 0.2, 0.05),
        outlive: dice.chance(0.5),
    }
}

fn failover(dice: &mut Dice, zombie: Option<Lives>) -> Fault {
    Fault::Failover {
        cut: dice.among(&[0, 200 * MS, SECOND, 5 * SECOND]),
        down: dice.span(10 * MS, 3 * SECOND),
        clock: if dice.chance(0.5) {
            0
        } else {
            dice.around_zero(5 * SECOND)
        },
        zombie,
    }
}

fn fault(dice: &mut Dice, coordinators: usize) -> Fault {
    let who = dice.whole(0, coordinators as u64 - 1) as usize;
    let step = dice.among(&[-60_000, -5_000, -500, 500, 5_000, 60_000]) * MS.cast_signed();
    match dice.whole(0, 11) {
        0 | 1 => Fault::Stall(dice.span(100 * MS, 30 * SECOND)),
        2 => Fault::Restart(Memory::Nothing, dice.span(20 * MS, 3 * SECOND)),
        3 => {
            let age = dice.span(100 * MS, 10 * SECOND);
            Fault::Restart(Memory::Snapshot(age), dice.span(20 * MS, 3 * SECOND))
        }
        4 => Fault::Restart(Memory::Everything, dice.span(20 * MS, 3 * SECOND)),
        5 | 6 => failover(dice, None),
        7 => Fault::Flush,
        8 => Fault::Clock(step),
        9 => Fault::Kill(who, dice.span(10 * MS, 3 * SECOND)),
        10 => Fault::Freeze(who, dice.span(100 * MS, 30 * SECOND)),
        _ => Fault::Cut(who, dice.span(100 * MS, 20 * SECOND)),
    }
}
