//! Tests of the promises of the core. P1 to P11 are the numbers in the list of promises in
//! `docs/reference/promises.md`.

mod bad_pages;
mod budgets;
mod changed_limits;
mod evict;
mod gateway_limit;
mod join;
mod ladder;
mod late_usage;
mod long;
mod model;
mod overload;
mod promises;
mod replay;
mod resets;
mod restore;
mod rules;
mod scenarios;
mod traps;
mod trouble;
mod what_counts;
mod world;
