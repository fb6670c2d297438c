//! The one integration-test binary of the command line: everything here runs against real processes and real sockets.

mod bad_input;
mod fetch_pages;
mod misbehaving;
mod resume;
mod run;
