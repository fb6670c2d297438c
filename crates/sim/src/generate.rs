//! Random static limits, for tuning a law and for judging it.
//!
//! A law that is judged by the scenarios it was tuned on proves nothing. So there are two sets from
//! two seeds: [`train`] for tuning, and [`held_out`], on which nothing is tuned. Both seeds were
//! written down before tuning began.
//!
//! Each scenario draws independently:
//!
//! | what | how |
//! | --- | --- |
//! | kind | token bucket 4 : fixed window 4 : sliding log 2 : sliding counter 1 : nginx leaky 1 |
//! | rate L | log-uniform, 0.2 to 50 requests per second |
//! | burst of a bucket | one of 1, L, 5 L, 10; rounded, at least 1 |
//! | window W | one of 1, 5, 7, 10, 30, 45, 60, 60, 300 s; the count is L W, rounded, at least 2 |
//! | where a fixed window begins | aligned to the clock or with the first request, at even odds |
//! | leaky | serves its queue of 0 to 20 at once (`nodelay`) |
//! | round trip | 50 ms |
//! | service time | lognormal, mean log-uniform 30 ms to 1 s, cv 0.1 to 0.8 |
//! | status | 429; one in eight 503 |
//! | Retry-After | none in five of eight, seconds in two, a date in one |
//! | headers | none in fourteen of sixteen, `RateLimit` in one, `X-RateLimit-*` in one |
//! | duration | 3,000 s / L, within 1,800 and 7,200: enough to tell 0.4 % from 0.5 % |
//!
//! Demand is greedy over 64 connections of one worker, so that only the limit matters: at a second
//! of service, 64 connections still carry 60 requests a second.

use politely_core::Rng;
use politely_target::model::{LimitSpec, Service};
use politely_target::{Headers, RetryAfter, Signals};

use crate::scenario::{Demand, Scenario};

/// The seed of the scenarios for tuning. It was written down before tuning began.
pub const TRAIN_SEED: u64 = 20_261_120;

/// The seed of the scenarios for judging. It was written down before tuning began; nothing is tuned
/// on it.
pub const HELD_OUT_SEED: u64 = 31_415_926_535;

/// The number of scenarios for tuning.
const TRAIN_COUNT: usize = 200;

/// The number of scenarios for judging.
const HELD_OUT_COUNT: usize = 800;

/// The most requests in flight: a large crawler's share for one host, above every limit drawn.
const CONNECTIONS: u32 = 64;

/// Another continent, over a connection that exists.
const RTT_MS: f64 = 50.0;

/// Windows that hosts document. A minute is twice as common as any other.
const WINDOWS_S: [f64; 9] = [1.0, 5.0, 7.0, 10.0, 30.0, 45.0, 60.0, 60.0, 300.0];

/// Returns the scenarios for tuning.
pub fn train() -> Vec<Scenario> {
    named("train", TRAIN_SEED, TRAIN_COUNT)
}

/// Returns the scenarios for judging.
pub fn held_out() -> Vec<Scenario> {
    named("held", HELD_OUT_SEED, HELD_OUT_COUNT)
}

/// Returns `count` scenarios from `seed`. The first of them are the same for every `count`.
pub fn generate(seed: u64, count: usize) -> Vec<Scenario> {
    match seed {
        TRAIN_SEED => named("train", seed, count),
        HELD_OUT_SEED => named("held", seed, count),
        _ => named("random", seed, count),
    }
}

fn named(set: &str, seed: u64, count: usize) -> Vec<Scenario> {
    let mut seeds = Rng::new(seed);
    (0..count)
        .map(|index| {
            // Each scenario has a random stream of its own, so that one more draw changes no other
            // scenario.
            let mut scenario = draw(&mut Rng::new(seeds.next_u64()));
            scenario.name = format!("{set}-{index:04} {}", scenario.name);
            scenario
        })
        .collect()
}

/// Draws one scenario, named after its limit.
fn draw(rng: &mut Rng) -> Scenario {
    let rate = log_uniform(rng, 0.2, 50.0);
    let (kind, limit) = limit(rng, rate);
    let service = Service {
        mean_ms: rounded(log_uniform(rng, 30.0, 1_000.0), 10.0),
        cv: rounded(rng.between(0.1, 0.8), 100.0),
    };
    let signals = signals(rng);
    let duration_s = (3_000.0 / rate).clamp(1_800.0, 7_200.0).round();
    greedy(title(kind, &limit), duration_s, service, limit, signals)
}

