//! Orders of operators about a crawl. Each is recorded in the audit log.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use politely_api::wire::{
    FrontierBlock, FrontierCounts, FrontierDelay, FrontierPart, FrontierPause,
};
use serde::Serialize;

use super::named;
use crate::api::Api;
use crate::api::access::Caller;
use crate::api::audit::to_its_end;
use crate::api::body::{Json, Part};
use crate::api::problem::Wrong;
use crate::frontier::{Order, date};

/// Removes the waiting pages of a domain or of the crawl, and ends its units. The pages stay known.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/purge", request_body = FrontierPart, params(("crawl" = String, Path)), responses(
    (status = 204), Wrong,
))]
pub(super) async fn purge(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(body): Json<FrontierPart>,
) -> Result<StatusCode, Wrong> {
    let order = Order::Purge(body.domain.clone());
    api.order(caller, crawl, "purge", body, order).await
}

/// Forgets a domain or the crawl, with all its pages, and ends its units.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/delete", request_body = FrontierPart, params(("crawl" = String, Path)), responses(
    (status = 204), Wrong,
))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(body): Json<FrontierPart>,
) -> Result<StatusCode, Wrong> {
    let order = Order::Delete(body.domain.clone());
    api.order(caller, crawl, "delete", body, order).await
}

/// Blocks a domain until a date, or unblocks it. Units that are live go on.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/block", request_body = FrontierBlock, params(("crawl" = String, Path)), responses(
    (status = 204), Wrong,
))]
pub(super) async fn block(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(body): Json<FrontierBlock>,
) -> Result<StatusCode, Wrong> {
    let wrong = |why| Wrong::new(StatusCode::UNPROCESSABLE_ENTITY, why).field("until_unix_ms");
    let until = body.until_unix_ms.map(date).transpose().map_err(wrong)?;
    let order = Order::Block(body.domain.clone(), until);
    api.order(caller, crawl, "block", body, order).await
}

/// Sets the least pause between two units of a domain.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/delay", request_body = FrontierDelay, params(("crawl" = String, Path)), responses(
    (status = 204), Wrong,
))]
pub(super) async fn delay(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(body): Json<FrontierDelay>,
) -> Result<StatusCode, Wrong> {
    let order = Order::Delay(body.domain.clone(), Duration::from_millis(body.delay_ms));
    api.order(caller, crawl, "delay", body, order).await
}

/// Pauses a crawl, or lets it go on. Units that are live go on.
#[utoipa::path(post, path = "/api/v1/frontier/{crawl}/pause", request_body = FrontierPause, params(("crawl" = String, Path)), responses(
    (status = 200, body = FrontierCounts), Wrong,
))]
pub(super) async fn pause(
    State(api): State<Api>,
    caller: Caller,
    Part(crawl): Part,
    Json(body): Json<FrontierPause>,
) -> Result<Json<FrontierCounts>, Wrong> {
    let order = Order::Pause(body.paused);
    let name = named(&crawl)?;
    api.order(caller, crawl, "pause", body, order).await?;
    Ok(Json(api.frontier()?.counts(&name).await?))
}

impl Api {
    async fn order(
        &self,
        caller: Caller,
        crawl: String,
        call: &str,
        body: impl Serialize,
        order: Order,
    ) -> Result<StatusCode, Wrong> {
        let name = named(&crawl)?;
        let frontier = self.frontier()?.clone();
        let call = format!("POST /api/v1/frontier/{crawl}/{call}");
        let entry = self.order_entry(&caller, &call, &body);
        to_its_end(async move {
            frontier.order(name, order).await?;
            entry.ordered().await;
            Ok(StatusCode::NO_CONTENT)
        })
        .await
    }
}
