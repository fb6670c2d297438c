//! Changes of many keys in one call.

use axum::extract::State;
use axum::http::StatusCode;
use politely_api::wire::{Error, ITEMS_MAX, ImportKeys, KeyPatch, KeysChanged, KeysPattern};
use serde_json::json;

use super::Api;
use super::access::Caller;
use super::audit::to_its_end;
use super::body::{Json, Params};
use super::problem::Wrong;

/// Creates keys, and changes their settings. 200: the changes survive a kill.
#[utoipa::path(post, path = "/api/v1/keys", request_body = ImportKeys, responses(
    (status = 200, body = KeysChanged), Wrong,
))]
pub(super) async fn import(
    State(api): State<Api>,
    caller: Caller,
    Json(call): Json<ImportKeys>,
) -> Result<Json<KeysChanged>, Wrong> {
    let count = call.keys.len();
    if !(1..=ITEMS_MAX).contains(&count) {
        let detail = format!("1 to {ITEMS_MAX} keys, not {count}");
        return Err(Wrong::new(StatusCode::PAYLOAD_TOO_LARGE, detail).field("keys"));
    }
    to_its_end(async move {
        let entry = api.entry_of_many(&caller, "POST /api/v1/keys", &json!({"keys": count}));
        let keys = call.keys.into_iter().map(|each| (each.key, each.set));
        let changed = api.coordinator.patch_keys(keys).await?;
        entry.made(&api, None).await;
        api.coordinator.watch().changed();
        Ok(Json(changed))
    })
    .await
}

/// Changes the settings of all known keys that match a pattern.
#[utoipa::path(patch, path = "/api/v1/keys", params(KeysPattern), request_body = KeyPatch, responses(
    (status = 200, body = KeysChanged), Wrong,
))]
pub(super) async fn change(
    State(api): State<Api>,
    caller: Caller,
    Params(pattern): Params<KeysPattern>,
    Json(patch): Json<KeyPatch>,
) -> Result<Json<KeysChanged>, Wrong> {
    if pattern == KeysPattern::default() {
        let detail = "name the keys with prefix, q or state; an empty prefix means all".to_owned();
        let field = "prefix".to_owned();
        return Err(Error { field, detail }.into());
    }
    if patch == KeyPatch::default() {
        return Ok(Json(KeysChanged::default()));
    }
    to_its_end(async move {
        let body = json!({"pattern": pattern, "patch": patch});
        let entry = api.entry_of_many(&caller, "PATCH /api/v1/keys", &body);
        let coordinator = api.coordinator.clone();
        let found = tokio::task::spawn_blocking(move || {
            let watch = coordinator.watch();
            watch.matching(coordinator.limiter(), &pattern)
        });
        let failed = |_| Wrong::busy("the table could not be made");
        let found = found.await.map_err(failed)?;
        let keys = found
            .iter()
            .map(|key| (key.to_string(), Some(Box::new(patch.clone()))));
        let changed = api.coordinator.patch_keys(keys).await?;
        entry.made(&api, None).await;
        api.coordinator.watch().changed();
        Ok(Json(changed))
    })
    .await
}