/// Returns a scenario of one client without faults that takes as much as it gets.
pub(crate) fn greedy(
    name: String,
    duration_s: f64,
    service: Service,
    limit: LimitSpec,
    signals: Signals,
) -> Scenario {
    Scenario {
        name,
        family: None,
        duration_s,
        demand: Demand::Greedy {
            connections: CONNECTIONS,
        },
        rtt_ms: RTT_MS,
        service,
        limit,
        signals,
        faults: Vec::new(),
        bad_pages: None,
        outage_told_from: None,
        timer_ms: 0.0,
        workers: 1,
        coordinated: true,
    }
}

/// Draws a limit of any kind that allows `rate` requests per second in the long run.
pub(crate) fn limit(rng: &mut Rng, rate: f64) -> (&'static str, LimitSpec) {
    match below(rng, 12) {
        0..4 => ("token bucket", token_bucket(rng, rate)),
        4..8 => ("fixed window", fixed_window(rng, rate)),
        8..10 => ("sliding log", sliding_log(rng, rate)),
        10 => ("sliding counter", sliding_counter(rng, rate)),
        _ => ("leaky", leaky(rng, rate)),
    }
}

/// Returns the name of a limit of this kind.
pub(crate) fn title(kind: &str, limit: &LimitSpec) -> String {
    match limit {
        LimitSpec::FixedWindow {
            count, window_s, ..
        }
        | LimitSpec::SlidingLog { count, window_s }
        | LimitSpec::SlidingCounter { count, window_s } => {
            format!("{kind} {count} per {window_s} s")
        }
        LimitSpec::TokenBucket { rate, burst } => format!("{kind} {rate}/s burst {burst}"),
        LimitSpec::Leaky { rate, queue, .. } => format!("{kind} {rate}/s queue {queue}"),
        other => format!("{kind} {other}"),
    }
}

fn token_bucket(rng: &mut Rng, rate: f64) -> LimitSpec {
    let burst = [1.0, rate, 5.0 * rate, 10.0][below(rng, 4)];
    LimitSpec::TokenBucket {
        rate: rounded(rate, 1_000.0),
        burst: (burst.round() as u32).max(1),
    }
}

fn fixed_window(rng: &mut Rng, rate: f64) -> LimitSpec {
    let (count, window_s) = window(rng, rate);
    LimitSpec::FixedWindow {
        count,
        window_s,
        aligned: below(rng, 2) == 0,
    }
}

fn sliding_log(rng: &mut Rng, rate: f64) -> LimitSpec {
    let (count, window_s) = window(rng, rate);
    LimitSpec::SlidingLog { count, window_s }
}

fn sliding_counter(rng: &mut Rng, rate: f64) -> LimitSpec {
    let (count, window_s) = window(rng, rate);
    LimitSpec::SlidingCounter { count, window_s }
}

fn leaky(rng: &mut Rng, rate: f64) -> LimitSpec {
    LimitSpec::Leaky {
        rate: rounded(rate, 1_000.0),
        queue: below(rng, 21) as u32,
        nodelay: true,
    }
}

fn window(rng: &mut Rng, rate: f64) -> (u32, f64) {
    let window_s = WINDOWS_S[below(rng, WINDOWS_S.len())];
    (((rate * window_s).round() as u32).max(2), window_s)
}

pub(crate) fn signals(rng: &mut Rng) -> Signals {
    let status = if below(rng, 8) == 0 { 503 } else { 429 };
    let retry_after = match below(rng, 8) {
        0..5 => RetryAfter::None,
        5..7 => RetryAfter::Seconds,
        _ => RetryAfter::Date,
    };
    let headers = match below(rng, 16) {
        0..14 => Headers::None,
        14 => Headers::Ietf,
        _ => Headers::X,
    };
    Signals {
        status,
        retry_after,
        headers,
    }
}

/// Uniform in `0..end`.
pub(crate) fn below(rng: &mut Rng, end: usize) -> usize {
    (rng.unit() * end as f64) as usize
}

/// Uniform in the logarithm. The exponential is libm's: the same bytes on every machine.
pub(crate) fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    libm::exp(rng.between(libm::log(low), libm::log(high)))
}

