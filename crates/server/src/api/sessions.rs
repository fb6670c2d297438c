//! The HTTP calls of sessions and locks.

use axum::extract::State;
use axum::http::StatusCode;
use politely_api::wire::{
    ClaimLock, KeyLocks, LockAnswer, LockReleased, LocksQuery, OpenSession, Problem, ReleaseLock,
    SessionClosed, SessionState,
};

use super::Api;
use super::access::Caller;
use super::body::{Json, Params, Part};
use super::calls::sound;
use super::problem::Wrong;
use crate::coordinator::SessionError;

type Answer<T> = Result<Json<T>, Wrong>;

/// Opens a session.
#[utoipa::path(post, path = "/api/v1/sessions", request_body = OpenSession, responses(
    (status = 200, body = SessionState), Wrong,
))]
pub(super) async fn open(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<OpenSession>,
) -> Answer<SessionState> {
    sound(&call.client, "client", 1, 1)?;
    let worker = api.coordinator.worker(&caller.worker(&call.client));
    let opened = api.coordinator.open_session(&worker, call.ttl_ms).await;
    Ok(Json(opened?))
}

/// Renews a session and returns its locks.
#[utoipa::path(put, path = "/api/v1/sessions/{session}", params(("session" = String, Path)), responses(
    (status = 200, body = SessionState),
    (status = 410, body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn renew(
    State(api): State<Api>,
    caller: Caller,
    Part(session): Part,
) -> Answer<SessionState> {
    let is_own = |worker: &str| caller.owns(worker);
    let renewed = api.coordinator.renew_session(&session, is_own).await;
    Ok(Json(renewed?))
}

/// Ends a session with all its locks and permits.
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", params(("session" = String, Path)), responses(
    (status = 200, body = SessionClosed),
    (status = 410, body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn close(
    State(api): State<Api>,
    caller: Caller,
    Part(session): Part,
) -> Answer<SessionClosed> {
    let is_own = |worker: &str| caller.owns(worker);
    let closed = api.coordinator.close_session(&session, is_own).await;
    Ok(Json(closed?))
}

/// Claims a key for a session, and waits for it. Waiting sessions are served in order.
#[utoipa::path(post, path = "/api/v1/locks", request_body = ClaimLock, responses(
    (status = 200, body = LockAnswer),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "the session has a lock of another call on the key"),
    (status = 410, body = Problem, content_type = "application/problem+json", description = "the session has ended"), Wrong,
))]
pub(super) async fn lock(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<ClaimLock>,
) -> Answer<LockAnswer> {
    let _places = match call.wait_ms {
        0 => None,
        _ => Some(api.waiting.take(&caller, &call.session, 1)?),
    };
    let is_own = |worker: &str| caller.owns(worker);
    let claimed = api.coordinator.lock(&call, is_own).await;
    Ok(Json(claimed?))
}

/// Releases a lock, or leaves a key's queue.
#[utoipa::path(post, path = "/api/v1/locks/release", request_body = ReleaseLock, responses(
    (status = 200, body = LockReleased),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "the fencing number is stale"),
    (status = 410, body = Problem, content_type = "application/problem+json", description = "the session has ended"), Wrong,
))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<ReleaseLock>,
) -> Answer<LockReleased> {
    let is_own = |worker: &str| caller.owns(worker);
    let released = api.coordinator.release(&call, is_own).await;
    Ok(Json(released?))
}

/// Returns the locks of a key.
#[utoipa::path(get, path = "/api/v1/locks", params(LocksQuery), responses(
    (status = 200, body = KeyLocks), Wrong,
))]
pub(super) async fn locks(
    State(api): State<Api>,
    Params(query): Params<LocksQuery>,
) -> Answer<KeyLocks> {
    Ok(Json(api.coordinator.key_locks(&query.key).await?))
}

impl From<SessionError> for Wrong {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Ended(session) => Self::new(
                StatusCode::GONE,
                format!("the session {session:?} has ended or is not known; open a new one"),
            )
            .field("session"),
            SessionError::Field(error) => error.into(),
            SessionError::Twice(key, fencing) => {
                let what = fencing.map_or_else(
                    || "waits for".to_owned(),
                    |fencing| format!("holds, with the fencing number {fencing},"),
                );
                let detail = format!(
                    "the session {what} {key} by another call; repeat that call's id, or release first"
                );
                Self::new(StatusCode::CONFLICT, detail).field("key")
            }
            SessionError::Stale(key, given, held) => {
                let held = held.map_or_else(
                    || "does not hold it".to_owned(),
                    |held| format!("holds it with {held}"),
                );
                let detail =
                    format!("the fencing number {given} of {key} is stale: the session {held}");
                Self::new(StatusCode::CONFLICT, detail).field("fencing")
            }
            SessionError::QueueFull(key) => {
                Self::capped(format!("the queue of {key} is full; ask again later"))
            }
            SessionError::Capped(detail) => Self::capped(detail),
            SessionError::NotSet(not_set) => not_set.into(),
        }
    }
}
