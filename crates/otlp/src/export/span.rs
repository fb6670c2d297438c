//! The span of an acquire.

use std::time::SystemTime;

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;

use crate::{Acquire, AcquireResult};

/// The span that caused an acquire, from the fields `traceparent` and `tracestate` of a request.
///
/// Without these fields, or with malformed ones, the acquire begins a trace. A parent that is not
/// sampled has no span of its acquire either.
#[derive(Clone, Debug, Default)]
pub struct Parent(Context);

impl Parent {
    /// Reads the parent from the header of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        let headers = HeaderExtractor(headers);
        Self(TraceContextPropagator::new().extract_with_context(&Context::new(), &headers))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a span has times of the wall clock"
)]
pub(crate) fn send(tracer: &SdkTracer, Parent(parent): &Parent, acquire: &Acquire<'_>) {
    let ended = SystemTime::now();
    let attributes = [
        Some(KeyValue::new("politely.key", acquire.key.to_owned())),
        Some(KeyValue::new(
            "politely.wait_ms",
            acquire.waited.as_secs_f64() * 1e3,
        )),
        Some(KeyValue::new("politely.result", acquire.result.as_str())),
        (acquire.reason).map(|reason| KeyValue::new("politely.reason", reason.to_owned())),
        (acquire.worker).map(|worker| KeyValue::new("politely.worker", worker.to_owned())),
    ];
    let mut span = SpanBuilder::from_name("politely.acquire")
        .with_kind(SpanKind::Server)
        .with_start_time(ended.checked_sub(acquire.waited).unwrap_or(ended))
        .with_attributes(attributes.into_iter().flatten())
        .start_with_context(tracer, parent);
    if acquire.result == AcquireResult::Error {
        let reason = acquire.reason.unwrap_or_default().to_owned();
        span.set_status(Status::error(reason));
    }
    span.end_with_timestamp(ended);
}