/// Rounds to a whole number of `1 / parts`, so that names and files are short.
pub(crate) fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_scenarios_and_another_others() {
        assert_eq!(generate(7, 50), generate(7, 50));
        assert_eq!(generate(7, 50)[..20], generate(7, 20));
        assert_ne!(generate(7, 50), generate(8, 50));
    }

    #[test]
    fn the_sets_are_as_large_as_they_say_and_none_is_in_both() {
        let (train, held) = (train(), held_out());
        assert_eq!((train.len(), held.len()), (200, 800));
        assert!(train[0].name.starts_with("train-0000 "));
        assert!(held[799].name.starts_with("held-0799 "));
        assert!(train.iter().all(|one| {
            held.iter()
                .all(|other| one.limit != other.limit || one.service != other.service)
        }));
    }

    /// The generator must not change after tuning began; otherwise the set would not be the same.
    #[test]
    fn the_held_out_set_is_the_one_written_down() {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a, 64 bits
        for one in held_out() {
            let (name, limit, service, signals) = (one.name, one.limit, one.service, one.signals);
            let (duration, mean, cv) = (one.duration_s, service.mean_ms, service.cv);
            let (status, retry_after, headers) =
                (signals.status, signals.retry_after, signals.headers);
            let line = format!(
                "{name} {duration} {limit} {mean} {cv} {status} {retry_after:?} {headers:?}\n"
            );
            for byte in line.bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        assert_eq!(hash, 0xb275_032b_7b4c_67d6, "{hash:#x}");
    }

    #[test]
    fn all_are_valid_and_a_file_carries_them_unchanged() {
        let scenarios = generate(1, 1_000);
        for scenario in &scenarios {
            scenario.validate().unwrap();
        }
        let json = serde_json::to_string(&scenarios).unwrap();
        assert_eq!(Scenario::read(&json).unwrap(), scenarios);
    }

    fn share(scenarios: &[Scenario], of: impl Fn(&Scenario) -> bool) -> f64 {
        scenarios.iter().filter(|one| of(one)).count() as f64 / scenarios.len() as f64
    }

    /// The tolerance 0.02 is four standard deviations of a share of 10,000.
    #[test]
    fn the_mix_is_as_stated() {
        let all = generate(3, 10_000);
        let near = |got: f64, want: f64, what: &str| {
            assert!((got - want).abs() < 0.02, "{what}: {got} not {want}");
        };
        let kind = |name: &str| share(&all, |one| one.name.contains(name));
        near(kind("token bucket"), 4.0 / 12.0, "token bucket");
        near(kind("fixed window"), 4.0 / 12.0, "fixed window");
        near(kind("sliding log"), 2.0 / 12.0, "sliding log");
        near(kind("sliding counter"), 1.0 / 12.0, "sliding counter");
        near(kind("leaky"), 1.0 / 12.0, "leaky");
        near(
            share(&all, |one| {
                matches!(one.limit, LimitSpec::FixedWindow { aligned: true, .. })
            }),
            2.0 / 12.0,
            "aligned",
        );
        let says = |of: fn(Signals) -> bool| share(&all, |one| of(one.signals));
        near(says(|s| s.status == 503), 1.0 / 8.0, "503");
        let form = |form| share(&all, |one| one.signals.retry_after == form);
        near(form(RetryAfter::None), 5.0 / 8.0, "no Retry-After");
        near(form(RetryAfter::Seconds), 2.0 / 8.0, "seconds");
        near(form(RetryAfter::Date), 1.0 / 8.0, "date");
        near(
            says(|s| s.headers == Headers::None),
            7.0 / 8.0,
            "no headers",
        );
        near(says(|s| s.headers == Headers::X), 1.0 / 16.0, "x headers");
        // Half of a log-uniform variable lies below the geometric mean of its bounds.
        near(
            share(&all, |one| one.service.mean_ms < libm::sqrt(30.0 * 1_000.0)),
            0.5,
            "service mean",
        );
        near(share(&all, |one| one.service.cv < 0.45), 0.5, "service cv");
        near(
            share(&all, |one| one.duration_s > 1_800.0),
            // True for L < 3000 / 1800.
            libm::log(3_000.0 / 1_800.0 / 0.2) / libm::log(50.0 / 0.2),
            "long runs",
        );
    }

    #[test]
    fn every_number_is_in_its_range() {
        for one in generate(5, 2_000) {
            assert!((1_800.0..=7_200.0).contains(&one.duration_s));
            assert!((30.0..=1_000.0).contains(&one.service.mean_ms));
            assert!((0.1..=0.8).contains(&one.service.cv));
            match one.limit {
                LimitSpec::TokenBucket { rate, burst } => {
                    assert!((0.2..=50.0).contains(&rate) && (1..=250).contains(&burst));
                }
                LimitSpec::Leaky {
                    rate,
                    queue,
                    nodelay,
                } => assert!((0.2..=50.0).contains(&rate) && queue <= 20 && nodelay),
                LimitSpec::FixedWindow {
                    count, window_s, ..
                }
                | LimitSpec::SlidingLog { count, window_s }
                | LimitSpec::SlidingCounter { count, window_s } => {
                    assert!(WINDOWS_S.contains(&window_s) && (2..=15_000).contains(&count));
                }
                other => panic!("{other}"),
            }
        }
    }
}
