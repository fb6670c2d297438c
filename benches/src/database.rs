//! Compares changes through the `PostgreSQL` adapter with the simple updates of `pgbench`, on one
//! server that writes each commit to disk, in one run.
//!
//! Run it with `cargo run --profile dist -p politely-benches database`. `pgbench` has [`CLIENTS`]
//! connections, each with one update under way. The adapter has one connection with as many batches
//! of changes under way, of one cell and of 64 cells. Rounds alternate, and each figure is the
//! median of its rounds. Server and callers share the machine.

use std::process::Command;
use std::time::Instant;

use politely::cells::postgres::Postgres;

use crate::cells::{learning, median};
use crate::ensemble::commit;
use politely_testkit::postgres::{PostgresServer, server_tool};

const CLIENTS: usize = 4;
const ROUNDS: usize = 3;
const SECONDS: u64 = 5;

/// Runs everything and prints the table.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = PostgresServer::start("fsync = on");
    pgbench(&server, &["-i", "-s", "10", "-q"]);
    println!("| cells of a batch | pgbench -N, updates/s | changes/s | ratio |");
    println!("| --- | --- | --- | --- |");
    for batch in [1, 64] {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (clients, seconds) = (CLIENTS.to_string(), SECONDS.to_string());
            let said = pgbench(&server, &["-N", "-n", "-c", &clients, "-T", &seconds]);
            let tps = said.lines().find_map(|line| line.strip_prefix("tps = "));
            let tps = tps.and_then(|tps| tps.split(' ').next());
            theirs.push(tps.and_then(|tps| tps.parse().ok()).expect("a number"));
            ours.push(runtime.block_on(measure(&server, batch)));
        }
        let (update, change) = (median(&mut theirs), median(&mut ours));
        println!(
            "| {batch} | {update:.0} | {change:.0} | {:.2} |",
            change / update
        );
    }
}

/// Returns the changes per second of batches with `batch` cells each.
async fn measure(server: &PostgresServer, batch: usize) -> f64 {
    server.order("DROP TABLE IF EXISTS politely_cells");
    let engine = Postgres::connect(&server.url()).expect("a URL");
    let state = learning();
    let cells: Vec<usize> = (0..CLIENTS * batch).collect();
    commit(&engine, &state, 0, &cells, batch).await;
    let began = Instant::now();
    let mut rounds = 0_u32;
    while began.elapsed().as_secs() < SECONDS {
        rounds += 1;
        commit(&engine, &state, rounds, &cells, batch).await;
    }
    f64::from(rounds) * cells.len() as f64 / began.elapsed().as_secs_f64()
}

fn pgbench(server: &PostgresServer, args: &[&str]) -> String {
    let out = Command::new(server_tool("pgbench"))
        .args(args)
        .arg(server.url())
        .output();
    let out = out.expect("pgbench runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "pgbench {args:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}
