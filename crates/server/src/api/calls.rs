//! The HTTP calls of workers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use politely_api::wire::{
    Acquire, Acquired, Answer as ItemAnswer, Cancel, Cancelled, Error, Exchange, Exchanged,
    ITEMS_MAX, Item, NAME_MAX, Permits, Problem, Renewed, Report, Reported, Told, ToldAnswer,
    WAIT_MAX_MS, Want,
};

use super::Api;
use super::access::Caller;
use super::body::Json;
use super::problem::Wrong;
use super::trace::Cause;
use crate::coordinator::{Aftermath, Outcome, wait_for_disk};
use crate::watch::Worker;

/// The result of a worker's call.
type Answer<T> = Result<Json<T>, Wrong>;

/// Acquires permits to send requests.
#[utoipa::path(post, path = "/api/v1/acquire", request_body = Acquire, responses(
    (status = 200, body = Acquired), Wrong,
))]
pub(super) async fn acquire(
    State(api): State<Api>,
    caller: Caller,
    cause: Cause,
    Json(call): Json<Acquire>,
) -> Answer<Acquired> {
    sound(&call.client, "items", call.items.len(), 1)?;
    if let Some(session) = &call.session {
        let is_own = |worker: &str| caller.owns(worker);
        api.coordinator.use_session(session, is_own).await?;
    }
    let client = caller.worker(&call.client);
    api.coordinator.hear_share(&client, call.share);
    let _places = match call.wait_ms {
        0 => None,
        _ => Some(api.waiting.take(&caller, &client, call.items.len())?),
    };
    if let Some(why) = api.coordinator.no_permits() {
        return Err(Wrong::busy(&why));
    }
    let outcome = api
        .acquire(
            &client,
            &call.items,
            call.want,
            call.wait_ms,
            Vec::new(),
            &cause,
        )
        .await;
    if let Some(session) = &call.session {
        api.coordinator.bind_permits(session, &outcome.granted);
    }
    refuse_if_capped(&outcome)?;
    let acquired = Acquired {
        retry_in_ms: retry_in_ms(&outcome),
        items: outcome.answers,
        share: api.coordinator.tell_share(&client, call.share),
    };
    Ok(Json(acquired))
}

/// Reports the outcomes of requests.
#[utoipa::path(post, path = "/api/v1/report", request_body = Report, responses(
    (status = 200, body = Reported), Wrong,
))]
pub(super) async fn report(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<Report>,
) -> Answer<Reported> {
    sound(&call.client, "items", call.items.len(), 1)?;
    let items = api.report(&caller.worker(&call.client), &call.items).await;
    Ok(Json(Reported { items }))
}

/// Reports outcomes and acquires permits in one round trip. The reports are applied first.
#[utoipa::path(post, path = "/api/v1/exchange", request_body = Exchange, responses(
    (status = 200, body = Exchanged), Wrong,
))]
pub(super) async fn exchange(
    State(api): State<Api>,
    caller: Caller,
    cause: Cause,
    Json(call): Json<Exchange>,
) -> Answer<Exchanged> {
    sound(&call.client, "report", call.report.len(), 0)?;
    sound(&call.client, "acquire", call.acquire.len(), 0)?;
    if let Some(session) = &call.session {
        let is_own = |worker: &str| caller.owns(worker);
        api.coordinator.use_session(session, is_own).await?;
    }
    let client = caller.worker(&call.client);
    api.coordinator.hear_share(&client, call.share);
    let places = match call.wait_ms {
        0 => None,
        _ => Some(api.waiting.take(&caller, &client, call.acquire.len())),
    };
    // The reports are applied in any case, because they free slots. At a cap on waiting items, the
    // acquire requests do not wait.
    let (_places, wait_ms) = match places.transpose() {
        Ok(places) => (places, call.wait_ms),
        Err(capped) if call.report.is_empty() => return Err(capped),
        Err(_) => (None, 0),
    };
    let (mut report, aftermath) = api.hear(&client, &call.report).await;
    let seen = api.coordinator.see_to_held(aftermath).await;
    mark(&mut report, &seen.not_durable);
    let gone = seen.gone;
    if let Some(why) = api.coordinator.no_permits() {
        // The answer is not an error: the reports were applied and must not be sent again.
        let items = 0..call.acquire.len() as u32;
        let exchanged = Exchanged {
            report,
            retry_in_ms: (!items.is_empty()).then_some(1_000),
            acquire: items.map(|item| wait_for_disk(item, &why)).collect(),
            share: None,
        };
        return Ok(Json(exchanged));
    }
    let outcome = api
        .acquire(&client, &call.acquire, call.want, wait_ms, gone, &cause)
        .await;
    if let Some(session) = &call.session {
        api.coordinator.bind_permits(session, &outcome.granted);
    }
    if call.report.is_empty() {
        refuse_if_capped(&outcome)?;
    }
    let exchanged = Exchanged {
        report,
        retry_in_ms: retry_in_ms(&outcome),
        acquire: outcome.answers,
        share: api.coordinator.tell_share(&client, call.share),
    };
    Ok(Json(exchanged))
}

