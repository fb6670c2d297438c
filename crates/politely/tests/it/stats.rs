//! Tests of the metric names that a recorder receives. Dashboards depend on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key as Name, KeyName, Metadata,
    Recorder, SharedString, Unit,
};
use parking_lot::Mutex;
use politely::{Key, Limiter, Report, Signal};

use crate::support::limiter;

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, f64>>>);

struct Metric(String, Seen);

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, name: &Name, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(name))
    }
    fn register_gauge(&self, name: &Name, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(name))
    }
    fn register_histogram(&self, name: &Name, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(name))
    }
}

impl Seen {
    fn metric(&self, name: &Name) -> Arc<Metric> {
        Arc::new(Metric(name.name().to_owned(), self.clone()))
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.lock().get(name).copied()
    }
}

impl Metric {
    fn is(&self, value: f64) {
        self.1.0.lock().insert(self.0.clone(), value);
    }
}

impl CounterFn for Metric {
    fn increment(&self, _: u64) {
        unreachable!("totals are absolute")
    }
    fn absolute(&self, value: u64) {
        self.is(value as f64);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set")
    }
    fn decrement(&self, _: f64) {
        unreachable!("gauges are set")
    }
    fn set(&self, value: f64) {
        self.is(value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.is(value);
    }
}

async fn one_refused_of_two(limiter: &Limiter, key: &Key) {
    let permit = limiter.acquire(key).await.unwrap();
    permit.report(&Report::of(Signal::Ok));
    let permit = limiter.acquire(key).await.unwrap();
    permit.report(&Report::of(Signal::RateLimited));
}

#[tokio::test]
async fn every_number_has_its_name() {
    let seen = Seen::default();
    let limiter = limiter(50.0);
    let key = Key::host("a.example").unwrap();
    {
        let _recording = metrics::set_default_local_recorder(&seen);
        one_refused_of_two(&limiter, &key).await;
        assert!(limiter.try_acquire(&key).is_err());
        limiter.stats().emit();
    }
    let exact = [
        ("politely_keys", 1.0),
        ("politely_waiting", 0.0),
        ("politely_refused_share", 0.5),
        ("politely_evicted_total", 0.0),
        ("politely_granted_total", 2.0),
        ("politely_reported_total", 2.0),
        ("politely_refused_total", 1.0),
        ("politely_cancelled_total", 0.0),
        ("politely_late_total", 0.0),
    ];
    for (name, value) in exact {
        assert_eq!(seen.get(name), Some(value), "{name}");
    }
    let above_zero = [
        "politely_memory_bytes",
        "politely_turned_away_total",
        "politely_wait_seconds",
    ];
    for name in above_zero {
        assert!(seen.get(name) > Some(0.0), "{name}");
    }
    assert_eq!(seen.0.lock().len(), exact.len() + above_zero.len());
}

#[tokio::test]
async fn who_does_not_wait_touches_no_recorder() {
    let seen = Seen::default();
    let limiter = limiter(50.0);
    let _recording = metrics::set_default_local_recorder(&seen);
    let permit = limiter.acquire(&Key::host("a.example").unwrap()).await;
    permit.unwrap().report(&Report::of(Signal::Ok));
    assert!(seen.0.lock().is_empty());
}
