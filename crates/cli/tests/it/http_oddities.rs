//! Tests with responses that browsers and curl accept: content codings, stale connections,
//! malformed header lines, redirects to the same URL.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use crate::misbehaving::{Server, Then, respond};
use crate::run::{fast, politely, run};

const PAGE: &[u8] = b"<p>a page a page a page a page</p>";
/// Returns `PAGE` as Zstandard: one raw block in a frame of a single segment (RFC 8878, sections
/// 3.1.1.1 and 3.1.1.2).
fn zstd() -> Vec<u8> {
    let length = u8::try_from(PAGE.len()).unwrap();
    let block = u32::from(length) << 3 | 1;
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0x20, length];
    [&head[..], &block.to_le_bytes()[..3], PAGE].concat()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(is_raw: bool) -> Vec<u8> {
    if is_raw {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(PAGE).unwrap();
        encoder.finish().unwrap()
    } else {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(PAGE).unwrap();
        encoder.finish().unwrap()
    }
}

/// Answers with a binary body.
fn answer(stream: &mut TcpStream, headers: &str, body: &[u8]) -> std::io::Result<Then> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())?;
    Ok(Then::Keep)
}

/// Returns for each path the coding's header fields and the encoded page.
fn packed() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let twice = || gzip(&gzip(PAGE));
    // One uncompressed meta-block (RFC 7932, section 9.2): "hello".
    let br = b"\x0b\x02\x80hello\x03".to_vec();
    vec![
        ("gzip", "Content-Encoding: gzip\r\n", gzip(PAGE)),
        ("upper", "Content-Encoding: GZIP\r\n", gzip(PAGE)),
        ("x-gzip", "Content-Encoding: X-Gzip\r\n", gzip(PAGE)),
        ("listed", "Content-Encoding: gzip, identity\r\n", gzip(PAGE)),
        ("twice", "Content-Encoding: gzip, gzip\r\n", twice()),
        (
            "fields",
            "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n",
            twice(),
        ),
        ("zlib", "Content-Encoding: deflate\r\n", deflate(false)),
        ("raw", "Content-Encoding: Deflate\r\n", deflate(true)),
        ("br", "Content-Encoding: br\r\n", br),
        ("zstd", "Content-Encoding: zstd\r\n", zstd()),
        (
            "rubbish",
            "Content-Encoding: gzip\r\n",
            [&gzip(PAGE)[..], b"\0\0rubbish"].concat(),
        ),
        ("none", "Content-Encoding: identity\r\n", PAGE.to_vec()),
        ("empty", "Content-Encoding: gzip\r\n", Vec::new()),
    ]
}

