//! The decisions of politely, as pure state machines: no I/O, no clock, no thread, no global.
//!
//! Time comes in as a [`Timestamp`] with every call and randomness as an [`Rng`]; the same seed and
//! events leave the same bytes of state on every machine. The heart is [`host::Host`]: one key's
//! whole state, fed with *may I send?* ([`host::Host::request`]) and *this is what happened*
//! ([`host::Host::report`]).
//!
//! | room | the question it answers |
//! | --- | --- |
//! | [`key`] | what does a limit attach to? |
//! | [`signal`] | what did the server say? |
//! | [`gate`] | may this leave now? |
//! | [`control`] | what should the limits be? |
//! | [`retry`] | what becomes of a refused request? |
//! | [`queue`] | which host is next? |
//! | [`arrival`] | which caller came first? |

pub mod arrival;
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
