//! Permits from a coordinator: a [`Limiter`] whose keys all workers of a fleet share.
//!
//! ```no_run
//! # async fn example(key: politely::Key) -> Result<(), Box<dyn std::error::Error>> {
//! use politely::Limiter;
//!
//! let limiter = Limiter::builder()
//!     .coordinator("http://127.0.0.1:7077")
//!     .client("worker-3")
//!     .build()?;
//! let permit = limiter.acquire(&key).await?;
//! # Ok(())
//! # }
//! ```
//!
//! How it differs from a limiter of one process:
//!
//! - Reports are sent in the background. [`Permit::report`](crate::Permit::report) returns at once,
//!   with the rate and the hold of the coordinator's last answer for this key. `event` and `late`
//!   are `false`.
//! - [`Limiter::try_acquire`] does not wait for the coordinator. Its first refusal starts a
//!   prefetch in the background. The permit is kept until the next call takes it or it expires,
//!   after at most half a second. [`Limiter::ready`] returns when to call. A prefetch that no call
//!   asks for again is dropped after five seconds.
//! - The coordinator keeps the configuration and the learned states. [`Limiter::set_rate`],
//!   `set_numbers`, `hold`, `unpark` and `forget` are sent to it in the background. A number that
//!   it would refuse is an error at once. `numbers`, `configure`, `reconfigure`, `restore` and
//!   `resume` return [`Unsupported`] errors. `explain`, `each`, `keys`, `snapshot` and
//!   `take_learned` return nothing.
//! - A request costs 1,000 tokens at most and has nine keys at most. More is an
//!   [`AcquireError::Coordinator`]. A hold is a year at most.
//! - An arrival ([`Limiter::turn`]) has no effect, since the coordinator keeps the queues. One call
//!   grants one departure.
//! - A Crawl-delay ([`Limiter::crawl_delay`]) is sent with every acquire request for its key, in
//!   case the coordinator has lost it.
//! - Leases are renewed in the background while a permit or slot exists.
//!   [`Permit::renew`](crate::Permit::renew) returns `None` once a lease was lost. The request must
//!   then be aborted.
//!
//! Several coordinators that share their keys (`politely serve --store`) are listed with commas.
//! The first is called. If it does not answer, or is shutting down, the next is called. Acquire
//! requests and reports are sent to it with the same ids. A permit may be reported to any of them.
//!
//! While the coordinator is unavailable, no permit is granted. Calls are retried after at most a
//! second, with the same ids. Reports are kept meanwhile (65,536 of them) and sent when it is back.
//!
//! | file | its part |
//! | --- | --- |
//! | `desk/` | the session: what to send, the next call, the effect of an answer |
//! | `lines.rs`, `wishes.rs` | the callers' queues; prefetches for `try_acquire` |
//! | `delays.rs` | Crawl-delays from robots.txt |
//! | `claim.rs`, `told.rs` | the guard of a permit, and its report |
//! | `call.rs` | one call, over the client of `politely-api` |
//! | `courier.rs` | the driver: the thread that makes the calls |

mod call;
mod claim;
mod courier;
mod delays;
mod desk;
mod lines;
mod told;
mod wishes;

use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use politely_api::client::Client;
use politely_api::wire::{Change, HOLD_MAX_MS, KeyPatch, NAME_MAX, RATE_MAX, RATE_MIN};
use politely_core::Timestamp;
use politely_core::config::Config;
use politely_core::host::{Ask, OperatorNumbers};
use politely_core::key::Key;
use tokio::sync::{Notify, oneshot};

use crate::asked::{AcquireError, Refusal, SetError, Unsupported};
use crate::clock::Clock;
use crate::elsewhere::{Elsewhere, Later, Operation};
use crate::limiter::{Builder, Limiter};
use crate::permit::Permit;
use crate::stats::Stats;
use crate::sync::sleep;
use crate::waiters::Turn;

use self::call::Transport;
use self::claim::Claim;
use self::desk::Desk;

pub use politely_api::client::ClientError;

/// The name of this backend in errors.
const BACKEND: &str = "with a coordinator";

/// Builds a [`Limiter`] whose permits come from a coordinator.
#[derive(Clone)]
pub struct RemoteBuilder {
    url: String,
    client: Option<String>,
    token: Option<String>,
    ca: Option<PathBuf>,
    clock: Option<Clock>,
    /// Whether the builder before has limits of its own.
    has_limits: bool,
}

/// Why the limiter cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The coordinator's URL or the token is invalid, or certificates cannot be read.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The client's name is not 1 to 128 bytes long.
    #[error("a client's name is 1 to 128 bytes long")]
    Name,
    /// The builder has limits, which a coordinator keeps.
    #[error("the coordinator keeps the limits; set them on `politely serve`, or with set_rate")]
    Limits,
    /// The thread for the calls cannot be started.
    #[error("no thread: {0}")]
    Thread(String),
}

