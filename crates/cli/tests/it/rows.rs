//! The result lines: what they say about the last answer, as JSON and as CSV.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::misbehaving::{Server, respond};
use crate::run::{fast, run};

const PAGE: &str =
    "a page that is much longer than its packed form: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn packed() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(PAGE.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn server() -> Server {
    Server::start(|path, stream| match path {
        "/one" => respond(stream, "301 Moved", "Location: /two\r\n", ""),
        "/two" => respond(stream, "302 Found", "Location: /page\r\n", ""),
        "/packed" => {
            let body = packed();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)?;
            Ok(crate::misbehaving::Then::Keep)
        }
        "/page" => respond(
            stream,
            "200 OK",
            "Content-Type: text/html; charset=utf-8\r\nETag: \"a, b\"\r\nX-A: 1\r\nX-A: 2\r\n",
            "page",
        ),
        _ => respond(stream, "404 Not Found", "", ""),
    })
}

#[test]
fn a_row_tells_where_the_answer_came_from_and_how() {
    let server = server();
    let flags = [
        "--row-header",
        "X-A",
        "--row-header",
        "etag",
        "--row-header",
        "x-none",
    ];
    let mut command = fast();
    command.args(flags).args(["--concurrency", "1"]);
    command.args([
        server.url("one"),
        server.url("packed"),
        server.url("missing"),
    ]);
    let said = run(&mut command);
    assert_eq!(said.code, 1, "{}", said.err);
    let rows = said.rows();
    let of = |path: &str| {
        let url = server.url(path);
        rows.iter().find(|row| row["url"] == *url).expect("a row")
    };
    let one = of("one");
    let redirects = json!([
        {"url": server.url("one"), "status": 301},
        {"url": server.url("two"), "status": 302},
    ]);
    assert_eq!(one["final_url"], *server.url("page"));
    assert_eq!(one["redirects"], redirects);
    assert_eq!(one["content_type"], "text/html; charset=utf-8");
    assert_eq!(one["headers"], json!({"x-a": "1, 2", "etag": "\"a, b\""}));
    assert_eq!(
        (&one["protocol"], &one["address"]),
        (&"HTTP/1.1".into(), &"127.0.0.1".into())
    );
    let packed_row = of("packed");
    assert!(packed_row["final_url"].is_null() && packed_row["redirects"].is_null());
    let sizes = (&packed_row["bytes"], &packed_row["wire_bytes"]);
    assert_eq!(sizes, (&PAGE.len().into(), &packed().len().into()));
    assert!(packed_row["content_type"].is_null());
    let missing = of("missing");
    assert_eq!(
        (&missing["headers"], &missing["wire_bytes"]),
        (&json!({}), &0.into())
    );
    let total = |row: &serde_json::Value| row["total_ms"].as_u64() >= row["latency_ms"].as_u64();
    assert!(rows.iter().all(total), "{rows:?}");
    let connected = rows.iter().filter(|row| row["connect_ms"].is_u64());
    assert!(connected.count() <= 1, "the connection is kept: {rows:?}");
}

#[test]
fn a_page_without_an_answer_has_no_fields_of_one() {
    let said = run(fast().args(["--retries", "0", "http://127.0.0.1:1/"]));
    let row = &said.rows()[0];
    assert!(
        row["protocol"].is_null() && row["total_ms"].is_null(),
        "{row}"
    );
}

#[test]
fn a_file_of_csv_has_a_line_of_names_and_goes_on_after_a_kill() {
    let server = Server::start(|_, stream| {
        std::thread::sleep(std::time::Duration::from_millis(4));
        respond(stream, "200 OK", "ETag: \"a, b\"\r\n", "page")
    });
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.csv");
    let command = |flags: &[&str]| {
        let mut command = fast();
        command
            .args(["--concurrency", "2", "--state"])
            .arg(dir.path().join("state"));
        command.arg("--output").arg(&results).args(flags);
        command.args((0..60).map(|page| server.url(&format!("{page},\"x\""))));
        command
    };
    let text = || fs::read_to_string(&results).unwrap_or_default();
    let etag = ["--row-header", "ETag"];
    let mut child = command(&etag).stderr(Stdio::null()).spawn().unwrap();
    while text().lines().count() < 20 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = run(&mut command(&[]));
    assert_eq!(said.code, 2, "{}", said.err);
    assert_eq!(said.lines("has other columns").len(), 1, "{}", said.err);
    let said = run(&mut command(&etag));
    assert_eq!(said.code, 0, "{}", said.err);
    let text = text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 61);
    let names: Vec<_> = lines[0].split(',').collect();
    assert_eq!((names[0], names[2], names[21]), ("url", "status", "etag"));
    let url = server.url("0,%22x%22");
    let first = lines
        .iter()
        .filter(|line| line.contains(&url) || line.contains("/0,"));
    let first: Vec<_> = first.collect();
    assert_eq!(first.len(), 1, "{text}");
    assert!(first[0].ends_with(",\"\"\"a, b\"\"\""), "{}", first[0]);
}

#[test]
fn a_saved_body_has_the_extension_of_its_type() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let said = run(fast().arg("--save").arg(dir.path()).arg(server.url("one")));
    let saved = said.rows()[0]["saved"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&saved).extension().unwrap(), "html");
    assert_eq!(fs::read_to_string(saved).unwrap(), "page");
}

#[test]
fn a_summary_as_json_needs_a_place_for_the_result_lines() {
    for (flags, why) in [
        (
            &["--summary", "json"][..],
            "--summary json needs --output FILE",
        ),
        (&["--row-header", "a b"], "not the name of a header field"),
        (&["--row-header", "Set-Cookie"], "cookies are secrets"),
    ] {
        let said = run(fast().args(flags).arg("http://127.0.0.1:1/"));
        assert_eq!(said.code, 2, "{}", said.err);
        assert_eq!(said.lines(why).len(), 1, "{}", said.err);
    }
}
