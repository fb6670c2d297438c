//! The coordinator: it tells independent workers, in any language, when they may send.
//!
//! Workers acquire permits and report outcomes over HTTP with JSON ([`politely_api::wire`]). Every
//! key is the same state machine that [`politely::Limiter`] runs in one process. The core is
//! `coordinator/`, which implements acquire and report without HTTP.
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
//! | `audit.rs` | the log of changes |
//! | `tokens.rs` | tokens and their roles |
//! | `private.rs` | files that only their owner can read |
//! | `tally.rs`, `often.rs` | caps per caller; log lines with a count |

#![expect(
    clippy::disallowed_methods,
    reason = "a server is where time enters and where waiting is done"
)]

mod api;
mod audit;
mod coordinator;
mod frontier;
mod often;
mod page;
mod private;
mod serve;
pub mod store;
mod tally;
mod tokens;
mod unread;
mod usage;
mod watch;

pub use coordinator::{Coordinator, PolicyRefused, Settings, StartError};
pub use frontier::{FrontierOpenError, FrontierService};
pub use politely_frontier::{Settings as FrontierSettings, Spacing};
pub use serve::{Caps, Certificate, Grpc, Options, Reload, ServeError, Server, SetLogLevel};
pub use tokens::{Role, Token, Tokens};
