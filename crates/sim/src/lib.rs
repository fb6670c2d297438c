//! Deterministic simulation of self-limiting clients against hosts with known limits, in virtual
//! time.
//!
//! ```text
//!   scenario   demand, limit, signals, faults, workers; a JSON array of these is a suite
//!     |
//!   client     core's host under one of its laws (polite), or a rival after its published law
//!     |
//!   run        the event loop over the library's state machine and the target's limit models
//!     |
//!   score      the result against the exact offline optimum
//! ```
//!
//! The same scenario, law and seed give the same bytes on every machine.
//!
//! | file | its part |
//! | --- | --- |
//! | `scenario.rs`, `suite.rs`, `generate.rs`, `field.rs` | scenarios: read, named, random |
//! | `run.rs`, `client.rs`, `polite.rs` | the event loop, and the clients that it drives |
//! | `trace.rs` | the requests of a run, and their fates |
//! | `heard.rs` | headers as clients read them |
//! | `rivals/`, `backoff.rs` | other published laws (feature `rivals`) |
//! | `optimum/`, `score.rs`, `summary.rs` | the exact optimum, and the result against it |
//! | `plot/` | pictures of runs |
//! | `declared/` | a study of clients that keep declared limits (feature `rivals`) |
//!
//! # What is not here
//!
//! The laws are in `politely-core` (`control/`), and the models of limits in `politely-target`. To
//! run a scenario, use `politely simulate`.

#[cfg(feature = "rivals")]
pub mod backoff;
pub mod client;
#[cfg(feature = "rivals")]
pub mod declared;
pub mod field;
pub mod generate;
mod heard;
mod optimum;
pub mod plot;
pub mod polite;
#[cfg(feature = "rivals")]
pub mod rivals;
pub mod run;
pub mod scenario;
pub mod score;
pub mod suite;
pub mod summary;
pub mod trace;

pub use client::{Answer, Client, Reply};
pub use generate::generate;
pub use run::run;
pub use scenario::{Demand, Scenario, ScenarioError};
pub use score::{Score, score};
pub use suite::suite;
pub use summary::{FamilySummary, Summary, by_family, summarise};
pub use trace::Trace;
