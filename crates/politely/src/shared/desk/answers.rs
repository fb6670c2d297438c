//! What the engine's answers mean.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use politely_core::host::{Grant, HORIZON, Host};

use super::super::cell::{Cell, CellError, LastWrite, Who};
use super::super::event::Event;
use super::super::lease::safely;
use super::{
    Attempt, BREATH, CROWD, Desk, GATHER_MAX, Granting, LATELY, RETRY, Reading, SLOW_MAX, Shop,
    Told, UNREADABLE,
};
use crate::cells::{EngineError, Version, Written};

impl Desk {
    /// What came of the write under way. If it stood: how long that took, conflicts included.
    pub(in crate::shared) fn written(
        &mut self,
        result: Result<Written, EngineError>,
        shop: &mut Shop,
        mono: Timestamp,
        told: &mut Vec<Told>,
    ) -> Option<Duration> {
        let attempt = self.under_way.take()?;
        match result {
            Ok(Written::Done) => {
                let took = mono.since(attempt.began);
                self.takes = took.min(SLOW_MAX).max(self.takes / 8 * 7);
                self.failures = 0;
                self.breathe(attempt.began, took, shop, mono);
                shop.count.commits += 1;
                shop.count.items += (attempt.events + attempt.granted.len()) as u64;
                let crowd = attempt.events + attempt.granted.len() >= CROWD;
                self.stands(attempt, shop, mono, told);
                let length = mono.since(self.tried_since.take()?);
                if std::mem::take(&mut self.met) && crowd {
                    self.gathers_until = mono + length.min(GATHER_MAX);
                    self.outdated = true;
                }
                shop.took.add(length);
                return Some(length);
            }
            Ok(Written::Conflict(value)) => {
                shop.count.conflicts += 1;
                self.met_another();
                self.take_back(&attempt, shop);
                self.heard(value.as_deref(), shop, mono);
                self.soon(mono);
            }
            Err(_) => {
                shop.count.unknown += 1;
                self.take_back(&attempt, shop);
                self.doubtful.push(attempt);
                self.not_before = mono + RETRY * (1 << self.failures.min(6));
                self.failures += 1;
            }
        }
        None
    }

    /// Somebody else wrote.
    const fn met_another(&mut self) {
        self.contended = true;
        self.met = true;
    }

    /// Leaves room for somebody else's write now and then.
    fn breathe(&mut self, began: Timestamp, took: Duration, shop: &Shop, mono: Timestamp) {
        let paused = began.since(self.answered) >= took;
        self.in_a_row = if paused { 1 } else { self.in_a_row + 1 };
        self.answered = mono;
        let (_, all) = shop.epochs.place();
        if self.in_a_row >= BREATH && all > 1 {
            self.in_a_row = 0;
            self.not_before = mono + took.min(SLOW_MAX);
        }
    }

    fn stands(&mut self, attempt: Attempt, shop: &Shop, mono: Timestamp, told: &mut Vec<Told>) {
        self.base = Some(attempt.value);
        self.remembered = None;
        self.learned |= attempt.events > 0;
        self.heard = Some(mono);
        self.reading.is_overtaken();
        self.last = attempt.number;
        self.doubtful.clear();
        self.drop_events(attempt.events, shop);
        let now = self.now(shop, mono);
        self.ended.note(&self.view.host, &attempt.cell.host, now);
        self.view = attempt.cell;
        self.apply_again(shop);
        if !self.events.is_empty() {
            self.due = self.due.min(mono);
        }
        let owed = std::mem::take(&mut self.owed);
        told.extend(owed.into_iter().chain(attempt.granted).map(Told::Granted));
    }

    /// Who was to be served stands where they stood.
    fn take_back(&mut self, attempt: &Attempt, shop: &mut Shop) {
        for granting in &attempt.granted {
            self.wait_again(granting, shop);
        }
    }

    /// A permit that cannot be used: whoever was to have it waits again, if they still do.
    pub(in crate::shared) fn wait_again(&mut self, granting: &Granting, shop: &mut Shop) {
        if !shop.gone.remove(&granting.ticket) {
            let place = (granting.turn, granting.ticket);
            self.waiting.insert(place, granting.waiter);
            self.try_now();
        }
    }

    fn soon(&mut self, mono: Timestamp) {
        self.try_unless_unreadable();
        if !self.events.is_empty() {
            self.due = mono;
        }
    }

    /// What a look showed.
    pub(in crate::shared) fn was_read(
        &mut self,
        result: Result<Option<Vec<u8>>, EngineError>,
        shop: &mut Shop,
        mono: Timestamp,
    ) {
        shop.count.reads += 1;
        let reading = std::mem::replace(&mut self.reading, Reading::No);
        let outdated = std::mem::take(&mut self.outdated);
        if outdated
            && let Ok(value) = &result
            && value.as_deref().and_then(Version::of) != self.version()
        {
            self.met_another();
        }
        match result {
            // Whoever wrote meanwhile was not answered from what was read, but can be from that.
            _ if reading == Reading::Overtaken => self.try_unless_unreadable(),
            Ok(value) if self.under_way.is_none() => {
                self.heard(value.as_deref(), shop, mono);
                self.try_unless_unreadable();
            }
            Ok(_) => {}
            Err(_) => self.try_at = self.try_at.min(mono + LATELY),
        }
    }

