//! The coordinator: it tells independent workers, in any language, when they may send.
//!
//! Workers acquire permits and report outcomes over HTTP with JSON ([`politely_api::wire`]). Every
//! key is the same state machine that [`politely::Limiter`] runs in one process. The core is
//! `coordinator/`, which implements acquire and report without HTTP.
//!
//! # One `acquire`, from the request to the answer
//!
//! 1. `api/calls.rs` decodes and checks the call: **this is where the API answers `acquire`**.
//! 2. `coordinator/acquire.rs` turns its items into requests of [`politely::Limiter`] and waits for
//!    them. The keys' state machines decide, as in one process.
//! 3. `coordinator/permits.rs` records each permit under an id, and `store/` writes it to the
//!    journal.
//! 4. The answer leaves. A later report finds the permit by its id (`coordinator/report.rs`).
//!
//! # Files
//!
//! | module | its part |
//! | --- | --- |
//! | `coordinator/` | grants permits and follows them to their ends |
//! | `frontier/` | a persistent queue of domains and pages, whose units come with permits |
//! | `api/` | the HTTP calls, their access checks and their errors |
//! | `watch/` | views for operators: key table, key history, events, workers, metrics |
//! | `store/` | the state that survives a kill |
//! | `page/` | the dashboard |
//! | `serve.rs`, `serve/` | connections: listening, TLS, caps, shutdown |
//! | `fleet_log/` | the log that a fleet's coordinators share: events, counts of the audit |
//! | `usage.rs` | the audit: what workers did |
//! | `audit.rs` | the log of changes |
//! | `webhook.rs` | signed requests to URLs of the operator, for some kinds of events |
//! | `tokens.rs` | tokens and their roles |
//! | `private.rs` | files that only their owner can read |
//! | `tally.rs`, `often.rs` | caps per caller; log lines with a count |
#![cfg_attr(
    not(feature = "grpc"),
    allow(
        dead_code,
        unused_imports,
        reason = "some calls of the frontier have no other door than gRPC"
    )
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a server is where time enters and where waiting is done"
)]

mod api;
mod audit;
mod cells;
mod coordinator;
mod fleet_log;
mod frontier;
mod often;
mod page;
mod private;
mod serve;
pub mod store;
mod tally;
mod tokens;
mod usage;
mod watch;
mod webhook;

pub use api::is_of_other_origin;
pub use coordinator::{Coordinator, PolicyRead, PolicyReads, PolicyRefused, Settings, StartError};
pub use frontier::{FrontierOpenError, FrontierService};
pub use politely_frontier::{Settings as FrontierSettings, Spacing};
pub use serve::{Caps, Certificate, Grpc, Options, Reload, ServeError, Server, SetLogLevel};
pub use tokens::{Role, Token, Tokens};
pub use webhook::{Webhook, WebhookError};
