//! Tests with an HTTP/2 server that misbehaves on purpose: GOAWAY, `REFUSED_STREAM`,
//! `HTTP_1_1_REQUIRED`, `ENHANCE_YOUR_CALM`, and bytes that are no HTTP/2.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::coordinator_tls::certify;
use crate::run::{Said, fast, run};

/// Frame types and flags (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Error codes (RFC 9113, section 7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
const INADEQUATE_SECURITY: u32 = 12;
pub(crate) const HTTP_1_1_REQUIRED: u32 = 13;

/// The server's reaction to a request.
pub(crate) enum Does {
    Answers,
    /// Closes the connection.
    Closes,
    Resets(u32),
    /// Sends a GOAWAY that leaves out the request, and closes the connection.
    GoesAway(u32),
    /// Sends the frames of a kind and a stream, 0 for that of the request, with these payloads.
    Sends(&'static [(u8, u32, &'static [u8])]),
    /// Sends these bytes.
    Says(&'static [u8]),
}

/// A server that reacts to each request as `script` says for the request's number on its
/// connection, from 1. Number 0 is the client's preface: the server closes, or sends its settings.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) folder: tempfile::TempDir,
    /// Number of requests over HTTP/2 and over HTTP/1.1.
    asked: Arc<[AtomicUsize; 2]>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(usize) -> Does + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certify(folder.path());
        let chain = CertificateDer::pem_file_iter(folder.path().join("cert.pem")).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.path().join("key.pem")).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let asked = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (config, script, log) = (Arc::new(config), Arc::new(script), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                std::thread::spawn(move || {
                    let _ = serve(StreamOwned::new(tls, stream), &*script, &log);
                });
            }
        });
        Self { url, folder, asked }
    }

    fn fetch(&self, pages: usize, flags: &[&str]) -> Said {
        let urls = (0..pages).map(|n| format!("{}/{n}", self.url));
        run(fast()
            .env("SSL_CERT_FILE", self.folder.path().join("ca.pem"))
            .env_remove("SSL_CERT_DIR")
            .args(flags)
            .args(urls))
    }

    pub(crate) fn asked(&self) -> [usize; 2] {
        [0, 1].map(|version| self.asked[version].load(Ordering::Relaxed))
    }
}

type Stream = StreamOwned<ServerConnection, std::net::TcpStream>;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

fn serve(
    mut stream: Stream,
    script: &dyn Fn(usize) -> Does,
    asked: &[AtomicUsize; 2],
) -> std::io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    if stream.conn.alpn_protocol() != Some(b"h2") {
        return serve_http1(&mut stream, &asked[1]);
    }
    let mut preface = [0; 24];
    stream.read_exact(&mut preface)?;
    if matches!(script(0), Does::Closes) {
        return Ok(());
    }
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    let mut on_this = 0;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        let id = u32::from_be_bytes(id);
        match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let echo = if kind == PING { &payload[..] } else { &[] };
                stream.write_all(&frame(kind, ACK, 0, echo))?;
            }
            HEADERS => {
                on_this += 1;
                asked[0].fetch_add(1, Ordering::Relaxed);
                match script(on_this) {
                    Does::Answers => {
                        // `:status: 200` is entry 8 of HPACK's static table.
                        stream.write_all(&frame(HEADERS, END_HEADERS, id, &[0x88]))?;
                        stream.write_all(&frame(DATA, END_STREAM, id, b"a page"))?;
                    }
                    Does::Closes => return Ok(()),
                    Does::Resets(code) => {
                        stream.write_all(&frame(RST_STREAM, 0, id, &code.to_be_bytes()))?;
                    }
                    Does::Sends(frames) => {
                        for (kind, stream_id, payload) in frames {
                            let to = if *stream_id == 0 { id } else { *stream_id };
                            stream.write_all(&frame(*kind, END_HEADERS, to, payload))?;
                        }
                    }
                    Does::Says(bytes) => stream.write_all(bytes)?,
                    Does::GoesAway(code) => {
                        let last = id.saturating_sub(2).to_be_bytes();
                        let payload = [last, code.to_be_bytes()].concat();
                        stream.write_all(&frame(GOAWAY, 0, 0, &payload))?;
                        stream.conn.send_close_notify();
                        return stream.flush();
                    }
                }
            }
            _ => {}
        }
    }
}

