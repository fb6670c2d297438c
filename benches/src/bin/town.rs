//! Anybody's crawler against the sixteen really limited hosts of the tests, judged by the hosts' own logs.
//!
//! `cargo run --release -p politely-benches --bin town -- [--api] [COMMAND…]` starts the hosts, runs COMMAND with a file of
//! 16 x 150 URLs as its last argument, and prints what the hosts saw. Without a command it waits for Enter.
//! `--api` takes the set without the host that blocks. The servers come from `scripts/setup`.

#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]

use std::fs;
use std::io;
use std::process::{Command, ExitCode};
use std::time::Instant;

#[path = "../../../crates/cli/tests/it/servers/mod.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod servers;

use servers::{RealTown, Set, Truth};

const PAGES: u32 = 150;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let api = args.next_if(|arg| arg == "--api").is_some();
    let town = RealTown::start(if api { Set::Api } else { Set::Crawler });

    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("urls.txt");
    // The hosts take turns, as a crawler comes across them.
    let pages = (1..=PAGES).flat_map(|n| town.hosts.iter().map(move |host| host.page(n)));
    fs::write(&list, pages.collect::<Vec<_>>().join("\n")).expect("the list is written");

    let began = Instant::now();
    if let Some(program) = args.next() {
        match Command::new(&program).args(args).arg(&list).status() {
            Ok(status) => eprintln!("{program}: {status}"),
            Err(why) => {
                eprintln!("{program}: {why}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        println!("URLs: {}", list.display());
        let _ = io::stdin().read_line(&mut String::new());
    }
    tell(&town, began.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn tell(town: &RealTown, took_s: f64) {
    let truth = town.truth();
    println!(
        "{:22} {:>5} {:>8} {:>7} {:>6} {:>6} {:>9} {:>5} {:>6} {:>6}",
        "host",
        "pages",
        "requests",
        "refused",
        "failed",
        "peak/s",
        "in flight",
        "held",
        "took s",
        "best s"
    );
    for (name, seen) in &truth {
        println!(
            "{name:22} {:5} {:8} {:7} {:6} {:6} {:9} {:5} {:6.1} {:6.1}",
            seen.pages,
            seen.requests(),
            seen.refused,
            seen.failed,
            seen.peak_per_second,
            seen.peak_in_flight,
            seen.held.len(),
            seen.span_us() as f64 / 1e6,
            town.host(name).best_time(PAGES).as_secs_f64()
        );
    }
    let sum = |of: fn(&Truth) -> usize| truth.values().map(of).sum::<usize>();
    let (pages, requests, refused) = (sum(|t| t.pages), sum(Truth::requests), sum(|t| t.refused));
    let asked = town.hosts.len() * PAGES as usize;
    let best_s = town
        .hosts
        .iter()
        .map(|host| host.best_time(PAGES).as_secs_f64())
        .fold(0.0, f64::max);
    println!(
        "{} of {asked} pages lost, {refused} of {requests} requests refused ({:.1} %), {took_s:.1} s where {best_s:.1} s is the best possible",
        asked - pages,
        refused as f64 / requests.max(1) as f64 * 100.0,
    );
}
