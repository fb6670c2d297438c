//! Hosts with known limits: pure limit models, a real HTTP server around them, and a judge.
//!
//! A client can only be called polite or fast against hosts whose limits are known. This crate has
//! three parts, and each is usable without the next:
//!
//! ```text
//!   model   a limit as servers enforce it: time in, verdict out; also run by the simulator
//!     |
//!   server  a town of such hosts over HTTP/1.1, each on its own loopback address, in this process
//!     |
//!   judge   what each host saw: accepted, refused, peak in flight, requests in holds, best time
//! ```
//!
//! ```no_run
//! # async fn example() -> Result<(), politely_target::TargetError> {
//! use politely_target::{Target, Town};
//!
//! let target = Target::start(Town::demo()).await?;
//! for host in target.hosts() {
//!     println!("{} at {}", host.name, host.url());
//! }
//! // Run a client against these hosts here.
//! println!("{}", target.shutdown());
//! # Ok(())
//! # }
//! ```
//!
//! A JSON file describes a town of your own; `examples/town.json` shows most fields.
//!
//! [`provider`] plays an API with declared limits of requests and named units.
//!
//! The judge counts at the server, so it also counts requests that the client did not mean to send.
//!
//! | folder | its part |
//! | --- | --- |
//! | `model/` | limits without I/O |
//! | `server/`, `run.rs`, `log.rs` | the server, and its log of requests |
//! | `town/` | the description of the hosts |
//! | `judge/` | the verdict on a client |
//!
//! # What is not here
//!
//! This crate limits no client. To start such hosts from a shell, use `politely target`. To limit
//! requests, use `politely::Limiter`.

pub mod judge;
mod log;
pub mod model;
pub mod provider;
mod run;
mod server;
mod town;

pub use judge::{HostReport, Report, arrivals_above};
pub use log::{Entry, Kind, Record};
pub use model::{
    BanAnswer, FaultSpec, Limit, LimitSpec, Outage, Quota, Service, SpecError, Verdict, best_time,
};
pub use run::{Args, run};
pub use server::{HostAddr, Target, TargetError};
pub use town::{Headers, HostSpec, RetryAfter, Robots, Signals, Town, TownError};