    /// What somebody else wrote; while a write of ours is under way its answer tells more.
    pub(in crate::shared) fn noticed(&mut self, value: &[u8], shop: &mut Shop, mono: Timestamp) {
        if self.under_way.is_some() || Version::of(value) == self.version() {
            return;
        }
        if let Ok((cell, _)) = Cell::decode(value, Timestamp::ZERO, &shop.config)
            && cell.head.commits > self.view.head.commits
        {
            self.heard(Some(value), shop, mono);
            self.try_now();
        }
    }

    /// The engine holds `value`.
    fn heard(&mut self, value: Option<&[u8]>, shop: &mut Shop, mono: Timestamp) {
        let first = self.heard.is_none();
        let version = value.and_then(Version::of);
        self.heard = Some(mono);
        self.reading.is_overtaken();
        let known = value.is_some() == self.base.is_some() && version == self.version();
        if known && !first && !self.unreadable {
            return;
        }
        let now = self.now(shop, mono);
        // Read as of its own time: what happened here meanwhile may be older than now.
        let read = value.map(|value| Cell::decode(value, Timestamp::ZERO, &shop.config));
        let (cell, at) = match read {
            None => (Cell::new(Host::new(&shop.config, now)), now),
            Some(Ok(read)) => read,
            Some(Err(why)) => {
                self.cannot_read(&why, mono);
                return;
            }
        };
        self.unreadable = false;
        let made = match cell.head.last_write(shop.me) {
            LastWrite::Number(number) => {
                let made = self
                    .doubtful
                    .iter()
                    .position(|attempt| attempt.number == number);
                made.map(|i| self.doubtful.swap_remove(i))
            }
            LastWrite::None | LastWrite::Unknown => None,
        };
        if !self.doubtful.is_empty() {
            // What they wrote, they did not.
            self.due = mono;
        }
        self.doubtful.clear();
        if let Some(attempt) = made {
            self.was_made_after_all(attempt, shop, mono);
        }
        if self.has_lost(&cell, shop.me) {
            shop.count.lost += 1;
            self.lost_at = Some(mono);
            let known = std::mem::replace(&mut self.view, cell);
            let made_anew = version.is_none() || known.born != self.view.born;
            let Cell {
                head: lost,
                host: mut known,
                ..
            } = known;
            // What was to be delivered once it is sure is not in it any more.
            for granting in std::mem::take(&mut self.owed) {
                let Grant {
                    lease,
                    slots,
                    unused,
                    ..
                } = granting.grant;
                for (lease, unused) in unused.of_run(lease, slots) {
                    known.cancel(now, lease, Some(unused), &shop.config);
                }
                self.wait_again(&granting, shop);
            }
            if made_anew {
                // What others were granted last is in neither.
                known.resume_after(now, now + HORIZON, &shop.config);
            }
            if version.is_none() {
                self.view.head.stands_in_for(&lost);
                // Of two laws a join takes the slower: a new one would make what was learned forgotten.
                self.view.host.clone_from(&known);
            }
            self.events.push_front((mono, Event::Join(Box::new(known))));
            self.due = mono;
            self.last = 0;
        } else {
            self.view = cell;
        }
        self.base = value.map(Arc::from);
        self.learned = true;
        self.at = at;
        self.apply_again(shop);
        self.end_again(shop, mono);
    }

    /// What we ended somebody who did not know took up again after a loss.
    fn end_again(&mut self, shop: &Shop, mono: Timestamp) {
        let known = self.ahead.as_deref().unwrap_or(&self.view);
        let again: Vec<_> = self.ended.taken_again(&known.host).collect();
        if again.is_empty() {
            return;
        }
        for lease in again {
            self.push(mono, Event::Release { lease, bytes: 0 });
        }
        self.due = mono;
        self.apply_again(shop);
    }

    fn cannot_read(&mut self, why: &CellError, mono: Timestamp) {
        if !std::mem::replace(&mut self.unreadable, true) {
            tracing::warn!(cell = %self.name, %why, "left alone");
        }
        self.try_at = mono + UNREADABLE;
    }

    /// So many are written.
    fn drop_events(&mut self, count: usize, shop: &Shop) {
        for (at, event) in self.events.drain(..count) {
            match event {
                Event::Renew(lease) => lease.settled(at + safely(shop.config.lease)),
                Event::Barrier(barrier) => barrier.is_written(),
                _ => {}
            }
        }
    }

    fn was_made_after_all(&mut self, attempt: Attempt, shop: &Shop, mono: Timestamp) {
        self.last = attempt.number;
        self.drop_events(attempt.events, shop);
        let now = self.now(shop, mono);
        self.ended.note(&self.view.host, &attempt.cell.host, now);
        for granting in attempt.granted {
            if self
                .waiting
                .remove(&(granting.turn, granting.ticket))
                .is_some()
            {
                self.owed.push(granting);
            } else {
                let Grant {
                    lease,
                    slots,
                    unused,
                    ..
                } = granting.grant;
                let cancelled = Event::cancelled(lease, slots, unused);
                self.events.extend(cancelled.map(|event| (mono, event)));
                self.due = mono;
            }
        }
    }

    /// The engine holds less than it did: our last write is not in it, or not all that we saw.
    fn has_lost(&self, cell: &Cell, me: Who) -> bool {
        let ours = match cell.head.last_write(me) {
            LastWrite::Number(number) => number < self.last,
            LastWrite::None => self.last > 0,
            LastWrite::Unknown => false,
        };
        ours || cell.head.commits < self.view.head.commits
    }
}
