//! Tests of pages that sitemaps, feeds and robots.txt name.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::misbehaving::{Server, Then, respond};
use crate::run::{Said, fast, obedient, paths_of_run, politely, run};

/// Answers with bytes. `HOST` in a text is the server's address.
fn answer(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<Then> {
    let host = stream.local_addr()?.to_string();
    let body = match std::str::from_utf8(body) {
        Ok(text) => text.replace("HOST", &host).into_bytes(),
        Err(_) => body.to_vec(),
    };
    let length = body.len();
    stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes())?;
    stream.write_all(&body)?;
    Ok(Then::Keep)
}

/// Starts a server with files. Each other path is a page, except those below `/missing`.
fn site(files: &'static [(&'static str, &'static str)]) -> Server {
    Server::start(move |path, stream| {
        if let Some((_, body)) = files.iter().find(|(name, _)| *name == path) {
            return answer(stream, body.as_bytes());
        }
        if path.starts_with("/missing") || path == "/robots.txt" {
            return respond(stream, "404 Not Found", "", "none");
        }
        answer(stream, b"page")
    })
}

fn urls(paths: &[&str]) -> String {
    let url = |path: &&str| format!("<url><loc>http://HOST/{path}</loc></url>");
    format!(
        "<urlset>{}</urlset>",
        paths.iter().map(url).collect::<String>()
    )
}

fn fetched(said: &Said) -> Vec<String> {
    let errors = said.errors().into_iter();
    errors
        .filter(|(_, error)| error.is_none())
        .map(|(path, _)| path)
        .collect()
}

#[test]
fn the_pages_of_an_index_its_sitemaps_and_a_feed_are_fetched_once() {
    let server = Server::start(|path, stream| match path {
        "/index.xml" => answer(
            stream,
            b"<sitemapindex><sitemap><loc>http://HOST/1.xml.gz</loc></sitemap><sitemap>\
              <loc>/2.txt</loc></sitemap><sitemap><loc>http://HOST/index.xml</loc></sitemap>\
              </sitemapindex>",
        ),
        "/1.xml.gz" => {
            let host = stream.local_addr()?.to_string();
            let text = urls(&["a", "b#part", "b"]).replace("HOST", &host);
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(text.as_bytes())?;
            answer(stream, &packed.finish()?)
        }
        "/2.txt" => answer(stream, b"http://HOST/b\nhttp://HOST/c\n"),
        "/feed" => answer(
            stream,
            b"<rss><channel><item><link>/d</link></item><item><link>/a</link></item>",
        ),
        _ => answer(stream, b"page"),
    });
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    for with_state in [false, true, true] {
        let before = server.times().len();
        let mut command = fast();
        if with_state {
            command.arg("--state").arg(&state);
        }
        command.args([
            "--sitemap",
            &server.url("index.xml"),
            "--sitemap",
            &server.url("feed"),
        ]);
        let said = run(command.arg(server.url("a")));
        assert_eq!(said.code, 0, "{}", said.err);
        let times = server.times();
        let asked: BTreeSet<_> = times[before..]
            .iter()
            .map(|(path, _)| path.as_str())
            .collect();
        if times.len() == before {
            assert!(with_state, "the second run with a state has nothing to do");
            continue;
        }
        let all = [
            "/1.xml.gz",
            "/2.txt",
            "/a",
            "/b",
            "/c",
            "/d",
            "/feed",
            "/index.xml",
        ];
        assert_eq!((asked, times.len() - before), (all.into(), all.len()));
        assert_eq!(
            said.lines("its rest is not read").len(),
            1,
            "the feed is cut: {}",
            said.err
        );
        let rows = said.rows();
        let is_sitemap = |row: &&serde_json::Value| row["request"].is_string();
        assert_eq!((rows.len(), rows.iter().filter(is_sitemap).count()), (8, 4));
    }
}

#[test]
fn a_sitemap_names_pages_of_its_own_host_only_and_a_robots_txt_those_of_its_host() {
    let other = site(&[]);
    let host = other.address.to_string();
    let server = Server::start(move |path, stream| match path {
        "/robots.txt" => {
            let body = format!(
                "Sitemap: http://{host}/of-robots.xml\nUser-agent: *\nDisallow: /private\n\
                 sitemap: /missing.xml"
            );
            answer(stream, body.as_bytes())
        }
        "/missing.xml" => respond(stream, "404 Not Found", "", ""),
        "/mine.xml" => answer(
            stream,
            format!(
                "<urlset><url><loc>http://{host}/x</loc></url><url><loc>/y</loc></url></urlset>"
            )
            .as_bytes(),
        ),
        _ => answer(stream, b"page"),
    });
    let said = run(fast().args(["--sitemap", &server.url("mine.xml")]));
    assert_eq!(
        (said.code, fetched(&said)),
        (0, vec!["mine.xml".into(), "y".into()])
    );
    assert_eq!(
        said.lines("1 URLs of other hosts are left out").len(),
        1,
        "{}",
        said.err
    );

    let first = server.address.to_string();
    let other = Server::start(move |path, stream| match path {
        "/robots.txt" => respond(stream, "404 Not Found", "", ""),
        _ => answer(
            stream,
            format!("http://{first}/in-robots\nhttp://{first}/private\nhttp://HOST/own\nftp://x/")
                .as_bytes(),
        ),
    });
    let page = other.url("of-robots.xml");
    let third = Server::start(move |path, stream| match path {
        "/robots.txt" => answer(stream, format!("Sitemap: {page}").as_bytes()),
        _ => answer(stream, b"page"),
    });
    let said = run(obedient().args(["--sitemaps", &third.url("start")]));
    let mut asked: Vec<_> = other.counts().into_keys().collect();
    asked.sort();
    assert_eq!(
        asked,
        ["/of-robots.xml", "/own", "/robots.txt"],
        "{}",
        said.err
    );
    assert_eq!(said.lines("2 URLs of other hosts").len(), 1, "{}", said.err);
    assert_eq!(
        said.lines("1 addresses are not URLs").len(),
        1,
        "{}",
        said.err
    );
}