impl RemoteBuilder {
    pub(crate) const fn new(url: String, clock: Option<Clock>) -> Self {
        Self {
            url,
            client: None,
            token: None,
            ca: None,
            clock,
            has_limits: false,
        }
    }

    /// Sets the name of this worker, 1 to 128 bytes. Each worker needs a name of its own. Default:
    /// the process id and a random number.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client = Some(name.into());
        self
    }

    /// Sets the coordinator's token, if it requires one.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets a PEM file with one or more certificates of authorities to trust, in addition to those
    /// of this machine.
    ///
    /// The environment variable `SSL_CERT_FILE` may name a file to trust in place of those of this
    /// machine.
    #[must_use]
    pub fn ca(mut self, pem: impl Into<PathBuf>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Builds the limiter. The coordinator need not be reachable yet.
    ///
    /// # Errors
    /// The URL, name, token or authority is invalid, the builder has limits, or the thread cannot
    /// be started.
    pub fn build(self) -> Result<Limiter, RemoteError> {
        let transport = Client::new(&self.url, self.token.as_deref(), self.ca.as_deref())?;
        self.build_with(transport)
    }

    fn build_with(self, transport: impl Transport) -> Result<Limiter, RemoteError> {
        let seed = foldhash::fast::RandomState::default().hash_one(std::process::id());
        let name = || format!("{}-{:06x}", std::process::id(), seed & 0xff_ffff);
        let client = self.client.unwrap_or_else(name);
        if client.is_empty() || client.len() > NAME_MAX {
            return Err(RemoteError::Name);
        }
        if self.has_limits {
            return Err(RemoteError::Limits);
        }
        let clock = self.clock.unwrap_or_else(Clock::system);
        let shared = Arc::new(Shared {
            desk: Mutex::new(Desk::new(client, seed)),
            clock: clock.clone(),
            wake: Notify::new(),
            ready: Notify::new(),
            said: Notify::new(),
        });
        courier::start(Arc::clone(&shared), transport)?;
        Ok(Limiter::from(Box::new(Remote(shared)), clock))
    }
}

impl std::fmt::Debug for RemoteBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteBuilder")
            .field("url", &self.url)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// A limiter's connection to a coordinator. Dropping it sends what is pending and acquires nothing
/// more.
pub(crate) struct Remote(Arc<Shared>);

/// The state that callers, permits and the driver share.
pub(crate) struct Shared {
    desk: Mutex<Desk>,
    clock: Clock,
    /// Wakes the driver.
    wake: Notify,
    /// Signals that a prefetch ended.
    ready: Notify,
    /// Signals that a call ended.
    said: Notify,
}

