//! Compares `politely fetch` with a bare hyper loop and Scrapy, all against one unlimited nginx. It
//! measures pages per second, CPU time per page, and the memory of a long queue.
//!
//! The bare loop shows the cost of HTTP alone. It keeps as many connections, but has no URL list,
//! no limits and no results. It runs once on one thread and once on as many threads as there are
//! cores, and the faster run counts. politely is the binary of the packages as a user starts it,
//! including its start and the reading of its list. Scrapy's start is not counted. Rounds
//! alternate, so that other load on the machine affects all clients, and medians are compared.
//!
//! It needs `scripts/setup` (nginx, and Scrapy in `.venv`). The politely binary is built first,
//! unless `POLITELY` names another one, for example an older version.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 64;
const PAGES: u64 = 200_000;
/// Fewer pages for Scrapy, which is some twenty times slower.
const SCRAPY_PAGES: u64 = 5_000;
const QUEUED_URLS: u32 = 1_000_000;
const QUEUED_HOSTS: u32 = 100_000;

/// Runs everything and prints both tables.
pub(crate) fn run() {
    let politely = politely();
    speed(&politely);
    memory(&politely, &[]);
    let folder = Folder::new("state");
    let state = folder.0.join("run");
    memory(&politely, &["--state".as_ref(), state.as_os_str()]);
}

/// The result of one client in one round.
#[derive(Clone, Copy)]
struct Round {
    per_s: f64,
    cpu_us: f64,
}

fn speed(politely: &Path) {
    let nginx = Nginx::start();
    let urls = nginx.list("urls.txt", PAGES);
    let few = nginx.list("few.txt", SCRAPY_PAGES);
    let names = [
        "bare hyper, 1 thread",
        "bare hyper, a thread per core",
        "politely fetch",
        "Scrapy",
    ];
    let mut rounds = names.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        let round = [
            bare(nginx.address, 1),
            bare(nginx.address, cores()),
            fetch(politely, &urls),
            scrapy(&few),
        ];
        for (rounds, round) in rounds.iter_mut().zip(round) {
            rounds.push(round);
        }
    }
    let medians = rounds.map(|rounds| Round {
        per_s: median(rounds.iter().map(|round| round.per_s)),
        cpu_us: median(rounds.iter().map(|round| round.cpu_us)),
    });
    let bare = medians[0].per_s.max(medians[1].per_s);
    println!(
        "fetch: 2 KB pages from one nginx, {CONNECTIONS} connections, median of {ROUNDS} rounds, {} cores",
        cores()
    );
    println!("| | pages/s | of bare hyper | of Scrapy | CPU us/page |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, Round { per_s, cpu_us }) in names.iter().zip(medians) {
        println!(
            "| {name} | {per_s:.0} | {:.2} | {:.1} | {cpu_us:.1} |",
            per_s / bare,
            per_s / medians[3].per_s
        );
    }
}

/// Runs the minimal client, which sends a request, reads the body and repeats.
fn bare(server: SocketAddr, threads: usize) -> Round {
    let runtime = crate::runtime(Builder::new_multi_thread().worker_threads(threads));
    let asked = Arc::new(AtomicU64::new(0));
    timed(PAGES, own_cpu, || {
        runtime.block_on(async {
            let connections = (0..CONNECTIONS).map(|_| {
                let asked = Arc::clone(&asked);
                tokio::spawn(ask(server, asked))
            });
            for connection in connections.collect::<Vec<_>>() {
                connection.await.expect("no panic");
            }
        });
    })
}

async fn ask(server: SocketAddr, asked: Arc<AtomicU64>) {
    let stream = tokio::net::TcpStream::connect(server).await.expect("nginx");
    stream.set_nodelay(true).expect("a socket");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    while asked.fetch_add(1, Ordering::Relaxed) < PAGES {
        sender.ready().await.expect("a kept connection");
        let request = http::Request::get("/page/1")
            .header("host", "localhost")
            .body(Empty::<Bytes>::new())
            .expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let mut len = 0;
        while let Some(frame) = body.frame().await {
            len += frame
                .expect("a whole body")
                .data_ref()
                .map_or(0, Bytes::len);
        }
        assert_eq!(len, page().len());
    }
}

fn fetch(politely: &Path, urls: &Path) -> Round {
    let many = CONNECTIONS.to_string();
    timed(PAGES, children_cpu, || {
        let done = Command::new(politely)
            .args(
                "fetch --profile api --law fixed --rate 1e6 --no-robots --output /dev/null"
                    .split(' '),
            )
            .args(["--in-flight", &many, "--concurrency", &many, "--input"])
            .arg(urls)
            .stderr(Stdio::null())
            .status()
            .expect("politely starts");
        assert!(done.success(), "politely lost a page");
    })
}

fn scrapy(urls: &Path) -> Round {
    let cpu = children_cpu();
    let said = Command::new(repository().join(".venv/bin/python"))
        .arg(repository().join("benches/peers/plain.py"))
        .arg(urls)
        .args(["--concurrency", &CONNECTIONS.to_string()])
        .output()
        .expect("Scrapy, from scripts/setup");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let pages = number_after(&said, "\"pages\": ");
    assert!(pages > 0.0, "Scrapy said: {said}");
    Round {
        per_s: pages / number_after(&said, "\"seconds\": "),
        cpu_us: children_cpu().saturating_sub(cpu).as_micros() as f64 / pages,
    }
}

