//! A lock on a key, held in a session of its own.

#![expect(
    clippy::disallowed_methods,
    reason = "a lock is held by this machine's clock while the coordinator is unavailable"
)]

use std::future::Future;
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::{CallError, Calling, Client, Outgoing, post};
use crate::wire::{
    ClaimLock, LockAnswer, LockMode, LockReleased, OpenSession, ReleaseLock, SessionClosed,
    SessionState, WAIT_MAX_MS,
};

/// The longest time for which one call is held open. Proxies close connections that are silent for
/// long.
const POLL_MAX: Duration = Duration::from_secs(30);
/// The pause after a call that failed, and the largest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The time for the release of a lock that is not needed any more.
const RELEASE: Duration = Duration::from_secs(2);

/// The lock to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWanted {
    /// The worker's name.
    pub client: String,
    /// The key.
    pub key: String,
    /// The most holders at once.
    pub max: u16,
    /// Whether the key is held alone.
    pub mode: LockMode,
    /// The time after which the lock ends if this process dies: a second to an hour.
    pub ttl: Duration,
    /// The longest time to wait, `None` for no limit.
    pub wait: Option<Duration>,
    /// An id that no other call of this process has.
    pub id: String,
}

/// Why a lock was not acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockFailure {
    /// The lock was not free in time.
    #[error("the key is locked; {position} claims wait before this one")]
    TimedOut {
        /// The number of claims before this one in the key's queue.
        position: u32,
    },
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A lock that was acquired.
#[derive(Debug)]
pub struct ClientLock {
    client: Client,
    session: String,
    fencing: u64,
    ttl: Duration,
    /// Until then the lock is held for certain.
    until: Instant,
}

impl Client {
    /// Opens a session.
    pub fn open_session(&self, call: &OpenSession) -> Calling<SessionState> {
        self.call(post("/sessions", call))
    }

    /// Renews a session and its locks. The status 410 means that it has ended.
    pub fn renew_session(&self, session: &str) -> Calling<SessionState> {
        self.call(of_session(Method::PUT, session))
    }

    /// Ends a session with its locks and permits.
    pub fn close_session(&self, session: &str) -> Calling<SessionClosed> {
        self.call(of_session(Method::DELETE, session))
    }

    /// Claims a key. The coordinator may hold the call open for its `wait_ms`.
    pub fn claim_lock(&self, call: &ClaimLock) -> Calling<LockAnswer> {
        let held = Duration::from_millis(u64::from(call.wait_ms.min(WAIT_MAX_MS)));
        self.call(Outgoing {
            held,
            ..post("/locks", call)
        })
    }

    /// Releases a lock.
    pub fn release_lock(&self, call: &ReleaseLock) -> Calling<LockReleased> {
        self.call(post("/locks/release", call))
    }

    /// Acquires a lock in a session of its own, and waits for it.
    ///
    /// A call that fails because no coordinator serves is repeated until the time is over.
    ///
    /// Cancel-safe: the session of a future that is dropped is ended in the background.
    ///
    /// # Errors
    /// The lock was not free in time, or a coordinator rejects the call.
    pub async fn lock(&self, wanted: &LockWanted) -> Result<ClientLock, LockFailure> {
        let deadline = wanted.wait.map(|wait| Instant::now() + wait);
        loop {
            let open = OpenSession {
                client: wanted.client.clone(),
                ttl_ms: u32::try_from(wanted.ttl.as_millis()).unwrap_or(u32::MAX),
            };
            let opened = until(deadline, || self.open_session(&open)).await?;
            let mut session = OpenedSession {
                client: self,
                session: Some(opened.session.clone()),
            };
            let claimed = self.claim(wanted, &opened.session, deadline).await;
            session.session = None;
            match claimed {
                // The session ended while no coordinator answered.
                Err(LockFailure::Call(CallError::Rejected { status, .. }))
                    if status == StatusCode::GONE && !is_over(deadline) => {}
                Err(why) => {
                    let close = self.close_session(&opened.session);
                    let _ = tokio::time::timeout(RELEASE, close).await;
                    return Err(why);
                }
                held => return held,
            }
        }
    }

