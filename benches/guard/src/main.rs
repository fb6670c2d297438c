//! Runs the hot paths, so that `scripts/guard` can count their instructions.
//!
//! On a shared machine, times differ by half from run to run. Instructions differ by less than one
//! in a thousand, so `scripts/guard` detects a path that grew by a twentieth.
//!
//! `guard NAME` prepares the path NAME and runs it inside [`counted`], the only part that callgrind
//! counts. Then it prints how often the path ran. The clock stands still unless a path moves it.
//! The registry's hash seed is random, as in production; a thousand keys average over it.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use politely::core::host::{AcquireRequest, Decision, Host};
use politely::core::queue::NextQueue;
use politely::core::signal::{WallClock, classify};
use politely::core::{Rng, Timestamp};
use politely::robots::Robots;
use politely::{Clock, Config, Key, Limiter, Outcome, Report, Signal};

const KEYS: usize = 1_000;
const ROUNDS: usize = 20;
/// Rounds before the counted ones, for keys that are in use.
const WARM_ROUNDS: usize = 200;
/// Virtual time between two rounds. It refills every bucket, so each round begins in the same
/// state.
const ROUND: Duration = Duration::from_secs(1);

type Path = fn() -> usize;

/// The paths, in the order of `guard.toml`.
const PATHS: [(&str, Path); 8] = [
    ("grant", grant),
    ("cycle", cycle),
    ("core", core),
    ("warm", warm),
    ("budgets", budgets),
    ("queue", queue),
    ("classify", plain_200),
    ("robots", robots),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if let Some((_, path)) = PATHS.iter().find(|(name, _)| *name == wanted) {
        println!("{}", path());
        return ExitCode::SUCCESS;
    }
    for (name, _) in PATHS {
        println!("{name}");
    }
    if wanted.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs `walk`. callgrind counts only this function; see `--toggle-collect` in `scripts/guard`.
#[inline(never)]
fn counted<T>(walk: impl FnOnce() -> T) -> T {
    black_box(walk())
}

/// Grants permits of known keys.
fn grant() -> usize {
    let bench = Bench::new();
    let mut permits = Vec::with_capacity(KEYS);
    for _ in 0..ROUNDS {
        counted(|| permits.extend(bench.keys.iter().map(|key| bench.permit(key))));
        permits.clear();
        bench.tick();
    }
    KEYS * ROUNDS
}

/// Grants permits of known keys and reports their outcomes.
fn cycle() -> usize {
    let bench = Bench::new();
    for _ in 0..ROUNDS {
        counted(|| bench.round());
        bench.tick();
    }
    KEYS * ROUNDS
}

/// Does the same as [`cycle`] without the registry and its locks.
fn core() -> usize {
    requests(&Config::api(), 0)
}

/// Does the same as [`core()`] for keys with 200 requests behind them.
fn warm() -> usize {
    requests(&Config::api(), WARM_ROUNDS)
}

/// Does the same as [`warm`] with three declared limits, of which much is spent.
fn budgets() -> usize {
    let mut config = Config::api();
    config.declared = "10/s; 1000/h; 10000/day@UTC".parse().expect("limits");
    requests(&config, WARM_ROUNDS)
}

fn requests(config: &Config, warm_rounds: usize) -> usize {
    let report = good();
    let (mut now, mut rng) = (Timestamp::from_micros(1_000_000), Rng::new(1));
    let mut hosts: Vec<_> = (0..KEYS).map(|_| Host::new(config, now)).collect();
    let mut round = |now| {
        for host in &mut hosts {
            let Decision::Granted(grant) = host.request(now, AcquireRequest::default(), config)
            else {
                panic!("a second is enough for the next request")
            };
            black_box(host.report(now, grant.lease, &report, config, &mut rng));
        }
    };
    for _ in 0..warm_rounds {
        round(now);
        now = now + ROUND;
    }
    for _ in 0..ROUNDS {
        counted(|| round(now));
        now = now + ROUND;
    }
    KEYS * ROUNDS
}

/// Pops the next of ten thousand hosts and pushes it back, due again after 0.1 to 60 s.
fn queue() -> usize {
    const HOSTS: u32 = 10_000;
    const OPS: usize = 100_000;
    let (mut queue, mut rng) = (NextQueue::new(), Rng::new(7));
    for host in 0..HOSTS {
        queue.push(Timestamp::from_secs_f64(rng.between(0.0, 60.0)), host);
    }
    let delay = |rng: &mut Rng| Duration::from_micros((1e5 * 600_f64.powf(rng.unit())) as u64);
    let delays: Vec<_> = (0..2 * OPS).map(|_| delay(&mut rng)).collect();
    let mut turn = |delays: &[Duration]| {
        for delay in delays {
            let (due, host) = queue.pop_due(Timestamp::NEVER).expect("nobody leaves");
            queue.push(due + *delay, host);
        }
    };
    let (first, then) = delays.split_at(OPS);
    turn(first);
    counted(|| turn(then));
    OPS
}

/// Classifies a typical response: status 200 without limit headers.
fn plain_200() -> usize {
    const ANSWERS: usize = 10_000;
    let headers: HeaderMap = [
        ("date", "Fri, 20 Nov 2026 12:00:00 GMT"),
        ("server", "nginx"),
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "18231"),
        ("last-modified", "Thu, 19 Nov 2026 08:12:31 GMT"),
        ("etag", "\"655b1f3f-4737\""),
        ("cache-control", "max-age=600"),
        ("vary", "accept-encoding"),
        ("strict-transport-security", "max-age=31536000"),
        ("x-frame-options", "SAMEORIGIN"),
    ]
    .into_iter()
    .map(|(name, value)| {
        let name = HeaderName::from_static(name);
        (name, HeaderValue::from_static(value))
    })
    .collect();
    let outcome = Outcome::Answered {
        status: StatusCode::OK,
        headers: &headers,
        body_start: b"<!doctype html><html><head><title>A page</title>",
    };
    let clock = WallClock::from_unix_secs(1_795_176_000);
    counted(|| {
        for _ in 0..ANSWERS {
            black_box(classify(black_box(&outcome), clock, ROUND, 18_231));
        }
    });
    ANSWERS
}

