//! Tests of whole sites, by the links of their pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::misbehaving::{Server, respond};
use crate::run::{fast, killed_at, obedient, paths_of_run, politely, rows_of, run};

const HTML: &str = "Content-Type: text/html; charset=utf-8\r\n";

/// Returns the paths that were requested, without robots.txt.
fn asked(server: &Server) -> Vec<String> {
    let counts = server.counts();
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    counts
        .into_keys()
        .filter(|path| path != "/robots.txt")
        .collect()
}

#[test]
fn links_are_followed_as_far_as_pages_headers_and_robots_txt_let() {
    let other = Server::bad();
    let foreign = other.url("page/1");
    let server = Server::start(move |path, stream| {
        let (headers, body) = match path {
            "/robots.txt" => ("", "User-agent: *\nDisallow: /private".to_owned()),
            "/docs/" => (
                "",
                format!(
                    "<base href=/docs/sub/><a href=a>1</a> <a href='b?x=1&amp;y=2#part'>2</a>
                     <a rel=nofollow href=no>3</a> <a href=/private/c>4</a> <a href={foreign}>5</a>
                     <area href=../meta><link rel=next href=/docs/header>"
                ),
            ),
            "/docs/sub/a" => (
                "",
                "<a href=/docs/>up</a><a href=/docs/view?sid=1>".to_owned(),
            ),
            "/docs/meta" => (
                "",
                "<meta name=robots content=nofollow><a href=/docs/no>".to_owned(),
            ),
            "/docs/header" => ("X-Robots-Tag: none\r\n", "<a href=/docs/no>".to_owned()),
            "/docs/view?sid=1" => (
                "",
                "<link rel=canonical href=view><a href=/docs/no>".to_owned(),
            ),
            "/docs/view" => ("", "<a href=/top>".to_owned()),
            _ => ("", "text".to_owned()),
        };
        respond(stream, "200 OK", &format!("{HTML}{headers}"), &body)
    });
    let start = server.url("docs/");
    let said = run(obedient().args(["--follow", "host", &start]));
    assert_eq!(said.code, 0, "{}", said.err);
    let in_docs = [
        "/docs/",
        "/docs/header",
        "/docs/meta",
        "/docs/sub/a",
        "/docs/sub/b?x=1&y=2",
        "/docs/view",
        "/docs/view?sid=1",
    ];
    let mut all = in_docs.to_vec();
    all.push("/top");
    assert_eq!(asked(&server), all);
    assert!(other.counts().is_empty());
    assert_eq!(
        said.lines("1 URLs are left out by robots.txt").len(),
        1,
        "{}",
        said.err
    );
    let again = run(obedient().args(["--follow", "prefix", &start]));
    assert_eq!(again.rows().len(), in_docs.len(), "{}", again.err);
}

#[test]
fn a_page_of_another_kind_has_no_links_and_one_in_utf_16_has() {
    let server = Server::start(|path, stream| match path {
        "/" => {
            let text = "\u{feff}<a href=/wide>é</a>\0<a href=/text>";
            let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let head = format!(
                "HTTP/1.1 200 OK\r\n{HTML}Content-Length: {}\r\n\r\n",
                bytes.len()
            );
            std::io::Write::write_all(stream, &[head.as_bytes(), &bytes].concat())?;
            Ok(crate::misbehaving::Then::Keep)
        }
        "/text" => respond(
            stream,
            "200 OK",
            "Content-Type: text/plain\r\n",
            "<a href=/no>",
        ),
        "/wide" => respond(stream, "404 Not Found", HTML, "<a href=/no>"),
        _ => respond(stream, "200 OK", HTML, "page"),
    });
    let said = run(fast().args(["--follow", "host", &server.url("")]));
    assert_eq!(
        (asked(&server), said.code),
        (vec!["/".into(), "/text".into(), "/wide".into()], 1)
    );
}

#[test]
fn a_site_without_end_is_left_at_a_depth_and_at_a_number_of_pages() {
    let next = AtomicUsize::new(0);
    let server = Server::start(move |path, stream| {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let body = format!(
            "<a href='x/'>broken</a> <a href='/calendar?day={n}'>next</a>
             <a href='/page;jsessionid={n:032X}?q'>session</a> <a href='/{}'>long</a>",
            "y".repeat(3_000)
        );
        match path {
            "/robots.txt" => respond(stream, "404 Not Found", "", ""),
            _ => respond(stream, "200 OK", HTML, &body),
        }
    });
    let fetch = |flags: &[&str]| {
        let before = server.times().len();
        let mut command = fast();
        command.args(["--follow", "host"]).args(flags);
        let said = run(command.arg(server.url("")));
        assert_eq!(said.code, 0, "{}", said.err);
        (server.times()[before..].to_vec(), said)
    };
    let (times, _) = fetch(&["--depth", "5"]);
    let paths: BTreeSet<_> = times.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths.len(), times.len());
    assert!(
        !paths.contains("/x/x/x/x/") && paths.contains("/x/x/x/"),
        "{paths:?}"
    );
    assert_eq!(
        paths
            .iter()
            .filter(|path| path.starts_with("/page"))
            .count(),
        1,
        "{paths:?}"
    );
    let (times, said) = fetch(&["--pages-per-host", "7"]);
    assert_eq!(times.len(), 7);
    assert_eq!(
        said.lines("are left out by --pages-per-host").len(),
        1,
        "{}",
        said.err
    );
    let (times, said) = fetch(&["--max-pages", "4"]);
    assert_eq!(
        (times.len(), said.lines("--max-pages: 4 pages").len()),
        (4, 1),
        "{}",
        said.err
    );
}

