//! Liveness, readiness and metrics.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use politely_api::wire::Problem;

use super::Api;
use super::problem::Wrong;
use crate::coordinator::engine_trouble;
use crate::frontier::FrontierService;

/// Returns 200 while the process answers.
#[utoipa::path(get, path = "/healthz", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Returns 200 while the coordinator grants permits and keeps changes, with a line for each setting
/// of the engine that loses changes at a restart. 503 names the cause: the disk, the engine, a
/// setting with which the engine loses changes while it runs, or a background task that ended.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn ready(State(api): State<Api>) -> Result<String, Wrong> {
    let (engine, warnings) = engine_trouble(api.coordinator.limiter());
    if api.coordinator.is_closed() {
        Err(Wrong::busy("shutting down"))
    } else if let Some(why) = api.coordinator.last_error().or(engine) {
        Err(Wrong::busy(&why))
    } else if let Some(why) = api.frontier.as_ref().and_then(FrontierService::last_error) {
        Err(Wrong::busy(&why))
    } else {
        let lines = warnings.iter().map(|text| format!("warning: {text}\n"));
        Ok(["ok\n".to_owned()].into_iter().chain(lines).collect())
    }
}

/// Returns the metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain; version=0.0.4"),
))]
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let coordinator = api.coordinator.clone();
    let crawls = match &api.frontier {
        // Without an answer of the engine, the other numbers are still told.
        Some(frontier) => frontier.crawls().await.ok(),
        None => None,
    };
    let scrape = move || crate::watch::scrape(&coordinator, crawls, api.commit);
    match tokio::task::spawn_blocking(scrape).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(_) => Wrong::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot scrape: a task ended",
        )
        .into_response(),
    }
}
