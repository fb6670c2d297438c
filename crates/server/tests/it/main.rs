//! The coordinator over HTTP.

#![expect(clippy::disallowed_methods, reason = "tests wait for real servers")]

mod access;
mod bad_input;
mod calls;
mod client;
mod ends;
