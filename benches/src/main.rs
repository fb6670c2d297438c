//! Measurements of this project side by side with others, as tables of ratios within one run.
//!
//! Run them with
//! `cargo run --profile dist -p politely-benches [NAME]`. The names are `cells`, `coordinator`,
//! `database`, `ensemble`, `fetch`, `limiter`, `locks`, `proxy`, `queue` and `shared`. Without a
//! name, all of them run.

#![expect(clippy::disallowed_methods, reason = "benchmarks look at the clock")]

mod cells;
mod coordinator;
mod database;
mod ensemble;
mod fetch;
mod limiter;
mod locks;
mod proxy;
mod queue;
mod shared;

use tokio::runtime::{Builder, Runtime};

fn main() {
    let wanted = std::env::args().nth(1);
    let run = |name: &str, bench: fn()| {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            bench();
        }
    };
    run("cells", cells::run);
    run("coordinator", coordinator::run);
    run("database", database::run);
    run("ensemble", ensemble::run);
    run("fetch", fetch::run);
    run("limiter", limiter::run);
    run("locks", locks::run);
    run("proxy", proxy::run);
    run("shared", shared::run);
    run("queue", || {
        queue::run();
    });
}

/// Builds a runtime with all of its drivers.
fn runtime(builder: &mut Builder) -> Runtime {
    builder.enable_all().build().expect("a runtime")
}
