//! Measures `politely proxy` beside a proxy of hyper that only passes requests on.
//!
//! Run it with `cargo run --profile dist -p politely-benches proxy`, after
//! `cargo build --profile dist -p politely-cli`. Host, callers and both proxies share the machine,
//! and the proxies take turns. No limit makes a request wait. Then [`IDLE`] streams are opened
//! through `politely proxy`, and its memory is measured (`ulimit -n 20000`).

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 64;
const ROUND: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// The number of streams whose first byte is timed.
const FIRST_BYTES: usize = 1_000;
/// The number of idle streams. Each takes two descriptors here and two in the proxy, and the
/// machines that this runs on allow 20,000.
const IDLE: usize = 9_500;
/// The body of an answer, in bytes.
const BODY: [u8; 1024] = [b'x'; 1024];

type Body = BoxBody<Bytes, Infallible>;

/// A proxy in a process of its own.
struct Proxy {
    name: &'static str,
    child: Child,
    address: SocketAddr,
    path: &'static str,
}

/// The measures of one proxy.
#[derive(Default)]
struct Seen {
    requests: usize,
    took: Vec<Duration>,
    /// The time of the processor, in hundredths of a second.
    ticks: u64,
    first_bytes: Vec<Duration>,
}

/// Runs everything and prints the table. With the argument `bare URL`, it is the bare proxy.
pub(crate) fn run() {
    let runtime = crate::runtime(Builder::new_multi_thread().worker_threads(2));
    if std::env::args().nth(2).as_deref() == Some("bare") {
        let to = std::env::args().nth(3).expect("a URL");
        return runtime.block_on(bare(to));
    }
    runtime.block_on(async {
        let host = listen(|request| async move { answer(&request) }).await;
        let proxies = [Proxy::bare(host), Proxy::politely(host)];
        let mut seen = [Seen::default(), Seen::default()];
        for _ in 0..ROUNDS {
            for (proxy, seen) in proxies.iter().zip(&mut seen) {
                proxy.round(seen).await;
            }
        }
        println!("| proxy | requests/s | processor, us | p50 ms | p99 ms | first byte, p50 ms |");
        println!("| --- | --- | --- | --- | --- | --- |");
        for (proxy, seen) in proxies.iter().zip(&mut seen) {
            seen.took.sort_unstable();
            seen.first_bytes.sort_unstable();
            let at =
                |all: &[Duration], part: usize| all[all.len() * part / 100].as_secs_f64() * 1e3;
            println!(
                "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.3} |",
                proxy.name,
                seen.requests as f64 / (ROUND * ROUNDS as u32).as_secs_f64(),
                seen.ticks as f64 * 1e4 / seen.requests as f64,
                at(&seen.took, 50),
                at(&seen.took, 99),
                at(&seen.first_bytes, 50),
            );
        }
        let before = proxies[1].memory_kib();
        let open = proxies[1].open_streams().await;
        let after = proxies[1].memory_kib();
        let each = after.saturating_sub(before) as f64 / open.len() as f64;
        let (n, all) = (open.len(), after / 1024);
        println!("{n} idle streams through politely: {all} MiB, {each:.1} KiB for each");
    });
}

