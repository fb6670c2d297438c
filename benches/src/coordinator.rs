//! The coordinator against the least an axum server can do with the same bodies: read them as JSON of the same types
//! and answer one that was made before.
//!
//! Server and callers share the machine, as they do for the peer; every call waits for its answer. Rounds alternate, and each
//! figure is the median of its rounds.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Json;
use axum::routing::post;
use politely::wire::{Exchange, Exchanged, Grant, Item, Next, Told, ToldAnswer, Want};
use politely::{Config, Key};
use politely_server::store::Store;
use politely_server::{Coordinator, Options, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::limiter::resident;

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const BATCH: usize = 64;

/// Runs everything and prints the tables.
pub(crate) fn run() {
    memory(1_000_000);
    restart(1_000_000);
    speed();
}

fn speed() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let echo = echo().await;
        let dir = tempfile::tempdir().expect("a folder");
        let coordinator = fast(dir.path());
        let ours = serve(coordinator).await;
        println!("coordinator: {CONNECTIONS} connections, median of {ROUNDS} rounds of {} s", ROUND.as_secs());
        println!("| items per exchange | echo, exchanges/s | ours | ratio | ours, items/s | echo p99 | ours p99 | ratio |");
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        for batch in [1, BATCH] {
            let (mut echoes, mut exchanges) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                echoes.push(round(echo, batch, CONNECTIONS, false).await);
                exchanges.push(round(ours, batch, CONNECTIONS, true).await);
            }
            let (echo, ours) = (median(&mut echoes), median(&mut exchanges));
            println!(
                "| {batch} report + {batch} acquire | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} ms | {:.2} ms | {:.2} |",
                echo.per_s, ours.per_s, ours.per_s / echo.per_s, ours.per_s * 2.0 * batch as f64,
                echo.p99_ms, ours.p99_ms, ours.p99_ms / echo.p99_ms,
            );
        }
        let (mut echoes, mut exchanges) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            echoes.push(round(echo, 1, 4, false).await);
            exchanges.push(round(ours, 1, 4, true).await);
        }
        let (echo, ours) = (median(&mut echoes), median(&mut exchanges));
        println!(
            "four connections: p99 of echo {:.3} ms, of ours {:.3} ms, ratio {:.2}",
            echo.p99_ms, ours.p99_ms, ours.p99_ms / echo.p99_ms
        );
    });
}

#[derive(Clone, Copy)]
struct Round {
    per_s: f64,
    p99_ms: f64,
}

fn median(rounds: &mut [Round]) -> Round {
    let mut of = |number: fn(&Round) -> f64| {
        rounds.sort_unstable_by(|a, b| number(a).total_cmp(&number(b)));
        number(&rounds[rounds.len() / 2])
    };
    Round {
        per_s: of(|round| round.per_s),
        p99_ms: of(|round| round.p99_ms),
    }
}

/// All connections at once; each with keys of its own, so that there is always a permit.
async fn round(server: SocketAddr, batch: usize, connections: usize, ours: bool) -> Round {
    let end = Instant::now() + ROUND;
    let callers: Vec<_> = (0..connections)
        .map(|caller| tokio::spawn(call_until(server, batch, caller, end, ours)))
        .collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.expect("a caller"));
    }
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    Round {
        per_s: took.len() as f64 / ROUND.as_secs_f64(),
        p99_ms: p99.as_secs_f64() * 1e3,
    }
}

async fn call_until(
    server: SocketAddr,
    batch: usize,
    caller: usize,
    end: Instant,
    ours: bool,
) -> Vec<Duration> {
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let keys: Vec<String> = (0..batch)
        .map(|i| format!("host-{caller}-{i}.example.com"))
        .collect();
    let (mut permits, mut answer) = (Vec::new(), Vec::new());
    let mut took = Vec::new();
    if ours {
        // The first call has nothing to report.
        exchange(&mut stream, &request(&keys, &[]), &mut answer).await;
        permits = granted(&answer);
    } else {
        permits.resize(batch, "10000000abc".to_owned());
    }
    while Instant::now() < end {
        assert_eq!(permits.len(), batch, "{}", String::from_utf8_lossy(&answer));
        let request = request(&keys, &permits);
        let began = Instant::now();
        exchange(&mut stream, &request, &mut answer).await;
        took.push(began.elapsed());
        if ours {
            permits = granted(&answer);
        }
    }
    if ours {
        exchange(&mut stream, &request(&[], &permits), &mut answer).await;
    }
    took
}

