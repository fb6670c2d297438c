//! The coordinator: one place that tells independent workers, in any language, when they may send.
//!
//! Workers ask for permits and report what happened, over HTTP with JSON ([`politely::wire`]); every key is the
//! same state machine that [`politely::Limiter`] runs in one process. The heart is `coordinator/`: acquire and
//! report without a word of HTTP.
//!
//! | room | the question it answers |
//! | --- | --- |
//! | `coordinator/` | who gets which permit, and what becomes of it? |
//! | `api/` | what is said over HTTP, by whom, and what is wrong with it? |
//! | `watch/` | what would an operator see? table, past, events, workers, metrics |
//! | `store/` | what survives a kill? |
//! | `page/` | the dashboard |
//! | `serve.rs`, `serve/` | connections: listening, TLS, caps, the end |
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
mod often;
mod page;
mod private;
mod serve;
pub mod store;
mod tally;
mod tokens;
mod unread;
mod watch;

pub use coordinator::{Coordinator, Settings, StartError};
pub use serve::{Caps, Certificate, Options, Reload, ServeError, Server};
pub use tokens::{Role, Token, Tokens};