impl Proxy {
    fn bare(host: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["proxy", "bare", &format!("http://{host}")]);
        Self::start("hyper alone", command, "")
    }

    fn politely(host: SocketAddr) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program.with_file_name("politely"));
        command.args(["proxy", "--listen", "127.0.0.1:0", "--profile", "api"]);
        command.args(["--law", "fixed", "--rate", "100000", "--burst", "10000"]);
        command.args(["--in-flight", "10000", "--route"]);
        command.arg(format!("host=http://{host}"));
        Self::start("politely", command, "/host")
    }

    fn start(name: &'static str, mut command: Command, path: &'static str) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a proxy");
        let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        let address = lines.find_map(|line| {
            let line = line.expect("a line");
            line.split_once("http://")?.1.trim().parse().ok()
        });
        // The pipe stays open, so that no message ends the proxy.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            name,
            child,
            address: address.expect("an address"),
            path,
        }
    }

    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.set_nodelay(true).expect("a TCP stream");
        stream
    }

    fn request(&self, path: &str) -> String {
        format!(
            "GET {}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            self.path
        )
    }

    async fn round(&self, seen: &mut Seen) {
        let before = self.ticks();
        let mut callers = JoinSet::new();
        let until = Instant::now() + ROUND;
        for _ in 0..CONNECTIONS {
            let (mut stream, request) = (self.connect().await, self.request("/page"));
            callers.spawn(async move {
                let mut took = Vec::new();
                while Instant::now() < until {
                    let began = Instant::now();
                    stream
                        .write_all(request.as_bytes())
                        .await
                        .expect("it reads");
                    read_until_body(&mut stream, BODY.len()).await;
                    took.push(began.elapsed());
                }
                took
            });
        }
        for took in callers.join_all().await {
            seen.requests += took.len();
            seen.took.extend(took);
        }
        seen.ticks += self.ticks() - before;
        for _ in 0..FIRST_BYTES / ROUNDS {
            let stream = self.connect().await;
            let began = Instant::now();
            self.open_stream(stream).await;
            seen.first_bytes.push(began.elapsed());
        }
    }

    async fn open_streams(&self) -> Vec<TcpStream> {
        let mut open = Vec::new();
        for _ in 0..IDLE {
            let stream = self.connect().await;
            open.push(self.open_stream(stream).await);
        }
        open
    }

    /// Asks for a stream, and returns its connection once the first byte came.
    async fn open_stream(&self, mut stream: TcpStream) -> TcpStream {
        let request = self.request("/stream");
        let sent = stream.write_all(request.as_bytes()).await;
        sent.expect("it reads");
        read_until_body(&mut stream, 1).await;
        stream
    }

    /// Returns the time of the processor that the proxy took so far.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("Linux");
        let numbers = stat.rsplit(')').next().expect("numbers").split_whitespace();
        let times = numbers.skip(11).take(2);
        times.filter_map(|time| time.parse::<u64>().ok()).sum()
    }

    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.and_then(|number| number.parse().ok()).expect("KiB")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a head and at least `body` bytes behind it.
async fn read_until_body(stream: &mut TcpStream, body: usize) {
    let mut answer = Vec::with_capacity(2 * BODY.len());
    loop {
        let bytes = stream.read_buf(&mut answer).await.expect("an answer");
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&answer));
        let head = memmem::find(&answer, b"\r\n\r\n");
        if head.is_some_and(|head| answer.len() >= head + 4 + body) {
            assert!(answer.starts_with(b"HTTP/1.1 200"));
            return;
        }
    }
}

fn answer(request: &Request<Incoming>) -> Response<Body> {
    if request.uri().path() != "/stream" {
        return Response::new(Full::new(Bytes::from_static(&BODY)).boxed());
    }
    let first = Frame::data(Bytes::from_static(b"data: 1\n\n"));
    let first = futures_util::stream::iter([Ok(first)]);
    let idle = futures_util::StreamExt::chain(first, futures_util::stream::pending());
    let mut response = Response::new(StreamBody::new(idle).boxed());
    let kind = http::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert("content-type", kind);
    response
}

/// Serves HTTP/1.1 on a free port, and returns its address.
async fn listen<F, B>(
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = Response<B>> + Send,
    B: hyper::body::Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a TCP stream");
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async { Ok::<_, Infallible>(answer.await) }
            });
            let stream = TokioIo::new(stream);
            tokio::spawn(async move {
                http1::Builder::new()
                    .serve_connection(stream, service)
                    .await
            });
        }
    });
    address
}

/// Passes requests to `to` with hyper, and nothing else.
async fn bare(to: String) {
    let mut tcp = hyper_util::client::legacy::connect::HttpConnector::new();
    tcp.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(tcp);
    let address = listen(move |mut request| {
        let uri: Uri = format!("{to}{}", request.uri()).parse().expect("a URL");
        *request.uri_mut() = uri;
        let answer = client.request(request);
        async { answer.await.expect("an answer") }
    });
    eprintln!("http://{}", address.await);
    std::future::pending::<()>().await;
}
