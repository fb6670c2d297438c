//! A caller that measures a coordinator. It builds its requests once and fills in the permits of
//! the previous answer. It searches answers for permits instead of parsing the JSON. It shares two
//! cores with the server that it measures, so its own CPU time should be small. It is the same for
//! the peer.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A placeholder for a permit: its number and its signature. All permits of one start of the server
/// have this length.
pub(super) const PERMIT: &str = "10000000abc-0123456789abcdef";

/// The call to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// One call with this many reports and as many acquire requests.
    Exchange(usize),
    /// One call with this many acquire requests, then one call with their reports. Only the first
    /// is timed.
    AcquireThenReport(usize),
}

impl Calls {
    /// Returns the number of items, acquire requests or reports, of one timed call and the untimed
    /// call that follows it.
    pub(super) const fn items(self) -> usize {
        match self {
            Self::Exchange(batch) | Self::AcquireThenReport(batch) => 2 * batch,
        }
    }
}

/// Calls the server until `end`, and records how long each timed call took. Each caller has its own
/// keys, so that there is always a permit.
pub(super) async fn call_until(
    server: SocketAddr,
    calls: Calls,
    caller: usize,
    end: Instant,
) -> Vec<Duration> {
    let stream = TcpStream::connect(server).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut line = Line {
        stream,
        answer: Vec::new(),
    };
    match calls {
        Calls::Exchange(batch) => exchanges(&mut line, batch, caller, end).await,
        Calls::AcquireThenReport(batch) => in_turn(&mut line, batch, caller, end).await,
    }
}

async fn exchanges(line: &mut Line, batch: usize, caller: usize, end: Instant) -> Vec<Duration> {
    let acquire = format!(r#"],"acquire":[{}]}}"#, items(caller, batch));
    let mut both = Request::new(
        "exchange",
        r#"{"client":"bench","report":["#,
        batch,
        &acquire,
    );
    // The first call has nothing to report, and the last call requests nothing.
    let first = Request::new("exchange", r#"{"client":"bench","report":["#, 0, &acquire);
    let mut last = Request::new("exchange", r#"{"client":"bench","report":["#, batch, "]}");
    line.exchange(&first).await;
    let mut took = Vec::new();
    while Instant::now() < end {
        both.fill(line.granted());
        let began = Instant::now();
        line.exchange(&both).await;
        took.push(began.elapsed());
    }
    last.fill(line.granted());
    line.exchange(&last).await;
    took
}

async fn in_turn(line: &mut Line, batch: usize, caller: usize, end: Instant) -> Vec<Duration> {
    let begin = format!(r#"{{"client":"bench","items":[{}]}}"#, items(caller, batch));
    let acquire = Request::new("acquire", &begin, 0, "");
    let mut report = Request::new("report", r#"{"client":"bench","items":["#, batch, "]}");
    let mut took = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        line.exchange(&acquire).await;
        took.push(began.elapsed());
        report.fill(line.granted());
        line.exchange(&report).await;
    }
    took
}

fn items(caller: usize, batch: usize) -> String {
    let item = |i| format!(r#"{{"key":"host-{caller}-{i}.example.com"}}"#);
    (0..batch).map(item).collect::<Vec<_>>().join(",")
}

/// A request with room for permit ids.
struct Request {
    bytes: Vec<u8>,
    /// The offset of each permit id.
    places: Vec<usize>,
}

impl Request {
    /// Returns a request whose body is `begin`, then `reports` reports, then `end`.
    fn new(call: &str, begin: &str, reports: usize, end: &str) -> Self {
        let report =
            format!(r#"{{"permit":"{PERMIT}","status":200,"latency_ms":12.5,"bytes":2048}}"#);
        let body = format!("{begin}{}{end}", vec![report; reports].join(","));
        let mut bytes = Vec::new();
        write!(
            bytes,
            "POST /api/v1/{call} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("memory");
        let places = memchr::memmem::find_iter(&bytes, PERMIT).collect();
        Self { bytes, places }
    }

    fn fill<'a>(&mut self, mut permits: impl Iterator<Item = &'a [u8]>) {
        for &place in &self.places {
            let permit = permits.next().expect("a permit for each item");
            self.bytes[place..place + PERMIT.len()].copy_from_slice(permit);
        }
    }
}

/// A connection and the last answer on it.
struct Line {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Line {
    /// Sends the request and reads the whole answer.
    async fn exchange(&mut self, request: &Request) {
        self.stream.write_all(&request.bytes).await.expect("sent");
        self.answer.clear();
        let mut whole = None;
        while whole.is_none_or(|whole| self.answer.len() < whole) {
            let read = self.stream.read_buf(&mut self.answer).await;
            assert!(read.expect("an answer") > 0, "the server went away");
            whole = whole.or_else(|| length(&self.answer));
        }
        assert!(
            self.answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&self.answer)
        );
    }

    /// Returns the permits that the answer grants. It skips the answers to the reports, which come
    /// first and contain permit ids too.
    fn granted(&self) -> impl Iterator<Item = &[u8]> {
        static ACQUIRED: LazyLock<Finder> = LazyLock::new(|| Finder::new(r#""acquire":["#));
        static NAMED: LazyLock<Finder> = LazyLock::new(|| Finder::new(r#""permit":""#));
        let from = ACQUIRED.find(&self.answer).unwrap_or(0);
        let answers = &self.answer[from..];
        NAMED.find_iter(answers).map(|at| {
            let name = at + NAMED.needle().len();
            &answers[name..name + PERMIT.len()]
        })
    }
}

/// Returns the length of the whole answer, once its head has arrived.
fn length(answer: &[u8]) -> Option<usize> {
    static LENGTH: LazyLock<Finder> = LazyLock::new(|| Finder::new("content-length: "));
    let head = memchr::memmem::find(answer, b"\r\n\r\n")?;
    let digits = &answer[LENGTH.find(&answer[..head])? + LENGTH.needle().len()..];
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    Some(head + 4 + body)
}
