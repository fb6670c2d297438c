//! Hosts with known limits: pure limit models, a real HTTP server around them, and a judge.
//!
//! Whether a client is polite, and whether it is fast, can only be said of hosts whose limits are known. This
//! crate has three parts, each usable without the next:
//!
//! ```text
//!   model   a limit as servers enforce it: time in, verdict out. No clock, no I/O; the simulator runs these too
//!     |
//!   server  a town of such hosts over HTTP/1.1, each on its own loopback address, in this process
//!     |
//!   judge   what each host saw: accepted, refused, peak in flight, requests during a hold, the best possible time
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
//! // … let a client loose on them …
//! println!("{}", target.shutdown());
//! # Ok(())
//! # }
//! ```
//!
//! A town of one's own is a JSON file; `examples/town.json` shows most of it.
//!
//! The judge never asks the client: it counts at the server, so it also counts what the client did not mean
//! to send.

pub mod judge;
mod log;
pub mod model;
mod run;
mod server;
mod town;

pub use judge::{HostReport, Report, arrivals_above};
pub use log::{Entry, Kind, Record};
pub use model::{
    BanAnswer, FaultSpec, Limit, LimitSpec, Quota, Service, SpecError, Verdict, best_time,
};
pub use run::{Args, run};
pub use server::{HostAddr, Target, TargetError};
pub use town::{Headers, HostSpec, RetryAfter, Robots, Signals, Town, TownError};
