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
//!   `set_numbers`, `hold`, `unpark`, `forget` and `reset_budgets` are sent to it in the
//!   background. A number that it would refuse is an error at once. `numbers`, `reconfigure`,
//!   `restore`, `resume`, `readmit` and `adopt` return [`Unsupported`](crate::Unsupported) errors.
//!   This process knows no key but those of [`configure`](crate::Limiter::configure), which it
//!   limits alone: `explain`, `each`, `keys`, `snapshot` and `take_learned` return nothing of
//!   others.
//! - A request costs 1,000 tokens at most and has nine keys at most. More is an
//!   [`AcquireError::Coordinator`]. A hold is a year at most.
//! - Requests of the tower layer and the reqwest middleware state their methods, and their URLs
//!   without credentials, query and fragment. All requests state the labels of
//!   [`CoordinatorBuilder::labels`], and those of their extensions ([`Labels`](crate::Labels)). So
//!   the coordinator's policy applies. For requests that have only keys, its patterns with a path
//!   do not.
//! - An arrival ([`Limiter::arrival`]) has no effect, since the coordinator keeps the queues. One
//!   call grants one departure.
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
//! While the coordinator is unavailable, no permit is granted, unless
//! [`CoordinatorBuilder::on_unavailable`] says otherwise. Calls are retried after at most a
//! second, with the same ids. Reports are kept meanwhile (65,536 of them) and sent when it is back.
//!
//! | file | its part |
//! | --- | --- |
//! | `session/` | the session: what to send, the next call, the effect of an answer |
//! | `lines.rs` | the callers' queues |
//! | `lock.rs` | locks, each in a session of its own |
//! | `delays.rs` | Crawl-delays from robots.txt |
//! | `permit_guard.rs`, `outcome.rs` | the guard of a permit, and its report |
//! | `call.rs` | one call, over the client of `politely-api` |
//! | `operations.rs`, `builder.rs` | the interface of the backend; its builder |
//! | `driver.rs` | the driver: the thread that makes the calls |
//!
//! [`Limiter`]: crate::Limiter
//! [`Limiter::crawl_delay`]: crate::Limiter::crawl_delay
//! [`Limiter::ready`]: crate::Limiter::ready
//! [`Limiter::set_rate`]: crate::Limiter::set_rate
//! [`Limiter::try_acquire`]: crate::Limiter::try_acquire
//! [`Limiter::arrival`]: crate::Limiter::arrival

mod builder;
mod call;
mod delays;
mod driver;
mod lines;
mod lock;
mod operations;
mod outcome;
mod permit_guard;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use politely_api::wire::KeyPatch;
use politely_core::Timestamp;
use politely_core::host::AcquireRequest;
use politely_core::key::Key;
use tokio::sync::{Notify, oneshot};

use crate::backend::operations::Head;
use crate::clock::Clock;
use crate::error::AcquireError;
use crate::permit::Permit;
use crate::sync::sleep;

use self::lock::LockClient;
use self::session::Session;

pub use self::builder::{CoordinatorBuilder, CoordinatorError};
pub use self::session::OnUnavailable;
pub use politely_api::client::ClientError;

/// A limiter's connection to a coordinator. Dropping it sends what is pending and acquires nothing
/// more.
pub(crate) struct Coordinator(Arc<Shared>);

/// The state that callers, permits and the driver share.
pub(crate) struct Shared {
    session: Mutex<Session>,
    clock: Clock,
    /// Wakes the driver.
    wake: Notify,
    /// Signals that a prefetch ended.
    ready: Notify,
    /// Signals that a call ended.
    call_ended: Notify,
    /// `None` in tests without HTTP.
    locks: Option<LockClient>,
}

impl Coordinator {
    async fn acquire_and_wait(
        &self,
        keys: &[Key],
        ask: AcquireRequest,
        head: Option<Head<'_>>,
    ) -> Result<Permit, AcquireError> {
        if keys.is_empty() {
            return Err(AcquireError::NoKey);
        }
        let began = self.now();
        loop {
            let (answer, comes) = oneshot::channel();
            self.0
                .session
                .lock()
                .acquire(keys, ask.clone(), head, answer)?;
            self.0.wake.notify_one();
            let guard = comes.await.unwrap_or(Err(AcquireError::Closed))?;
            let early = guard.start().since(self.now());
            if !early.is_zero() && ask.horizon.is_zero() {
                sleep(early).await;
            }
            // A permit that came too late is cancelled, and another is acquired.
            if guard.is_valid(self.now()) {
                let waited = self.now().since(began);
                self.0.session.lock().waited(waited);
                crate::recorder::record_wait(waited);
                return Ok(guard.into_permit());
            }
        }
    }

    fn patch(&self, key: &Key, patch: KeyPatch) {
        self.0.session.lock().patch(key, patch);
        self.0.wake.notify_one();
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

impl Shared {
    /// Refuses all callers. What is pending is still sent.
    fn close(self: &Arc<Self>) {
        let deliveries = self.session.lock().close();
        driver::deliver(self, deliveries);
        self.wake.notify_one();
        self.ready.notify_waiters();
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.0.close();
    }
}
