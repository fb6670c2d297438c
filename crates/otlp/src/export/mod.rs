//! The collector of a build with the feature `export`.

mod client;
mod samples;
mod span;

use std::sync::Arc;
use std::time::Duration;

use metrics::{Histogram, HistogramFn};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::Acquire;
use client::Client;
pub use span::Parent;

/// The name of this instrumentation, and of the service unless `OTEL_SERVICE_NAME` names it.
const NAME: &str = "politely";
/// The longest time for the last batch at the end of a process.
const LAST_BATCH: Duration = Duration::from_secs(2);

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The URL has another scheme, or none.
    #[error("{0:?} is no http or https URL; write it as http://127.0.0.1:4318")]
    Url(String),
    /// The HTTP client cannot be built.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
    /// An environment variable of OpenTelemetry is wrong.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// The collector that gets the spans and metrics of this process. Clones share it.
#[derive(Clone)]
pub struct Collector(Arc<Providers>);

struct Providers {
    spans: SdkTracerProvider,
    tracer: SdkTracer,
    metrics: SdkMeterProvider,
    meter: Meter,
}

impl Collector {
    /// Starts to send to the collector at `url`, such as `http://127.0.0.1:4318`.
    ///
    /// `tell` gets a line when the collector becomes unreachable, and when it answers again.
    /// Call this outside of an async runtime.
    ///
    /// # Errors
    /// The URL is not usable. A collector that does not answer is no error.
    ///
    /// # Panics
    /// In reqwest, if the process has no TLS provider of rustls.
    pub fn start(
        url: &str,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, CollectorError> {
        let base = url.trim_end_matches('/');
        let has_host = |rest: &str| !rest.is_empty() && !rest.starts_with('/');
        let rest = (base.strip_prefix("http://")).or_else(|| base.strip_prefix("https://"));
        if !rest.is_some_and(has_host) || base.parse::<http::Uri>().is_err() {
            return Err(CollectorError::Url(url.to_owned()));
        }
        let client = Arc::new(Client::new(base, Box::new(tell))?);
        let spans = SpanExporter::builder()
            .with_http()
            .with_shared_http_client(client.clone())
            .with_endpoint(format!("{base}/v1/traces"))
            .build()?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_shared_http_client(client)
            .with_endpoint(format!("{base}/v1/metrics"))
            .build()?;
        let resource = resource();
        let spans = SdkTracerProvider::builder()
            .with_batch_exporter(spans)
            .with_resource(resource.clone())
            .build();
        let metrics = SdkMeterProvider::builder()
            .with_periodic_exporter(metrics)
            .with_resource(resource)
            .build();
        let (tracer, meter) = (spans.tracer(NAME), metrics.meter(NAME));
        Ok(Self(Arc::new(Providers {
            spans,
            tracer,
            metrics,
            meter,
        })))
    }

    /// Sends the span of an acquire that ended now. Returns at once.
    pub fn acquired(&self, parent: &Parent, acquire: &Acquire<'_>) {
        span::send(&self.0.tracer, parent, acquire);
    }

    /// Sends the counters and gauges that `emit` hands to the `metrics` recorder of its thread.
    ///
    /// `families` has the name and the help text of each. A name that ends in `_total` is a
    /// counter. `emit` is called once per export, on a thread of its own.
    pub fn observe(
        &self,
        families: &[(&'static str, &'static str)],
        emit: impl Fn() + Send + Sync + 'static,
    ) {
        samples::observe(&self.0.meter, families, emit);
    }

    /// Returns a histogram whose samples are sent. `bounds` are the upper bounds of its buckets.
    pub fn histogram(&self, name: &'static str, help: &'static str, bounds: &[f64]) -> Histogram {
        let histogram = (self.0.meter)
            .f64_histogram(name)
            .with_description(help)
            .with_boundaries(bounds.to_vec())
            .build();
        Histogram::from_arc(Arc::new(Sent(histogram)))
    }

    /// Sends what is left, for at most two seconds per kind. Nothing is sent after this.
    pub fn close(&self) {
        // A collector that is unreachable was reported already.
        let _ = self.0.spans.shutdown_with_timeout(LAST_BATCH);
        let _ = self.0.metrics.shutdown_with_timeout(LAST_BATCH);
    }
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Collector")
    }
}

/// A histogram of the SDK as a recorder's.
struct Sent(opentelemetry::metrics::Histogram<f64>);

impl HistogramFn for Sent {
    fn record(&self, value: f64) {
        self.0.record(value, &[]);
    }
}

/// Returns the description of this process. The environment overrides its name.
fn resource() -> Resource {
    let builder = Resource::builder();
    let builder = match std::env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => builder,
        None => builder.with_service_name(NAME),
    };
    builder
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_or_a_host_is_refused() {
        for url in [
            "127.0.0.1:4318",
            "ftp://a:4318",
            "http://",
            "https:///v1",
            "http://a b",
        ] {
            let refused = Collector::start(url, |_| {});
            assert!(matches!(refused, Err(CollectorError::Url(_))), "{url}");
        }
    }
}
