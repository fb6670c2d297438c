//! Runs any crawler against the sixteen test hosts with real limits, and judges it by the hosts'
//! own logs.
//!
//! `cargo run --profile dist -p politely-benches --bin town -- [OPTIONS] [COMMAND…]` starts the
//! hosts, runs COMMAND with a file of 16 x 150 URLs as its last argument, and prints what the hosts
//! logged. Without a command it waits for Enter. `scripts/setup` installs the servers.
//!
//! | option | effect |
//! | --- | --- |
//! | `--api` | uses the set without the host that blocks |
//! | `--seconds N` | gives each host pages for N seconds; *steady* is the use in the last half |
//! | `--processes N` | runs COMMAND N times at once, each with its share of the list |
//! | `--logs DIR` | keeps the hosts' logs in DIR |

#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::Instant;

use politely_testkit::{Kind, RealHost, RealTown, Set, Truth};

const PAGES: u32 = 150;
/// Highest rate of requests to a host without a low limit, per second.
const RATE_MAX: f64 = 10.0;

struct Orders {
    set: Set,
    seconds: Option<u32>,
    processes: usize,
    logs: Option<PathBuf>,
    command: Vec<String>,
}

impl Orders {
    fn read(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut orders = Self {
            set: Set::Crawler,
            seconds: None,
            processes: 1,
            logs: None,
            command: Vec::new(),
        };
        let mut args = args.peekable();
        while let Some(option) = args.next_if(|arg| arg.starts_with("--")) {
            let mut number = || {
                let value = args.next().and_then(|value| value.parse::<u16>().ok());
                value
                    .filter(|n| *n > 0)
                    .ok_or(format!("{option} takes a number"))
            };
            match option.as_str() {
                "--api" => orders.set = Set::Api,
                "--seconds" => orders.seconds = Some(number()?.into()),
                "--processes" => orders.processes = number()?.into(),
                "--logs" => {
                    let folder = args.next().ok_or("--logs takes a folder")?;
                    orders.logs = Some(folder.into());
                }
                _ => return Err(format!("{option} is no option")),
            }
        }
        orders.command = args.collect();
        Ok(orders)
    }

    fn pages(&self, host: &RealHost) -> u32 {
        self.seconds.map_or(PAGES, |seconds| {
            (f64::from(seconds) * self.per_second(host)).ceil() as u32
        })
    }

    /// Returns the usable rate of a host. The profile `crawler` sends at most ten requests per
    /// second. Under a limit on concurrency it has one request in flight.
    fn per_second(&self, host: &RealHost) -> f64 {
        let allowed = host.kind.per_second().unwrap_or(RATE_MAX);
        match (self.set, host.kind) {
            (Set::Crawler, Kind::InFlight { latency_ms, .. }) => 1000.0 / f64::from(latency_ms),
            (Set::Crawler, _) => allowed.min(RATE_MAX),
            (Set::Api, _) => allowed,
        }
    }
}

fn main() -> ExitCode {
    let orders = match Orders::read(std::env::args().skip(1)) {
        Ok(orders) => orders,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let pages_max = orders
        .seconds
        .map_or(PAGES, |seconds| seconds * RATE_MAX as u32);
    let town = RealTown::with_pages(orders.set, pages_max);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lists = town.lists(orders.processes, |host| orders.pages(host));
    let lists: Vec<PathBuf> = (lists.iter().enumerate())
        .map(|(number, list)| {
            let file = folder.path().join(format!("urls-{number}.txt"));
            fs::write(&file, list).expect("the list is written");
            file
        })
        .collect();

    let began = Instant::now();
    if let Some((program, args)) = orders.command.split_first() {
        let started = lists
            .iter()
            .map(|list| Command::new(program).args(args).arg(list).spawn());
        let children: Vec<io::Result<Child>> = started.collect();
        for child in children {
            match child.and_then(|mut child| child.wait()) {
                Ok(status) => eprintln!("{program}: {status}"),
                Err(why) => {
                    eprintln!("{program}: {why}");
                    return ExitCode::FAILURE;
                }
            }
        }
    } else {
        for list in &lists {
            println!("URLs: {}", list.display());
        }
        let _ = io::stdin().read_line(&mut String::new());
    }
    tell(&orders, &town, began.elapsed().as_secs_f64());
    if let Some(logs) = &orders.logs {
        fs::create_dir_all(logs).expect("the logs' folder is made");
        for host in &town.hosts {
            let log = town.log_of(host.name);
            let _ = fs::copy(&log, logs.join(log.file_name().expect("a file")));
        }
    }
    ExitCode::SUCCESS
}

fn tell(orders: &Orders, town: &RealTown, took_s: f64) {
    let truth = town.truth();
    println!(
        "{:22} {:>5} {:>8} {:>7} {:>6} {:>6} {:>9} {:>5} {:>6} {:>6} {:>8} {:>7}",
        "host",
        "pages",
        "requests",
        "refused",
        "failed",
        "peak/s",
        "in flight",
        "held",
        "took s",
        "best s",
        "steady %",
        "refused"
    );
    for (name, seen) in &truth {
        let host = town.host(name);
        println!(
            "{name:22} {:5} {:8} {:7} {:6} {:6} {:9} {:5} {:6.1} {:6.1} {}",
            seen.pages,
            seen.requests(),
            seen.refused,
            seen.failed,
            seen.peak_per_second,
            seen.peak_in_flight,
            seen.held.len(),
            seen.span_us() as f64 / 1e6,
            host.best_time(orders.pages(host)).as_secs_f64(),
            steady(orders, host, seen),
        );
    }
    let sum = |of: fn(&Truth) -> usize| truth.values().map(of).sum::<usize>();
    let (pages, requests, refused) = (sum(|t| t.pages), sum(Truth::requests), sum(|t| t.refused));
    let asked: u32 = town.hosts.iter().map(|host| orders.pages(host)).sum();
    let best_s = town
        .hosts
        .iter()
        .map(|host| host.best_time(orders.pages(host)).as_secs_f64())
        .fold(0.0, f64::max);
    println!(
        "{} of {asked} pages lost, {refused} of {requests} requests refused ({:.1} %), {took_s:.1} s where {best_s:.1} s is the best possible",
        asked as usize - pages,
        refused as f64 / requests.max(1) as f64 * 100.0,
    );
}

/// Describes the use of the limit in the second half of the seconds for which there are pages, and
/// the refusals then. A client within the limit never finishes its pages before their end, so there
/// were always more pages to request.
fn steady(orders: &Orders, host: &RealHost, seen: &Truth) -> String {
    let span = orders.seconds.and_then(|seconds| {
        let end = u64::from(seconds);
        seen.steady(host.kind, orders.per_second(host), end / 2..end)
    });
    span.map_or_else(
        || format!("{:>8} {:>7}", "-", "-"),
        |span| format!("{:8.1} {:7}", span.share * 1e2, span.refused),
    )
}
