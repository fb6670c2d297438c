//! Tests with responses whose ends, chunks or connections are unusual, and that curl accepts.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::coordinator_tls::certify;
use crate::http_oddities::gzip;
use crate::misbehaving::{Server, Then, respond};
use crate::proxies::tls;
use crate::run::{fast, run};

/// Regression: the body of the redirect was read until the time for the answer had passed.
#[test]
fn a_redirect_is_followed_although_its_body_does_not_end() {
    let server = Server::start(|path, stream| {
        if path == "/target" {
            return respond(stream, "200 OK", "", "a page");
        }
        let head = "HTTP/1.1 302 Found\r\nLocation: /target\r\n";
        let body = match path {
            "/length" => "Content-Length: 99\r\n\r\nmoved",
            "/chunks" => "Transfer-Encoding: chunked\r\n\r\n5\r\nmoved\r\n",
            _ => "\r\nmoved",
        };
        stream.write_all(format!("{head}{body}").as_bytes())?;
        // It stays open until the client closes it.
        Ok(Then::Keep)
    });
    let urls = ["open", "length", "chunks"].map(|path| server.url(path));
    let said = run(fast()
        .args(["--retries", "0", "--timeout", "20s"])
        .args(urls));
    assert_eq!(said.code, 0, "{:?}", said.errors());
}

/// Regression: all pages failed, because a host whose answers broke off had "never answered".
#[test]
fn a_host_whose_first_answers_break_off_keeps_its_pages() {
    let tried = Mutex::new(std::collections::BTreeSet::new());
    let server = Server::start(move |path, stream| {
        if tried.lock().unwrap().insert(path.to_owned()) {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na p")?;
            return Ok(Then::Close);
        }
        respond(stream, "200 OK", "", "a page")
    });
    let urls: Vec<_> = (0..12).map(|n| server.url(&n.to_string())).collect();
    let said = run(fast().args(urls));
    assert_eq!(said.code, 0, "{:?}", said.errors());
}

#[test]
fn a_misdirected_request_on_a_kept_connection_costs_no_attempt() {
    let ports = Mutex::new(std::collections::BTreeSet::new());
    let server = Server::start(move |path, stream| {
        let port = stream.peer_addr()?.port();
        let is_kept = !ports.lock().unwrap().insert(port);
        if is_kept || path == "/never" {
            respond(stream, "421 Misdirected Request", "", "")
        } else {
            respond(stream, "200 OK", "", "a page")
        }
    });
    let urls = ["a", "b", "c", "never"].map(|path| server.url(path));
    let said = run(fast()
        .args(["--in-flight", "1", "--retries", "0"])
        .args(urls));
    for (path, error) in said.errors() {
        assert_eq!(error.is_some(), path == "never", "{path}: {error:?}");
    }
    assert_eq!(server.counts()["/b"], 2, "one repeat");
}

/// Regression: no such page was saved, and the host seemed to give no answer.
#[test]
fn a_body_up_to_the_end_of_tls_needs_no_last_message_and_one_with_a_length_must_be_whole() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let config = Arc::new(tls(folder.path()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tls = rustls::StreamOwned::new(connection, stream);
            let head = BufReader::new(&mut tls).lines().next();
            let Some(Ok(first)) = head else { continue };
            let field = match first.split(' ').nth(1) {
                Some("/length") => "Content-Length: 9\r\n",
                Some("/chunks") => "Transfer-Encoding: chunked\r\n",
                _ => "",
            };
            let answer = format!("HTTP/1.0 200 OK\r\n{field}\r\n2\r\nab\r\n");
            // The connection ends without a close_notify.
            let _ = tls.write_all(answer.as_bytes());
        }
    });
    let mut command = fast();
    command.env("SSL_CERT_FILE", folder.path().join("ca.pem"));
    command.env_remove("SSL_CERT_DIR").args(["--retries", "0"]);
    let urls = ["open", "length", "chunks"].map(|path| format!("https://{address}/{path}"));
    let said = run(command.args(urls));
    let errors = said.errors();
    assert_eq!(errors["open"], None);
    for path in ["length", "chunks"] {
        let error = errors[path].as_ref().expect(path);
        assert!(error.contains("answer broke off"), "{path}: {error}");
    }
}

/// Regression: the page was saved as it was packed.
#[test]
fn a_coding_of_the_transfer_is_undone() {
    let server = Server::start(|_, stream| {
        let packed = gzip(b"a page");
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
        let length = packed.len();
        stream.write_all(format!("{head}{length:x}\r\n").as_bytes())?;
        stream.write_all(&packed)?;
        stream.write_all(b"\r\n0\r\n\r\n")?;
        Ok(Then::Keep)
    });
    let folder = tempfile::tempdir().unwrap();
    let mut command = fast();
    command.arg("--save").arg(folder.path());
    let said = run(command.arg(server.url("page")));
    let saved = said.rows()[0]["saved"].as_str().unwrap().to_owned();
    assert_eq!(fs::read(Path::new(&saved)).unwrap(), b"a page");
}
