//! Random operations on a host.

use std::sync::Arc;
use std::time::Duration;

use politely_core::config::Config;
use politely_core::control::{AdviceConfig, AimdConfig, LawConfig};
use politely_core::gate::Refill;
use politely_core::signal::{Quota, Report, Signal, Unit};
use proptest::collection::vec;
use proptest::prelude::*;

/// One operation. `which` selects among the permits that qualify.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Request {
        slots: u16,
        horizon_ms: u64,
    },
    Report {
        which: usize,
        report: Report,
    },
    /// A report that is late, or that comes a second time.
    ReportAgain {
        which: usize,
        report: Report,
    },
    Cancel {
        which: usize,
        sent: bool,
    },
    Renew {
        which: usize,
    },
    Ahead {
        micros: u64,
    },
    Back {
        micros: u64,
    },
    SetRate {
        rate: f64,
        burst: f64,
    },
    Hold {
        millis: u64,
    },
    /// A worker reports the Crawl-delay of robots.txt.
    CrawlDelay {
        millis: u64,
        fresh_ms: u64,
    },
    Unpark,
    /// Evicts the host if that loses nothing, and creates it again.
    Evict,
    Restore,
}

fn signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        8 => Just(Signal::Ok),
        3 => Just(Signal::RateLimited),
        2 => Just(Signal::Overloaded),
        1 => Just(Signal::Unreachable),
        1 => Just(Signal::Blocked),
        1 => Just(Signal::UrlError),
    ]
}

fn quota() -> impl Strategy<Value = Option<Quota>> {
    let unit = proptest::sample::select(&Unit::ALL[..]);
    let quota = (unit, 0..4_u64, 1..20_u64).prop_map(|(unit, remaining, secs)| {
        Some(Quota {
            unit,
            limit: Some(10),
            window: Some(Duration::from_mins(1)),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs(secs)),
            ..Quota::default()
        })
    });
    prop_oneof![9 => Just(None), 1 => quota]
}

pub(crate) fn report() -> impl Strategy<Value = Report> {
    let retry_after = prop_oneof![
        8 => Just(None),
        1 => (1..5_000_u64).prop_map(|ms| Some(Duration::from_millis(ms))),
        1 => (5..5_000_u64).prop_map(|secs| Some(Duration::from_secs(secs))),
    ];
    let status = prop_oneof![3 => Just(None), 1 => Just(Some(200)), 1 => Just(Some(500))];
    (signal(), retry_after, status, 0..5_000_u64, quota()).prop_map(
        |(signal, retry_after, status, latency_ms, quota)| Report {
            retry_after,
            status,
            latency: Duration::from_millis(latency_ms),
            bytes: latency_ms * 10,
            quotas: quota.into(),
            ..Report::of(signal)
        },
    )
}

fn request() -> impl Strategy<Value = Op> {
    let horizon_ms = prop_oneof![3 => Just(0), 1 => 0..20_000_u64];
    let slots = prop_oneof![3 => Just(1), 1 => 1..5_u16];
    (slots, horizon_ms).prop_map(|(slots, horizon_ms)| Op::Request { slots, horizon_ms })
}

fn crawl_delay() -> impl Strategy<Value = Op> {
    let fresh_ms = prop_oneof![1 => 1..10_000_u64, 1 => Just(86_400_000)];
    (0..20_000_u64, fresh_ms).prop_map(|(millis, fresh_ms)| Op::CrawlDelay { millis, fresh_ms })
}

fn ahead() -> impl Strategy<Value = Op> {
    let micros = prop_oneof![
        1 => 1..2_000_u64,
        4 => 2_000..2_000_000_u64,
        1 => 2_000_000..100_000_000_u64,
        1 => 3_600_000_000..4_000_000_000_u64,
    ];
    micros.prop_map(|micros| Op::Ahead { micros })
}

/// Draws an operation, with a clock that only moves forward.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    let which = || 0..16_usize;
    prop_oneof![
        12 => request(),
        8 => (which(), report()).prop_map(|(which, report)| Op::Report { which, report }),
        1 => (which(), report()).prop_map(|(which, report)| Op::ReportAgain { which, report }),
        2 => (which(), any::<bool>()).prop_map(|(which, sent)| Op::Cancel { which, sent }),
        1 => which().prop_map(|which| Op::Renew { which }),
        10 => ahead(),
        1 => (0.05..50.0, 1.0..6.0).prop_map(|(rate, burst)| Op::SetRate { rate, burst }),
        1 => (1..5_000_u64).prop_map(|millis| Op::Hold { millis }),
        1 => crawl_delay(),
        1 => Just(Op::Unpark),
        3 => Just(Op::Evict),
        1 => Just(Op::Restore),
    ]
}

pub(crate) fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..most)
}

/// Draws operations, with a clock that also steps back.
pub(crate) fn ops_any_clock(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let back = (1..10_000_000_u64).prop_map(|micros| Op::Back { micros });
    vec(prop_oneof![20 => op(), 1 => back], 1..most)
}

fn law() -> impl Strategy<Value = LawConfig> {
    let quick = AimdConfig {
        step_accepts: 2,
        ..AimdConfig::default()
    };
    prop_oneof![
        Just(LawConfig::Fixed),
        Just(LawConfig::Aimd(Arc::default())),
        Just(LawConfig::Aimd(Arc::new(quick))),
        Just(LawConfig::Advice(Arc::new(AdviceConfig::default()))),
    ]
}

/// Draws a configuration with any law but the default one.
pub(crate) fn config() -> impl Strategy<Value = Config> {
    config_under(law())
}

/// Draws a configuration with the default law, which has the largest state and the most rules.
pub(crate) fn config_discover() -> impl Strategy<Value = Config> {
    config_under(Just(LawConfig::Discover(Arc::default())))
}

fn config_under(law: impl Strategy<Value = LawConfig>) -> impl Strategy<Value = Config> {
    let refill = prop_oneof![
        4 => Just(Refill::Continuous),
        1 => (50..5_000_u64).prop_map(|ms| Refill::Interval(Duration::from_millis(ms))),
    ];
    let bytes = prop_oneof![3 => Just(f64::INFINITY), 1 => 1e3..1e5];
    let busy = prop_oneof![Just(f64::INFINITY), Just(1.0)];
    (
        law,
        refill,
        0.1..20.0,
        1.0..5.0,
        1..6_u32,
        bytes,
        busy,
        1..200_u64,
    )
        .prop_map(
            |(law, refill, rate, burst, in_flight, bytes_per_s, busy_share, lease)| {
                let mut config = Config::api();
                config.law = law;
                config.limits.refill = refill;
                config.limits.rate_start = rate;
                config.limits.rate_max = rate * 8.0;
                config.limits.burst = burst;
                config.limits.in_flight = in_flight;
                config.limits.bytes_per_s = bytes_per_s;
                config.limits.busy_share = busy_share;
                config.lease = Duration::from_secs(lease);
                config.breaker.trip_after = 2;
                config.validate().unwrap();
                config
            },
        )
}
