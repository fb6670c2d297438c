//! Integration tests of the coordinator over HTTP.

mod access;
mod bad_input;
mod calls;
mod client;
mod ends;
mod frontier;
mod hang_up;
mod roles;
mod strangers;
