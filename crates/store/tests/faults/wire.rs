//! The network between processes and the engine.

use std::sync::Arc;

use politely_core::Timestamp;

use super::dice::{CALL_TIMEOUT, MS, Micros, SECOND};
use super::engine::{EPOCH, Health};
use super::log::What;
use super::seat::Call;
use super::world::{Event, Own, World};
use politely_store::{Commands, EngineError, Heartbeat, Version, Write, Written};

/// The content of a request.
#[derive(Clone, Debug)]
enum Asked {
    Heartbeat(Arc<str>),
    Writes(Vec<Write>),
    Reads(Vec<Arc<str>>),
    Watch(Vec<Arc<str>>, Vec<Arc<str>>),
}

/// A request and its sender.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) who: usize,
    life: u32,
    call: u64,
    incarnation: u32,
    /// The number of events before it was sent.
    built: u64,
    asked: Asked,
}

/// An answer of the engine.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Heartbeat(Heartbeat),
    Writes(Vec<Written>),
    Reads(Vec<Option<Vec<u8>>>),
    Watched,
    /// The engine refused, or the call timed out.
    None,
}

impl World {
    pub(super) fn send(&mut self, who: usize, calls: Commands, local: Timestamp) {
        let Commands {
            heartbeat,
            settings,
            reads,
            writes,
            watch,
            unwatch,
        } = calls;
        if settings {
            self.seats[who].node.handle_risks(Ok(Vec::new()));
        }
        if let Some(cell) = heartbeat {
            self.call(who, Call::Heartbeat(local), Asked::Heartbeat(cell));
        }
        if !writes.is_empty() {
            self.write(who, writes);
        }
        if !reads.is_empty() {
            self.seats[who].under_way += 1;
            self.call(who, Call::Reads(reads.clone()), Asked::Reads(reads));
        }
        if !watch.is_empty() || !unwatch.is_empty() {
            self.call(who, Call::Watch, Asked::Watch(watch, unwatch));
        }
    }

    fn write(&mut self, who: usize, writes: Vec<Write>) {
        self.seats[who].under_way += 1;
        let names = writes.iter().map(|write| Arc::clone(&write.cell)).collect();
        self.call(who, Call::Writes(names), Asked::Writes(writes));
    }

    fn call(&mut self, who: usize, call: Call, asked: Asked) {
        self.next += 1;
        let id = self.next;
        let incarnation = self.engine_of(who).incarnation;
        let seat = &mut self.seats[who];
        seat.calls.insert(id, call);
        let request = Request {
            who,
            life: seat.life,
            call: id,
            incarnation,
            built: id,
            asked,
        };
        let cut = seat.cut;
        self.to(who, self.now + CALL_TIMEOUT, Own::NoAnswer(id));
        if cut {
            if self.plan.wire.cut_keeps {
                self.requests.insert(id, request);
                self.seats[who].backlog.push(id);
            }
            return;
        }
        if self.dice.chance(self.plan.wire.lost_request) {
            return;
        }
        self.requests.insert(id, request);
        let mut way = self.way();
        if self.dice.chance(self.plan.wire.delayed) {
            way += self.dice.span(100 * MS, 3 * SECOND);
        }
        let mut at = self.now + way;
        if self.plan.wire.ordered {
            at = at.max(self.seats[who].sent);
            self.seats[who].sent = at;
        }
        self.at(at, Event::Request(id));
    }

    pub(super) fn way(&mut self) -> Micros {
        let (least, most) = self.plan.wire.latency;
        let (often, long) = self.plan.wire.spike;
        let spikes = self.dice.chance(often);
        let most = if spikes { long.max(most) } else { most };
        self.dice.whole(least, most)
    }

