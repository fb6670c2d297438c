//! Spans of acquires and metrics for an OpenTelemetry collector, as OTLP over HTTP.
//!
//! [`Collector`] connects. Threads of `opentelemetry_sdk` send in batches, so no caller waits for
//! the collector. While it is unreachable, spans are dropped and one line is logged.
//!
//! The environment variables of OpenTelemetry's SDK apply, such as `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_METRIC_EXPORT_INTERVAL`.
//!
//! | file | its part |
//! | --- | --- |
//! | `acquire.rs` | an acquire as its span describes it |
//! | `export/client.rs` | HTTP, and the one line while the collector is unreachable |
//! | `export/span.rs` | the span of an acquire, and the parent that a caller names |
//! | `export/samples.rs` | counters and gauges from a `metrics` recorder |
//! | `absent.rs` | the same interface without the feature `export`: [`Collector::start`] refuses |
//!
//! # What is not here
//!
//! The crate decides nothing about limits and defines no metric. To send spans and metrics of
//! `politely fetch` or `politely serve`, use their flag `--otlp`. To read the metrics of a library
//! in your own program, install a recorder of the crate `metrics`.

#[cfg(not(feature = "export"))]
mod absent;
mod acquire;
#[cfg(feature = "export")]
mod export;

#[cfg(not(feature = "export"))]
pub use absent::{Collector, CollectorError, Parent};
pub use acquire::{Acquire, AcquireResult};
#[cfg(feature = "export")]
pub use export::{Collector, CollectorError, Parent};
