//! A coordinator's place: its hub, its clock, and what it waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use politely_core::Timestamp;

use super::dice::{Dice, MS, Micros};
use super::world::Event;
use crate::shared::hub::{Hub, Ticket};

/// What a call was about.
#[derive(Debug)]
pub(super) enum Call {
    Pulse(Timestamp),
    Writes(Vec<Arc<str>>),
    Reads(Vec<Arc<str>>),
    Watch,
}

pub(super) struct Seat {
    /// Counts those who sat here: what was for one of them is not for the next.
    pub(super) life: u32,
    pub(super) hub: Hub,
    pub(super) alive: bool,
    pub(super) frozen: bool,
    /// It is killed when its next write is made.
    pub(super) doomed: bool,
    /// Its task that talks to the engine has ended.
    pub(super) stopped: bool,
    /// What happens to it while it stands still.
    pub(super) held: Vec<Event>,
    pub(super) cut: bool,
    /// What it sent while it was cut off.
    pub(super) backlog: Vec<u64>,
    pub(super) under_way: usize,
    pub(super) calls: BTreeMap<u64, Call>,
    /// Since when it does not know what the engine holds of a key.
    pub(super) doubts: BTreeMap<Arc<str>, Micros>,
    /// Its errands by what they wait for.
    pub(super) waits: BTreeMap<Ticket, usize>,
    /// Its next timer, and which of those that are set is the last.
    pub(super) timer: u64,
    /// On an ordered connection nothing arrives before this.
    pub(super) sent: Micros,
    pub(super) answered: Micros,
    origin: u64,
    born: Micros,
    ppm: i64,
}

impl Seat {
    pub(super) fn new(hub: Hub, life: u32, born: Micros, dice: &mut Dice) -> Self {
        Self {
            life,
            hub,
            alive: true,
            frozen: false,
            doomed: false,
            stopped: false,
            held: Vec::new(),
            cut: false,
            backlog: Vec::new(),
            under_way: 0,
            calls: BTreeMap::new(),
            doubts: BTreeMap::new(),
            waits: BTreeMap::new(),
            timer: 0,
            sent: 0,
            answered: 0,
            origin: dice.span(MS, 1 << 50),
            born,
            ppm: dice.around_zero(super::dice::DRIFT_PPM),
        }
    }

    /// Its own clock.
    pub(super) const fn mono(&self, now: Micros) -> Timestamp {
        let passed = (now - self.born).cast_signed();
        let passed = passed + passed * self.ppm / 1_000_000;
        Timestamp::from_micros(self.origin + passed.cast_unsigned())
    }

    /// When its own clock first shows `mono`.
    pub(super) fn when(&self, mono: Timestamp) -> Micros {
        let passed = mono.as_micros().saturating_sub(self.origin).min(1 << 50);
        let passed = passed.cast_signed();
        let mut at = self.born + (passed - passed * self.ppm / 1_000_000).max(0) as u64;
        while self.mono(at) < mono {
            at += 1;
        }
        at
    }
}
