//! Measures throughput and latency. Server and callers share the machine, for the coordinator and
//! for the peer. Every call waits for its answer. Short rounds alternate and their results are
//! combined, so that other load on the machine affects both.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use politely::Config;
use politely_server::store::Store;
use politely_server::{Coordinator, Options, Server, Settings};
use tokio::runtime::Builder;

use super::echo;
use super::load::{Calls, call_until};

const ROUNDS: usize = 50;
const ROUND: Duration = Duration::from_millis(200);
const BATCH: usize = 64;

pub(super) fn run() {
    let runtime = crate::runtime(&mut Builder::new_multi_thread());
    runtime.block_on(async {
        let echo = echo::serve().await;
        let dir = tempfile::tempdir().expect("a folder");
        let ours = serve(fast(dir.path())).await;
        println!("coordinator: {ROUNDS} rounds of {} ms; a batch is {BATCH} items", ROUND.as_millis());
        println!("| connections | calls | echo, items/s | ours, items/s | ratio | echo p50, p99 ms | ours | ratio of p99 | µs of CPU an item: echo, ours |");
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        for (connections, name, calls) in [
            (1, "acquire (timed), report", Calls::AcquireThenReport(1)),
            (4, "acquire (timed), report", Calls::AcquireThenReport(1)),
            (64, "acquire (timed), report", Calls::AcquireThenReport(1)),
            (64, "the same in batches", Calls::AcquireThenReport(BATCH)),
            (64, "exchange of 1 + 1", Calls::Exchange(1)),
            (64, "exchange of batches", Calls::Exchange(BATCH)),
        ] {
            let (mut echoes, mut ourses) = (Rounds::default(), Rounds::default());
            for _ in 0..ROUNDS {
                round(echo, calls, connections, &mut echoes).await;
                round(ours, calls, connections, &mut ourses).await;
            }
            let (echo, ours) = (echoes.figures(calls), ourses.figures(calls));
            println!(
                "| {connections} | {name} | {:.0} | {:.0} | {:.2} | {:.3}, {:.3} | {:.3}, {:.3} | {:.2} | {:.2}, {:.2} |",
                echo.items_per_s, ours.items_per_s, ours.items_per_s / echo.items_per_s,
                echo.p50_ms, echo.p99_ms, ours.p50_ms, ours.p99_ms, ours.p99_ms / echo.p99_ms,
                echo.cpu_us, ours.cpu_us,
            );
        }
    });
}

/// The results of all rounds of one server.
#[derive(Default)]
struct Rounds {
    took: Vec<Duration>,
    elapsed: Duration,
    cpu: Duration,
}

struct Figures {
    items_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// CPU time of server and callers per item, in microseconds.
    cpu_us: f64,
}

impl Rounds {
    fn figures(mut self, calls: Calls) -> Figures {
        self.took.sort_unstable();
        let items = (self.took.len() * calls.items()) as f64;
        let quantile =
            |percent: usize| self.took[self.took.len() * percent / 100].as_secs_f64() * 1e3;
        Figures {
            items_per_s: items / self.elapsed.as_secs_f64(),
            p50_ms: quantile(50),
            p99_ms: quantile(99),
            cpu_us: self.cpu.as_secs_f64() * 1e6 / items,
        }
    }
}

/// Runs one round with all connections at the same time.
async fn round(server: SocketAddr, calls: Calls, connections: usize, rounds: &mut Rounds) {
    let (began, before) = (Instant::now(), cpu());
    let end = began + ROUND;
    let callers: Vec<_> = (0..connections)
        .map(|caller| tokio::spawn(call_until(server, calls, caller, end)))
        .collect();
    for caller in callers {
        rounds.took.extend(caller.await.expect("a caller"));
    }
    rounds.elapsed += began.elapsed();
    rounds.cpu += cpu().saturating_sub(before);
}

/// Returns the CPU time of this process so far, with a resolution of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn fast(dir: &std::path::Path) -> Coordinator {
    let mut config = Config::fixed(1e9, 1e9);
    config.limits.in_flight = u32::from(u16::MAX);
    let settings = Settings {
        config,
        ..Settings::default()
    };
    let (store, kept) = Store::open(dir).expect("a store");
    Coordinator::resume(settings, store, kept).expect("a coordinator")
}

async fn serve(coordinator: Coordinator) -> SocketAddr {
    let options = Options {
        bind: "127.0.0.1:0".parse().expect("an address"),
        token: None,
        certificate: None,
        frontier: None,
        grpc: None,
        commit: "unknown",
        collector: None,
    };
    let server = Server::bind(coordinator, options).await.expect("a server");
    let address = server.address();
    tokio::spawn(server.run(std::future::pending()));
    address
}
