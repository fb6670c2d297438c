//! The limiter as its users meet it.

mod limiter_bound;
mod limiter_keys;
mod limiter_line;
mod limiter_threads;
