//! Compares the coordinator with a minimal axum server with the same bodies, and measures the cost
//! of many keys.
//!
//! Run it with `cargo run --profile dist -p politely-benches -- coordinator
//! [memory|restart|speed]`.

mod echo;
mod load;
mod speed;

use std::time::{Duration, Instant};

use politely::Key;
use politely_server::store::Store;
use politely_server::{Coordinator, Settings};
use tokio::runtime::Builder;

use crate::limiter::resident;

/// Runs the measurement that the command line names, or all of them, and prints the tables.
pub(crate) fn run() {
    let wanted = std::env::args().nth(2);
    let wants = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    if wants("memory") {
        memory(1_000_000);
    }
    if wants("restart") {
        restart(1_000_000);
    }
    if wants("speed") {
        speed::run();
    }
}

/// Measures the memory of a key that was granted and reported once, under the default law, with
/// store and table included.
fn memory(keys: usize) {
    let before = resident();
    let coordinator = Coordinator::new(Settings::default()).expect("a coordinator");
    ask_each(&coordinator, keys, 200, politely::Signal::Ok);
    let grown = resident().saturating_sub(before);
    println!(
        "memory per known key, {keys} keys: {} bytes resident",
        grown / keys as u64
    );
}

/// Measures the time from the command to the first answer, with this many keys that were each
/// refused once.
fn restart(keys: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let (store, kept) = Store::open(dir.path()).expect("a store");
    let coordinator = Coordinator::resume(Settings::default(), store, kept).expect("a coordinator");
    ask_each(&coordinator, keys, 429, politely::Signal::RateLimited);
    let runtime = crate::runtime(&mut Builder::new_multi_thread());
    runtime.block_on(coordinator.save());
    drop(coordinator);
    let began = Instant::now();
    let (store, kept) = Store::open(dir.path()).expect("a store");
    let coordinator = Coordinator::resume(Settings::default(), store, kept).expect("a coordinator");
    println!(
        "restart with {} learned keys until ready: {:.1} s",
        coordinator.limiter().stats().keys,
        began.elapsed().as_secs_f64()
    );
}

/// Makes one request of each key and reports its outcome.
fn ask_each(coordinator: &Coordinator, keys: usize, status: u16, signal: politely::Signal) {
    for i in 0..keys {
        let key = Key::host(&format!("host-{i}.example.com")).expect("a host");
        let permit = coordinator.limiter().try_acquire(&key);
        permit.expect("a first permit").report(&politely::Report {
            status: Some(status),
            latency: Duration::from_millis(20),
            ..politely::Report::of(signal)
        });
    }
}