#[test]
fn pages_are_saved_without_their_codings() {
    let server = Server::start(|path, stream| {
        let packed = packed();
        let Some((_, headers, body)) = packed.iter().find(|(name, ..)| path[1..] == **name) else {
            return respond(stream, "404 Not Found", "", "");
        };
        answer(stream, headers, body)
    });
    let folder = tempfile::tempdir().unwrap();
    let urls = packed().into_iter().map(|(name, ..)| server.url(name));
    let said = run(fast().arg("--save").arg(folder.path()).args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    for row in said.rows() {
        let url = row["url"].as_str().unwrap();
        let saved = fs::read(Path::new(row["saved"].as_str().unwrap())).unwrap();
        let page = match url.rsplit('/').next().unwrap() {
            "br" => &b"hello"[..],
            "empty" => b"",
            _ => PAGE,
        };
        assert_eq!(saved, page, "{url}");
        assert_eq!(row["bytes"], page.len(), "{url}");
    }
}

#[test]
fn a_page_that_cannot_be_decoded_fails_and_says_why() {
    let server = Server::start(|path, stream| match path {
        "/unknown" => answer(stream, "Content-Encoding: compress\r\n", PAGE),
        "/cut" => answer(stream, "Content-Encoding: gzip\r\n", &gzip(PAGE)[..20]),
        "/plain" => answer(stream, "Content-Encoding: zstd\r\n", PAGE),
        _ => {
            let bomb = gzip(&gzip(&vec![0; 20_000_000]));
            answer(stream, "Content-Encoding: gzip, gzip\r\n", &bomb)
        }
    });
    let paths = ["unknown", "cut", "plain", "bomb"];
    let said = run(fast()
        .args(["--retries", "0", "--max-body", "1MiB"])
        .args(paths.map(|path| server.url(path))));
    let errors = said.errors();
    for (path, why) in [
        (
            "unknown",
            "cannot decode content coding \"compress\"; the server must send one of gzip",
        ),
        (
            "cut",
            "cannot decode content coding \"gzip\": the body ends too early",
        ),
        (
            "plain",
            "cannot decode content coding \"zstd\": the bytes are damaged",
        ),
        ("bomb", "body exceeds 1048576 bytes"),
    ] {
        let error = errors[path].as_deref().unwrap_or("none");
        assert!(error.contains(why), "{path}: {error}");
    }
}

/// Regression: a robots.txt in another coding than `gzip` allowed everything.
#[test]
fn a_robots_txt_in_any_coding_is_obeyed() {
    let forbid = b"User-agent: *\nDisallow: /\n";
    for (headers, body) in [
        ("Content-Encoding: GZIP\r\n", gzip(forbid)),
        ("Content-Encoding: gzip, gzip\r\n", gzip(&gzip(forbid))),
        ("Content-Encoding: utf-8\r\n", forbid.to_vec()),
        // The following bodies cannot be decoded, so nothing is known of their rules.
        (
            "Content-Encoding: compress\r\n",
            b"User-agent: *\nAllow: /\n".to_vec(),
        ),
        ("Content-Encoding: gzip\r\n", gzip(forbid)[..20].to_vec()),
        ("Content-Encoding: br\r\n", b"plain text".to_vec()),
    ] {
        let server = Server::start(move |path, stream| match path {
            "/robots.txt" => answer(stream, headers, &body),
            _ => respond(stream, "200 OK", "", "a page"),
        });
        let mut child = politely()
            .args(["fetch", "--law", "fixed", "--rate", "100", "--retries", "0"])
            .arg(server.url("page"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // A robots.txt that cannot be decoded is requested again. After the second request, the
        // page was not requested in between.
        let began = std::time::Instant::now();
        loop {
            let is_over = child.try_wait().unwrap().is_some();
            let asked = server.counts().get("/robots.txt").copied().unwrap_or(0);
            if is_over || asked >= 2 || began.elapsed().as_secs() > 60 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(server.counts().contains_key("/robots.txt"));
        assert_eq!(server.counts().get("/page"), None, "{headers:?}");
    }
}

#[test]
fn exactly_the_codings_that_can_be_undone_are_requested() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        use std::io::Read as _;
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        answer(&mut stream, "", PAGE).unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    });
    assert_eq!(run(fast().arg(url)).code, 0);
    let head = asked.join().unwrap();
    assert!(
        head.contains("\r\naccept-encoding: gzip, deflate, br, zstd\r\n"),
        "{head}"
    );
}

/// Starts a server that closes each connection at its third request, without an answer.
fn stale() -> Server {
    Server::start(|_, stream| {
        thread_local!(static ON_THIS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        let on_this = ON_THIS.get() + 1;
        ON_THIS.set(on_this);
        if on_this == 3 {
            return Ok(Then::Close);
        }
        respond(stream, "200 OK", "", "a page")
    })
}

#[test]
fn a_stale_connection_costs_no_attempt() {
    let server = stale();
    let urls = (0..20).map(|n| server.url(&format!("page/{n}")));
    let said = run(fast()
        .args(["--in-flight", "1", "--retries", "0"])
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    for row in said.rows() {
        assert_eq!(row["attempts"], 1, "{row}");
    }
}

#[test]
fn a_stale_connection_through_a_proxy_costs_no_attempt() {
    let server = stale();
    let urls = (0..20).map(|n| format!("http://pages.example/{n}"));
    let said = run(fast()
        .args(["--in-flight", "1", "--retries", "0", "--proxy"])
        .arg(server.url(""))
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
}

/// A connection without an earlier answer is not stale. If the server closes it, the request has
/// failed and is not repeated without end.
#[test]
fn a_fresh_connection_that_closes_is_a_failure() {
    let server = Server::start(|_, _| Ok(Then::Close));
    let said = run(fast().args(["--retries", "0"]).arg(server.url("page")));
    assert_eq!(said.code, 1);
    assert_eq!(server.counts()["/page"], 1);
}

/// Header lines that break the grammar of HTTP, by path.
const ODD: [(&str, &str); 9] = [
    (
        "folded",
        "X-Policy: default-src 'self'\r\n   https://static.example\r\n",
    ),
    ("folded-tab", "X-Device: a=b;\r\n\tc=d\r\n"),
    ("folded-twice", "X-Device: a\r\n b\r\n\tc\r\n"),
    ("blank-before-colon", "X-Powered : by\r\n"),
    ("no-colon", "<!DOCTYPE html>\r\n"),
    ("control", "Set-Cookie: a=b\x01c; Path=/\r\n"),
    ("control-in-name", "X-\x02Odd: b\r\n"),
    ("no-name", ": value\r\n"),
    ("many", ""),
];

/// Heads that hyper refuses and curl accepts, by path.
const REPAIRED: [(&str, &str); 4] = [
    ("bare-cr", "X-Device: a\rb\r\n"),
    ("bare-cr-in-name", "X-\rDevice: a\r\n"),
    ("nul", "X-Device: a\0b\r\n"),
    ("nul-in-name", "X-\0Device: a\r\n"),
];

#[test]
fn a_bare_cr_a_nul_or_a_plus_in_a_head_costs_no_page() {
    let server = Server::start(|path, stream| {
        let name = path.rsplit('/').next().unwrap_or_default();
        match REPAIRED.iter().find(|(odd, _)| *odd == name) {
            Some((_, headers)) => respond(stream, "200 OK", headers, "a page"),
            None if name == "plus" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: +6\r\n\r\na page")?;
                Ok(Then::Keep)
            }
            None => respond(stream, "404 Not Found", "", ""),
        }
    });
    let names = REPAIRED.map(|(name, _)| name).into_iter().chain(["plus"]);
    let said = run(fast().args(names.map(|name| server.url(name))));
    assert_eq!(said.code, 0, "{:?}", said.errors());
    assert!(
        said.rows().iter().all(|row| row["bytes"] == 6),
        "{}",
        said.out
    );
}

fn odd() -> Server {
    Server::start(|path, stream| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let many = (0..900).fold(String::new(), |all, n| format!("{all}X-{n}: {n}\r\n"));
        match ODD.iter().find(|(odd, _)| *odd == name) {
            Some(("many", _)) => respond(stream, "200 OK", &many, "a page"),
            Some((_, headers)) => respond(stream, "200 OK", headers, "a page"),
            None => respond(stream, "404 Not Found", "", ""),
        }
    })
}

#[test]
fn one_odd_header_line_costs_no_page() {
    let server = odd();
    let said = run(fast().args(ODD.map(|(name, _)| server.url(name))));
    assert_eq!(said.code, 0, "{:?}", said.errors());
}

#[test]
fn one_odd_header_line_through_a_proxy_costs_no_page() {
    let server = odd();
    let said = run(fast()
        .args(["--proxy", &server.url("")])
        .args(ODD.map(|(name, _)| format!("http://odd.example/{name}"))));
    assert_eq!(said.code, 0, "{:?}", said.errors());
}

#[test]
fn a_head_without_end_is_a_failure() {
    let server = Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            stream.write_all(b"X-More: and more and more and more and more and more\r\n")?;
        }
    });
    let said = run(fast().args(["--retries", "0"]).arg(server.url("page")));
    assert_eq!(said.code, 1);
}

