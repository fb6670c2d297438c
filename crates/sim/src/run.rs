//! The event loop: virtual time, one host, one or more clients.
//!
//! A request reaches the host as it leaves, and its answer travels the whole round trip. To both
//! sides this looks the same as half of it each way. Events at one instant are handled in the order
//! in which they were made.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use politely_core::signal::{Failure, Quota};
use politely_core::{Rng, Timestamp};
use politely_target::Headers;
use politely_target::model::{
    Answer as Verdicted, FaultSpec, LimitedHost, Outage, SpecError, Verdict,
};

use crate::client::{Answer, Client, Reply};
use crate::heard::{announced, said};
use crate::scenario::{Demand, Scenario};
use crate::trace::{Fate, Request, Trace};

/// The answer of a block page.
const BLOCKED: u16 = 403;
/// The status that stands for no response.
const NO_RESPONSE: u16 = 504;
/// How many times a client tries a page that fails by its own fault.
pub const ATTEMPTS_MAX: u32 = 3;
/// How long such a page waits after its first attempt. It waits twice as long after the second.
const PAGE_BACKOFF: Duration = Duration::from_secs(1);
/// How long a client waits for a response.
const TIME_OUT: Duration = Duration::from_secs(30);
/// A round trip varies by this share.
const RTT_SPREAD: f64 = 0.1;
/// The range of phases: aligned windows up to a day begin anywhere.
const PHASE_MAX_S: f64 = 86_400.0;

impl Scenario {
    /// Creates the scenario's host in its initial state.
    pub fn host(&self, rng: Rng) -> Result<LimitedHost, SpecError> {
        LimitedHost::new(&self.limit, &self.faults, self.service, rng)
    }

    /// Returns when a timer that is set to `at` fires.
    fn timer_fires(&self, at: Timestamp) -> Timestamp {
        match (self.timer_ms * 1e3) as u64 {
            0 => at,
            tick_us => Timestamp::from_micros(at.as_micros().next_multiple_of(tick_us)),
        }
    }
}

/// Runs `scenario` with one client per worker, or one for all if they are coordinated. `plot` keeps
/// setpoints.
///
/// # Panics
/// If the scenario was not validated.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    plot: bool,
    client: impl FnMut(u32) -> Box<dyn Client>,
) -> Trace {
    Run::new(scenario, seed, plot, client).run()
}

/// Returns the reading of the clock of aligned windows when a run with `seed` begins.
pub(crate) fn phase(seed: u64) -> Duration {
    Duration::from_secs_f64(Rng::new(!seed).between(0.0, PHASE_MAX_S))
}

enum Event {
    /// A client may have something to send.
    AcquireRequest { client: u32 },
    /// The host has finished a request.
    Depart,
    /// An answer arrives.
    Answer { flight: u32 },
    /// A connection has finished its sleep.
    Wake {
        client: u32,
        worker: u32,
        page: Page,
    },
}

/// A page to fetch.
#[derive(Clone, Copy)]
struct Page {
    number: u64,
    /// How many times it was tried.
    attempts: u32,
    /// It fails at every attempt.
    is_bad: bool,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Flight {
    sent: Timestamp,
    ticket: u64,
    client: u32,
    worker: u32,
    page: Page,
    status: u16,
    failure: Option<Failure>,
    fate: Fate,
    in_hold: bool,
    service: Duration,
    retry_after: Option<Duration>,
    quota: Option<Quota>,
}

/// A client and the connections that wait for its decision.
struct Seat {
    client: Box<dyn Client>,
    /// Idle connections by worker, the longest idle first.
    idle: VecDeque<u32>,
    /// Pages to retry.
    again: VecDeque<Page>,
    /// When it will be asked next.
    next_ask: Timestamp,
    /// The end of the Retry-After that it knows.
    hold: Timestamp,
}

struct Run<'a> {
    scenario: &'a Scenario,
    end: Timestamp,
    now: Timestamp,
    seq: u64,
    events: BinaryHeap<Reverse<(u64, u64, u32)>>,
    // Payloads are kept apart, so the heap moves three words instead of an event.
    payloads: Vec<Event>,
    free_payloads: Vec<u32>,
    host: LimitedHost,
    has_slots: bool,
    queue: VecDeque<u32>,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    seats: Vec<Seat>,
    /// Pages not yet begun.
    fresh: u64,
    /// Pages not yet served.
    unserved: u64,
    rng: Rng,
    client_rng: Rng,
    plot: bool,
    trace: Trace,
}

