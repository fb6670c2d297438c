//! Tests of requests that must not be sent twice, and of those that may.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::recorder::Recorder;
use crate::run::{fast, killed_at, rows_of, run};

#[test]
fn a_post_is_sent_again_after_a_refusal_only() {
    let server = Recorder::start(|came, before| match (came.path.as_str(), before) {
        ("/fine" | "/limited" | "/busy", 1..) => Some(("200 OK", String::new())),
        ("/limited", _) => Some(("429 Too Many Requests", "Retry-After: 1\r\n".to_owned())),
        ("/busy", _) => Some(("503 Service Unavailable", "Retry-After: 1\r\n".to_owned())),
        ("/error", _) => Some(("500 Internal Server Error", String::new())),
        ("/bad", _) => Some(("502 Bad Gateway", String::new())),
        ("/broken", _) => None,
        ("/slow", _) => {
            thread::sleep(Duration::from_secs(2));
            None
        }
        _ => Some(("200 OK", String::new())),
    });
    let mut sent = 0;
    for (path, requests, code) in [
        ("limited", 2, 0),
        ("error", 1, 1),
        ("bad", 1, 1),
        ("broken", 1, 1),
        ("slow", 1, 1),
    ] {
        let flags = ["--data", "x", "--timeout", "1s"];
        let said = run(fast().args(flags).arg(server.url(path)));
        assert_eq!(said.code, code, "{path}: {}", said.err);
        let came = server.came();
        assert_eq!(came.len() - sent, requests, "{path}");
        assert!(
            came.iter()
                .all(|came| came.method == "POST" && came.body == "x")
        );
        sent = came.len();
        if code == 1 {
            let errors = said.errors();
            assert!(errors[path].is_some(), "{errors:?}");
        }
    }
}

#[test]
fn a_refused_post_is_a_503_with_retry_after_too() {
    let server = Recorder::start(|_, before| match before {
        0 => Some(("503 Service Unavailable", "Retry-After: 1\r\n".to_owned())),
        _ => Some(("200 OK", String::new())),
    });
    let said = run(fast().args(["--data", "x"]).arg(server.url("a")));
    assert_eq!((said.code, server.came().len()), (0, 2), "{}", said.err);
}

/// A connection that a server closes between two requests may have delivered the second one.
#[test]
fn a_post_over_a_kept_connection_that_closes_is_not_sent_again() {
    let server = Recorder::start(|_, before| match before {
        0 => Some(("200 OK", String::new())),
        _ => None,
    });
    let said = run(fast()
        .args(["--data", "x", "--concurrency", "1"])
        .args([server.url("a"), server.url("b")]));
    assert_eq!((said.code, server.came().len()), (1, 2), "{}", said.err);
}

#[test]
fn a_post_waits_for_a_host_that_refuses_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut command = fast();
    command.args(["--data", "x", &format!("http://{address}/")]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    let listener = TcpListener::bind(address).unwrap();
    let serving = thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(serving.join().unwrap().starts_with("POST / "));
}

#[test]
fn with_an_idempotency_key_a_post_is_sent_again_with_the_same_key() {
    let server = Recorder::start(|_, before| match before {
        0 => Some(("500 Internal Server Error", String::new())),
        1 => None,
        _ => Some(("200 OK", String::new())),
    });
    let flags = [
        "--data",
        "x",
        "--idempotency-key",
        "--backoff",
        "base=10ms,max=100ms",
    ];
    let said = run(fast().args(flags).arg(server.url("a")));
    assert_eq!(said.code, 0, "{}", said.err);
    let came = server.came();
    let keys: BTreeSet<_> = came
        .iter()
        .map(|came| came.header("idempotency-key"))
        .collect();
    assert_eq!((came.len(), keys.len()), (3, 1), "{keys:?}");
    assert!(keys.first().unwrap().is_some());
    run(fast().args(flags).args([server.url("b"), server.url("c")]));
    let all = server.came();
    let keys: BTreeSet<_> = all
        .iter()
        .filter_map(|came| came.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), 3, "each page has its own");
}

#[test]
fn a_redirected_post_goes_on_as_rfc_9110_says_and_begins_once() {
    let server = Recorder::start(|came, before| match (came.path.as_str(), before) {
        ("/see-other", _) => Some(("303 See Other", "Location: /result\r\n".to_owned())),
        ("/result", 1) => Some(("429 Too Many Requests", "Retry-After: 1\r\n".to_owned())),
        ("/moved", _) => Some(("307 Temporary Redirect", "Location: /new\r\n".to_owned())),
        _ => Some(("200 OK", String::new())),
    });
    let said = run(fast().args(["--data", "x"]).arg(server.url("see-other")));
    assert_eq!(said.code, 0, "{}", said.err);
    let said = run(fast().args(["--data", "x"]).arg(server.url("moved")));
    assert_eq!(said.code, 0, "{}", said.err);
    let came = server.came();
    let sent: Vec<_> = (came.iter())
        .map(|came| (came.method.as_str(), came.path.as_str(), came.body.as_str()))
        .collect();
    let wanted = [
        ("POST", "/see-other", "x"),
        ("GET", "/result", ""),
        ("GET", "/result", ""),
        ("POST", "/moved", "x"),
        ("POST", "/new", "x"),
    ];
    assert_eq!(sent, wanted);
    assert_eq!(came[1].header("content-type"), None);
}

/// Bodies are in the state folder. A request that was in flight may have been processed.
#[test]
fn killed_posts_go_on_with_their_bodies_and_none_is_sent_twice() {
    const PAGES: usize = 200;
    let server = Recorder::start(|_, _| {
        thread::sleep(Duration::from_millis(3));
        Some(("200 OK", String::new()))
    });
    let dir = tempfile::tempdir().unwrap();
    let (list, results) = (dir.path().join("list"), dir.path().join("results"));
    let lines: Vec<_> = (0..PAGES)
        .map(|page| {
            format!(
                r#"{{"url": "{}", "body": {{"page": {page}}}, "meta": {page}}}"#,
                server.url("jobs")
            )
        })
        .collect();
    fs::write(&list, lines.join("\n")).unwrap();
    let command = || {
        let mut command = fast();
        command
            .args(["--concurrency", "8", "--in-flight", "8", "--state"])
            .arg(dir.path().join("state"));
        command.arg("-o").arg(&results);
        command
    };
    for lines in [40, 110] {
        killed_at(lines, &results, command().arg("-i").arg(&list));
    }
    let said = run(&mut command());
    let rows = rows_of(&results);
    let metas: BTreeSet<_> = rows
        .iter()
        .map(|row| row["meta"].as_u64().unwrap())
        .collect();
    assert_eq!((rows.len(), metas.len()), (PAGES, PAGES), "{}", said.err);
    let came = server.came();
    let bodies: BTreeSet<_> = came.iter().map(|came| &came.body).collect();
    assert_eq!(came.len(), bodies.len(), "a body was sent twice");
    let failed: Vec<_> = rows
        .iter()
        .filter_map(|row| row["error"].as_str())
        .collect();
    assert!(failed.len() <= 16, "{failed:?}");
    assert!(
        failed.iter().all(|why| why.contains("not sent twice")),
        "{failed:?}"
    );
    assert_eq!(bodies.len() + (PAGES - bodies.len()), PAGES);
}