/// Renews the leases of requests that take longer.
#[utoipa::path(post, path = "/api/v1/renew", request_body = Permits, responses(
    (status = 200, body = Renewed),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn renew(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<Permits>,
) -> Answer<Renewed> {
    sound(&call.client, "permits", call.permits.len(), 1)?;
    let client = caller.worker(&call.client);
    let worker = api.worker_of(&client, &call.permits).await;
    Ok(Json(api.coordinator.renew(&worker, &call.permits)))
}

/// Cancels permits of requests that will not be sent.
#[utoipa::path(post, path = "/api/v1/cancel", request_body = Cancel, responses(
    (status = 200, body = Cancelled),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<Cancel>,
) -> Answer<Cancelled> {
    sound(&call.client, "permits", call.permits.len(), 1)?;
    let client = caller.worker(&call.client);
    let worker = api.worker_of(&client, &call.permits).await;
    let answer = api.coordinator.cancel(&worker, &call.permits, call.sent);
    Ok(Json(answer))
}

impl Api {
    async fn acquire(
        &self,
        client: &str,
        items: &[Item],
        want: Want,
        wait_ms: u32,
        gone: Vec<u64>,
        cause: &Cause,
    ) -> Outcome {
        let wait = Duration::from_millis(u64::from(wait_ms.min(WAIT_MAX_MS)));
        let worker = self.coordinator.worker(client);
        let coordinator = &self.coordinator;
        let began = coordinator.now();
        let acquired = coordinator.acquire_with_others(&worker, items, want, wait, gone);
        let outcome = acquired.await;
        self.trace(cause, client, items, began, &outcome);
        outcome
    }

    /// Returns the worker `client`, after adopting those of `permits` that another coordinator
    /// granted.
    async fn worker_of(&self, client: &str, permits: &[String]) -> Arc<Worker> {
        let worker = self.coordinator.worker(client);
        let permits = permits.iter().map(|name| (name.as_str(), None));
        self.coordinator.adopt(&worker, permits).await;
        worker
    }

    async fn report(&self, client: &str, items: &[Told]) -> Vec<ToldAnswer> {
        let (mut answers, aftermath) = self.hear(client, items).await;
        let not_durable = self.coordinator.see_to(aftermath).await;
        mark(&mut answers, &not_durable);
        answers
    }

    pub(super) async fn hear(&self, client: &str, items: &[Told]) -> (Vec<ToldAnswer>, Aftermath) {
        let worker = self.coordinator.worker(client);
        let permits = items
            .iter()
            .map(|told| (told.permit.as_str(), Some(told.slot)));
        self.coordinator.adopt(&worker, permits).await;
        let mut aftermath = Aftermath::default();
        aftermath.gone.reserve(items.len());
        let answers = items
            .iter()
            .enumerate()
            .map(|(at, told)| {
                let answer = self.coordinator.report(&worker, told, &mut aftermath);
                aftermath.reported(at);
                answer
            })
            .collect();
        (answers, aftermath)
    }
}

/// Returns an error if no item has another answer than that the client has too many keys.
fn refuse_if_capped(outcome: &Outcome) -> Result<(), Wrong> {
    match outcome.answers.first() {
        Some(ItemAnswer::Refused { reason, .. }) if outcome.capped == outcome.answers.len() => {
            Err(Wrong::capped(reason))
        }
        _ => Ok(()),
    }
}

/// Marks the answers of reports whose effects may be lost.
pub(super) fn mark(answers: &mut [ToldAnswer], not_durable: &[usize]) {
    for &at in not_durable {
        answers[at].durable = Some(false);
    }
}

pub(super) fn sound(client: &str, field: &str, items: usize, least: usize) -> Result<(), Wrong> {
    if client.is_empty() || client.chars().count() > NAME_MAX {
        return Err(error("client", "must be 1 to 128 characters long").into());
    }
    if items < least {
        return Err(error(field, "must not be empty").into());
    }
    if items > ITEMS_MAX {
        let detail = format!("at most {ITEMS_MAX} items, not {items}");
        return Err(Wrong::new(StatusCode::PAYLOAD_TOO_LARGE, detail).field(field));
    }
    Ok(())
}

pub(super) fn error(field: &str, detail: &str) -> Error {
    Error {
        field: field.to_owned(),
        detail: detail.to_owned(),
    }
}

fn retry_in_ms(outcome: &Outcome) -> Option<u64> {
    outcome.retry_in.map(crate::coordinator::ms_up)
}
