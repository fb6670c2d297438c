//! Histograms with fixed buckets. The exporter's own histograms keep every sample until the next
//! scrape.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::PrometheusRecorder;
use parking_lot::Mutex;

/// Upper bounds of the buckets, in seconds.
pub(super) const BOUNDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Counts samples per bucket. Its size does not depend on the number of samples.
#[derive(Default)]
pub(super) struct Buckets {
    /// One count per bound, and one for samples above all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// The sum of all samples, as the bits of an `f64`.
    sum: AtomicU64,
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let place = BOUNDS.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The name and the labels of a histogram.
type Series = (String, String);

/// All histograms of the process.
#[derive(Clone, Default)]
pub(super) struct Histograms {
    series: Arc<Mutex<BTreeMap<Series, Arc<Buckets>>>>,
    /// The text for each name.
    help: Arc<Mutex<BTreeMap<String, String>>>,
    /// Histograms of a collector that get the samples as well.
    sent: Arc<HashMap<&'static str, Histogram>>,
}

impl Histograms {
    fn get(&self, key: &Key) -> Arc<Buckets> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={:?}", label.key(), label.value()))
            .collect();
        let name = (key.name().to_owned(), labels.join(","));
        Arc::clone(self.series.lock().entry(name).or_default())
    }

    /// Also passes the samples to these histograms.
    pub(super) fn send_to(&mut self, sent: HashMap<&'static str, Histogram>) {
        self.sent = Arc::new(sent);
    }

    /// Creates the histogram `name` without labels, so that it is rendered before the first sample.
    pub(super) fn declare(&self, name: &'static str) {
        let _ = self.get(&Key::from_static_name(name));
    }

    /// Appends the histograms in Prometheus' text format.
    pub(super) fn render(&self, text: &mut String) {
        let (all, help) = (self.series.lock(), self.help.lock());
        let mut last = "";
        for ((name, labels), buckets) in &*all {
            if name != last {
                // Writing to a `String` cannot fail.
                if let Some(help) = help.get(name) {
                    let _ = writeln!(text, "# HELP {name} {help}");
                }
                let _ = writeln!(text, "# TYPE {name} histogram");
                last = name;
            }
            let with = |bound: &str| match labels.as_str() {
                "" => format!("{{le=\"{bound}\"}}"),
                labels => format!("{{{labels},le=\"{bound}\"}}"),
            };
            let plain = match labels.as_str() {
                "" => String::new(),
                labels => format!("{{{labels}}}"),
            };
            let mut total = 0;
            for (i, count) in buckets.counts.iter().enumerate() {
                total += count.load(Ordering::Relaxed);
                let bound = BOUNDS.get(i).map_or("+Inf".to_owned(), f64::to_string);
                let _ = writeln!(text, "{name}_bucket{} {total}", with(&bound));
            }
            let sum = f64::from_bits(buckets.sum.load(Ordering::Relaxed));
            let _ = writeln!(text, "{name}_sum{plain} {sum}");
            let _ = writeln!(text, "{name}_count{plain} {total}\n");
        }
    }
}

/// Buckets whose samples are sent too.
struct Both(Arc<Buckets>, Histogram);

impl HistogramFn for Both {
    fn record(&self, value: f64) {
        self.0.record(value);
        self.1.record(value);
    }
}

/// Forwards counters and gauges to the exporter, and keeps histograms itself.
pub(super) struct Split {
    pub(super) exporter: PrometheusRecorder,
    pub(super) histograms: Histograms,
}

impl Recorder for Split {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.exporter.describe_counter(key, unit, text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.exporter.describe_gauge(key, unit, text);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, text: SharedString) {
        let help = text.replace('\\', "\\\\").replace('\n', "\\n");
        self.histograms
            .help
            .lock()
            .insert(key.as_str().to_owned(), help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.exporter.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.exporter.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let buckets = self.histograms.get(key);
        match self.histograms.sent.get(key.name()) {
            Some(sent) => Histogram::from_arc(Arc::new(Both(buckets, sent.clone()))),
            None => Histogram::from_arc(buckets),
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn split() -> Split {
        Split {
            exporter: PrometheusBuilder::new().build_recorder(),
            histograms: Histograms::default(),
        }
    }

    #[test]
    fn a_million_waits_are_counted_in_the_memory_of_one() {
        let split = split();
        let histograms = split.histograms.clone();
        ::metrics::with_local_recorder(&split, || {
            for i in 0..1_000_000_u32 {
                let seconds = f64::from(i % 1_000) / 1e3;
                ::metrics::histogram!("politely_wait_seconds").record(seconds);
            }
        });
        // The samples occupy one histogram of a fixed size.
        assert_eq!(histograms.series.lock().len(), 1);
        assert!(size_of::<Buckets>() <= 8 * (BOUNDS.len() + 2));
        assert_eq!(split.exporter.handle().render(), "");
        let mut text = String::new();
        histograms.render(&mut text);
        assert!(
            text.contains("politely_wait_seconds_count 1000000\n"),
            "{text}"
        );
        assert!(
            text.contains("politely_wait_seconds_bucket{le=\"0.1\"} 101000\n"),
            "{text}"
        );
        assert!(
            text.contains("politely_wait_seconds_bucket{le=\"+Inf\"} 1000000\n"),
            "{text}"
        );
        assert!(text.contains("politely_wait_seconds_sum 4995"), "{text}");
    }

    #[test]
    fn labels_stand_before_the_bound_and_the_kind_is_named_once() {
        let split = split();
        ::metrics::with_local_recorder(&split, || {
            ::metrics::describe_histogram!("took", "time of\na call");
            ::metrics::histogram!("took", "call" => "a\"b").record(f64::INFINITY);
            ::metrics::histogram!("took", "call" => "c").record(0.001);
        });
        let mut text = String::new();
        split.histograms.render(&mut text);
        assert!(
            text.starts_with("# HELP took time of\\na call\n# TYPE took histogram\n"),
            "{text}"
        );
        assert_eq!(text.matches("# TYPE took histogram").count(), 1, "{text}");
        assert!(
            text.contains("took_bucket{call=\"a\\\"b\",le=\"300\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("took_bucket{call=\"c\",le=\"0.001\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("took_count{call=\"c\"} 1\n"), "{text}");
    }
}
