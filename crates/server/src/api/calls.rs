//! What workers call.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use politely::wire::{
    Acquire, Acquired, Cancel, Cancelled, Error, Exchange, Exchanged, ITEMS_MAX, Item, NAME_MAX, Permits, Problem,
    Renewed, Report, Reported, Told, ToldAnswer, WAIT_MAX_MS, Want,
};

use super::Api;
use super::body::Json;
use super::problem::{invalid, problem};
use crate::coordinator::{Aftermath, Outcome};

/// May I send?
#[utoipa::path(post, path = "/acquire", request_body = Acquire, responses(
    (status = 200, body = Acquired),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn acquire(State(api): State<Api>, Json(call): Json<Acquire>) -> Response {
    if let Err(wrong) = sound(&call.client, "items", call.items.len(), 1) {
        return wrong;
    }
    let outcome = match api.acquire(&call.client, &call.items, call.want, call.wait_ms).await {
        Ok(outcome) => outcome,
        Err(wrong) => return wrong,
    };
    Json(Acquired {
        retry_in_ms: retry_in_ms(&outcome),
        items: outcome.answers,
    })
    .into_response()
}

/// This is what happened.
#[utoipa::path(post, path = "/report", request_body = Report, responses(
    (status = 200, body = Reported),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn report(State(api): State<Api>, Json(call): Json<Report>) -> Response {
    if let Err(wrong) = sound(&call.client, "items", call.items.len(), 1) {
        return wrong;
    }
    let items = api.report(&call.client, &call.items).await;
    Json(Reported { items }).into_response()
}

/// A report and an acquire in one round trip; the reports are heard first.
#[utoipa::path(post, path = "/exchange", request_body = Exchange, responses(
    (status = 200, body = Exchanged),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn exchange(State(api): State<Api>, Json(call): Json<Exchange>) -> Response {
    let checked = sound(&call.client, "report", call.report.len(), 0)
        .and_then(|()| sound(&call.client, "acquire", call.acquire.len(), 0));
    if let Err(wrong) = checked {
        return wrong;
    }
    let report = api.report(&call.client, &call.report).await;
    let outcome = match api.acquire(&call.client, &call.acquire, call.want, call.wait_ms).await {
        Ok(outcome) => outcome,
        Err(wrong) => return wrong,
    };
    Json(Exchanged {
        report,
        retry_in_ms: retry_in_ms(&outcome),
        acquire: outcome.answers,
    })
    .into_response()
}

/// These requests take longer.
#[utoipa::path(post, path = "/renew", request_body = Permits, responses(
    (status = 200, body = Renewed),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn renew(State(api): State<Api>, Json(call): Json<Permits>) -> Response {
    if let Err(wrong) = sound(&call.client, "permits", call.permits.len(), 1) {
        return wrong;
    }
    let worker = api.worker(&call.client);
    Json(api.coordinator.renew(&worker, &call.permits)).into_response()
}

/// These requests will not be sent.
#[utoipa::path(post, path = "/cancel", request_body = Cancel, responses(
    (status = 200, body = Cancelled),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn cancel(State(api): State<Api>, Json(call): Json<Cancel>) -> Response {
    if let Err(wrong) = sound(&call.client, "permits", call.permits.len(), 1) {
        return wrong;
    }
    let worker = api.worker(&call.client);
    let answer = api.coordinator.cancel(&worker, &call.permits, call.sent);
    Json(answer).into_response()
}

impl Api {
    async fn acquire(
        &self,
        client: &str,
        items: &[Item],
        want: Want,
        wait_ms: u32,
    ) -> Result<Outcome, Response> {
        if want == Want::Any(0) {
            return Err(invalid(error("want.any", "must be at least 1")));
        }
        let wait = Duration::from_millis(u64::from(wait_ms.min(WAIT_MAX_MS)));
        let worker = self.worker(client);
        Ok(self.coordinator.acquire(&worker, items, want, wait).await)
    }

    async fn report(&self, client: &str, items: &[Told]) -> Vec<ToldAnswer> {
        let worker = self.worker(client);
        let mut aftermath = Aftermath::default();
        let answers = items
            .iter()
            .map(|told| self.coordinator.report(&worker, told, &mut aftermath))
            .collect();
        self.coordinator.see_to(aftermath).await;
        answers
    }
}

fn sound(client: &str, field: &str, items: usize, least: usize) -> Result<(), Response> {
    if client.is_empty() || client.len() > NAME_MAX {
        return Err(invalid(error("client", "must be 1 to 128 bytes long")));
    }
    if items < least {
        return Err(invalid(error(field, "must not be empty")));
    }
    if items > ITEMS_MAX {
        let detail = format!("at most {ITEMS_MAX} items, not {items}");
        return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, detail, Some(field.to_owned())));
    }
    Ok(())
}

fn error(field: &str, detail: &str) -> Error {
    Error {
        field: field.to_owned(),
        detail: detail.to_owned(),
    }
}

fn retry_in_ms(outcome: &Outcome) -> Option<u64> {
    outcome.retry_in.map(crate::coordinator::ms_up)
}
