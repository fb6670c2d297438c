//! The HTTP calls of operators.

use axum::extract::State;
use axum::http::StatusCode;
use politely::core::key::{Key, KeyError};
use politely_api::wire::{
    BudgetLeft, Change, ConfigBody, ConfigPatch, FleetStats, KeyDetail, KeyPage, KeyPatch,
    KeysQuery, Learned, Problem, SortBy, StatsQuery,
};

use super::Api;
use super::access::Caller;
use super::audit::to_its_end;
use super::body::{Json, Params, Part};
use super::problem::Wrong;
use crate::coordinator::ms_up;
use crate::watch::{STEP, row};

/// The most workers that are listed.
const WORKERS_MAX: usize = 1_000;

/// Returns the table of keys.
#[utoipa::path(get, path = "/api/v1/keys", params(KeysQuery), responses(
    (status = 200, body = KeyPage),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn keys(
    State(api): State<Api>,
    Params(query): Params<KeysQuery>,
) -> Result<Json<KeyPage>, Wrong> {
    let is_sorted = query.sort != SortBy::Name || query.descending || query.offset > 0;
    if query.cursor.is_some() && is_sorted {
        let detail = "a cursor needs sort=name, and excludes descending and offset";
        return Err(Wrong::new(StatusCode::BAD_REQUEST, detail).field("cursor"));
    }
    let coordinator = api.coordinator.clone();
    let page = tokio::task::spawn_blocking(move || {
        let watch = coordinator.watch();
        watch.page(coordinator.limiter(), &query)
    });
    let failed = |_| {
        Wrong::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the table could not be made",
        )
    };
    let mut page = page.await.map_err(failed)?;
    let keys = page.keys.iter().filter_map(|row| Key::parse(&row.key).ok());
    // While the engine is away, the table comes without metadata, and with the engine's error.
    let metadata = api.coordinator.metadata(&keys.collect::<Vec<_>>()).await;
    let mut metadata = metadata.unwrap_or_default();
    for row in &mut page.keys {
        let found = Key::parse(&row.key)
            .ok()
            .and_then(|key| metadata.remove(&key));
        if let Some(found) = found {
            row.set.get_or_insert_default().metadata = Change::To(found);
        }
    }
    Ok(Json(page))
}

/// Returns one key: why it waits, its history, and its permits.
#[utoipa::path(get, path = "/api/v1/keys/{key}", params(("key" = String, Path, description = "`example.com`, `custom/account-7`; a slash is sent as %2F")), responses(
    (status = 200, body = KeyDetail), Wrong,
))]
pub(super) async fn key(
    State(api): State<Api>,
    Part(name): Part,
) -> Result<Json<KeyDetail>, Wrong> {
    let key = named(&name)?;
    match api.coordinator.refresh(&key).await {
        Err(why) if api.coordinator.limiter().explain(&key).is_none() => {
            let detail =
                format!("the key {key} is not known here, and the engine is unavailable: {why}");
            Err(Wrong::busy(&detail))
        }
        _ => api.detail(&key).await,
    }
}

/// Changes the limits or the hold of a key. An unknown key is created. 200: the change survives a
/// kill. 503: the change may be lost.
#[utoipa::path(patch, path = "/api/v1/keys/{key}", request_body = KeyPatch, params(("key" = String, Path)), responses(
    (status = 200, body = KeyDetail), Wrong,
))]
pub(super) async fn patch_key(
    State(api): State<Api>,
    caller: Caller,
    Part(name): Part,
    Json(patch): Json<KeyPatch>,
) -> Result<Json<KeyDetail>, Wrong> {
    let key = named(&name)?;
    to_its_end(async move {
        let entry = api.entry(&caller, Some(&key), &patch);
        api.coordinator.patch_key(&key, &patch).await?;
        entry.made(&api, Some(&key)).await;
        api.coordinator.watch().changed();
        api.detail(&key).await
    })
    .await
}

/// Returns the settings of all keys without settings of their own.
#[utoipa::path(get, path = "/api/v1/config", responses((status = 200, body = ConfigBody)))]
pub(super) async fn config(State(api): State<Api>) -> Json<ConfigBody> {
    // If the engine is unavailable, the call returns the last settings that this coordinator read.
    let _ = api.coordinator.refresh_config().await;
    Json(api.coordinator.config())
}