#[test]
fn the_sitemaps_of_a_robots_txt_are_read_also_if_an_earlier_run_kept_the_file() {
    let server = site(&[
        (
            "/robots.txt",
            "User-agent: *\nDisallow: /private\nSitemap: http://HOST/map.xml\n",
        ),
        ("/map.xml", "http://HOST/a\nhttp://HOST/private\n"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let fetch = |flags: &[&str]| {
        let mut command = obedient();
        command
            .arg("--state")
            .arg(dir.path().join("state"))
            .args(flags);
        run(command.arg(server.url("start")))
    };
    assert_eq!(fetched(&fetch(&[])), ["start"]);
    let again = server.url("again");
    let said = fetch(&["--sitemaps", &again]);
    assert_eq!(fetched(&said), ["a", "again", "map.xml"], "{}", said.err);
    assert_eq!(
        said.lines("1 URLs are left out by robots.txt").len(),
        1,
        "{}",
        said.err
    );
    let last = server.url("last");
    assert_eq!(fetched(&fetch(&["--sitemaps", &last])), ["last"]);
    assert_eq!(server.counts()["/robots.txt"], 2);
}

#[test]
fn patterns_and_the_number_of_pages_hold_for_what_a_sitemap_names() {
    let server = site(&[(
        "/map.xml",
        "http://HOST/a1\nhttp://HOST/b1\nhttp://HOST/a2\nhttp://HOST/a3",
    )]);
    let fetch = |flags: &[&str]| {
        let said = run(fast()
            .args(["--sitemap", &server.url("map.xml")])
            .args(flags));
        assert_eq!(said.code, 0, "{}", said.err);
        said
    };
    let said = fetch(&["--include", "/a", "--exclude", "2$"]);
    assert_eq!(fetched(&said), ["a1", "a3", "map.xml"]);
    assert_eq!(
        said.lines("2 URLs are left out by --include").len(),
        1,
        "{}",
        said.err
    );
    let said = fetch(&["--max-pages", "2"]);
    assert_eq!(fetched(&said), ["a1", "b1", "map.xml"]);
    assert_eq!(
        said.lines("--max-pages: 2 pages are taken").len(),
        1,
        "{}",
        said.err
    );
}

#[test]
fn a_sitemap_that_cannot_be_read_is_a_failed_url_and_is_not_saved() {
    let server = site(&[
        ("/page.html", "<!DOCTYPE html><html><a href=/x>"),
        ("/good.txt", "http://HOST/a"),
        ("/broken.xml", "<urlset><url><loc>http://HOST/x"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let mut command = fast();
    for path in ["page.html", "good.txt", "broken.xml", "missing"] {
        command.args(["--sitemap", &server.url(path)]);
    }
    let said = run(command.arg("--save").arg(dir.path()));
    let errors = said.errors();
    let error = |path: &str| errors[path].clone().unwrap_or_default();
    assert_eq!(said.code, 1);
    assert_eq!(error("page.html"), "not a sitemap: its root is `html`");
    assert!(
        error("broken.xml").starts_with("damaged sitemap: "),
        "{errors:?}"
    );
    assert_eq!(
        (error("missing").as_str(), error("a").as_str()),
        ("404 Not Found", "")
    );
    let saved = std::fs::read_dir(dir.path()).unwrap();
    let files: usize = saved
        .map(|host| std::fs::read_dir(host.unwrap().path()).unwrap().count())
        .sum();
    assert_eq!(files, 1);
}

#[test]
fn settings_that_a_sitemap_cannot_honour_are_refused() {
    for (flags, why) in [
        (&["--sitemap", "ftp://a/"][..], "neither http nor https"),
        (
            &["--sitemap", "http://a/", "--data", "x"],
            "cannot be combined with --data",
        ),
        (
            &["--sitemaps", "--no-robots", "http://a/"],
            "--sitemaps reads robots.txt",
        ),
        (
            &["--sitemaps", "--profile", "api", "http://a/"],
            "--sitemaps reads robots.txt",
        ),
    ] {
        let said = run(politely().arg("fetch").args(flags));
        said.demand_one_line(2);
        assert!(said.err.contains(why), "{}", said.err);
    }
}

/// A sitemap is read again, since new pages come by it. A page is asked whether it has changed.
#[test]
fn a_sitemap_is_read_again_with_the_pages_that_it_names_now() {
    let reads = AtomicUsize::new(0);
    let server = Server::start(move |path, stream| {
        if path == "/map.xml" {
            let paths = ["a", "b"];
            let read = reads.fetch_add(1, Ordering::Relaxed);
            return answer(stream, urls(&paths[..=read.min(1)]).as_bytes());
        }
        respond(stream, "200 OK", "ETag: \"1\"\r\n", "page")
    });
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results.jsonl");
    let command = || {
        let mut command = fast();
        command.arg("--state").arg(dir.path().join("state"));
        command.arg("--output").arg(&results);
        command
    };
    let first = run(command().args(["--sitemap", &server.url("map.xml")]));
    assert_eq!(first.code, 0, "{}", first.err);
    let again = run(command().arg("--again"));
    assert_eq!(again.code, 0, "{}", again.err);
    let paths = ["map.xml", "a", "b"].map(str::to_owned);
    assert_eq!(paths_of_run(&results, 2), BTreeSet::from(paths));
}
