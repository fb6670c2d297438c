//! Tests of the frontier over its storages.

mod bounds;
mod calls;
mod kill;
mod model;
mod support;