fn timed(pages: u64, cpu: fn() -> Duration, work: impl FnOnce()) -> Round {
    let (began, cpu_before) = (Instant::now(), cpu());
    work();
    Round {
        per_s: pages as f64 / began.elapsed().as_secs_f64(),
        cpu_us: cpu().saturating_sub(cpu_before).as_micros() as f64 / pages as f64,
    }
}

/// Measures the speed and the memory of a crawl with a million URLs of a hundred thousand hosts,
/// until each host was asked for its robots.txt and one page. So the whole state of each exists.
fn memory(politely: &Path, args: &[&OsStr]) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || answer_all(listener));
    let folder = Folder::new("queue");
    let list = folder.0.join("urls.txt");
    let mut out = BufWriter::new(File::create(&list).expect("the list"));
    for n in 0..QUEUED_URLS {
        let host = n % QUEUED_HOSTS;
        let [_, a, b, c] = host.to_be_bytes();
        writeln!(out, "http://127.{}.{b}.{c}:{port}/page/{n}", a + 1).expect("written");
    }
    out.flush().expect("written");
    drop(out);
    let mut child = Command::new(politely)
        .args("fetch --rate 0.001 --burst 2 --output /dev/null --input".split(' '))
        .arg(&list)
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .map(Running)
        .expect("politely starts");
    let lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
    let began = Instant::now();
    for line in lines.map_while(Result::ok) {
        let fetched = number_before(&line, " fetched");
        if fetched >= f64::from(QUEUED_HOSTS) {
            println!(
                "fetch {args:?}, {QUEUED_URLS} URLs over {QUEUED_HOSTS} hosts, each host asked once: {:.0} pages/s, {} still queued, {} MB at most",
                fetched / began.elapsed().as_secs_f64(),
                number_before(&line, " waiting"),
                most_resident(&child.0) / 1_000_000
            );
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "stuck: {line}");
    }
    panic!("politely ended early");
}

/// Answers 404 for robots.txt and a small page for all other URLs, one request per connection.
fn answer_all(listener: TcpListener) {
    let runtime = crate::runtime(&mut Builder::new_current_thread());
    runtime.block_on(async move {
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                continue;
            };
            tokio::spawn(async move {
                let mut head = [0; 2048];
                let read = stream.read(&mut head).await.unwrap_or(0);
                let status = if head[..read].starts_with(b"GET /robots.txt") {
                    "404 Not Found"
                } else {
                    "200 OK"
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
}

/// Builds the binary of the packages and returns its path, or returns the path in `POLITELY`.
fn politely() -> PathBuf {
    if let Some(other) = std::env::var_os("POLITELY") {
        return other.into();
    }
    let here = std::env::current_exe().expect("this program has a place");
    let target = here
        .ancestors()
        .nth(2)
        .expect("cargo's target folder has this program's folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--profile=dist",
            "-q",
            "-p",
            "politely-cli",
            "--features=full",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(repository())
        .status()
        .expect("cargo");
    assert!(built.success(), "politely does not build");
    target.join("dist/politely")
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn page() -> String {
    "<p>32 bytes, and 64 of them.</p>".repeat(64)
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is deleted when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("politely-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An nginx with one worker, no limits and no log.
struct Nginx {
    address: SocketAddr,
    // This field is dropped before the directory that the process uses.
    _process: Running,
    folder: Folder,
}

impl Nginx {
    fn start() -> Self {
        let folder = Folder::new("nginx");
        fs::create_dir_all(folder.0.join("site/page")).expect("a temporary folder");
        fs::write(folder.0.join("site/page/1"), page()).expect("a temporary folder");
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port");
        let config = format!(
            "worker_processes 1; daemon off; pid nginx.pid; user root;
            events {{ worker_connections 4096; }}
            http {{
                access_log off; keepalive_requests 1000000000; open_file_cache max=16;
                client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                server {{
                    listen {address}; root site;
                    location / {{ try_files /page/1 =404; }}
                }}
            }}"
        );
        fs::write(folder.0.join("nginx.conf"), config).expect("a temporary folder");
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let process = Command::new("nginx")
            .env("PATH", path)
            .arg("-p")
            .arg(&folder.0)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stderr(Stdio::null())
            .spawn()
            .map(Running)
            .expect("nginx, from scripts/setup");
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "no nginx");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            address,
            _process: process,
            folder,
        }
    }

    /// Writes a list of `pages` URLs and returns its path.
    fn list(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.folder.0.join(name);
        let urls = (0..pages).map(|n| format!("http://{}/page/{n}\n", self.address));
        fs::write(&path, urls.collect::<String>()).expect("a temporary folder");
        path
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn number_after(text: &str, before: &str) -> f64 {
    let rest = text.split(before).nth(1).unwrap_or_default();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    rest[..end.unwrap_or(rest.len())].parse().unwrap_or(0.0)
}

fn number_before(text: &str, after: &str) -> f64 {
    let before = text.split(after).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0.0)
}

fn own_cpu() -> Duration {
    cpu(13)
}

/// Returns the CPU time of child processes that have ended.
fn children_cpu() -> Duration {
    cpu(15)
}

/// Returns the sum of two fields of `/proc/self/stat` (`man 5 proc`): user and system time, in
/// ticks of 10 ms. `field` is the first of them.
fn cpu(field: usize) -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    // The first field after the name is field 2, counted from 0.
    let ticks = fields.split(' ').skip(field - 2).take(2);
    Duration::from_millis(
        10 * ticks
            .filter_map(|ticks| ticks.parse::<u64>().ok())
            .sum::<u64>(),
    )
}

/// Returns the largest resident memory of `child` so far, in bytes.
fn most_resident(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    number_after(&status.replace(['\t', ' '], ""), "VmHWM:") as u64 * 1024
}
