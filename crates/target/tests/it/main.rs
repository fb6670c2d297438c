//! The target over real sockets: the server keeps what the models say, and the judge counts what
//! happened.

#![expect(clippy::disallowed_methods, reason = "a real server runs in real time")]

mod best;
mod client;
mod counts;
mod signals;
mod slots;
mod towns;