    /// Handles the arrival of a request at the engine.
    pub(super) fn receive(&mut self, id: u64) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        let seat = &mut self.seats[request.who];
        if seat.cut && seat.life == request.life {
            if self.plan.wire.cut_keeps {
                seat.backlog.push(id);
                self.requests.insert(id, request);
            }
            return;
        }
        let engine = self.engine_of(request.who);
        let fits = request.incarnation == engine.incarnation;
        match engine.health() {
            Health::Stalled if fits => {
                self.backlog.push(id);
                self.requests.insert(id, request);
                return;
            }
            Health::Up if fits => {}
            _ => {
                self.reply(&request, Answer::None);
                return;
            }
        }
        let answer = self.carry_out(&request);
        let seat = &self.seats[request.who];
        let is_write =
            matches!(&answer, Answer::Writes(results) if results.contains(&Written::Done));
        if seat.doomed && is_write && seat.life == request.life {
            self.is_killed(request.who);
        }
        // A conflict changes nothing, so it is answered without waiting for the replica.
        let wrote = matches!(&answer, Answer::Writes(results) if results.contains(&Written::Done));
        if self.plan.waits && wrote {
            let at = self.now + self.plan.lag;
            let written = self.now;
            self.requests.insert(id, request);
            self.at(at, Event::Copied(id, written, answer));
        } else {
            self.reply(&request, answer);
        }
    }

    /// Answers a write once the replica has it.
    pub(super) fn copied(&mut self, id: u64, written: Micros, answer: Answer) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        let now = self.now;
        let engine = self.engine_of(request.who);
        let alive = request.incarnation == engine.incarnation;
        if alive && engine.replica_has(now) >= written {
            self.reply(&request, answer);
        }
    }

    fn carry_out(&mut self, request: &Request) -> Answer {
        let now = self.now;
        let engine = self.engine_of(request.who);
        match &request.asked {
            Asked::Heartbeat(cell) => Answer::Heartbeat(engine.heartbeat(cell, now)),
            Asked::Reads(cells) => {
                Answer::Reads(cells.iter().map(|cell| engine.read(cell)).collect())
            }
            Asked::Watch(more, less) => {
                if self.seats[request.who].life == request.life {
                    self.engine_of(request.who)
                        .watch(request.who, more.clone(), less.clone());
                }
                Answer::Watched
            }
            Asked::Writes(writes) => {
                let mut made = writes.len();
                if self.dice.chance(self.plan.wire.broken) {
                    made = self.dice.whole(0, made as u64 - 1) as usize;
                }
                let made = &writes[..made];
                let results: Vec<_> = made
                    .iter()
                    .map(|write| self.change(request, write))
                    .collect();
                if results.len() == writes.len() {
                    Answer::Writes(results)
                } else {
                    Answer::None
                }
            }
        }
    }

    fn change(&mut self, request: &Request, write: &Write) -> Written {
        let now = self.now;
        let result = self.engine_of(request.who).compare_and_set(write, now);
        let done = result == Written::Done;
        let number = Version::of(&write.value).map_or(0, |version| {
            u64::from_le_bytes(version.0[..8].try_into().expect("eight"))
        });
        let key = self.key_of(&write.cell);
        if let Some(key) = key {
            self.note(request.who, What::Writes { key, number, done });
        }
        if !done {
            return result;
        }
        self.log.take_in(&write.value);
        if let Some(key) = key {
            let by = (request.who, request.life);
            self.books.committed(key, by, request.built, self.now);
        }
        if write.notify {
            self.tell_watchers(request.who, write);
        }
        result
    }

    fn tell_watchers(&mut self, writer: usize, write: &Write) {
        let value: Arc<[u8]> = write.value.as_slice().into();
        for who in self.engine_of(writer).watchers(&write.cell) {
            let lost = self.dice.chance(self.plan.wire.lost_notice) || self.seats[who].cut;
            if lost || !self.are_joined(who, writer) {
                continue;
            }
            let at = self.now + self.way();
            self.to(
                who,
                at,
                Own::Notice(Arc::clone(&write.cell), Arc::clone(&value)),
            );
        }
    }

    fn reply(&mut self, request: &Request, answer: Answer) {
        let seat = &self.seats[request.who];
        if seat.life != request.life || seat.cut || self.dice.chance(self.plan.wire.lost_reply) {
            return;
        }
        let mut at = self.now + self.way();
        if self.plan.wire.ordered {
            at = at.max(self.seats[request.who].answered);
            self.seats[request.who].answered = at;
        }
        self.to(request.who, at, Own::Answer(request.call, answer));
    }

    /// Handles the arrival of an answer at a process.
    pub(super) fn answered(&mut self, who: usize, call: u64, answer: Answer) {
        let local = self.local(who);
        let seat = &mut self.seats[who];
        let Some(call) = seat.calls.remove(&call) else {
            return;
        };
        match call {
            Call::Watch => {}
            Call::Heartbeat(sent) => {
                let heartbeat = match answer {
                    Answer::Heartbeat(heartbeat) => Ok(heartbeat),
                    _ => Err(no_answer()),
                };
                let (run, ok) = (
                    heartbeat.as_ref().map_or(0, |heartbeat| heartbeat.run),
                    heartbeat.is_ok(),
                );
                let write = seat.node.handle_heartbeat(sent, heartbeat, local);
                let shared = seat.node.shared_time(local).as_micros();
                let ahead = shared.wrapping_sub(EPOCH + self.now).cast_signed();
                self.note(who, What::Heartbeat { run, ok, ahead });
                if let Some(write) = write {
                    self.write(who, vec![write]);
                }
            }
            Call::Writes(names) => {
                seat.under_way -= 1;
                let results = match answer {
                    Answer::Writes(results) => results.into_iter().map(Ok).collect(),
                    _ => vec![Err(no_answer()); names.len()],
                };
                for (name, result) in names.iter().zip(results) {
                    if result.is_err() {
                        let since = self.now - CALL_TIMEOUT.min(self.now);
                        seat.doubts.entry(Arc::clone(name)).or_insert(since);
                    } else if result == Ok(Written::Done)
                        && let Some(since) = seat.doubts.remove(name)
                    {
                        self.books.in_doubt(self.now - since);
                    }
                    seat.node.handle_write(name, result, local);
                }
            }
            Call::Reads(names) => {
                seat.under_way -= 1;
                let results = match answer {
                    Answer::Reads(results) => results.into_iter().map(Ok).collect(),
                    _ => vec![Err(no_answer()); names.len()],
                };
                for (name, result) in names.iter().zip(results) {
                    seat.node.handle_read(name, result, local);
                }
            }
        }
    }
}

fn no_answer() -> EngineError {
    EngineError("no answer in time".to_owned())
}
