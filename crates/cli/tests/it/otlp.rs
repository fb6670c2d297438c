//! `--otlp`: spans and metrics at an OpenTelemetry collector.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use politely_testkit::collector::{Collector, Data, Value, attribute, number_data_point};
use politely_testkit::process::Server;

use crate::run::{fast, run};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A coordinator that sends to a collector, several times per second.
struct Sending {
    server: Server,
    address: String,
    _folder: tempfile::TempDir,
}

impl Sending {
    fn start(collector: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let args = [
            "OTEL_BSP_SCHEDULE_DELAY=20",
            "OTEL_METRIC_EXPORT_INTERVAL=100",
            env!("CARGO_BIN_EXE_politely"),
            "serve",
            "--memory",
            "--bind=127.0.0.1:0",
            "--rate=5",
            "--burst=1",
            "--otlp",
            collector,
        ];
        let mut server = Server::start("politely", folder.path(), Path::new("env"), args);
        let line = server.says("politely: http://");
        Self {
            server,
            address: line.trim_start_matches("politely: http://").to_owned(),
            _folder: folder,
        }
    }

    /// Acquires a permit of `item` and returns the answer.
    fn acquire(&self, item: &str, header: &str) -> String {
        let body = format!(r#"{{"client":"w","wait_ms":30000,"items":[{item}]}}"#);
        let head = format!(
            "POST /api/v1/acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\n{header}content-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).expect("the coordinator listens");
        stream
            .write_all((head + &body).as_bytes())
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

#[test]
fn each_acquire_is_a_span_of_the_callers_trace() {
    let collector = Collector::start();
    let sending = Sending::start(collector.url());
    let caused = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    for _ in 0..2 {
        let answer = sending.acquire(r#"{"key":"a.example"}"#, &caused);
        assert!(answer.contains("granted"), "{answer}");
    }
    let spans = collector.spans(2);
    for span in &spans {
        assert_eq!(span.name, "politely.acquire");
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(hex(&span.parent_span_id), PARENT);
        assert_eq!(attribute(span, "politely.key"), Some(text("a.example")));
        assert_eq!(attribute(span, "politely.result"), Some(text("granted")));
        assert_eq!(attribute(span, "politely.worker"), Some(text("w")));
    }
    // The first request leaves at once. The second one waits for its pace.
    assert_eq!(attribute(&spans[0], "politely.reason"), None);
    assert_eq!(
        attribute(&spans[0], "politely.wait_ms"),
        Some(Value::DoubleValue(0.0))
    );
    assert_eq!(attribute(&spans[1], "politely.reason"), Some(text("pace")));
    let Some(Value::DoubleValue(waited)) = attribute(&spans[1], "politely.wait_ms") else {
        panic!("{spans:?}")
    };
    let length = spans[1].end_time_unix_nano - spans[1].start_time_unix_nano;
    assert!(
        (waited - length as f64 / 1e6).abs() < 1.0,
        "{waited} ms, {length} ns"
    );

    // A request that must not be traced has no span; a malformed parent begins a trace.
    sending.acquire(r#"{"key":"b.example"}"#, &caused.replace("-01\r", "-00\r"));
    let answer = sending.acquire(r#"{"key":"c.example","cost":0}"#, "traceparent: x\r\n");
    assert!(answer.contains("error"), "{answer}");
    let last = collector.spans(3).pop().expect("a span");
    assert_eq!(attribute(&last, "politely.key"), Some(text("c.example")));
    assert_eq!(attribute(&last, "politely.result"), Some(text("error")));
    assert!(last.parent_span_id.is_empty(), "{last:?}");
}

#[test]
fn the_collector_gets_the_numbers_of_the_metrics_page() {
    let collector = Collector::start();
    let sending = Sending::start(collector.url());
    for _ in 0..2 {
        sending.acquire(r#"{"key":"a.example"}"#, "");
    }
    let granted = collector.metric("politely_granted_total", |metric| {
        let Some(Data::Sum(sum)) = &metric.data else {
            return false;
        };
        sum.is_monotonic && sum.data_points[0].value == Some(number_data_point::Value::AsInt(2))
    });
    assert_eq!(granted.description, "Permits granted.");
    collector.metric(
        "politely_key_states",
        |metric| matches!(&metric.data, Some(Data::Gauge(gauge)) if gauge.data_points.len() > 3),
    );
    collector.metric("politely_wait_seconds", |metric| {
        matches!(&metric.data, Some(Data::Histogram(waits)) if waits.data_points[0].count == 1)
    });
}

#[test]
fn a_run_sends_a_span_per_request() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().expect("a folder");
    let town = folder.path().join("town.json");
    let hosts = r#"{"hosts":[{"name":"shop","limit":{"kind":"none"},"pages":9}]}"#;
    std::fs::write(&town, hosts).expect("the town is written");
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let town = town.to_str().expect("UTF-8");
    let mut target = Server::start("target", folder.path(), program, ["target", town]);
    let line = target.says("http://127.0.0.1");
    let host = line.split_whitespace().next().expect("a URL");
    let pages = (0..3).map(|page| format!("{host}/page/{page}"));
    let said = run(fast()
        .args(pages)
        .args(["--otlp", collector.url(), "--no-robots"]));
    assert_eq!(said.code, 0, "{}", said.err);
    let spans = collector.spans(3);
    let key = host.trim_start_matches("http://");
    for span in &spans {
        assert_eq!(attribute(span, "politely.key"), Some(text(key)), "{span:?}");
    }
    let granted = |metric: &_| matches!(metric, Data::Sum(_));
    collector.metric("politely_granted_total", |metric| {
        metric.data.as_ref().is_some_and(granted)
    });
}

#[test]
fn an_unreachable_collector_costs_one_line() {
    let mut sending = Sending::start("http://127.0.0.1:1");
    sending.acquire(r#"{"key":"a.example"}"#, "");
    sending.server.says("does not take spans and metrics");
    for key in 0..20 {
        let answer = sending.acquire(&format!(r#"{{"key":"{key}.example"}}"#), "");
        assert!(answer.contains("granted"), "{answer}");
    }
    // Both exporters have failed again when the coordinator has ended.
    let pid = sending.server.pid().to_string();
    let killed = std::process::Command::new("kill").arg(&pid).status();
    assert!(killed.expect("kill").success());
    let status = loop {
        if let Some(status) = sending.server.ended() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(status.success(), "{}", sending.server.talk());
    let talk = sending.server.talk();
    assert_eq!(talk.matches("collector").count(), 1, "{talk}");
}

#[test]
fn a_wrong_url_is_a_usage_error() {
    let said = run(fast().args(["http://127.0.0.1:1/", "--otlp", "127.0.0.1:4318"]));
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("--otlp: \"127.0.0.1:4318\" is no http or https URL"),
        "{}",
        said.err
    );
}