fn request(keys: &[String], permits: &[String]) -> Vec<u8> {
    use std::io::Write;
    let mut body = Vec::with_capacity(256 + keys.len() * 160);
    body.extend_from_slice(br#"{"client":"bench","report":["#);
    for (i, permit) in permits.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(
            body,
            r#"{comma}{{"permit":"{permit}","status":200,"latency_ms":12.5,"bytes":2048}}"#
        )
        .expect("memory");
    }
    body.extend_from_slice(br#"],"acquire":["#);
    for (i, key) in keys.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(body, r#"{comma}{{"key":"{key}"}}"#).expect("memory");
    }
    body.extend_from_slice(b"]}");
    let mut request = Vec::with_capacity(body.len() + 128);
    write!(
        request,
        "POST /api/v1/exchange HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .expect("memory");
    request.extend_from_slice(&body);
    request
}

/// Sends and reads a whole answer; its body is left in `answer`.
async fn exchange(stream: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) {
    stream.write_all(request).await.expect("sent");
    answer.clear();
    loop {
        let read = stream.read_buf(answer).await.expect("an answer");
        assert!(read > 0, "the server went away");
        let Some(head) = find(answer, b"\r\n\r\n") else {
            continue;
        };
        let text = std::str::from_utf8(&answer[..head]).expect("a head");
        let length: usize = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.parse().ok())
            .expect("a length");
        if answer.len() >= head + 4 + length {
            answer.drain(..head + 4);
            return;
        }
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

/// The permits of an answer, without reading it as JSON: the caller's part of the machine should be small.
fn granted(answer: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(answer).expect("UTF-8");
    let acquired = text.find(r#""acquire":["#).map_or("", |at| &text[at..]);
    acquired
        .split(r#""permit":""#)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .collect()
}

async fn echo() -> SocketAddr {
    let answer = |Json(exchange): Json<Exchange>| async move {
        let grant = |(item, _): (usize, &Item)| {
            politely::wire::Answer::Granted(Grant {
                item: item as u32,
                permit: "10000000abc".to_owned(),
                key: "host-12-34.example.com".to_owned(),
                start_in_ms: 0,
                valid_for_ms: 50,
                lease_ms: 119_999,
                slots: 1,
                interval_ms: 0.0,
            })
        };
        let told = |told: &Told| ToldAnswer {
            permit: told.permit.clone(),
            next: Next::Done,
            rate: 1e9,
            ..ToldAnswer::default()
        };
        assert_eq!(exchange.want, Want::All);
        Json(Exchanged {
            report: exchange.report.iter().map(told).collect(),
            acquire: exchange.acquire.iter().enumerate().map(grant).collect(),
            retry_in_ms: None,
        })
    };
    let router = axum::Router::new().route("/api/v1/exchange", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
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

/// What a key costs that was asked and reported once, under the default law, store and table included.
fn memory(keys: usize) {
    let before = resident();
    let coordinator = Coordinator::new(Settings::default()).expect("a coordinator");
    for i in 0..keys {
        let key = Key::host(&format!("host-{i}.example.com")).expect("a host");
        let permit = coordinator
            .limiter()
            .try_acquire(&key)
            .expect("a first permit");
        permit.report(&politely::Report {
            status: Some(200),
            latency: Duration::from_millis(20),
            ..politely::Report::of(politely::Signal::Ok)
        });
    }
    let grown = resident().saturating_sub(before);
    println!(
        "memory per known key, {keys} keys: {} bytes resident",
        grown / keys as u64
    );
}

/// From the command to the first answer, with so many keys that were refused once each.
fn restart(keys: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let (store, kept) = Store::open(dir.path()).expect("a store");
    let coordinator = Coordinator::resume(Settings::default(), store, kept).expect("a coordinator");
    for i in 0..keys {
        let key = Key::host(&format!("host-{i}.example.com")).expect("a host");
        let permit = coordinator
            .limiter()
            .try_acquire(&key)
            .expect("a first permit");
        permit.report(&politely::Report {
            status: Some(429),
            latency: Duration::from_millis(20),
            ..politely::Report::of(politely::Signal::RateLimited)
        });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
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