fn serve_http1(stream: &mut Stream, asked: &AtomicUsize) -> std::io::Result<()> {
    loop {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        asked.fetch_add(1, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na page")?;
    }
}

const ONE_BY_ONE: [&str; 4] = ["--in-flight", "1", "--retries", "0"];

fn all_at_once(said: &Said, pages: usize) {
    assert_eq!(said.code, 0, "{}", said.err);
    let rows = said.rows();
    assert_eq!(rows.len(), pages);
    for row in rows {
        assert_eq!(
            (row["attempts"].as_u64(), row["refused"].as_u64()),
            (Some(1), Some(0)),
            "{row}"
        );
    }
}

#[test]
fn requests_that_a_goaway_leaves_out_are_repeated_and_charge_nobody() {
    let server = Server::start(|on_this| match on_this {
        1 | 2 => Does::Answers,
        _ => Does::GoesAway(NO_ERROR),
    });
    all_at_once(&server.fetch(16, &ONE_BY_ONE), 16);
}

#[test]
fn refused_streams_are_repeated_and_charge_nobody() {
    let server = Server::start(|on_this| match on_this {
        3 => Does::Resets(REFUSED_STREAM),
        _ => Does::Answers,
    });
    all_at_once(&server.fetch(16, &ONE_BY_ONE), 16);
}

#[test]
fn a_server_that_refuses_every_stream_is_a_failure_after_a_few() {
    let server = Server::start(|_| Does::Resets(REFUSED_STREAM));
    let said = server.fetch(1, &ONE_BY_ONE);
    assert_eq!((said.code, server.asked()), (1, [3, 0]), "{}", said.err);
}

#[test]
fn an_origin_that_requires_http_1_is_asked_over_http_1() {
    let server = Server::start(|_| Does::Resets(HTTP_1_1_REQUIRED));
    all_at_once(&server.fetch(8, &ONE_BY_ONE), 8);
    // The first such answer holds for the whole origin.
    assert_eq!(server.asked(), [1, 8]);
    let server = Server::start(|_| Does::GoesAway(HTTP_1_1_REQUIRED));
    all_at_once(&server.fetch(4, &ONE_BY_ONE), 4);
}

#[test]
fn a_server_that_offers_http_2_and_does_not_speak_it_is_asked_over_http_1() {
    let server = Server::start(|_| Does::GoesAway(INADEQUATE_SECURITY));
    all_at_once(&server.fetch(4, &ONE_BY_ONE), 4);
    assert_eq!(server.asked(), [1, 4]);
    let server = Server::start(|on_this| match on_this {
        0 => Does::Closes,
        _ => Does::Answers,
    });
    all_at_once(&server.fetch(4, &ONE_BY_ONE), 4);
    assert_eq!(server.asked(), [0, 4]);
}

#[test]
fn a_server_that_closes_after_its_settings_is_not_asked_over_http_1() {
    let server = Server::start(|on_this| match on_this {
        1 => Does::Closes,
        _ => Does::Answers,
    });
    assert_eq!(server.fetch(1, &ONE_BY_ONE).code, 1);
    assert_eq!(server.asked()[1], 0);
}

#[test]
fn a_server_that_wants_calm_is_not_asked_again_at_once() {
    for script in [Does::Resets as fn(u32) -> Does, Does::GoesAway] {
        let server = Server::start(move |_| script(ENHANCE_YOUR_CALM));
        let said = server.fetch(1, &ONE_BY_ONE);
        assert_eq!((said.code, server.asked()), (1, [1, 0]), "{}", said.err);
    }
}

#[test]
fn the_certificates_are_where_the_tests_expect_them() {
    let server = Server::start(|_| Does::Answers);
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        assert!(
            fs::exists(server.folder.path().join(name)).unwrap(),
            "{name}"
        );
    }
    all_at_once(&server.fetch(3, &[]), 3);
}

/// Answers of a peer that does not speak HTTP/2, from single bytes to a body that breaks the rules
/// after a good head.
const MALFORMED: [fn() -> Does; 7] = [
    || Does::Says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    || Does::Says(&[0xff; 64]),
    // An index of HPACK that does not exist.
    || Does::Sends(&[(HEADERS, 0, &[0xff, 0xff, 0x03])]),
    // A head without a status.
    || Does::Sends(&[(HEADERS, 0, &[])]),
    || Does::Sends(&[(HEADERS, 0, &[0x88]), (SETTINGS, 0, b"odd")]),
    // A stream that was never opened.
    || Does::Sends(&[(HEADERS, 0, &[0x88]), (DATA, 99, b"a page")]),
    || Does::Resets(PROTOCOL_ERROR),
];

#[test]
fn a_host_whose_http_2_is_malformed_is_asked_over_http_1_and_no_attempt_is_spent() {
    for (number, malformed) in MALFORMED.into_iter().enumerate() {
        let server = Server::start(move |_| malformed());
        let said = server.fetch(8, &ONE_BY_ONE);
        assert_eq!(said.code, 0, "{number}: {}", said.err);
        all_at_once(&said, 8);
        assert_eq!(server.asked(), [1, 8], "{number}");
    }
}

#[test]
fn a_later_run_with_the_same_state_folder_speaks_http_1_at_once() {
    let server = Server::start(|_| Does::Says(&[0xff; 64]));
    let state = server.folder.path().join("run");
    let flags = ["--state", state.to_str().unwrap()];
    all_at_once(&server.fetch(2, &flags), 2);
    let [over_http2, _] = server.asked();
    let urls = (2..4).map(|n| format!("{}/{n}", server.url));
    let said = run(fast()
        .env("SSL_CERT_FILE", server.folder.path().join("ca.pem"))
        .env_remove("SSL_CERT_DIR")
        .args(flags)
        .args(urls));
    all_at_once(&said, 2);
    assert_eq!(server.asked(), [over_http2, 4]);
}
