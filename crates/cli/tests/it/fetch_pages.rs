//! Tests that `fetch` gets every page, at the right times and in the right order.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use crate::misbehaving::{Server, respond};
use crate::run::{fast, politely, rows_of, run};

#[test]
fn urls_come_from_arguments_file_and_standard_input() {
    let server = Server::bad();
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.txt");
    fs::write(
        &list,
        format!(
            "# two\n{}\n\n{}\n",
            server.url("page/1"),
            server.url("page/2")
        ),
    )
    .unwrap();
    let results = dir.path().join("results.jsonl");
    let mut child = fast()
        .args(["-", &server.url("page/3"), "-i"])
        .arg(&list)
        .arg("--output")
        .arg(&results)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(server.url("page/4").as_bytes())
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut urls: Vec<_> = rows_of(&results)
        .iter()
        .map(|row| row["url"].as_str().unwrap().to_owned())
        .collect();
    urls.sort();
    assert_eq!(
        urls,
        (1..=4)
            .map(|i| server.url(&format!("page/{i}")))
            .collect::<Vec<_>>()
    );
}

#[test]
fn robots_txt_is_asked_first_and_obeyed() {
    let server = Server::start(|path, stream| match path {
        "/robots.txt" => respond(
            stream,
            "200 OK",
            "",
            "User-agent: *\nDisallow: /private\nCrawl-delay: 0.3\n",
        ),
        _ => respond(stream, "200 OK", "", "page"),
    });
    let urls = ["a", "private/b", "c", "private/d"].map(|path| server.url(path));
    let said = run(politely().args(["fetch", "--rate", "10"]).args(urls));
    assert_eq!(said.code, 1);
    let errors = said.errors();
    assert_eq!((&errors["a"], &errors["c"]), (&None, &None));
    for path in ["private/b", "private/d"] {
        assert!(
            errors[path].as_deref().unwrap().contains("robots.txt"),
            "{errors:?}"
        );
    }
    let times = server.times();
    let asked: Vec<_> = times.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(asked, ["/robots.txt", "/a", "/c"]);
    let gap = times[2].1 - times[1].1;
    assert!(
        gap >= Duration::from_millis(290),
        "crawl-delay counts from completion: {gap:?}"
    );
}

