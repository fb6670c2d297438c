//! How fast the models decide and the server answers:
//! `cargo run --profile dist -p politely-target --example speed`.
//!
//! The server's figure includes its client, which runs on the same cores.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use politely_core::Timestamp;
use politely_target::{HostSpec, LimitSpec, Target, TargetError, Town};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ARRIVALS: u64 = 4_000_000;
const CONNECTIONS: usize = 64;
const LASTS: Duration = Duration::from_secs(3);

fn models() {
    let bucket = LimitSpec::TokenBucket {
        rate: 100.0,
        burst: 50,
    };
    let window = LimitSpec::FixedWindow {
        count: 1000,
        window_s: 10.0,
        aligned: true,
    };
    let limits = [
        LimitSpec::SlidingLog {
            count: 1000,
            window_s: 10.0,
        },
        LimitSpec::SlidingCounter {
            count: 1000,
            window_s: 10.0,
        },
        LimitSpec::Leaky {
            rate: 100.0,
            queue: 20,
            nodelay: false,
        },
        LimitSpec::ConcurrencyReject { slots: 4 },
        LimitSpec::Steps {
            at: vec![(0.0, bucket.clone()), (3600.0, window.clone())],
        },
        LimitSpec::All {
            of: vec![bucket.clone(), window.clone()],
        },
        bucket,
        window,
    ];
    for spec in limits {
        let mut limit = spec.build().expect("these are valid");
        let start = Instant::now();
        let mut accepted = 0_u64;
        for arrival in 0..ARRIVALS {
            // 200 a second: about half are refused.
            let now = Timestamp::from_micros(arrival * 5_000);
            if black_box(limit.arrive(now)).accepted() {
                accepted += 1;
                let _ = limit.depart(now);
            }
        }
        let per_s = ARRIVALS as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{per_s:7.1} M arrivals/s, {accepted:7} of {ARRIVALS} accepted: {spec}");
    }
}

async fn ask(target: std::net::SocketAddr, until: Instant) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    let mut answer = vec![0; 16 << 10];
    let mut done = 0;
    // All answers are as long as the first one.
    let mut answer_len = None;
    while Instant::now() < until {
        stream
            .write_all(b"GET /page/1 HTTP/1.1\r\nhost: a\r\n\r\n")
            .await?;
        let mut read = stream.read(&mut answer).await?;
        let whole = *answer_len.get_or_insert_with(|| {
            let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
            head.map_or(0, |head| head + 4 + 2048)
        });
        while read < whole {
            read += stream.read(&mut answer[read..]).await?;
        }
        done += 1;
    }
    Ok(done)
}

#[tokio::main]
async fn main() -> Result<(), TargetError> {
    models();
    let target = Target::start(Town::new(vec![HostSpec::new("open", LimitSpec::None {})])).await?;
    let addr = target.hosts()[0].addr;
    let start = Instant::now();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| tokio::spawn(ask(addr, start + LASTS)))
        .collect();
    let mut done = 0;
    for client in clients {
        done += client.await.expect("no client panics")?;
    }
    let took = start.elapsed();
    println!(
        "{:.0} requests/s over {CONNECTIONS} connections",
        done as f64 / took.as_secs_f64()
    );
    println!("{}", target.shutdown());
    Ok(())
}
