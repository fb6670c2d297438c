//! Throughput and latency. Server and callers share the machine, as they do for the peer; every call waits for its answer.
//! Rounds alternate, and each figure is the median of its rounds.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use politely::Config;
use politely_server::store::Store;
use politely_server::{Coordinator, Options, Server, Settings};

use super::echo;
use super::load::{Calls, call_until};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const BATCH: usize = 64;

pub(super) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let echo = echo::serve().await;
        let dir = tempfile::tempdir().expect("a folder");
        let ours = serve(fast(dir.path())).await;
        println!("coordinator: median of {ROUNDS} rounds of {} s; a batch is {BATCH} items", ROUND.as_secs());
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
            let (mut echoes, mut ourses) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                echoes.push(round(echo, calls, connections).await);
                ourses.push(round(ours, calls, connections).await);
            }
            let (echo, ours) = (median(&echoes), median(&ourses));
            println!(
                "| {connections} | {name} | {:.0} | {:.0} | {:.2} | {:.3}, {:.3} | {:.3}, {:.3} | {:.2} | {:.2}, {:.2} |",
                echo.items_per_s, ours.items_per_s, ours.items_per_s / echo.items_per_s,
                echo.p50_ms, echo.p99_ms, ours.p50_ms, ours.p99_ms, ours.p99_ms / echo.p99_ms,
                echo.cpu_us, ours.cpu_us,
            );
        }
    });
}

#[derive(Clone, Copy)]
struct Round {
    items_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// What an item costs both ends together.
    cpu_us: f64,
}

fn median(rounds: &[Round]) -> Round {
    let of = |number: fn(&Round) -> f64| {
        let mut numbers: Vec<f64> = rounds.iter().map(number).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        numbers[numbers.len() / 2]
    };
    Round {
        items_per_s: of(|round| round.items_per_s),
        p50_ms: of(|round| round.p50_ms),
        p99_ms: of(|round| round.p99_ms),
        cpu_us: of(|round| round.cpu_us),
    }
}

/// All connections at once.
async fn round(server: SocketAddr, calls: Calls, connections: usize) -> Round {
    let (began, before) = (Instant::now(), cpu());
    let end = began + ROUND;
    let callers: Vec<_> = (0..connections)
        .map(|caller| tokio::spawn(call_until(server, calls, caller, end)))
        .collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.expect("a caller"));
    }
    let (elapsed, cpu) = (began.elapsed(), cpu() - before);
    took.sort_unstable();
    let items = (took.len() * calls.items()) as f64;
    let quantile = |percent: usize| took[took.len() * percent / 100].as_secs_f64() * 1e3;
    Round {
        items_per_s: items / elapsed.as_secs_f64(),
        p50_ms: quantile(50),
        p99_ms: quantile(99),
        cpu_us: cpu.as_secs_f64() * 1e6 / items,
    }
}

/// Of this process so far, to a hundredth of a second.
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
    };
    let server = Server::bind(coordinator, options).await.expect("a server");
    let address = server.address();
    tokio::spawn(server.run(std::future::pending()));
    address
}