/// Checks a path against forty rules, some with wildcards, as in the robots.txt of large shops.
fn robots() -> usize {
    const ASKED: usize = 10_000;
    let mut text = String::from("User-agent: *\n");
    for i in 0..10 {
        for rule in [
            "Disallow: /private@/",
            "Allow: /private@/open/",
            "Disallow: /*?sort@=",
            "Disallow: /p@/*.pdf$",
        ] {
            text += &rule.replace('@', &i.to_string());
            text.push('\n');
        }
    }
    let robots = Robots::from_response(Some(200), text.as_bytes(), "politely");
    let paths: Vec<_> = (0..100)
        .map(|i| format!("/p{}/shelf-{i}/a-page-of-this-site.html?page={i}", i % 20))
        .collect();
    counted(|| {
        for i in 0..ASKED {
            black_box(robots.allows_path(&paths[i % paths.len()]));
        }
    });
    ASKED
}

fn good() -> Report {
    let mut report = Report::of(Signal::Ok);
    report.latency = Duration::from_millis(50);
    report
}

/// A limiter that knows a thousand keys.
struct Bench {
    limiter: Limiter,
    keys: Vec<Key>,
    now: Arc<AtomicU64>,
    report: Report,
}

impl Bench {
    fn new() -> Self {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let clock = {
            let now = Arc::clone(&now);
            Clock::given(move || Timestamp::from_micros(now.load(Ordering::Relaxed)))
        };
        let builder = Limiter::builder().config(Config::api()).clock(clock);
        let limiter = builder.seed(1).build().expect("a ready-made configuration");
        let key = |i| Key::host(&format!("shop-{i}.example.com")).expect("a host's name");
        let bench = Self {
            limiter,
            keys: (0..KEYS).map(key).collect(),
            now,
            report: good(),
        };
        bench.round();
        bench.tick();
        bench
    }

    fn permit(&self, key: &Key) -> politely::Permit {
        self.limiter.try_acquire(key).expect("a second is enough")
    }

    fn round(&self) {
        for key in &self.keys {
            black_box(self.permit(key).report(&self.report));
        }
    }

    fn tick(&self) {
        self.now
            .fetch_add(ROUND.as_micros() as u64, Ordering::Relaxed);
    }
}