#[test]
fn at_concurrency_one_the_robots_fetch_is_no_deadlock() {
    let server = Server::start(|path, stream| match path {
        "/robots.txt" => respond(stream, "404 Not Found", "", ""),
        _ => respond(stream, "200 OK", "", "page"),
    });
    let said = run(politely().args([
        "fetch",
        "--concurrency",
        "1",
        "--in-flight",
        "1",
        "--rate",
        "10",
        &server.url("a"),
    ]));
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_robots_txt_in_trouble_closes_the_host_for_a_while_and_loses_nothing() {
    let server = Server::start({
        let asked = std::sync::atomic::AtomicU32::new(0);
        move |path, stream| match path {
            "/robots.txt" if asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 => {
                respond(stream, "500 Oh No", "", "")
            }
            "/robots.txt" => respond(stream, "200 OK", "", "User-agent: *\nDisallow:\n"),
            _ => respond(stream, "200 OK", "", "page"),
        }
    });
    let said = run(politely().args(["fetch", "--rate", "10", &server.url("a")]));
    assert_eq!(said.code, 0, "{}", said.err);
    let asked: Vec<_> = server.times().into_iter().map(|(path, _)| path).collect();
    assert_eq!(asked, ["/robots.txt", "/robots.txt", "/a"]);
}

#[test]
fn redirects_are_followed_hop_by_hop_to_the_other_host() {
    let target = Server::bad();
    let to = target.url("page/final");
    let server = Server::start(move |path, stream| match path {
        "/start" => respond(stream, "302 Found", "Location: /second\r\n", ""),
        _ => respond(stream, "301 Moved", &format!("Location: {to}\r\n"), ""),
    });
    let said = run(fast().arg(server.url("start")));
    assert_eq!(said.code, 0, "{}", said.err);
    let row = &said.rows()[0];
    assert_eq!(
        (row["url"].as_str(), row["attempts"].as_u64()),
        (Some(&*server.url("start")), Some(3))
    );
    assert_eq!(row["key"], target.address.to_string());
}

/// RFC 9110, section 10.2.3: the wait is for the redirect's target. The host that redirects goes
/// on.
#[test]
fn a_redirects_retry_after_delays_its_target_alone() {
    let server = Server::start(|path, stream| match path {
        "/start" => respond(
            stream,
            "302 Found",
            "Location: /target\r\nRetry-After: 2\r\n",
            "",
        ),
        _ => respond(stream, "200 OK", "", "page"),
    });
    let urls = ["start", "other"].map(|path| server.url(path));
    let said = run(fast().args(["--in-flight", "1"]).args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let times = server.times();
    let when = |wanted: &str| {
        let found = times.iter().find(|(path, _)| path == wanted);
        found.map(|(_, when)| *when).expect("it was requested")
    };
    assert!(when("/target") - when("/start") >= Duration::from_secs(2));
    assert!(when("/other") < when("/target"));
}

#[test]
fn a_part_that_was_not_requested_is_no_page() {
    let server = Server::start(|path, stream| {
        let range = match path {
            "/whole" => "Content-Range: bytes 0-3/4\r\n",
            _ => "Content-Range: bytes 0-3/9\r\n",
        };
        respond(stream, "206 Partial Content", range, "page")
    });
    let urls = ["whole", "part"].map(|path| server.url(path));
    let said = run(fast().args(urls));
    assert_eq!(said.code, 1, "{}", said.err);
    let errors = said.errors();
    assert_eq!(errors["whole"], None);
    let error = errors["part"].as_deref().expect("an error");
    assert!(error.contains("partial content"), "{error}");
}

/// The case of lychee#2027: eight pages of a host that allows sixty per hour waited a minute each.
#[test]
fn what_is_left_of_a_quota_is_spent_and_nothing_is_sent_before_its_reset() {
    let server = Server::start({
        let left = std::sync::atomic::AtomicU32::new(9);
        move |_, stream| {
            let before = left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            let quota = format!(
                "X-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: {}\r\nX-RateLimit-Reset: 7200\r\n",
                before.saturating_sub(1)
            );
            respond(stream, "200 OK", &quota, "page")
        }
    });
    let urls = (0..6).map(|page| server.url(&page.to_string()));
    let said = run(politely().args(["fetch", "--profile", "api"]).args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.rows().len(), 6);
}

#[test]
fn refused_pages_go_again_after_the_hold_and_none_is_lost() {
    let server = Server::start({
        let asked = std::sync::atomic::AtomicU32::new(0);
        move |_, stream| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            3 => respond(stream, "429 Too Many Requests", "Retry-After: 1\r\n", ""),
            _ => respond(stream, "200 OK", "", "page"),
        }
    });
    let urls = (0..8).map(|i| server.url(&i.to_string()));
    let said = run(politely()
        .args([
            "fetch",
            "--profile",
            "api",
            "--in-flight",
            "1",
            "--summary",
            "json",
            "--output",
            "/dev/null",
        ])
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let summary = &said.rows()[0];
    assert_eq!(
        (
            summary["pages"].as_u64(),
            summary["refused"].as_u64(),
            summary["requests"].as_u64()
        ),
        (Some(8), Some(1), Some(9))
    );
    let times = server.times();
    assert!(
        times[4].1 - times[3].1 >= Duration::from_secs(1),
        "Retry-After is never undercut"
    );
}

#[test]
fn bodies_are_saved_under_harmless_names() {
    let server = Server::bad();
    let dir = tempfile::tempdir().unwrap();
    let said = run(fast().arg("--save").arg(dir.path()).args([
        server.url("page/%2e%2e%2f%2e%2e%2fetc"),
        server.url("page/1"),
    ]));
    assert_eq!(said.code, 0, "{}", said.err);
    let host = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
    let mut bodies: Vec<_> = fs::read_dir(host.path())
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    bodies.sort();
    assert_eq!(bodies, ["/page/%2e%2e%2f%2e%2e%2fetc", "/page/1"]);
    for row in said.rows() {
        let saved = fs::read_to_string(row["saved"].as_str().unwrap()).unwrap();
        assert!(row["url"].as_str().unwrap().ends_with(&saved), "{row}");
    }
}

#[test]
fn a_host_that_asks_for_hours_fails_with_its_answer() {
    let server = Server::start(|_, stream| {
        respond(stream, "429 Too Many Requests", "Retry-After: 9000\r\n", "")
    });
    let urls = ["a", "b"].map(|page| server.url(page));
    let said = run(fast().args(["--in-flight", "1"]).args(urls));
    assert_eq!(said.code, 1, "{}", said.err);
    let mut statuses: Vec<_> = (said.rows().iter())
        .map(|row| (row["attempts"].as_u64(), row["status"].as_u64()))
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [(Some(0), None), (Some(1), Some(429))]);
    assert!(said.rows().iter().all(|row| row["saved"].is_null()));
}

/// The line comes every five seconds, and names the reason if nothing can be sent.
#[test]
fn a_plain_line_says_what_is_waited_for() {
    let server = Server::start({
        let asked = std::sync::atomic::AtomicU32::new(0);
        move |_, stream| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => respond(stream, "429 Too Many Requests", "Retry-After: 7\r\n", ""),
            _ => respond(stream, "200 OK", "", "page"),
        }
    });
    let said = run(fast().arg(server.url("a")));
    assert_eq!(said.code, 0, "{}", said.err);
    let told = said.lines("; most for 127.");
    assert!(told[0].contains("hold, Retry-After (429"), "{}", said.err);
}

