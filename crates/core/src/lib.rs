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
//! | [`retry`] | Is a failed request sent again, and when? |
//! | [`queue`] | Which host is next? |
//! | [`arrival`] | Which caller came first? |

pub mod arrival;
pub mod budget;
pub mod config;
pub mod control;
pub mod gate;
pub mod host;
mod join;
pub mod key;
mod pack;
pub mod queue;
pub mod retry;
mod rng;
pub mod signal;
mod time;

pub use rng::Rng;
pub use time::Timestamp;