#[test]
fn redirects_to_where_they_came_from_are_followed() {
    let visits = Mutex::new(std::collections::BTreeMap::<String, usize>::new());
    let server = Server::start(move |path, stream| {
        let mut visits = visits.lock().unwrap();
        let visit = visits.entry(path.to_owned()).or_default();
        *visit += 1;
        match (path, *visit) {
            ("/itself", 1..=3) => respond(stream, "302 Found", "Location: /itself\r\n", ""),
            ("/there", 1 | 2) => respond(stream, "302 Found", "Location: /and-back\r\n", ""),
            ("/and-back", _) => {
                respond(stream, "307 Temporary Redirect", "Location: /there\r\n", "")
            }
            _ => respond(stream, "200 OK", "", "a page"),
        }
    });
    let said = run(fast().args(["itself", "there"].map(|path| server.url(path))));
    assert_eq!(said.code, 0, "{:?}", said.errors());
}

/// rustls refuses such a name before it connects. Trying again changes nothing.
#[test]
fn a_label_that_ends_with_a_hyphen_fails_over_tls_at_once_and_says_why() {
    let said = run(fast().arg("https://foo-.example/page"));
    let row = &said.rows()[0];
    assert_eq!((said.code, &row["attempts"]), (1, &1.into()), "{row}");
    let error = row["error"].as_str().unwrap();
    assert!(
        error.starts_with("TLS: no certificate can be checked"),
        "{error}"
    );
    assert!(error.contains("begins or ends with a hyphen"), "{error}");
}

/// Regression: the rules of the group for `Mozilla` were used.
#[test]
fn rules_are_looked_up_by_the_product_token() {
    let robots = "User-agent: ExampleBot\nDisallow: /\n\nUser-agent: *\nAllow: /\n";
    let browser = "Mozilla/5.0 (compatible; ExampleBot/1.2; +https://example.com/bot)";
    let other = "Mozilla/5.0 (compatible; OtherBot/1.2; +https://example.com/bot)";
    for (flags, is_fetched) in [
        (&["--user-agent", browser][..], false),
        (&["--user-agent", other], true),
        (
            &["--user-agent", other, "--robots-token", "examplebot"],
            false,
        ),
        (
            &["--user-agent", browser, "--robots-token", "OtherBot"],
            true,
        ),
    ] {
        let server = Server::start(move |path, stream| match path {
            "/robots.txt" => respond(stream, "200 OK", "", robots),
            _ => respond(stream, "200 OK", "", "a page"),
        });
        run(politely()
            .args(["fetch", "--law", "fixed", "--rate", "100"])
            .args(flags)
            .arg(server.url("page")));
        assert_eq!(
            server.counts().contains_key("/page"),
            is_fetched,
            "{flags:?}"
        );
    }
    let said = run(fast().args(["--robots-token", "Example Bot", "http://127.0.0.1:1/"]));
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("--robots-token \"Example Bot\": not a product token"),
        "{}",
        said.err
    );
}
