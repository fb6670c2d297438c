//! `politely fetch` against servers of other projects: nginx, Apache, `HAProxy`, Node and Python.
//!
//! Each peer closes kept connections about when the next request leaves, refuses some requests with
//! a Retry-After, and compresses its pages. Their settings are in `tests/servers/peers/`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::run::{Said, politely, run};
use politely_testkit::process::{Server, free_place, tool, wait_until_ready};
use politely_testkit::repository;

/// Requests that the peer's limit is tested with, at twelve a second. They take longer than the
/// second in which Apache refuses nothing.
const PAGES: usize = 24;

struct Peer {
    name: &'static str,
    start: fn(&Path, SocketAddr) -> Vec<Server>,
    /// Requests per second, so that the time between two requests is the time after which the peer
    /// closes a connection.
    stale_rate: &'static str,
    /// Pages that are requested at that rate.
    stale_pages: usize,
}

/// The rate and the pages of a peer that closes connections after 100 ms.
const FAST: (&str, usize) = ("10", 30);

const NGINX: Peer = Peer {
    name: "nginx",
    start: nginx,
    stale_rate: "1",
    stale_pages: 6,
};

const OTHERS: [Peer; 4] = [
    fast("Apache", |folder, address| {
        let conf = fill(folder, "apache.conf", address, None);
        // `-X` is one process, which ends with the test.
        let args = ["-X", "-f", &conf];
        vec![Server::start("apache", folder, &tool("apache2"), args)]
    }),
    fast("HAProxy", |folder, address| {
        let backend = free_place();
        let mut servers = nginx(folder, backend);
        let conf = fill(folder, "haproxy.cfg", address, Some(backend));
        let args = ["-db", "-f", &conf];
        servers.push(Server::start("haproxy", folder, &tool("haproxy"), args));
        wait_until_ready(&mut servers, [backend].into_iter());
        servers
    }),
    fast("Node", |folder, address| {
        vec![script(folder, "node", &tool("node"), "peer.js", address)]
    }),
    fast("Python", |folder, address| {
        let python = repository().join(".venv/bin/python");
        vec![script(folder, "python", &python, "peer.py", address)]
    }),
];

const fn fast(name: &'static str, start: fn(&Path, SocketAddr) -> Vec<Server>) -> Peer {
    let (stale_rate, stale_pages) = FAST;
    Peer {
        name,
        start,
        stale_rate,
        stale_pages,
    }
}

fn nginx(folder: &Path, address: SocketAddr) -> Vec<Server> {
    fill(folder, "nginx.conf", address, None);
    let prefix = folder.to_str().expect("a plain name");
    let args = ["-p", prefix, "-c", "nginx.conf", "-e", "stderr"];
    vec![Server::start("nginx", folder, &tool("nginx"), args)]
}

/// Starts a script in `folder`, where it finds the pages.
fn script(
    folder: &Path,
    name: &'static str,
    program: &Path,
    file: &str,
    address: SocketAddr,
) -> Server {
    let script = repository().join("tests/servers/peers").join(file);
    let line = r#"cd "$1" && shift && exec "$@""#;
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let args = [
        "-c".as_ref(),
        line.as_ref(),
        "sh".as_ref(),
        folder.as_os_str(),
        program.as_os_str(),
        script.as_os_str(),
        ip.as_ref(),
        port.as_ref(),
    ];
    Server::start(name, folder, &tool("sh"), args)
}

/// Writes the settings of a peer with its addresses. Returns their path.
fn fill(folder: &Path, file: &str, address: SocketAddr, backend: Option<SocketAddr>) -> String {
    let from = repository().join("tests/servers/peers").join(file);
    let mut settings = fs::read_to_string(from).expect("the peer's settings");
    let backend = backend.map(|backend| backend.to_string());
    for (hole, value) in [
        ("@address@", address.to_string().as_str()),
        ("@backend@", backend.as_deref().unwrap_or_default()),
        ("@folder@", folder.to_str().expect("a plain name")),
    ] {
        settings = settings.replace(hole, value);
    }
    let path = folder.join(file);
    fs::write(&path, settings).expect("the settings are written");
    path.to_str().expect("a plain name").to_owned()
}

fn page(number: usize) -> String {
    format!("<p>Page {number} of a peer.</p>\n").repeat(100)
}

fn fetch(url: &str, flags: &[&str], pages: usize) -> Said {
    let urls = (0..pages).map(|number| format!("{url}{number}"));
    let fixed = ["fetch", "--profile", "api", "--law", "fixed"];
    run(politely()
        .args(fixed)
        .args(flags)
        .args(["--in-flight", "1"])
        .args(urls))
}

/// Returns the rows of a run without failures.
fn rows(peer: &Peer, said: &Said, pages: usize) -> Vec<Value> {
    let rows = said.rows();
    assert_eq!(rows.len(), pages, "{}: {}", peer.name, said.err);
    for row in &rows {
        assert!(row["error"].is_null(), "{}: {row}", peer.name);
    }
    rows
}

fn check(peer: &Peer) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("Apache reads it as another user");
    for kind in ["page", "limited"] {
        let site = folder.path().join("site").join(kind);
        fs::create_dir_all(&site).expect("the site's folder");
        for number in 0..30 {
            fs::write(site.join(number.to_string()), page(number)).expect("a page");
        }
    }
    let address = free_place();
    let mut servers = (peer.start)(folder.path(), address);
    wait_until_ready(&mut servers, [address].into_iter());
    let url = |path: &str| format!("http://{address}/{path}/");

    let stale = ["--rate", peer.stale_rate, "--retries", "0"];
    let said = fetch(&url("page"), &stale, peer.stale_pages);
    for row in rows(peer, &said, peer.stale_pages) {
        assert_eq!(row["attempts"], 1, "{}: {row}", peer.name);
    }

    let said = fetch(&url("limited"), &["--rate", "12"], PAGES);
    let mut refused = 0;
    for row in rows(peer, &said, PAGES) {
        let count = |field: &str| row[field].as_u64().expect("a count");
        assert_eq!(
            count("attempts"),
            count("refused") + 1,
            "{}: {row}",
            peer.name
        );
        refused += count("refused");
    }
    assert!(refused > 0, "{}: its limit was not met", peer.name);

    let saved = folder.path().join("saved");
    let save = [
        "--rate",
        "50",
        "--save",
        saved.to_str().expect("a plain name"),
    ];
    let said = fetch(&url("page"), &save, 3);
    for row in rows(peer, &said, 3) {
        let text = |field: &str| row[field].as_str().expect("a text").to_owned();
        let body = fs::read_to_string(saved.join(text("saved"))).expect("the saved page");
        let number = text("url").rsplit('/').next().unwrap().parse().unwrap();
        assert_eq!(body, page(number), "{}: {row}", peer.name);
    }
    let head = head(address).to_ascii_lowercase();
    assert!(head.contains("content-encoding: "), "{}: {head}", peer.name);
}

/// Returns the head of a compressed page.
fn head(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "GET /page/0 HTTP/1.1\r\nHost: {address}\r\nAccept-Encoding: gzip, br\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    String::from_utf8_lossy(&answer[..end.expect("a head")]).into_owned()
}

#[test]
fn nginx_costs_no_page() {
    check(&NGINX);
}

#[test]
fn apache_haproxy_node_and_python_cost_no_page() {
    std::thread::scope(|scope| {
        for peer in &OTHERS {
            scope.spawn(move || check(peer));
        }
    });
}
