//! Tests of what counts as fetched, where a run ends, and how it connects.

use std::fs;

use crate::recorder::Recorder;
use crate::run::{fast, politely, run};

/// Starts a server whose paths are statuses. A redirect leads to the next lower one of its kind.
fn statuses() -> Recorder {
    Recorder::start(|came, _| match came.path.as_str() {
        "/403" => Some(("403 Forbidden", String::new())),
        "/404" => Some(("404 Not Found", String::new())),
        "/429" => Some(("429 Too Many Requests", "Retry-After: 1\r\n".to_owned())),
        "/500" => Some(("500 Internal Server Error", String::new())),
        "/hop3" => Some(("302 Found", "Location: /hop2\r\n".to_owned())),
        "/hop2" => Some(("302 Found", "Location: /hop1\r\n".to_owned())),
        "/hop1" => Some(("302 Found", "Location: /200\r\n".to_owned())),
        _ => Some(("200 OK", String::new())),
    })
}

#[test]
fn a_status_that_is_accepted_counts_as_fetched_and_another_one_does_not() {
    let server = statuses();
    let dir = tempfile::tempdir().unwrap();
    let fetch = |accept: &str, path: &str| {
        let mut command = fast();
        command
            .args(["--retries", "0", "--accept", accept, "--save"])
            .arg(dir.path());
        run(command.arg(server.url(path)))
    };
    for path in ["403", "404", "500"] {
        let said = fetch("2xx,403,404,5xx", path);
        assert_eq!(said.code, 0, "{path}: {}", said.err);
        let row = &said.rows()[0];
        assert_eq!(
            (row["error"].as_str(), row["bytes"].as_u64()),
            (None, Some(4)),
            "{row}"
        );
        assert_eq!(
            fs::read_to_string(row["saved"].as_str().unwrap()).unwrap(),
            "page"
        );
    }
    let said = fetch("404", "200");
    assert_eq!(
        (said.code, said.errors()["200"].as_deref()),
        (1, Some("200 OK"))
    );
    let said = fetch("302", "hop1");
    assert_eq!(
        (said.code, said.rows()[0]["status"].as_u64()),
        (0, Some(302))
    );
    let said = run(fast().args(["--accept", "2xx,ok", "http://127.0.0.1:1/"]));
    assert_eq!(
        (said.code, said.lines("`ok`: not a status").len()),
        (2, 1),
        "{}",
        said.err
    );
}

#[test]
fn a_chain_of_redirects_ends_at_the_maximum() {
    let server = statuses();
    let fetch = |most: &str| {
        run(fast()
            .args(["--max-redirects", most])
            .arg(server.url("hop3")))
    };
    assert_eq!(fetch("3").code, 0);
    let said = fetch("2");
    let error = said.errors()["hop3"].clone().unwrap();
    assert!(error.contains("hop 3 of at most 2"), "{error}");
}

#[test]
fn a_run_takes_as_many_pages_as_it_may_and_the_next_one_goes_on() {
    let server = Recorder::fine();
    let dir = tempfile::tempdir().unwrap();
    let urls: Vec<_> = (0..7).map(|page| server.url(&page.to_string())).collect();
    let fetch = || {
        let mut command = fast();
        command
            .args(["--max-pages", "3", "--state"])
            .arg(dir.path().join("state"));
        run(command.args(&urls))
    };
    for fetched in [3, 6, 7] {
        let said = fetch();
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(
            said.lines("--max-pages: 3 pages are taken").len(),
            usize::from(fetched < 7)
        );
        assert_eq!(server.came().len(), fetched);
    }
}

#[test]
fn a_run_ends_at_its_deadline_and_at_its_number_of_bytes() {
    let server = Recorder::fine();
    let urls: Vec<_> = (0..200).map(|page| server.url(&page.to_string())).collect();
    let slow = ["fetch", "--no-robots", "--rate", "2"];
    let said = run(politely().args(slow).args(["--deadline", "1s"]).args(&urls));
    assert_eq!(
        (said.code, said.lines("--deadline: ").len()),
        (1, 1),
        "{}",
        said.err
    );
    let before = server.came().len();
    assert!((1..100).contains(&before), "{before}");
    let flags = ["--max-bytes", "40", "--concurrency", "2"];
    let said = run(fast().args(flags).args(&urls));
    assert_eq!(
        (said.code, said.lines("--max-bytes: ").len()),
        (1, 1),
        "{}",
        said.err
    );
    assert!((10..=12).contains(&(server.came().len() - before)));
}

#[test]
fn only_urls_that_the_patterns_let_are_fetched() {
    let server = Recorder::fine();
    let urls = ["a/1", "a/2", "b/1", "c"].map(|path| server.url(path));
    let patterns = [
        "--include",
        "/[ab]/",
        "--include",
        "zzz",
        "--exclude",
        "/2$",
    ];
    let said = run(fast().args(patterns).args(&urls));
    assert_eq!((said.code, said.rows().len()), (0, 2), "{}", said.err);
    assert_eq!(said.lines("2 URLs are left out").len(), 1, "{}", said.err);
    let mut paths: Vec<_> = server.came().into_iter().map(|came| came.path).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/a/1", "/b/1"]);
    let said = run(fast().args(["--include", "(", &urls[0]]));
    said.demand_one_line(2);
    assert!(
        said.err.contains("--include: unclosed group"),
        "{}",
        said.err
    );
}

#[test]
fn a_name_leads_to_the_address_that_is_given_for_it() {
    let server = Recorder::fine();
    let port = server.address.port();
    let rule = format!("shop.example:{port}:127.0.0.1");
    let url = format!("http://shop.example:{port}/a");
    let said = run(fast().args(["--resolve", &rule, "-4", "--connect-timeout", "2s", &url]));
    assert_eq!(said.code, 0, "{}", said.err);
    let host = server.came()[0].header("host");
    assert_eq!(host, Some(format!("shop.example:{port}")));
    let said = run(fast().args(["--resolve", "a:b", &url]));
    assert_eq!(
        (said.code, said.lines("HOST:PORT:ADDRESS").len()),
        (2, 1),
        "{}",
        said.err
    );
    let url = format!("http://localhost:{port}/b");
    assert_eq!(run(fast().args(["--ipv4", "--http1.1", &url])).code, 0);
}

#[test]
fn the_short_help_fits_on_a_screen_and_the_long_one_has_groups() {
    let short = run(politely().args(["fetch", "-h"])).out;
    assert!(short.lines().count() <= 45, "{short}");
    let long = run(politely().args(["fetch", "--help"])).out;
    let groups = [
        "Input and output:",
        "Requests:",
        "Politeness:",
        "Retries:",
        "Sharing:",
        "Diagnostics:",
    ];
    for group in groups {
        assert!(long.contains(&format!("\n{group}\n")), "{group}");
    }
    assert_eq!(long.matches("\n    politely fetch ").count(), 3);
    let said = run(politely().args(["fetch", "--haeder", "A: b"]));
    assert!(
        said.err.contains("--header") && !said.err.contains("--lease"),
        "{}",
        said.err
    );
}
