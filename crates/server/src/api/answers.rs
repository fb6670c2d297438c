//! The counts of answers over HTTP.

use axum::extract::State;
use axum::http::StatusCode;
use politely::core::key::Key;
use politely_api::wire::{AnswerCounts, AnswersQuery, Problem};

use super::Api;
use super::body::{Json, Params};
use super::problem::Wrong;

/// Returns how many answers came by status and by meaning, of one key or of all keys, in the last
/// hours: the sums of the audit.
#[utoipa::path(get, path = "/api/v1/answers", params(AnswersQuery), responses(
    (status = 200, body = AnswerCounts),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn answers(
    State(api): State<Api>,
    Params(query): Params<AnswersQuery>,
) -> Result<Json<AnswerCounts>, Wrong> {
    let wrong = |detail: &str| Wrong::new(StatusCode::BAD_REQUEST, detail.to_owned());
    if !(1..=24).contains(&query.hours) {
        return Err(wrong("must be from 1 to 24").field("hours"));
    }
    let key = query.key.as_deref().map(Key::parse).transpose();
    let key = key.map_err(|why| wrong(&why.to_string()).field("key"))?;
    let coordinator = api.coordinator.clone();
    let counted = tokio::task::spawn_blocking(move || {
        let usage = coordinator.usage_counts();
        usage.answers(key.as_ref(), query.hours, coordinator.now())
    });
    let failed = |_| Wrong::busy("the audit could not be read");
    counted.await.map(Json).map_err(failed)
}
