//! One host: its model, its counters, and the way of a request through it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use parking_lot::Mutex;
use politely_core::{Rng, Timestamp};
use tokio::sync::oneshot;

use super::Clock;
use super::answer::{self, Path, Refusal};
use super::visit::Visit;
use crate::judge::{Counters, HostReport};
use crate::log::{Entry, Kind, LogFile};
use crate::model::{Answer, LimitedHost, Outage, Quota, Verdict};
use crate::town::{Headers, HostSpec, RetryAfter, TownError};

#[derive(Debug)]
pub(super) struct Host {
    spec: HostSpec,
    addr: SocketAddr,
    clock: Clock,
    log: Option<Arc<LogFile>>,
    state: Mutex<State>,
}

/// Everything that a request changes, behind one lock: the model must see arrivals and departures
/// in order.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: LimitedHost,
    /// Queued requests by age, each with a number.
    pub(super) waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    next_waiting: u64,
    counters: Counters,
    entries: Option<Vec<Entry>>,
}

/// What happens to a request that has arrived.
enum Way {
    /// Work on it.
    Serve {
        visit: Visit,
        after: Duration,
        queued: Option<oneshot::Receiver<()>>,
        service: Duration,
        noise: Option<u16>,
    },
    /// Answer now.
    Refuse(Refusal),
    /// Answer now, with the block page.
    Block,
    /// Do what the outage says.
    Fail(Outage),
}

/// The status that the log shows for a request that got no answer.
const NO_ANSWER: u16 = 0;

/// The host closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed without an answer")]
pub(super) struct Closed;