impl<'a> Run<'a> {
    fn new(
        scenario: &'a Scenario,
        seed: u64,
        plot: bool,
        mut client: impl FnMut(u32) -> Box<dyn Client>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let mut host = scenario
            .host(Rng::new(rng.next_u64()))
            .expect("the scenario was validated");
        host.limit_mut().shift(phase(seed));
        let has_slots = host.limit_mut().has_slots();
        let (workers, connections) = (scenario.workers, scenario.demand.connections());
        let clients = if scenario.coordinated { 1 } else { workers };
        let seats = (0..clients)
            .map(|i| Seat {
                client: client(i),
                // Connections are assigned to workers in turn.
                idle: (0..connections.max(workers))
                    .map(|connection| connection % workers)
                    .filter(|worker| worker % clients == i)
                    .collect(),
                again: VecDeque::new(),
                next_ask: Timestamp::NEVER,
                hold: Timestamp::ZERO,
            })
            .collect();
        let pages = match scenario.demand {
            Demand::Greedy { .. } => u64::MAX,
            Demand::Pages { count, .. } => u64::from(count),
        };
        Self {
            scenario,
            end: Timestamp::from_secs_f64(scenario.duration_s),
            now: Timestamp::ZERO,
            seq: 0,
            events: BinaryHeap::new(),
            payloads: Vec::new(),
            free_payloads: Vec::new(),
            host,
            has_slots,
            queue: VecDeque::new(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            seats,
            fresh: pages,
            unserved: pages,
            client_rng: Rng::new(rng.next_u64()),
            rng,
            plot,
            trace: Trace::default(),
        }
    }

    fn run(mut self) -> Trace {
        for client in 0..self.seats.len() as u32 {
            self.ask_at(
                client,
                Timestamp::from_micros(1 + 1_000 * u64::from(client)),
            );
        }
        while let Some(Reverse((at, _, payload))) = self.events.pop() {
            let at = Timestamp::from_micros(at);
            if at > self.end || self.unserved == 0 {
                break;
            }
            self.now = at;
            self.free_payloads.push(payload);
            let event = std::mem::replace(&mut self.payloads[payload as usize], Event::Depart);
            match event {
                Event::AcquireRequest { client } => {
                    let seat = &mut self.seats[client as usize];
                    if seat.next_ask == at {
                        seat.next_ask = Timestamp::NEVER;
                        self.send(client);
                    }
                }
                Event::Depart => self.depart(),
                Event::Answer { flight } => self.answer(flight),
                Event::Wake {
                    client,
                    worker,
                    page,
                } => {
                    let seat = &mut self.seats[client as usize];
                    seat.again.push_back(page);
                    seat.idle.push_back(worker);
                    self.send(client);
                }
            }
        }
        self.trace.end = if self.unserved == 0 {
            self.now
        } else {
            self.end
        };
        self.trace
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.seq += 1;
        let payload = if let Some(free) = self.free_payloads.pop() {
            self.payloads[free as usize] = event;
            free
        } else {
            self.payloads.push(event);
            self.payloads.len() as u32 - 1
        };
        self.events
            .push(Reverse((at.as_micros(), self.seq, payload)));
    }

    fn ask_at(&mut self, client: u32, at: Timestamp) {
        let seat = &mut self.seats[client as usize];
        if at < seat.next_ask {
            seat.next_ask = at;
            self.push(at, Event::AcquireRequest { client });
        }
    }

    /// Sends while there is a connection, a page and leave.
    fn send(&mut self, client: u32) {
        loop {
            let seat = &mut self.seats[client as usize];
            if seat.idle.is_empty() || (seat.again.is_empty() && self.fresh == 0) {
                return;
            }
            match seat.client.ask(self.now) {
                Answer::AfterReply => return,
                Answer::At(at) => {
                    if at < Timestamp::NEVER {
                        let at = self.scenario.timer_fires(at);
                        self.ask_at(client, at.max(self.now + Duration::from_micros(1)));
                    }
                    return;
                }
                Answer::Go(ticket) => {
                    let worker = seat
                        .idle
                        .pop_front()
                        .expect("checked above: a worker is idle");
                    let again = seat.again.pop_front();
                    let mut page = again.unwrap_or_else(|| self.fresh_page());
                    page.attempts += 1;
                    let seat = &self.seats[client as usize];
                    let in_hold = self.now < seat.hold;
                    self.arrive(Flight {
                        sent: self.now,
                        ticket,
                        client,
                        worker,
                        page,
                        status: 200,
                        failure: None,
                        fate: Fate::Served,
                        in_hold,
                        service: Duration::ZERO,
                        retry_after: None,
                        quota: None,
                    });
                }
            }
        }
    }

    fn fresh_page(&mut self) -> Page {
        self.fresh -= 1;
        let bad = self.scenario.bad_pages;
        Page {
            number: self.fresh,
            attempts: 0,
            is_bad: bad.is_some_and(|bad| self.rng.unit() < bad.share),
        }
    }

    /// Returns the Retry-After of an answer in an outage: its end, if the host tells it by now.
    fn told_of_outage(&self) -> Option<Duration> {
        let told_from = self.scenario.outage_told_from?;
        let now = self.now.as_secs_f64();
        let mut outages = (self.scenario.faults.iter()).filter_map(FaultSpec::outage);
        let (from, to) = outages.find(|(from, to)| (*from..*to).contains(&now))?;
        let is_told = now >= from + (to - from) * told_from;
        is_told.then(|| Duration::from_secs((to - now).ceil() as u64))
    }

    fn arrive(&mut self, mut flight: Flight) {
        let signals = self.scenario.signals;
        let (mut after, mut queued) = (Duration::ZERO, false);
        match self.host.arrive(self.now) {
            Verdicted::Limit {
                verdict,
                service,
                noise,
            } => {
                flight.service = service;
                if let Some(status) = noise {
                    (flight.status, flight.fate) = (status, Fate::Noise);
                }
                if flight.page.is_bad {
                    flight.fate = Fate::Bad;
                    flight.status = self.scenario.bad_pages.map_or(500, |bad| bad.status);
                }
                match verdict {
                    Verdict::Serve { after: delay } => after = delay,
                    Verdict::Queue { .. } => queued = true,
                    Verdict::Refuse { retry_after } => {
                        (flight.status, flight.fate) = (signals.status, Fate::Refused);
                        flight.retry_after = said(signals.retry_after, retry_after);
                    }
                }
                if signals.headers != Headers::None {
                    let quota = self.host.limit_mut().quota(self.now);
                    flight.quota = quota.map(|quota| announced(signals.headers, quota));
                }
            }
            Verdicted::Blocked => (flight.status, flight.fate) = (BLOCKED, Fate::Blocked),
            Verdicted::Down(outage) => {
                flight.fate = Fate::Down;
                (flight.status, flight.failure) = match outage {
                    Outage::Status(status) => (status, None),
                    Outage::Reset => (NO_RESPONSE, Some(Failure::Reset)),
                    Outage::Silence => (NO_RESPONSE, Some(Failure::Timeout)),
                };
                if matches!(outage, Outage::Status(_)) {
                    flight.retry_after = self.told_of_outage();
                }
                if outage == Outage::Silence {
                    flight.service = TIME_OUT;
                }
            }
        }
        let index = if let Some(free) = self.free_flights.pop() {
            self.flights[free as usize] = flight;
            free
        } else {
            self.flights.push(flight);
            self.flights.len() as u32 - 1
        };
        if queued {
            self.queue.push_back(index);
        } else {
            self.serve(index, after);
        }
    }

    /// Starts the host's work on a request after the delay `after`.
    fn serve(&mut self, index: u32, after: Duration) {
        let flight = &self.flights[index as usize];
        let (served, done) = (flight.fate, after + flight.service);
        if self.has_slots && matches!(served, Fate::Served | Fate::Noise | Fate::Bad) {
            self.push(self.now + done, Event::Depart);
        }
        let spread = self.rng.between(1.0 - RTT_SPREAD, 1.0 + RTT_SPREAD);
        let network = Duration::from_micros((self.scenario.rtt_ms * 1e3 * spread) as u64);
        // Time moves on with every answer, or a refused client would ask for ever at one moment.
        let whole = (done + network).max(Duration::from_micros(1));
        self.push(self.now + whole, Event::Answer { flight: index });
    }

    fn depart(&mut self) {
        for _ in 0..self.host.limit_mut().depart(self.now) {
            if let Some(index) = self.queue.pop_front() {
                self.serve(index, Duration::ZERO);
            }
        }
    }

    fn answer(&mut self, index: u32) {
        self.free_flights.push(index);
        let flight = self.flights[index as usize];
        let latency = self.now.since(flight.sent);
        self.trace.requests.push(Request {
            sent: flight.sent,
            latency,
            fate: flight.fate,
            worker: flight.worker,
            in_hold: flight.in_hold,
        });
        let reply = Reply {
            ticket: flight.ticket,
            sent: flight.sent,
            latency,
            status: flight.status,
            failure: flight.failure,
            retry_after: flight.retry_after,
            quota: flight.quota,
            attempt: flight.page.attempts,
            page: self.scenario.bad_pages.map(|_| flight.page.number),
        };
        let seat = &mut self.seats[flight.client as usize];
        seat.client.hear(self.now, &reply, &mut self.client_rng);
        if let Some(after) = flight.retry_after {
            seat.hold = seat.hold.max(self.now + after);
        }
        let is_given_up = flight.fate == Fate::Bad && flight.page.attempts >= ATTEMPTS_MAX;
        if flight.fate == Fate::Served || is_given_up {
            self.unserved -= 1;
            seat.idle.push_back(flight.worker);
        } else {
            let mut sleep = seat.client.backoff(&reply, &mut self.client_rng);
            if flight.fate == Fate::Bad {
                sleep = sleep.max(PAGE_BACKOFF * flight.page.attempts);
            }
            if sleep.is_zero() {
                seat.again.push_back(flight.page);
                seat.idle.push_back(flight.worker);
            } else {
                let wake = Event::Wake {
                    client: flight.client,
                    worker: flight.worker,
                    page: flight.page,
                };
                self.push(self.now + sleep, wake);
            }
        }
        if self.plot && flight.client == 0 {
            let rate = self.seats[0].client.rate(self.now);
            self.trace.rates.extend(rate.map(|rate| (self.now, rate)));
        }
        self.send(flight.client);
    }
}
