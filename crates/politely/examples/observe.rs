//! Observes a limiter: numbers for a recorder, and the reason why a key waits.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key as Name, KeyName, Metadata,
    Recorder, SharedString, Unit,
};
use politely::{Key, Limiter};
use politely_target::{HostSpec, LimitSpec, Target, Town};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The reqwest of this workspace comes without a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limit = LimitSpec::TokenBucket {
        rate: 5.0,
        burst: 1,
    };
    let target = Target::start(Town::new(vec![HostSpec::new("shop", limit)])).await?;
    let page = format!("{}/page/0", target.hosts()[0].url());
    let limiter = Limiter::builder().build()?;
    let client = politely::middleware::client_with(
        || reqwest::Client::builder().no_proxy(),
        limiter.clone(),
    )?;
    // Any recorder will do: metrics-exporter-prometheus, …
    let seen = Seen::default();
    let recording = metrics::set_default_local_recorder(&seen);

    client.get(&page).send().await?.text().await?;
    // `explain` tells why the next request waits. The crawler profile begins with one request per
    // second.
    let key = Key::host(&page)?;
    let why = limiter.explain(&key).ok_or("an unknown key")?;
    let line = why.line(limiter.now());
    assert!(line.ends_with("s: pace"), "{line}");
    client.get(&page).send().await?.text().await?;

    limiter.stats().emit();
    drop(recording);
    assert_eq!(seen.last("politely_granted_total"), Some(2.0));
    assert_eq!(seen.last("politely_refused_share"), Some(0.0));
    assert!(seen.last("politely_wait_seconds") > Some(0.5));
    Ok(())
}

/// A recorder that keeps every metric's last value.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, f64>>>);

impl Seen {
    fn last(&self, name: &str) -> Option<f64> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(name).copied()
    }
}

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
}

struct Metric(String, Seen);

impl Metric {
    fn note(&self, value: f64) {
        let mut values = self.1.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(self.0.clone(), value);
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.note(value as f64);
    }
    fn absolute(&self, value: u64) {
        self.note(value as f64);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, value: f64) {
        self.note(value);
    }
    fn decrement(&self, value: f64) {
        self.note(-value);
    }
    fn set(&self, value: f64) {
        self.note(value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.note(value);
    }
}