#[test]
fn an_operators_numbers_bound_a_site_and_the_run() {
    const PAGES: u32 = 11;
    let server = Server::bad();
    let pages = (0..PAGES).map(|i| server.url(&format!("page/{i}")));
    let urls: Vec<_> = pages.collect();
    for flag in [["--site-rps", "127.0.0.1:5"], ["--max-rps", "5"]] {
        let before = server.times().len();
        let said = run(fast().args(flag).args(&urls));
        assert_eq!(said.code, 0, "{}", said.err);
        let times = server.times();
        let burst = if flag[0] == "--site-rps" { 5 } else { 1 };
        let took = times.last().unwrap().1 - times[before].1;
        let least = (PAGES - burst) * Duration::from_millis(200);
        // The first request may reach the log of a busy machine late.
        let late = Duration::from_millis(500);
        assert!(took + late >= least, "{flag:?}: {took:?}");
    }
}

#[test]
fn proxies_take_turns_and_may_have_limits_of_their_own() {
    // A request to a proxy contains the whole URL.
    let answer = |_: &str, stream: &mut std::net::TcpStream| respond(stream, "200 OK", "", "page");
    let proxies = [Server::start(answer), Server::start(answer)];
    for key in ["host", "egress-host"] {
        let mut command = fast();
        command.args(["--key", key]);
        for proxy in &proxies {
            command.args(["--proxy", &proxy.url("")]);
        }
        let said = run(command.args((0..6).map(|i| format!("http://far.invalid/{key}/{i}"))));
        assert_eq!(said.code, 0, "{}", said.err);
        for proxy in &proxies {
            let asked = proxy.counts().into_keys();
            let ours = asked
                .filter(|url| url.contains(&format!("/{key}/")))
                .count();
            assert_eq!(ours, 3, "{key}");
        }
    }
}

#[test]
fn a_block_page_is_told_and_not_tried_again() {
    let server = Server::start(|_, stream| {
        respond(stream, "403 Forbidden", "cf-mitigated: challenge\r\n", "")
    });
    let flags = ["--summary", "json", "--output", "/dev/null"];
    let said = run(fast().args(flags).arg(server.url("a")));
    assert_eq!(said.code, 1);
    let summary = &said.rows()[0];
    let counts = [&summary["refused"], &summary["blocked"]];
    assert_eq!(counts, [0, 1], "a block page is no limit: {summary}");
    assert_eq!(summary["statuses"], serde_json::json!({"403": 1}));
    assert_eq!(summary["hosts"][0]["statuses"], summary["statuses"]);
    assert_eq!(said.lines("shows a block page").len(), 1, "{}", said.err);
    assert_eq!(server.counts().into_values().sum::<usize>(), 1);
}

#[test]
fn the_job_scrapers_retries_can_be_chosen() {
    let server = Server::start(|_, stream| respond(stream, "429 Too Many Requests", "", ""));
    let said = run(fast().args(["--retry", "job-scraper", &server.url("page/1")]));
    let row = &said.rows()[0];
    assert_eq!((said.code, &row["attempts"]), (1, &2.into()), "{row}");
    assert!(row["error"].as_str().unwrap().contains("429"), "{row}");
    // The wait is 300 ms, plus 300 ms after a 429.
    let times = server.times();
    assert!(times[1].1 - times[0].1 >= Duration::from_millis(600));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("politely.toml");
    fs::write(&file, "retry = \"job-scraper\"\nretries = 0\n").unwrap();
    let said = run(fast().arg("--config").arg(&file).arg(server.url("page/2")));
    assert_eq!(said.rows()[0]["attempts"], 1);
}

#[test]
fn the_library_tells_of_its_decisions_when_asked() {
    let server = Server::start(|_, stream| respond(stream, "429 Too Many Requests", "", ""));
    let said = |command: &mut std::process::Command| {
        run(command.args(["--retry", "job-scraper", "--retries", "0", &server.url("a")]))
    };
    let key = server.url("").replace("http://", "").replace('/', "");
    let event = format!("politely::permit: event key=\"{key}\" signal=RateLimited status=429");
    let event = event.as_str();
    assert_eq!(said(&mut fast()).lines("event").len(), 0);
    let told = said(fast().arg("-v"));
    assert_eq!(told.lines(event).len(), 1, "{}", told.err);
    let told = said(fast().env("POLITELY_LOG", "politely::permit=debug"));
    assert_eq!(told.lines(event).len(), 1, "{}", told.err);
    let told = said(fast().env("POLITELY_LOG", "politely=info").arg("-v"));
    assert_eq!(told.lines(event).len(), 0, "{}", told.err);
}