/// Changes the settings while the coordinator runs, for example
/// `{"crawling": {"rate_per_host": 2.0, "rate_burst": 5}}`.
#[utoipa::path(patch, path = "/api/v1/config", request_body = ConfigPatch, responses(
    (status = 200, body = ConfigBody), Wrong,
))]
pub(super) async fn patch_config(
    State(api): State<Api>,
    caller: Caller,
    Json(patch): Json<ConfigPatch>,
) -> Result<Json<ConfigBody>, Wrong> {
    to_its_end(async move {
        let entry = api.entry(&caller, None, &patch);
        api.coordinator.patch_config(&patch).await?;
        entry.made(&api, None).await;
        Ok(Json(api.coordinator.config()))
    })
    .await
}

/// Returns the totals of the fleet and the counts of each worker.
#[utoipa::path(get, path = "/api/v1/stats", params(StatsQuery), responses(
    (status = 200, body = FleetStats),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn stats(
    State(api): State<Api>,
    Params(query): Params<StatsQuery>,
) -> Json<FleetStats> {
    let now = api.coordinator.now();
    let watch = api.coordinator.watch();
    let stats = api.coordinator.limiter().stats();
    let most = query.workers.map_or(WORKERS_MAX, |most| most as usize);
    let workers = watch.workers.stats(now, most.min(WORKERS_MAX));
    let (granted_per_s, refused_per_s) = watch.per_s();
    Json(FleetStats {
        uptime_s: now.since(watch.began).as_secs_f64(),
        keys: stats.keys,
        granted: stats.granted,
        reported: stats.reported,
        refused: stats.refused,
        cancelled: stats.cancelled,
        expired: api.coordinator.expired(),
        late: stats.late,
        live: api.coordinator.live(),
        waiting: stats.waiting,
        granted_per_s,
        refused_per_s,
        memory: stats.memory,
        hit_rate: api.coordinator.hit_rate(),
        granted_at_once: 1.0 - api.coordinator.hit_rate(),
        average_wait_ms: stats.average_wait().as_secs_f64() * 1e3,
        limited_keys: watch.limited(api.coordinator.limiter()),
        workers,
    })
}

impl Api {
    async fn detail(&self, key: &Key) -> Result<Json<KeyDetail>, Wrong> {
        let coordinator = &self.coordinator;
        let metadata = coordinator.metadata(std::slice::from_ref(key)).await;
        let metadata = metadata.ok().and_then(|mut found| found.remove(key));
        let now = coordinator.now();
        let Some(explained) = coordinator.limiter().explain(key) else {
            let detail = format!("the key {key} is not known");
            return Err(Wrong::new(StatusCode::NOT_FOUND, detail));
        };
        let waiting = coordinator.limiter().position(key, politely::Arrival::LAST);
        let (history, decisions) = coordinator.watch().past(now, key);
        Ok(Json(KeyDetail {
            row: row(key, &explained, waiting, now),
            cancelled: explained.tally.cancelled,
            expired: explained.tally.expired,
            limits: KeyPatch {
                metadata: metadata.into(),
                ..coordinator.numbers(key)
            },
            in_force: coordinator.in_force(&explained, now),
            learned: Learned {
                rate: Some(explained.in_force.law_rate).filter(|rate| rate.is_finite()),
                ceiling: explained.law.ceiling,
                suggested: explained.law.suggested,
                cuts: explained.law.cuts,
                noise: explained.law.noise,
            },
            budgets: (explained.budgets.iter())
                .map(|left| BudgetLeft {
                    limit: left.limit.to_string(),
                    remaining: left.remaining,
                    resets_in_ms: ms_up(left.resets.since(now)),
                })
                .collect(),
            history,
            step_ms: STEP.as_millis() as u64,
            decisions,
            out: coordinator.out_of(key),
        }))
    }
}

fn named(name: &str) -> Result<Key, Wrong> {
    let wrong = |why: KeyError| Wrong::new(StatusCode::NOT_FOUND, why.to_string());
    Key::parse(name).map_err(|why| wrong(why).field("key"))
}