impl Elsewhere for Remote {
    fn acquire<'a>(
        &'a self,
        keys: &'a [Key],
        ask: Ask,
        _turn: Turn,
    ) -> Later<'a, Result<Permit, AcquireError>> {
        Box::pin(self.acquire_in_line(keys, ask))
    }

    fn try_acquire(&self, keys: &[Key], ask: Ask) -> Result<Permit, Refusal> {
        assert!(!keys.is_empty(), "a request needs a key");
        let now = self.now();
        let found = self.0.desk.lock().try_ask(keys, ask, now);
        match found {
            Ok(granted) => Ok(Claim::new(&self.0, granted).into_permit()),
            Err((reason, at)) => {
                self.0.wake.notify_one();
                Err(Refusal {
                    key: keys[0].clone(),
                    reason,
                    at,
                    index: 0,
                })
            }
        }
    }

    fn ready(&self) -> Later<'_, Vec<Key>> {
        Box::pin(async {
            loop {
                let ready = self.0.desk.lock().take_ready();
                if !ready.is_empty() {
                    return ready;
                }
                self.0.ready.notified().await;
            }
        })
    }

    fn operate(&self, key: &Key, operation: Operation) {
        let mut patch = KeyPatch::default();
        match operation {
            Operation::CrawlDelay(delay) => {
                let now = self.now();
                return self.0.desk.lock().crawl_delay(key, delay, now);
            }
            Operation::Set(numbers) => {
                let change = |set: Option<f64>| match set {
                    Some(number) if number.is_infinite() => Change::TakeBack,
                    set => set.into(),
                };
                patch.rate = change(numbers.rate);
                patch.burst = change(numbers.burst);
                patch.in_flight = match numbers.in_flight {
                    Some(u32::MAX) => Change::TakeBack,
                    set => set.into(),
                };
                patch.law = match numbers.law {
                    None => Change::Keep,
                    Some(law) => law
                        .name()
                        .map_or(Change::TakeBack, |name| Change::To(name.to_owned())),
                };
                patch.learn = numbers.learn.into();
                patch.crawl_delay_ms = match numbers.crawl_delay_ms {
                    Some(u32::MAX) => Change::TakeBack,
                    set => set.into(),
                };
            }
            Operation::Hold(length, _) => {
                let ms = u64::try_from(length.as_millis()).unwrap_or(HOLD_MAX_MS);
                patch.hold_ms = Some(ms.min(HOLD_MAX_MS));
            }
            Operation::Unpark => patch.unpark = Some(true),
            Operation::Forget => patch.forget = Some(true),
        }
        self.0.desk.lock().patch(key, patch);
        self.0.wake.notify_one();
    }

    fn supports_numbers(&self, numbers: OperatorNumbers) -> Result<(), SetError> {
        let is_beyond = |set: Option<f64>| {
            set.is_some_and(|set| set.is_finite() && !(RATE_MIN..=RATE_MAX).contains(&set))
        };
        if is_beyond(numbers.rate) || is_beyond(numbers.burst) {
            return Err(SetError::Unsupported(Unsupported {
                operation: "a rate or burst outside 0.000001 to 1,000,000",
                backend: BACKEND,
                instead: "set one within these bounds",
            }));
        }
        Ok(())
    }

    fn numbers(&self, _key: &Key) -> Result<OperatorNumbers, Unsupported> {
        Err(Unsupported {
            operation: "numbers",
            backend: BACKEND,
            instead: "ask the coordinator: GET /api/v1/keys/{key}",
        })
    }

    fn reconfigure(&self, _config: &Config) -> Result<(), Unsupported> {
        Err(Unsupported {
            operation: "reconfigure",
            backend: BACKEND,
            instead: "change the coordinator's: PATCH /api/v1/config",
        })
    }

    fn config(&self) -> Result<Arc<Config>, Unsupported> {
        Err(Unsupported {
            operation: "reconfigure_new",
            backend: BACKEND,
            instead: "change the coordinator's: PATCH /api/v1/config",
        })
    }

    fn remember(&self, _key: &Key, _state: &[u8]) -> Result<(), Unsupported> {
        Err(Unsupported {
            operation: "restore",
            backend: BACKEND,
            instead: "restore it where the coordinator runs",
        })
    }

    fn rate(&self, key: &Key) -> Option<f64> {
        self.0.desk.lock().rate(key)
    }

    fn stats(&self) -> Stats {
        self.0.desk.lock().stats()
    }

    fn settled(&self, patience: Duration) -> Later<'_, bool> {
        let quiet = async {
            loop {
                let said = self.0.said.notified();
                tokio::pin!(said);
                said.as_mut().enable();
                let heard = self.0.desk.lock().was_heard();
                if let Some(heard) = heard {
                    return heard;
                }
                said.await;
            }
        };
        Box::pin(async move {
            let heard = tokio::time::timeout(patience, quiet).await;
            heard.unwrap_or(false)
        })
    }

    fn greet(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async {
            let before = self.0.desk.lock().greet();
            self.0.wake.notify_one();
            loop {
                let said = self.0.said.notified();
                tokio::pin!(said);
                said.as_mut().enable();
                if let Some(greeted) = self.0.desk.lock().greeted(before) {
                    return greeted;
                }
                said.await;
            }
        })
    }

    fn trouble(&self) -> Option<String> {
        self.0.desk.lock().trouble()
    }

    fn close(&self) {
        let deliveries = self.0.desk.lock().close();
        courier::deliver(&self.0, deliveries);
        self.0.wake.notify_one();
        self.0.ready.notify_waiters();
    }
}

impl Remote {
    async fn acquire_in_line(&self, keys: &[Key], ask: Ask) -> Result<Permit, AcquireError> {
        if keys.is_empty() {
            return Err(AcquireError::NoKey);
        }
        let began = self.now();
        loop {
            let (answer, comes) = oneshot::channel();
            self.0.desk.lock().ask(keys, ask, answer)?;
            self.0.wake.notify_one();
            let claim = comes.await.unwrap_or(Err(AcquireError::Closed))?;
            let early = claim.start().since(self.now());
            if !early.is_zero() && ask.horizon.is_zero() {
                sleep(early).await;
            }
            // A permit that came too late is cancelled, and another is acquired.
            if claim.is_valid(self.now()) {
                let waited = self.now().since(began);
                self.0.desk.lock().waited(waited);
                metrics::histogram!("politely_wait_seconds").record(waited.as_secs_f64());
                return Ok(claim.into_permit());
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
    }
}

impl Builder {
    /// Takes permits from the coordinator at `url` instead of from this process.
    ///
    /// The URL is `http://127.0.0.1:7077`, for example, or begins with `https`. Several
    /// coordinators that share their keys are listed with commas: `http://a:7077,http://b:7077`.
    /// Only the clock of this builder applies. The coordinator keeps the limits, the capacity and
    /// the queues. With other limits than the default, [`RemoteBuilder::build`] fails.
    pub fn coordinator(self, url: impl Into<String>) -> RemoteBuilder {
        let has_limits = self.config != Config::default();
        RemoteBuilder {
            has_limits,
            ..RemoteBuilder::new(url.into(), self.clock)
        }
    }
}

#[cfg(test)]
mod tests;
