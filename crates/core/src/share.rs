//! The shares with which workers go on while no coordinator answers.
//!
//! Each of the N live workers has a place, and with it every N-th turn of each key: turn k is at
//! k/rate on the coordinator's clock. The turns of all places are those of one key at its rate, so
//! together the workers keep the rate although none knows of the others. No turn is saved up.
//!
//! The coordinator may be away for one worker only, or come back before a worker notices. It then
//! takes all turns of a silent worker as used ([`Members::silent`]), until that worker calls or its
//! time is over.

use std::time::Duration;

use crate::Timestamp;
use crate::host::AcquireRequest;

/// The time without a call after which a worker counts as silent.
pub const SILENT: Duration = Duration::from_secs(2);
/// The time from the first call without an answer to the first turn. Until then, permits that the
/// coordinator granted ahead may still leave, and the coordinator notices the silence.
pub const BEGINS_AFTER: Duration = Duration::from_secs(3);
/// The maximum number of places. Further workers have no share.
const PLACES_MAX: u32 = 4_096;

/// A worker's place among the live workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the place, from 0.
    pub index: u32,
    /// The number of places.
    pub of: u32,
}

impl Place {
    /// Returns the first turn at or after `at`, on the coordinator's clock, of a key with `rate`
    /// requests per second.
    pub fn next_turn(self, rate: f64, at: Timestamp) -> Timestamp {
        let turn = self.turns_before(rate, at) * f64::from(self.of) + f64::from(self.index);
        Timestamp::from_micros((turn * 1e6 / rate).ceil() as u64)
    }

    /// Returns the number of turns from `from` until before `until`.
    pub fn turns_between(self, rate: f64, from: Timestamp, until: Timestamp) -> f64 {
        (self.turns_before(rate, until) - self.turns_before(rate, from)).max(0.0)
    }

    fn turns_before(self, rate: f64, at: Timestamp) -> f64 {
        // A turn is rounded up to a whole microsecond, and calculated to half of one.
        let before = (at.as_micros() as f64 - 0.5) * rate / 1e6 - f64::from(self.index);
        ((before / f64::from(self.of)).floor() + 1.0).max(0.0)
    }

    /// Returns this place's slots of a cap.
    pub const fn slots(self, cap: u32) -> u32 {
        cap / self.of + (self.index < cap % self.of) as u32
    }
}

/// A charge to a key without a grant.
#[derive(Clone, Debug, PartialEq)]
pub enum Charge {
    /// Turns of silent workers, in tokens.
    Turns(f64),
    /// A request that left on a share. Its turn was taken; its declared limits were not.
    Sent(AcquireRequest),
}

/// The live workers in their places. Those that ask for no share have a place as well, since they
/// wait for permits of the same keys.
#[derive(Debug)]
pub struct Members {
    places: Vec<Option<Member>>,
    began: Timestamp,
    lasts: Duration,
}

#[derive(Debug)]
struct Member {
    /// The worker's name. It is empty for a worker of an earlier run that did not call yet.
    name: Box<str>,
    heard: Timestamp,
    /// The end of the share that it was told last.
    until: Timestamp,
    /// The number of places that it was told last, 0 if none.
    told: u32,
    /// The number of places by which it divides now: the smallest that it may know.
    divides_by: u32,
}

impl Member {
    fn is_silent(&self, now: Timestamp) -> bool {
        self.heard + SILENT <= now
    }
}

impl Members {
    /// Creates the members of a coordinator that began at `began`. A share lasts for `lasts`.
    pub const fn new(began: Timestamp, lasts: Duration) -> Self {
        Self {
            places: Vec::new(),
            began,
            lasts,
        }
    }

    /// Notes a call of the worker `name`. `known` is the place that it was told last.
    ///
    /// In the time after a start, a place that is not known here is of an earlier run. Its other
    /// places are kept for the workers that did not call yet.
    pub fn hear(&mut self, name: &str, known: Option<Place>, now: Timestamp) {
        self.leave_places(now);
        let known = known.filter(|place| place.index < place.of && place.of <= PLACES_MAX);
        if let Some(member) = self.of_name(name) {
            member.heard = now;
            let least = known.map_or(member.told, |place| place.of.min(member.told));
            member.divides_by = least;
            return;
        }
        let mut member = Member {
            name: name.into(),
            heard: now,
            until: Timestamp::ZERO,
            told: 0,
            divides_by: 0,
        };
        let earlier = known.filter(|_| now < self.began + self.lasts);
        if let Some(Place { index, of }) = earlier {
            let until = self.began + self.lasts;
            while self.places.len() < of as usize {
                self.places.push(Some(Member {
                    name: Box::default(),
                    heard: Timestamp::ZERO,
                    until,
                    told: of,
                    divides_by: of,
                }));
            }
            (member.until, member.told, member.divides_by) = (until, of, of);
            let place = &mut self.places[index as usize];
            if place.as_ref().is_none_or(|other| other.name.is_empty()) {
                *place = Some(member);
                return;
            }
        }
        match self.places.iter().position(Option::is_none) {
            Some(free) => self.places[free] = Some(member),
            None if self.places.len() < PLACES_MAX as usize => self.places.push(Some(member)),
            None => {}
        }
    }

    /// Returns the place to tell the worker `name`, and notes that it is told.
    ///
    /// A larger number of places is told to those first who divide by a smaller one. Until they
    /// have repeated it, the others are told nothing, so that the shares never exceed the whole.
    pub fn tell(&mut self, name: &str, now: Timestamp) -> Option<Place> {
        let of = self.places.len() as u32;
        let until = now + self.lasts;
        let mut index = None;
        for (i, member) in (0..).zip(&self.places) {
            let Some(member) = member else { continue };
            if *member.name == *name {
                index = Some(i);
            } else if member.told > 0 && member.divides_by < of {
                return None;
            }
        }
        let member = self.of_name(name)?;
        let fewer = member.told == 0 || of < member.divides_by;
        if fewer {
            member.divides_by = of;
        }
        (member.told, member.until) = (of, until);
        index.map(|index| Place { index, of })
    }

    /// Returns the places of workers that may go on with their shares now.
    pub fn silent(&self, now: Timestamp) -> impl Iterator<Item = Place> {
        (0..).zip(&self.places).filter_map(move |(index, member)| {
            let member = member.as_ref()?;
            let of = member.divides_by;
            let is_away = member.is_silent(now) && now < member.until && of > 0;
            is_away.then_some(Place { index, of })
        })
    }

    /// Returns whether no worker has a place.
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn of_name(&mut self, name: &str) -> Option<&mut Member> {
        let mut members = self.places.iter_mut().flatten();
        members.find(|member| *member.name == *name)
    }

    fn leave_places(&mut self, now: Timestamp) {
        let lasts = self.lasts;
        for place in &mut self.places {
            place.take_if(|member| {
                let is_gone = member.heard + lasts <= now;
                member.until <= now && (is_gone || member.told > 0 && member.is_silent(now))
            });
        }
        let last = self.places.iter().rposition(Option::is_some);
        self.places.truncate(last.map_or(0, |last| last + 1));
    }
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
