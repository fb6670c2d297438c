//! Integration tests of the coordinator over HTTP.

mod access;
mod bad_input;
mod bad_readers;
mod calls;
mod client;
mod ends;
mod fleet_log;
mod frontier;
mod hang_up;
mod locks;
mod roles;
mod strangers;
mod webhooks;
