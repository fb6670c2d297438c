//! Counters and gauges that code hands to a `metrics` recorder, as instruments of the SDK.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use parking_lot::Mutex;

/// Instruments that are read within this time use the same samples. It is far above the time of
/// one export, and far below the time between two.
const SAME_EXPORT: Duration = Duration::from_millis(100);

/// The samples of one reading.
#[derive(Default)]
struct Samples(Mutex<Vec<Sample>>);

struct Sample {
    key: Key,
    /// A counter's number, or the bits of a gauge's.
    value: Arc<AtomicU64>,
}

impl Samples {
    fn add(&self, key: &Key) -> Arc<AtomicU64> {
        let value = Arc::new(AtomicU64::new(0));
        self.0.lock().push(Sample {
            key: key.clone(),
            value: Arc::clone(&value),
        });
        value
    }
}

impl Recorder for Samples {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.add(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.add(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// The last reading, and when it was made.
struct Reading {
    emit: Box<dyn Fn() + Send + Sync>,
    last: Mutex<Option<(Instant, Arc<Vec<Sample>>)>>,
}

impl Reading {
    #[expect(clippy::disallowed_methods, reason = "exports happen in real time")]
    fn samples(&self) -> Arc<Vec<Sample>> {
        let mut last = self.last.lock();
        if let Some((at, samples)) = &*last
            && at.elapsed() < SAME_EXPORT
        {
            return Arc::clone(samples);
        }
        let read = Samples::default();
        metrics::with_local_recorder(&read, &self.emit);
        let samples = Arc::new(read.0.into_inner());
        *last = Some((Instant::now(), Arc::clone(&samples)));
        samples
    }

    /// Passes each value of `family` to `observe`, with its attributes.
    fn each(&self, family: &str, mut observe: impl FnMut(u64, &[KeyValue])) {
        for sample in &*self.samples() {
            if sample.key.name() == family {
                let labels = sample.key.labels();
                let labels = labels
                    .map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned()));
                let labels: Vec<KeyValue> = labels.collect();
                observe(sample.value.load(Ordering::Relaxed), &labels);
            }
        }
    }
}

pub(crate) fn observe(
    meter: &Meter,
    families: &[(&'static str, &'static str)],
    emit: impl Fn() + Send + Sync + 'static,
) {
    let reading = Arc::new(Reading {
        emit: Box::new(emit),
        last: Mutex::default(),
    });
    for &(family, help) in families {
        let reading = Arc::clone(&reading);
        // An instrument is read as long as its meter lives, so nothing is kept here.
        if family.ends_with("_total") {
            meter
                .u64_observable_counter(family)
                .with_description(help)
                .with_callback(move |instrument| {
                    reading.each(family, |value, labels| instrument.observe(value, labels));
                })
                .build();
        } else {
            meter
                .f64_observable_gauge(family)
                .with_description(help)
                .with_callback(move |instrument| {
                    reading.each(family, |value, labels| {
                        instrument.observe(f64::from_bits(value), labels);
                    });
                })
                .build();
        }
    }
}
