//! The HTTP calls of the policy.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use politely_api::wire::{PolicyBody, PolicyQuery};

use super::Api;
use super::audit::to_its_end;
use super::body::{Json, Params};
use super::problem::Wrong;
use crate::PolicyRefused;

/// Returns the policy in force, as TOML. It is empty if there is none.
#[utoipa::path(get, path = "/api/v1/policy", responses(
    (status = 200, body = String, content_type = "application/toml"),
))]
pub(super) async fn policy(State(api): State<Api>) -> impl IntoResponse {
    let text = api.coordinator.policy_text();
    ([(header::CONTENT_TYPE, "application/toml")], text)
}

/// Replaces the policy: TOML, which is also written to the file of `--policy`, and to the engine
/// for all coordinators. 200: it is in force here, and at the other coordinators within seconds.
/// Otherwise the policy before stays. A policy without a rule is refused without `allow_empty`.
#[utoipa::path(put, path = "/api/v1/policy", params(PolicyQuery), request_body(content = String, content_type = "application/toml"), responses(
    (status = 200, body = PolicyBody), Wrong,
))]
pub(super) async fn put_policy(
    State(api): State<Api>,
    Params(query): Params<PolicyQuery>,
    text: String,
) -> Result<Json<PolicyBody>, Wrong> {
    to_its_end(async move {
        let replaced = api
            .coordinator
            .replace_policy(text, query.allow_empty)
            .await;
        match replaced {
            Ok(rules) => Ok(Json(PolicyBody {
                rules: rules as u64,
            })),
            Err(why @ PolicyRefused::Wrong(_)) => {
                let wrong = Wrong::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string());
                Err(wrong.field("policy"))
            }
            Err(why @ PolicyRefused::Empty) => {
                let why = format!("{why}; if that is meant, add ?allow_empty=true");
                let wrong = Wrong::new(StatusCode::UNPROCESSABLE_ENTITY, why);
                Err(wrong.field("policy"))
            }
            Err(why @ PolicyRefused::NoFile) => {
                Err(Wrong::new(StatusCode::CONFLICT, why.to_string()))
            }
            Err(why @ (PolicyRefused::File { .. } | PolicyRefused::Engine(_))) => {
                Err(Wrong::busy(&why.to_string()))
            }
        }
    })
    .await
}
