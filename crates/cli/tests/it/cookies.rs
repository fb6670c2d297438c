//! Tests with servers that require cookies, or refuse those that they set.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::misbehaving::respond;
use crate::run::{fast, run};

/// Starts a server that answers a request's head with a status and header lines.
fn answering(answer: impl Fn(&str) -> (&'static str, String) + Send + Sync + 'static) -> String {
    use std::io::{BufRead as _, BufReader};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = std::sync::Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let (status, headers) = answer(&head.to_lowercase());
                    if respond(&mut stream, status, &headers, "a page").is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// Starts a server that sets a cookie and redirects to the same URL until the cookie is sent.
fn wall() -> (String, std::sync::Arc<AtomicUsize>) {
    let passed = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&passed);
    let url = answering(move |head| {
        if head.contains("cookie: wall=passed") {
            counter.fetch_add(1, Ordering::Relaxed);
            return ("200 OK", String::new());
        }
        let headers = "Location: /page\r\nSet-Cookie: wall=passed; Path=/\r\n";
        ("302 Found", headers.to_owned())
    });
    (url, passed)
}

#[test]
fn a_wall_of_cookies_is_passed_unless_they_are_switched_off() {
    let (url, passed) = wall();
    let page = format!("{url}/page");
    let said = run(fast().arg(&page));
    assert_eq!(
        (said.code, passed.load(Ordering::Relaxed)),
        (0, 1),
        "{}",
        said.err
    );
    let said = run(fast().args(["--no-cookies", &page]));
    assert_eq!((said.code, passed.load(Ordering::Relaxed)), (1, 1));
    let error = &said.errors()["page"];
    assert!(
        error
            .as_deref()
            .is_some_and(|why| why.contains("hop 11 of at most 10")),
        "{error:?}"
    );
}

/// Regression: its cookies were forgotten once, and the next time its pages were lost.
#[test]
fn a_host_that_refuses_the_many_cookies_that_it_sets_serves_all_pages() {
    for status in [
        "400 Bad Request",
        "431 Request Header Fields Too Large",
        "494 Request Header Too Large",
    ] {
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let counter = std::sync::Arc::clone(&asked);
        let url = answering(move |head| {
            let number = counter.fetch_add(1, Ordering::Relaxed);
            let cookies = head.lines().find(|line| line.starts_with("cookie: "));
            if cookies.is_some_and(|cookies| cookies.len() > 4096) {
                return (status, String::new());
            }
            let value = "x".repeat(1000);
            (
                "200 OK",
                format!("Set-Cookie: c{number}={value}; Path=/\r\n"),
            )
        });
        let said = run(fast().args((0..60).map(|page| format!("{url}/{page}"))));
        assert_eq!(said.code, 0, "{status}: {}", said.err);
        assert!(asked.load(Ordering::Relaxed) <= 120, "one repeat for each");
    }
}
