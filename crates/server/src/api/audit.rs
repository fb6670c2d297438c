//! The audit log over HTTP, and the entries that changes add to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use politely::core::key::Key;
use politely_api::wire::{
    AuditChange, AuditPage, AuditQuery, KeyState, Problem, UsageBy, UsagePage, UsageQuery,
};
use serde::Serialize;

use super::Api;
use super::access::Caller;
use super::body::{Json, Params};
use super::problem::Wrong;
use crate::audit::Audit;
use crate::watch::row;

type Numbers = BTreeMap<String, Option<f64>>;

/// Lists the changes that operators made, newest first.
#[utoipa::path(get, path = "/api/v1/audit/changes", params(AuditQuery), responses(
    (status = 200, body = AuditPage),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn changes(
    State(api): State<Api>,
    Params(query): Params<AuditQuery>,
) -> Json<AuditPage> {
    Json(api.audit.page(query))
}

/// Returns what workers did, summed by worker, key or account, per step of some hours.
#[utoipa::path(get, path = "/api/v1/audit", params(UsageQuery), responses(
    (status = 200, body = UsagePage),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn usage(
    State(api): State<Api>,
    Params(mut query): Params<UsageQuery>,
) -> Result<Json<UsagePage>, Wrong> {
    if query.by == UsageBy::Key {
        query.name = query.name.as_deref().map(Key::canonical);
    }
    let coordinator = api.coordinator.clone();
    let page = tokio::task::spawn_blocking(move || coordinator.usage(&query));
    let failed = |_| Wrong::busy("the audit could not be read");
    page.await.map(Json).map_err(failed)
}

/// An audit entry that is completed when its change has been made.
pub(super) struct Entry {
    audit: Arc<Audit>,
    change: AuditChange,
}

impl Api {
    /// Begins the entry of a change of many keys.
    pub(super) fn entry_of_many(
        &self,
        caller: &Caller,
        call: &str,
        body: &impl Serialize,
    ) -> Entry {
        let mut entry = self.entry(caller, None, body);
        call.clone_into(&mut entry.change.call);
        entry
    }

    /// Begins the entry of a change. `key` is `None` for the settings of all keys.
    pub(super) fn entry(&self, caller: &Caller, key: Option<&Key>, body: &impl Serialize) -> Entry {
        let call = match key {
            Some(_) => "PATCH /api/v1/keys/{key}",
            None => "PATCH /api/v1/config",
        };
        Entry {
            audit: Arc::clone(&self.audit),
            change: AuditChange {
                id: 0,
                at_ms: 0,
                token: caller.token.to_string(),
                role: caller.role.as_str().to_owned(),
                peer: caller.peer.to_string(),
                call: call.to_owned(),
                key: key.map(|key| key.as_str().to_owned()),
                body: serde_json::to_string(body).unwrap_or_default(),
                before: self.numbers(key),
                after: Numbers::new(),
            },
        }
    }

    /// Begins the entry of an order about a crawl. Such an order has no numbers before and after.
    pub(super) fn order_entry(&self, caller: &Caller, call: &str, body: &impl Serialize) -> Entry {
        Entry {
            audit: Arc::clone(&self.audit),
            change: AuditChange {
                id: 0,
                at_ms: 0,
                token: caller.token.to_string(),
                role: caller.role.as_str().to_owned(),
                peer: caller.peer.to_string(),
                call: call.to_owned(),
                key: None,
                body: serde_json::to_string(body).unwrap_or_default(),
                before: Numbers::new(),
                after: Numbers::new(),
            },
        }
    }

    /// Returns the settings of a key, or of all keys, in the form in which an operator changes
    /// them.
    fn numbers(&self, key: Option<&Key>) -> Numbers {
        let coordinator = &self.coordinator;
        let Some(key) = key else {
            let crawling = coordinator.config().crawling;
            return named([
                ("rate_per_host", crawling.rate_per_host),
                ("rate_burst", Some(crawling.rate_burst)),
                ("rate_start", Some(crawling.rate_start)),
                ("in_flight", Some(f64::from(crawling.in_flight))),
            ]);
        };
        let set = coordinator.numbers(key);
        let now = coordinator.now();
        let explained = coordinator.limiter().explain(key);
        let row = explained
            .as_ref()
            .map(|explained| row(key, explained, 0, now));
        let held = row.filter(|row| matches!(row.state, KeyState::Hold | KeyState::Parked));
        let mut numbers = named([
            ("rate", set.rate.set()),
            ("burst", set.burst.set()),
            ("in_flight", set.in_flight.set().map(f64::from)),
            ("hold_ms", held.map(|row| row.ready_in_ms as f64)),
        ]);
        let budgets = explained
            .into_iter()
            .flat_map(|explained| explained.budgets);
        numbers.extend(budgets.map(|left| {
            let name = format!("left of {}", left.limit);
            (name, Some(left.remaining as f64))
        }));
        numbers
    }
}

impl Entry {
    /// Records the change after it was made. Returns when the entry is on disk.
    pub(super) async fn made(mut self, api: &Api, key: Option<&Key>) {
        self.change.after = api.numbers(key);
        self.record().await;
    }

    /// Records an order after it was carried out. Returns when the entry is on disk.
    pub(super) async fn ordered(self) {
        self.record().await;
    }

    async fn record(mut self) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        self.change.at_ms = since_1970.unwrap_or_default().as_millis() as u64;
        let written = tokio::task::spawn_blocking(move || self.audit.record(self.change));
        let _ = written.await;
    }
}

fn named<const N: usize>(numbers: [(&str, Option<f64>); N]) -> Numbers {
    let numbers = numbers.into_iter();
    numbers
        .map(|(name, number)| (name.to_owned(), number))
        .collect()
}

/// Runs a change to its end even if its caller hangs up, so that the log misses no change.
pub(super) async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Wrong>> + Send + 'static,
) -> Result<T, Wrong> {
    let done = tokio::spawn(change).await;
    done.unwrap_or_else(|_| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Err(Wrong::new(status, "the change was not made to its end"))
    })
}
