//! The promises of the core, each as a test that can fail.

mod bad_pages;
mod evict;
mod join;
mod long;
mod model;
mod promises;
mod replay;
mod restore;
mod scenarios;
mod traps;
mod what_counts;
mod world;