    async fn claim(
        &self,
        wanted: &LockWanted,
        session: &str,
        deadline: Option<Instant>,
    ) -> Result<ClientLock, LockFailure> {
        loop {
            let left = deadline.map_or(POLL_MAX, |at| at.saturating_duration_since(Instant::now()));
            let call = ClaimLock {
                session: session.to_owned(),
                key: wanted.key.clone(),
                max: wanted.max,
                mode: wanted.mode,
                wait_ms: u32::try_from(left.min(POLL_MAX).as_millis()).unwrap_or(u32::MAX),
                id: Some(wanted.id.clone()),
            };
            let asked = Instant::now();
            match until(deadline, || self.claim_lock(&call)).await? {
                LockAnswer::Held {
                    fencing, ttl_ms, ..
                } => {
                    let mut lock = ClientLock {
                        client: self.clone(),
                        session: session.to_owned(),
                        fencing,
                        ttl: wanted.ttl,
                        // The time counts from the call, because the answer may have taken long.
                        until: asked + Duration::from_millis(ttl_ms),
                    };
                    if asked.elapsed() > wanted.ttl / 3 {
                        // The session was renewed while the call waited.
                        lock.until = Instant::now() + wanted.ttl;
                        lock.renew().await?;
                    }
                    return Ok(lock);
                }
                LockAnswer::Wait {
                    position,
                    retry_in_ms,
                    ..
                } => {
                    if is_over(deadline) {
                        return Err(LockFailure::TimedOut { position });
                    }
                    let pause = Duration::from_millis(retry_in_ms).max(PAUSE.0 / 10);
                    tokio::time::sleep(pause.min(PAUSE.1)).await;
                }
            }
        }
    }
}

impl ClientLock {
    /// Returns the fencing number. It is larger than that of every earlier lock on the key.
    pub const fn fencing(&self) -> u64 {
        self.fencing
    }

    /// Renews the lock until it is lost, and returns the reason.
    ///
    /// Cancel-safe.
    pub async fn keep(&mut self) -> CallError {
        let mut pause = self.ttl / 3;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
            match self.renew().await {
                Ok(()) => pause = self.ttl / 3,
                Err(CallError::Unavailable(_) | CallError::Busy { .. })
                    if Instant::now() < self.until =>
                {
                    pause = PAUSE.1.min(self.ttl / 20);
                }
                Err(why) => return why,
            }
        }
    }

    async fn renew(&mut self) -> Result<(), CallError> {
        let asked = Instant::now();
        let left = self.until.saturating_duration_since(asked);
        let renewed = tokio::time::timeout(left, self.client.renew_session(&self.session)).await;
        let late = || Err(CallError::Unavailable("no answer in time".to_owned()));
        let state = renewed.unwrap_or_else(|_| late())?;
        if !state.locks.iter().any(|lock| lock.fencing == self.fencing) {
            return Err(CallError::Rejected {
                status: StatusCode::GONE,
                detail: Some(format!("the lock {} has ended", self.fencing)),
            });
        }
        self.until = asked + Duration::from_millis(state.ttl_ms);
        Ok(())
    }

    /// Releases the lock by the end of its session. If no coordinator answers in two seconds, the
    /// lock ends with the session's time-out.
    pub async fn release(self) {
        let end = Instant::now() + RELEASE;
        let close = until(Some(end), || self.client.close_session(&self.session));
        let _ = tokio::time::timeout(RELEASE, close).await;
    }
}

/// Ends a session in the background when it is dropped.
struct OpenedSession<'a> {
    client: &'a Client,
    session: Option<String>,
}

impl Drop for OpenedSession<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let close = self.client.close_session(&session);
            runtime.spawn(async move {
                let _ = tokio::time::timeout(RELEASE, close).await;
            });
        }
    }
}

fn of_session(method: Method, session: &str) -> Outgoing {
    Outgoing {
        method,
        content_type: None,
        path: format!("/sessions/{session}"),
        body: Vec::new(),
        held: Duration::ZERO,
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Repeats a call until a coordinator serves it, or `deadline` has passed. The first failure is
/// logged, because the wait may be long.
async fn until<T, F>(deadline: Option<Instant>, call: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut pause = PAUSE.0;
    loop {
        let why = match call().await {
            Err(why @ (CallError::Unavailable(_) | CallError::Busy { .. })) => why,
            answer => return answer,
        };
        if deadline.is_some_and(|deadline| Instant::now() + pause > deadline) {
            return Err(why);
        }
        if pause == PAUSE.0 {
            tracing::warn!(%why, "no coordinator serves the call; trying again");
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE.1);
    }
}
