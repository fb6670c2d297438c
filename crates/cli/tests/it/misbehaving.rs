//! A raw TCP server that misbehaves on purpose. It remembers every path that was requested.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

type Answer = dyn Fn(&str, &mut TcpStream) -> std::io::Result<Then> + Send + Sync;

/// The state of the connection after an answer.
#[derive(PartialEq)]
pub(crate) enum Then {
    Keep,
    Close,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl Server {
    /// Starts a server that answers each path as `answer` does. It lives until the test process
    /// ends.
    pub(crate) fn start(
        answer: impl Fn(&str, &mut TcpStream) -> std::io::Result<Then> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                thread::spawn(move || serve(stream, &*answer, &log));
            }
        });
        Self { address, asked }
    }

    /// Starts a server with good pages below `/page/` and faults at all other paths.
    pub(crate) fn bad() -> Self {
        Self::start(badly)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Returns the number of requests for each path.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (path, _) in self.asked.lock().expect("not poisoned").iter() {
            *counts.entry(path.clone()).or_default() += 1;
        }
        counts
    }

    /// Returns each request's path and time, in order.
    pub(crate) fn times(&self) -> Vec<(String, Instant)> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

fn serve(mut stream: TcpStream, answer: &Answer, log: &Mutex<Vec<(String, Instant)>>) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
    loop {
        let (mut first, mut line) = (String::new(), String::new());
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            line.clear();
        }
        let path = first.split(' ').nth(1).unwrap_or("").to_owned();
        log.lock()
            .expect("not poisoned")
            .push((path.clone(), Instant::now()));
        match answer(&path, &mut stream) {
            Ok(Then::Keep) => {}
            Ok(Then::Close) | Err(_) => return,
        }
    }
}

pub(crate) fn respond(
    stream: &mut TcpStream,
    status: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<Then> {
    let length = body.len();
    stream.write_all(
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").as_bytes(),
    )?;
    Ok(Then::Keep)
}

fn badly(path: &str, stream: &mut TcpStream) -> std::io::Result<Then> {
    match path {
        "/bomb" => {
            let bomb = gzip_of_zeros(100_000_000);
            let length = bomb.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(&bomb)?;
            Ok(Then::Close)
        }
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")?;
            let block = vec![b'x'; 1 << 16];
            loop {
                stream.write_all(&block)?;
            }
        }
        "/loop" => respond(stream, "302 Found", "Location: /loop2\r\n", ""),
        "/loop2" => respond(stream, "302 Found", "Location: /loop\r\n", ""),
        "/nowhere" => respond(
            stream,
            "301 Moved",
            "Location: mailto:me@example.com\r\n",
            "",
        ),
        "/drip" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")?;
            loop {
                stream.write_all(b"x")?;
                thread::sleep(Duration::from_millis(100));
            }
        }
        "/torn-head" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Le")?;
            Ok(Then::Close)
        }
        "/torn-body" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")?;
            Ok(Then::Close)
        }
        "/garbage" => {
            stream.write_all(b"\x00\x01 no HTTP at all\r\n\r\n")?;
            Ok(Then::Close)
        }
        "/not-gzip" => respond(
            stream,
            "200 OK",
            "Content-Encoding: gzip\r\n",
            "this is not gzip",
        ),
        _ if path.starts_with("/page/") => respond(stream, "200 OK", "", path),
        _ => respond(stream, "404 Not Found", "", "no"),
    }
}

/// Returns `len` zeros as gzip: 13 bits for each 258 zeros (fixed Huffman codes, RFC 1951, section
/// 3.2.6).
fn gzip_of_zeros(len: usize) -> Vec<u8> {
    let mut bits = Bits {
        bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255],
        free: 0,
    };
    bits.push(0b1, 1); // the last block
    bits.push(0b10, 2); // fixed codes; the field's low bit goes first
    bits.push(0b0011_0000, 8); // a literal zero
    for _ in 0..len / 258 {
        bits.push(0b1100_0101, 8); // length 258
        bits.push(0, 5); // distance 1
    }
    bits.push(0, 7); // end of block
    bits.bytes
}

struct Bits {
    bytes: Vec<u8>,
    free: u32,
}

impl Bits {
    /// Appends the low `count` bits of `code`, the highest first.
    fn push(&mut self, code: u32, count: u32) {
        for i in (0..count).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            if code >> i & 1 == 1
                && let Some(last) = self.bytes.last_mut()
            {
                *last |= 1 << (8 - self.free);
            }
            self.free -= 1;
        }
    }
}
