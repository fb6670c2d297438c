//! Tests of the promises of the core, one test for each.

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
