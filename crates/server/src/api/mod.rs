//! The HTTP interface: calls, access and problem documents.
//!
//! | file | its part |
//! | --- | --- |
//! | `calls.rs` | acquire, report, exchange, renew, cancel |
//! | `sessions.rs` | sessions and locks |
//! | `admin.rs` | keys, config, stats |
//! | `many.rs` | changes of many keys |
//! | `answers.rs` | counts of answers |
//! | `policy.rs` | the policy |
//! | `audit.rs` | the log of operators' changes |
//! | `frontier/` | pages, units of work, orders about crawls |
//! | `grpc/` | the service `urlfrontier.URLFrontier` (feature `grpc`) |
//! | `events.rs` | the stream of events |
//! | `health.rs` | liveness, readiness, metrics |
//! | `trace.rs` | spans of acquires |
//! | `body.rs`, `problem.rs` | JSON bodies, problem documents |
//! | `gate.rs`, `access.rs`, `logins.rs` | authentication and caps |

mod access;
mod admin;
mod answers;
mod audit;
mod body;
mod calls;
mod events;
mod frontier;
mod gate;
#[cfg(feature = "grpc")]
mod grpc;
mod health;
mod logins;
mod many;
mod policy;
mod problem;
mod sessions;
mod trace;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::body::Bytes;
use axum::http::header;
use axum::routing::get;
use politely_api::wire::{KeyState, Need, PutSummary, SortBy};
use politely_otlp::Collector;
use serde_json::Value;
use tokio::sync::watch;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use access::Access;
pub use access::is_of_other_origin;
pub(crate) use gate::Gate;
pub(crate) use logins::Peer;
pub(crate) use problem::Wrong;

use crate::audit::Audit;
use crate::coordinator::Coordinator;
use crate::frontier::FrontierService;
use crate::serve::SetLogLevel;
use waiting::Waiting;

/// The state that every call needs.
#[derive(Clone)]
struct Api {
    coordinator: Coordinator,
    /// Changes when the tokens are replaced.
    replaced: watch::Receiver<u64>,
    waiting: Waiting,
    audit: Arc<Audit>,
    frontier: Option<FrontierService>,
    /// Whether workers that speak `URLFrontier`'s protocol get pages.
    is_active: Arc<AtomicBool>,
    set_log_level: Option<SetLogLevel>,
    /// The commit of the program.
    commit: &'static str,
    /// The collector that gets spans.
    collector: Option<Collector>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "politely",
        description = "Tells workers when they may send, and learns from what happened. All times are relative milliseconds.",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(SortBy, KeyState, Need, PutSummary))
)]
struct Description;

/// Returns the API description as JSON. utoipa describes unsigned integers as `int32` with a
/// minimum of 0, so this function inserts their real maximum.
fn describe(description: &utoipa::openapi::OpenApi) -> Vec<u8> {
    fn bound(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let most = match fields.get("format").and_then(Value::as_str) {
                    Some("int32") => Some(u64::from(u32::MAX)),
                    Some("int64") => Some(u64::MAX),
                    _ => None,
                };
                let unsigned = fields.contains_key("minimum");
                if let Some(most) = most.filter(|_| unsigned) {
                    fields.remove("format");
                    fields.entry("maximum").or_insert_with(|| most.into());
                }
                fields.values_mut().for_each(bound);
            }
            Value::Array(values) => values.iter_mut().for_each(bound),
            _ => {}
        }
    }
    let mut json = serde_json::to_value(description).unwrap_or_default();
    bound(&mut json);
    // `Want` is either `"all"` or an object with the only field `any`.
    if let Some(any) = json.pointer_mut("/components/schemas/Want/oneOf/1") {
        any["additionalProperties"] = false.into();
    }
    serde_json::to_vec(&json).unwrap_or_default()
}

/// Returns all routes of a coordinator. Each route has its whole path, because a nested router
/// would rebuild the path of every call.
pub(crate) fn routes(
    coordinator: Coordinator,
    access: Access,
    frontier: Option<FrontierService>,
    waiting_max: usize,
    set_log_level: Option<SetLogLevel>,
    commit: &'static str,
    collector: Option<Collector>,
) -> Gate {
    let replaced = watch::Sender::new(0);
    let waiting = Waiting::new(waiting_max);
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(calls::acquire))
        .routes(routes!(calls::report))
        .routes(routes!(calls::exchange))
        .routes(routes!(calls::renew))
        .routes(routes!(calls::cancel))
        .routes(routes!(sessions::open))
        .routes(routes!(sessions::renew, sessions::close))
        .routes(routes!(sessions::lock, sessions::locks))
        .routes(routes!(sessions::release))
        .routes(routes!(admin::keys, many::import, many::change))
        .routes(routes!(admin::key, admin::patch_key))
        .routes(routes!(admin::config, admin::patch_config))
        .routes(routes!(admin::stats))
        .routes(routes!(answers::answers))
        .routes(routes!(policy::policy, policy::put_policy))
        .routes(routes!(audit::changes))
        .routes(routes!(audit::usage))
        .routes(routes!(events::events))
        .merge(frontier::routes())
        .routes(routes!(health::metrics))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .split_for_parts();
    let description = Bytes::from(describe(&description));
    let router = router.merge(crate::page::routes());
    #[cfg(feature = "grpc")]
    let router = router.merge(grpc::routes());
    let router = router
        .route(
            "/api/v1/openapi.json",
            get(move || async move { ([(header::CONTENT_TYPE, "application/json")], description) }),
        )
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::not_allowed)
        .with_state(Api {
            audit: Arc::new(Audit::open(coordinator.folder())),
            coordinator,
            frontier,
            is_active: Arc::new(AtomicBool::new(true)),
            set_log_level,
            replaced: replaced.subscribe(),
            waiting: waiting.clone(),
            commit,
            collector,
        });
    Gate::new(router, access, replaced, waiting)
}
