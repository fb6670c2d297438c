//! The choice of the next call.

use std::time::Duration;

use politely_api::wire::{self, Told, Want};
use politely_core::Timestamp;
use politely_core::key::Key;

use super::super::call::{Call, Kind, Sent};
use super::{Session, Step};

/// The minimum time between two calls. Everything that comes meanwhile shares the next call.
const LINGER: Duration = Duration::from_millis(1);
/// The maximum number of held-open calls at a time.
const POLLS: usize = 8;
/// The interval at which new acquire requests are sent while all held-open calls are in use.
const QUICK_EVERY: Duration = Duration::from_millis(100);
/// The time for which a call is held open.
const WAIT: Duration = Duration::from_secs(25);
/// The maximum number of items per call. Reports are longer, so a call has a quarter as many.
const ITEMS: usize = wire::ITEMS_MAX;

impl Session {
    /// Returns the next call, or the time to look again.
    pub(in super::super) fn next(&mut self, now: Timestamp) -> Step {
        match self.next_call(now) {
            Step::Wait(at) => Step::Wait(self.fallback.next_turn.map_or(at, |turn| at.min(turn))),
            call @ Step::Call(_) => call,
        }
    }

    fn next_call(&mut self, now: Timestamp) -> Step {
        let lines = &mut self.lines;
        let lapsed = self.prefetches.sweep(now, |number| lines.withdraw(*number));
        for kept in lapsed {
            self.cancel(kept.permit, false);
        }
        let probing = self.failures > 0;
        if probing && (self.under_way.quick || self.under_way.command) {
            return Step::Wait(Timestamp::NEVER);
        }
        let first = self.not_before.max(self.last + LINGER);
        if first > now {
            return Step::Wait(first);
        }
        match self.compose(now, probing) {
            Ok((call, requests, kind)) => {
                self.last = now;
                self.under_way.began(kind);
                Step::Call(Sent {
                    call,
                    requests,
                    kind,
                    at: now,
                })
            }
            Err(at) => Step::Wait(at),
        }
    }

    fn compose(
        &mut self,
        now: Timestamp,
        probing: bool,
    ) -> Result<(Call, Vec<u64>, Kind), Timestamp> {
        if !self.under_way.command {
            if let Some((key, patch)) = self.patches.pop_front() {
                return Ok((Call::Patch(key, patch), Vec::new(), Kind::Command));
            }
            for sent in [false, true] {
                if !self.cancels[usize::from(sent)].is_empty() {
                    let waiting = &mut self.cancels[usize::from(sent)];
                    let permits = waiting.split_off(waiting.len().saturating_sub(ITEMS));
                    let call = wire::Cancel {
                        client: self.client.clone(),
                        permits,
                        sent,
                    };
                    return Ok((Call::Cancel(call), Vec::new(), Kind::Command));
                }
            }
            if let Some(call) = self.renewal(now) {
                return Ok((call, Vec::new(), Kind::Command));
            }
        }
        if !self.under_way.quick && (self.ping_due || !self.reports.is_empty()) {
            self.ping_due = false;
            return Ok(self.exchange(Kind::Quick, now));
        }
        let beat = self.fallback.next_beat();
        if !self.under_way.quick && !self.closed && beat <= now {
            return Ok(self.exchange(Kind::Quick, now));
        }
        let mut due = self.prefetches.due();
        if !self.under_way.quick && !self.closed {
            due = due.min(beat);
        }
        // While a pending command is in flight, its end comes first.
        if let Some(((at, _), _)) = self.leases.first_key_value()
            && !self.under_way.command
        {
            due = due.min(*at);
        }
        if !self.lines.any_waiting() {
            return Err(due.max(now + LINGER));
        }
        if probing {
            return Ok(self.exchange(Kind::Quick, now));
        }
        if self.under_way.polls < POLLS {
            let call = self.exchange(Kind::Poll, now);
            // All waiting callers may have given up.
            return if call.1.is_empty() {
                Err(due)
            } else {
                Ok(call)
            };
        }
        let again = self.last + QUICK_EVERY;
        if self.under_way.quick || again > now {
            return Err(due.min(again.max(now + LINGER)));
        }
        Ok(self.exchange(Kind::Quick, now))
    }

    fn exchange(&mut self, kind: Kind, now: Timestamp) -> (Call, Vec<u64>, Kind) {
        let delays = &self.delays;
        let delay = |key: &Key| delays.of(key, now);
        // The queues are served from the share, so the call only finds out who answers.
        let most = if self.fallback.is_active() { 0 } else { ITEMS };
        let (requests, mut acquire) = self.lines.take(most, &self.prefix, delay);
        for item in &mut acquire {
            self.label(item);
        }
        if kind == Kind::Quick {
            self.fallback.note_beat(now);
        }
        let count = self.reports.len().min(ITEMS / 4);
        let reports: Vec<(Key, Told)> = match kind {
            Kind::Quick => self.reports.drain(..count).collect(),
            Kind::Poll | Kind::Command => Vec::new(),
        };
        let (wait, want) = match kind {
            _ if acquire.is_empty() => (Duration::ZERO, Want::All),
            Kind::Poll => (WAIT, Want::Any(acquire.len() as u32)),
            _ => (Duration::ZERO, Want::Any(acquire.len() as u32)),
        };
        let (keys, report) = reports.into_iter().unzip();
        let call = wire::Exchange {
            session: None,
            share: self.fallback.place(),
            client: self.client.clone(),
            wait_ms: wait.as_millis() as u32,
            want,
            report,
            acquire,
        };
        (Call::Exchange(call, keys), requests, kind)
    }

    /// Adds the labels of this worker.
    pub(super) fn label(&self, item: &mut wire::Item) {
        for (name, value) in &self.labels {
            let label = item.labels.entry(name.clone());
            label.or_insert_with(|| value.clone());
        }
    }

    fn renewal(&mut self, now: Timestamp) -> Option<Call> {
        let mut leases = Vec::new();
        while let Some(entry) = self.leases.first_entry()
            && entry.key().0 <= now
            && leases.len() < ITEMS
        {
            leases.extend(entry.remove().upgrade());
        }
        let permits = leases.iter().map(|lease| lease.id().clone()).collect();
        let client = self.client.clone();
        (!leases.is_empty()).then_some(Call::Renew(wire::Permits { client, permits }, leases))
    }
}
