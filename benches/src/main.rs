//! Measurements of this project side by side with others, as tables of ratios within one run.
//!
//! Run them with
//! `cargo run --release -p politely-benches [cells|coordinator|fetch|limiter|queue|shared]`.
//! Without a name, all of them run.

#![expect(clippy::disallowed_methods, reason = "benchmarks look at the clock")]

mod cells;
mod coordinator;
mod fetch;
mod limiter;
mod queue;
mod shared;

fn main() {
    let wanted = std::env::args().nth(1);
    let run = |name: &str, bench: fn()| {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            bench();
        }
    };
    run("cells", cells::run);
    run("coordinator", coordinator::run);
    run("fetch", fetch::run);
    run("limiter", limiter::run);
    run("shared", shared::run);
    run("queue", || {
        queue::run();
    });
}