impl Host {
    pub(super) fn new(
        spec: HostSpec,
        addr: SocketAddr,
        rng: Rng,
        clock: Clock,
        grace: Duration,
        log: Option<Arc<LogFile>>,
        keep: bool,
    ) -> Result<Self, TownError> {
        let model =
            LimitedHost::new(&spec.limit, &spec.faults, spec.service, rng).map_err(|source| {
                TownError::Host {
                    host: spec.name.clone(),
                    source,
                }
            })?;
        let state = Mutex::new(State {
            model,
            waiting: VecDeque::new(),
            next_waiting: 0,
            counters: Counters::new(grace),
            entries: keep.then(Vec::new),
        });
        Ok(Self {
            spec,
            addr,
            clock,
            log,
            state,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn report(&self) -> HostReport {
        HostReport::new(&self.spec, self.addr, &self.state.lock().counters)
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.state.lock().entries.clone().unwrap_or_default()
    }

    /// Handles a request from its arrival to its answer.
    pub(super) async fn answer(
        self: &Arc<Self>,
        request: &Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Closed> {
        let path = Path::of(request.uri().path(), self.spec.pages);
        let (way, quota) = self.arrive(path);
        let mut response = match way {
            Way::Serve {
                mut visit,
                after,
                queued,
                service,
                noise,
            } => {
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
                if let Some(queued) = queued {
                    // The sender stays in the state until it is used, so this cannot fail.
                    let _ = queued.await;
                }
                if !service.is_zero() {
                    tokio::time::sleep(service).await;
                }
                let response = match noise {
                    Some(status) => answer::failure(status),
                    None => answer::served(path, &self.spec),
                };
                let kind = if noise.is_some() {
                    Kind::Failed
                } else {
                    Kind::Accepted
                };
                visit.finish(kind, response.status().as_u16());
                response
            }
            Way::Refuse(refusal) => answer::refused(self.spec.signals.status, refusal),
            Way::Block => answer::blocked(),
            Way::Fail(Outage::Status(status)) => answer::failure(status),
            Way::Fail(Outage::Reset) => return Err(Closed),
            // The client ends the wait; then this future is dropped with its connection.
            Way::Fail(Outage::Silence) => std::future::pending().await,
        };
        if let Some(quota) = quota {
            answer::announce(
                response.headers_mut(),
                self.spec.signals.headers,
                quota,
                SystemTime::now(),
            );
        }
        Ok(response)
    }

    /// Consults the model and counts. The time is read under the lock, so it never goes back.
    fn arrive(self: &Arc<Self>, path: Path) -> (Way, Option<Quota>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.clock.now();
        state.counters.arrive(now);
        let answer = state.model.arrive(now);
        // An answer without a verdict of the limit announces nothing.
        let quota = match answer {
            Answer::Limit { .. } if self.spec.signals.headers != Headers::None => {
                state.model.limit_mut().quota(now)
            }
            _ => None,
        };
        let way = match answer {
            Answer::Limit {
                verdict: Verdict::Serve { after },
                service,
                noise,
            } => Way::Serve {
                visit: Visit::new(self, path, now, None),
                after,
                queued: None,
                service,
                noise,
            },
            Answer::Limit {
                verdict: Verdict::Queue { after },
                service,
                noise,
            } => {
                let (sender, receiver) = oneshot::channel();
                let number = state.next_waiting;
                state.next_waiting += 1;
                state.waiting.push_back((number, sender));
                let visit = Visit::new(self, path, now, Some(number));
                Way::Serve {
                    visit,
                    after,
                    queued: Some(receiver),
                    service,
                    noise,
                }
            }
            Answer::Limit {
                verdict: Verdict::Refuse { retry_after },
                ..
            } => {
                let (refusal, hold) = self.refusal(retry_after);
                if let Some(hold) = hold {
                    state.counters.announce(now, hold);
                }
                self.leave(
                    state,
                    now,
                    path,
                    now,
                    Kind::Refused,
                    self.spec.signals.status,
                    hold,
                );
                Way::Refuse(refusal)
            }
            Answer::Blocked => {
                self.leave(state, now, path, now, Kind::Blocked, answer::BLOCKED, None);
                Way::Block
            }
            Answer::Down(outage) => {
                let status = match outage {
                    Outage::Status(status) => status,
                    Outage::Reset | Outage::Silence => NO_ANSWER,
                };
                self.leave(state, now, path, now, Kind::Failed, status, None);
                Way::Fail(outage)
            }
        };
        (way, quota)
    }

    /// Returns a refusal's content and the hold that it means.
    fn refusal(&self, retry_after: Option<Duration>) -> (Refusal, Option<Duration>) {
        // Whole seconds, rounded up, so that a client that obeys is not refused again.
        let secs = retry_after.map_or(1, |wait| wait.as_micros().div_ceil(1_000_000) as u64);
        match self.spec.signals.retry_after {
            RetryAfter::None => (Refusal::Bare, None),
            RetryAfter::Seconds => (Refusal::Seconds(secs), Some(Duration::from_secs(secs))),
            RetryAfter::Absurd => (Refusal::Seconds(RetryAfter::ABSURD.as_secs()), None),
            RetryAfter::Date => {
                let now = SystemTime::now();
                let since_1970 = now
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default();
                let wait = retry_after.unwrap_or(Duration::from_secs(1));
                let until = Duration::from_secs(
                    (since_1970 + wait).as_nanos().div_ceil(1_000_000_000) as u64,
                );
                (
                    Refusal::Date(SystemTime::UNIX_EPOCH + until),
                    Some(until.saturating_sub(since_1970)),
                )
            }
        }
    }

    /// Ends a visit: frees its slot and counts it.
    pub(super) fn depart(&self, visit: &Visit, kind: Kind, status: u16) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.clock.now();
        let place = visit.waiting.and_then(|number| {
            state
                .waiting
                .binary_search_by_key(&number, |(number, _)| *number)
                .ok()
        });
        if let Some(place) = place {
            state.waiting.remove(place);
            state.model.limit_mut().abandon();
        } else {
            for _ in 0..state.model.limit_mut().depart(now) {
                if let Some((_, start)) = state.waiting.pop_front() {
                    let _ = start.send(());
                }
            }
        }
        self.leave(state, visit.arrived, visit.path, now, kind, status, None);
    }

    #[expect(clippy::too_many_arguments, reason = "an entry's fields, once")]
    fn leave(
        &self,
        state: &mut State,
        arrived: Timestamp,
        path: Path,
        departed: Timestamp,
        kind: Kind,
        status: u16,
        hold: Option<Duration>,
    ) {
        let entry = Entry {
            arrived_us: arrived.as_micros(),
            departed_us: departed.as_micros(),
            kind,
            status,
            page: path.page(),
            hold_ms: hold.map(|hold| hold.as_millis() as u64),
        };
        state.counters.depart(&entry);
        if let Some(log) = &self.log {
            log.write(&self.spec.name, &entry);
        }
        if let Some(entries) = &mut state.entries {
            entries.push(entry);
        }
    }
}
