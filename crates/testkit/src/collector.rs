//! An OpenTelemetry collector that keeps what it gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

pub use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point};

/// The longest time until something arrives.
const PATIENCE: Duration = Duration::from_mins(1);

/// A collector on loopback, for OTLP over HTTP.
pub struct Collector {
    url: String,
    got: Arc<Mutex<Got>>,
}

#[derive(Default)]
struct Got {
    spans: Vec<Span>,
    /// The last value of each metric.
    metrics: Vec<Metric>,
}

impl Collector {
    /// Starts a collector, which ends with the test process.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let got = Arc::<Mutex<Got>>::default();
        let kept = Arc::clone(&got);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || answer(&stream, &kept));
            }
        });
        Self { url, got }
    }

    /// Returns the URL for `--otlp`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for `count` spans and returns all that came, in the order of their ends.
    pub fn spans(&self, count: usize) -> Vec<Span> {
        let mut spans = self.wait_for(|got| (got.spans.len() >= count).then(|| got.spans.clone()));
        spans.sort_by_key(|span| span.end_time_unix_nano);
        spans
    }

    /// Waits for a metric called `name` that `is_wanted`, and returns it.
    pub fn metric(&self, name: &str, is_wanted: impl Fn(&Metric) -> bool) -> Metric {
        self.wait_for(|got| {
            let mut found = got.metrics.iter().filter(|metric| metric.name == name);
            found.find(|metric| is_wanted(metric)).cloned()
        })
    }

    fn wait_for<T>(&self, find: impl Fn(&Got) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = find(&got) {
                return found;
            }
            let names: Vec<_> = got.metrics.iter().map(|metric| &metric.name).collect();
            assert!(
                Instant::now() < deadline,
                "{} spans and {names:?} came",
                got.spans.len()
            );
            drop(got);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the text or number of an attribute.
pub fn attribute(span: &Span, name: &str) -> Option<Value> {
    let mut all = span.attributes.iter();
    all.find(|attribute| attribute.key == name)?
        .value
        .clone()?
        .value
}

/// Answers all requests of a connection.
fn answer(stream: &TcpStream, got: &Mutex<Got>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut field = String::new();
            if reader.read_line(&mut field).is_err() || field.trim().is_empty() {
                break;
            }
            let field = field.to_ascii_lowercase();
            if let Some(text) = field.strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        keep(&path, &body, got);
        let mut stream = stream;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        line.clear();
    }
}

fn keep(path: &str, body: &[u8], got: &Mutex<Got>) {
    let mut got = got.lock().unwrap_or_else(PoisonError::into_inner);
    match path {
        "/v1/traces" => {
            let request = ExportTraceServiceRequest::decode(body).expect("spans");
            let scopes = (request.resource_spans.into_iter()).flat_map(|spans| spans.scope_spans);
            got.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        "/v1/metrics" => {
            let request = ExportMetricsServiceRequest::decode(body).expect("metrics");
            let scopes =
                (request.resource_metrics.into_iter()).flat_map(|metrics| metrics.scope_metrics);
            got.metrics = scopes.flat_map(|scope| scope.metrics).collect();
        }
        other => panic!("the collector has no path {other}"),
    }
}