/// Returns the pages of a generated site by their paths. Each is below its folder's index, which
/// links to some of them; those link on.
fn generated() -> BTreeMap<String, String> {
    const PAGES: usize = 360;
    let path = |n: usize| match n {
        0 => "/docs/".to_owned(),
        _ => format!("/docs/{}/{}/p{n}.html", n % 7, n % 5),
    };
    let mut site = BTreeMap::new();
    for n in 0..PAGES {
        let mut body = format!("<!DOCTYPE html><title>Page {n}</title>\n");
        // Each page from 1 on is linked by a page before it, and by others.
        for to in [2 * n + 1, 2 * n + 2, n * 31 % PAGES, n / 2] {
            if to >= PAGES {
                continue;
            }
            let href = match to % 4 {
                0 => path(to),
                1 => format!("../../../{}", path(to).trim_start_matches('/')),
                2 => format!("{}#part{n}", path(to)),
                _ => format!("./././../../..{}", path(to)),
            };
            // The start page is two folders higher, so its links are absolute.
            let href = if n == 0 { path(to) } else { href };
            writeln!(body, "<p>Text {n} <a class=x href=\"{href}\">to {to}</a>").unwrap();
        }
        // Texts without a word of their own would look like a refusal.
        let letter = |digit: u8| char::from(digit - b'0' + b'a');
        let word: String = n.to_string().bytes().map(letter).collect();
        body.push_str(&format!("Lorem {word}. ").repeat(1 + n % 50));
        site.insert(path(n), body);
    }
    site.insert("/unlinked".to_owned(), "nobody links here".to_owned());
    site
}

#[test]
fn a_mirror_that_is_killed_has_every_reachable_page_once_and_byte_for_byte() {
    const IN_FLIGHT: usize = 8;
    let site = generated();
    let pages = site.clone();
    let server = Server::start(move |path, stream| {
        std::thread::sleep(Duration::from_millis(3));
        match pages.get(path) {
            Some(body) => respond(stream, "200 OK", HTML, body),
            None => respond(stream, "404 Not Found", "", ""),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.jsonl");
    let mirror = || {
        let mut command = fast();
        command.args(["--follow", "prefix", "--in-flight", "100", "--concurrency"]);
        command
            .arg(IN_FLIGHT.to_string())
            .arg("--state")
            .arg(dir.path().join("state"));
        command
            .arg("--save")
            .arg(dir.path().join("pages"))
            .arg("--output")
            .arg(&results);
        command.arg(server.url("docs/"));
        command
    };
    let kills = [1, 40, 90, 200, 300];
    for lines in kills {
        killed_at(lines, &results, &mut mirror());
    }
    let said = run(&mut mirror());
    assert_eq!(said.code, 0, "{}", said.err);
    let rows = rows_of(&results);
    let saved: BTreeMap<String, String> = rows
        .iter()
        .map(|row| {
            let path = row["url"].as_str().unwrap().splitn(4, '/').nth(3).unwrap();
            let saved = row["saved"].as_str().unwrap();
            (format!("/{path}"), fs::read_to_string(saved).unwrap())
        })
        .collect();
    assert_eq!(rows.len(), saved.len(), "one line per page");
    let reachable = site
        .into_iter()
        .filter(|(path, _)| path != "/unlinked")
        .collect();
    assert_eq!(saved, reachable);
    let served: usize = server.counts().values().sum();
    assert!(
        served <= saved.len() + kills.len() * IN_FLIGHT,
        "{served} served"
    );
}

#[test]
fn settings_of_links_that_have_no_effect_are_refused() {
    for (flags, why) in [
        (
            &["--depth", "3"][..],
            "--depth has an effect only with --follow",
        ),
        (
            &["--pages-per-host", "3"],
            "--pages-per-host has an effect only with",
        ),
        (
            &["--follow", "host", "--depth", "0"],
            "--depth 0: must be between",
        ),
        (
            &["--follow", "host", "--method", "PUT"],
            "cannot be combined with --method",
        ),
    ] {
        let said = run(politely()
            .arg("fetch")
            .args(flags)
            .arg("http://127.0.0.1:1/"));
        said.demand_one_line(2);
        assert!(said.err.contains(why), "{}", said.err);
    }
}

/// The first page has not changed, and a page that it names has a new link.
#[test]
fn a_site_is_fetched_again_from_its_first_page_on() {
    let is_changed = Arc::new(AtomicBool::new(false));
    let changed = Arc::clone(&is_changed);
    let server = Server::start(move |path, stream| {
        let body = match path {
            "/" => "<a href=a>",
            "/a" if changed.load(Ordering::Relaxed) => "<a href=b><a href=c>",
            "/a" => "<a href=b>",
            _ => "no links",
        };
        let headers = format!("{HTML}ETag: \"1\"\r\n");
        respond(stream, "200 OK", &headers, body)
    });
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.jsonl");
    let command = || {
        let mut command = fast();
        command.args(["--follow", "host", "--state"]);
        command.arg(dir.path().join("state"));
        command.arg("--output").arg(&results).arg(server.url(""));
        command
    };
    assert_eq!(run(&mut command()).code, 0);
    is_changed.store(true, Ordering::Relaxed);
    let said = run(command().arg("--again"));
    assert_eq!(said.code, 0, "{}", said.err);
    let paths = ["", "a", "b", "c"].map(str::to_owned);
    assert_eq!(paths_of_run(&results, 2), BTreeSet::from(paths));
}
