//! The decisions of politely, as pure state machines: no I/O, no clock, no thread, no global state.
//!
//! Each call passes the time as a [`Timestamp`] and randomness as an [`Rng`]. The same seed and the
//! same calls give the same bytes of state on every machine. The main type is [`host::Host`], the
//! whole state of one key. [`host::Host::request`] decides whether a request may leave, and
//! [`host::Host::report`] takes its outcome.
//!
//! | module | the question that it answers |
//! | --- | --- |
//! | [`key`] | What does a limit attach to? |
//! | [`signal`] | What does a response say about the host's limits? |
//! | [`gate`] | May this request leave now? |
//! | [`budget`] | What did an operator declare, and what is left of it? |
//! | [`control`] | What should the limits be? |
//! | [`fault`] | Whose fault was a failure: this machine's, the way's, the host's or the page's? |
//! | [`retry`] | Is a failed request sent again, and when? |
//! | [`queue`] | Which host is next? |
//! | [`arrival`] | Which caller came first? |
//! | [`lock`] | Which session holds a key, and which is next? |
//! | [`share`] | How do workers go on while no coordinator answers? |
//!
//! # One request, from the question to the outcome
//!
//! 1. [`host::Host::request`] asks the gates in order: hold, quarantine, breaker, slots,
//!    bytes, budgets, pace (`gate/`, `budget/`). The first that refuses says when to ask again.
//! 2. The caller sends the request and describes its outcome. [`signal::classify`] decides what the
//!    outcome says about the host.
//! 3. [`host::Host::report`] holds the key if the server asked for it, and tells the law
//!    (`control/`): **this is what happens on a 429**.
//! 4. [`retry::Policy::decide`] decides whether the request is sent again.
//!
//! # What is not here
//!
//! Nothing here waits, locks, sends or stores. To limit requests, use `politely::Limiter`. To share
//! keys between processes, read `politely-store`. To compare laws, use `politely-sim`.

pub mod arrival;
pub mod budget;
pub mod config;
pub mod control;
pub mod fault;
pub mod gate;
pub mod host;
mod join;
pub mod key;
pub mod lock;
mod pack;
pub mod queue;
pub mod retry;
mod rng;
pub mod share;
pub mod signal;
mod time;

pub use rng::Rng;
pub use time::Timestamp;
