//! Tests of `--warc`, read by warcio and by `FastWARC`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use politely_testkit::repository;
use serde_json::Value;

use crate::misbehaving::{Server, Then, respond};
use crate::run::{fast, killed_at, politely, run};

/// Returns the files of an archive, in order.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Returns the records of each file. Both readers see the same.
fn records(files: &[PathBuf]) -> Vec<Vec<Value>> {
    let python = repository().join(".venv/bin/python");
    let script = repository().join("tests/tools/read_warc.py");
    let output = Command::new(python)
        .arg(script)
        .args(files)
        .output()
        .expect("run scripts/setup");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let read: Vec<BTreeMap<String, Vec<Value>>> = serde_json::from_slice(&output.stdout).unwrap();
    let both = read.into_iter().map(|mut of_file| {
        let (one, other) = (
            of_file.remove("warcio").unwrap(),
            of_file.remove("fastwarc").unwrap(),
        );
        assert!(one == other, "{said}");
        one
    });
    both.collect()
}

/// Returns the records of a kind, by the paths of their URLs: status and payload.
fn of_kind(records: &[Value], kind: &str) -> BTreeMap<String, (String, String)> {
    let of_kind = records.iter().filter(|record| record[0] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = of_kind.map(|record| {
        assert_eq!(record[4], true, "the digest is right: {record}");
        let path = record[1].as_str().unwrap().splitn(4, '/').nth(3).unwrap();
        (path.to_owned(), (text(&record[2]), text(&record[3])))
    });
    each.collect()
}

fn packed(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[test]
fn an_archive_has_every_request_and_answer_and_is_read_by_both_readers() {
    let server = Server::start(|path, stream| match path {
        "/robots.txt" => respond(stream, "404 Not Found", "", "none"),
        "/redirect" => respond(stream, "302 Found", "Location: /first\r\n", ""),
        "/missing" => respond(stream, "404 Not Found", "", "missing"),
        "/packed" => {
            let body = packed("packed text");
            let head = format!("Content-Encoding: gzip\r\nContent-Length: {}", body.len());
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes())?;
            stream.write_all(&body)?;
            Ok(Then::Keep)
        }
        "/chunked" => {
            let body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nchun\r\n3\r\nked\r\n0\r\n\r\n";
            stream.write_all(body)?;
            Ok(Then::Keep)
        }
        "/cut" => respond(stream, "200 OK", "", &"x".repeat(100_000)),
        _ => respond(stream, "200 OK", "", "the same text"),
    });
    let dir = tempfile::tempdir().unwrap();
    let fetch = |paths: &[&str], flags: &[&str]| {
        let mut command = politely();
        command
            .args(["fetch", "--law", "fixed", "--rate", "5000", "--burst", "9"])
            .args(flags);
        command.args([
            "--concurrency",
            "1",
            "--header",
            "X-Api-Key: s3cret",
            "--max-body",
            "50KB",
        ]);
        command.arg("--warc").arg(dir.path().join("crawl.warc.gz"));
        run(command.args(paths.iter().map(|path| server.url(path))))
    };
    let said = fetch(
        &[
            "first", "second", "redirect", "missing", "packed", "chunked", "cut",
        ],
        &[],
    );
    assert_eq!(said.rows().len(), 7, "{}", said.err);
    let first = files(dir.path());
    assert_eq!(first, [dir.path().join("crawl-00000.warc.gz")]);
    let read = records(&first).remove(0);
    assert_eq!(read[0][0], "warcinfo");
    let responses = of_kind(&read, "response");
    let expect = |path: &str, status: &str, payload: &[u8]| {
        let payload: String = payload.iter().map(|byte| char::from(*byte)).collect();
        assert_eq!(responses[path], (status.to_owned(), payload), "{path}");
    };
    expect("robots.txt", "404", b"none");
    expect("redirect", "302", b"");
    expect("missing", "404", b"missing");
    expect("packed", "200", &packed("packed text"));
    expect("chunked", "200", b"chunked");
    assert!(responses["cut"].1.len() < 100_000);
    let same = ["first", "second"]
        .iter()
        .filter(|path| responses.contains_key(**path));
    let revisits = read.iter().filter(|record| record[0] == "revisit");
    assert_eq!(
        (same.count(), revisits.count()),
        (1, 2),
        "three answers had one text"
    );
    assert_eq!(of_kind(&read, "request").len(), 8);
    let requests = read.iter().filter(|record| record[0] == "request");
    assert!(
        requests.count() >= 9,
        "the target of the redirect was requested twice"
    );
    assert!(!format!("{read:?}").contains("s3cret"));

    // Another run makes files of its own, and each file has a bounded size.
    fetch(&["first", "missing", "packed"], &["--warc-size", "1KB"]);
    let all = files(dir.path());
    assert!(all.len() > 2, "{all:?}");
    for file in records(&all) {
        assert_eq!(file[0][0], "warcinfo");
    }
    assert!(fs::metadata(&all[1]).unwrap().len() < 4_000);
}

#[test]
fn a_kill_tears_one_record_at_most_and_the_next_run_makes_a_new_file() {
    const PAGES: usize = 120;
    let server = Server::start(|path, stream| {
        std::thread::sleep(Duration::from_millis(3));
        let body = format!("{path} ").repeat(200);
        respond(stream, "200 OK", "", &body)
    });
    let dir = tempfile::tempdir().unwrap();
    let urls: Vec<_> = (0..PAGES)
        .map(|page| server.url(&format!("p{page}")))
        .collect();
    let list = dir.path().join("urls");
    fs::write(&list, urls.join("\n")).unwrap();
    let archive = dir.path().join("archive");
    let results = dir.path().join("results");
    let crawl = || {
        let mut command = fast();
        command.args(["--concurrency", "8", "--in-flight", "50", "--state"]);
        command
            .arg(dir.path().join("state"))
            .arg("--warc")
            .arg(archive.join("a.warc.gz"));
        command
            .arg("--output")
            .arg(&results)
            .arg("--input")
            .arg(&list);
        command
    };
    for lines in [20, 70] {
        killed_at(lines, &results, &mut crawl());
    }
    let said = run(&mut crawl());
    assert_eq!(said.code, 0, "{}", said.err);
    let files = files(&archive);
    assert_eq!(files.len(), 3);
    let read: Vec<Value> = records(&files).concat();
    let responses = of_kind(&read, "response");
    assert_eq!(
        responses.len(),
        PAGES,
        "each page that counts as done is in the archive"
    );
    for (path, (_, payload)) in responses {
        assert_eq!(payload, format!("/{path} ").repeat(200));
    }
}
