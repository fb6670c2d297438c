//! The event loop: connections that each have a request to send at all times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use politely_core::{Rng, Timestamp};

use super::keeper::{Keeper, Reply};
use super::server::Server;
use super::study::Case;

/// More requests in flight than any of the limits needs.
const CONNECTIONS: usize = 12;
/// The time to the server and back, each way, in milliseconds: from and to.
const WAY_MS: (f64, f64) = (20.0, 30.0);
/// The time that the server works on a request, in milliseconds: from and to.
const SERVICE_MS: (f64, f64) = (100.0, 300.0);
/// An estimate is wrong by this factor, one way or the other.
const WRONG_BY: u64 = 10;

/// What a connection sends, and tries again after a refusal.
#[derive(Clone, Copy, Default)]
struct Request {
    tokens: u64,
    estimate: u64,
    /// How many times it was refused.
    refusals: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask,
    Arrive { ticket: u64 },
    Answer { ticket: u64, wait: Option<Duration> },
}

/// Runs a client to the end of the case. Returns the server, and how many requests were sent.
pub(super) fn run(
    case: &Case,
    begin: Timestamp,
    keeper: &mut dyn Keeper,
    mut server: Server,
    mut rng: Rng,
) -> (Server, u64) {
    let mut requests = [Request::default(); CONNECTIONS];
    let mut events = BinaryHeap::new();
    let (mut seq, mut sent_count) = (0_u64, 0);
    for (connection, request) in requests.iter_mut().enumerate() {
        *request = fresh(case, &mut rng);
        events.push(Reverse((begin, seq, connection, Event::Ask)));
        seq += 1;
    }
    let end = begin + case.length;
    while let Some(Reverse((now, _, connection, event))) = events.pop() {
        if now >= end {
            break;
        }
        let request = &mut requests[connection];
        let way = ms(&mut rng, WAY_MS);
        let (at, next) = match event {
            Event::Ask => match keeper.ask(now, connection, request.estimate) {
                Ok(ticket) => {
                    sent_count += 1;
                    (now + way, Event::Arrive { ticket })
                }
                Err(at) => (at.max(now + Duration::from_micros(1)), Event::Ask),
            },
            Event::Arrive { ticket } => {
                let wait = server.arrive(now, request.tokens).err();
                let service = match wait {
                    None => ms(&mut rng, SERVICE_MS),
                    Some(_) => Duration::ZERO,
                };
                (now + service + way, Event::Answer { ticket, wait })
            }
            Event::Answer { ticket, wait } => {
                request.refusals += u32::from(wait.is_some());
                let reply = Reply {
                    ticket,
                    tokens: wait.is_none().then_some(request.tokens),
                    // Whole seconds, as in a Retry-After header.
                    retry_after: wait.map(|wait| Duration::from_secs(wait.as_secs() + 1)),
                    refusals: request.refusals,
                };
                let rest = keeper.hear(now, &reply, &mut rng);
                if wait.is_none() {
                    *request = fresh(case, &mut rng);
                }
                (now + rest, Event::Ask)
            }
        };
        events.push(Reverse((at, seq, connection, next)));
        seq += 1;
    }
    (server, sent_count)
}

fn fresh(case: &Case, rng: &mut Rng) -> Request {
    let Some((from, to)) = case.tokens else {
        return Request::default();
    };
    let tokens = from + rng.next_u64() % (to - from + 1);
    let is_high = rng.unit() < 0.5;
    Request {
        tokens,
        estimate: if is_high {
            tokens * WRONG_BY
        } else {
            tokens / WRONG_BY
        },
        refusals: 0,
    }
}

fn ms(rng: &mut Rng, (from, to): (f64, f64)) -> Duration {
    Duration::from_micros((rng.between(from, to) * 1e3) as u64)
}
