//! Tests of the frontier with the built binary: the commands, and `kill -9` of the coordinator.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use politely::core::Rng;
use politely_testkit::process::{Server, free_place};
use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::frontier_crawl::{self, Crawl, call, kills};
use crate::run::{Said, politely, rows, run};

/// The kills of the coordinator in one run, unless a variable sets them.
const KILLS: u64 = 12;
const WORKERS: u64 = 3;
/// The lease of a unit, in milliseconds.
const LEASE_MS: u64 = 400;

fn serve(folder: &Path, address: SocketAddr) -> Server {
    let path = |name: &str| folder.join(name).display().to_string();
    let args = [
        format!("--bind={address}"),
        format!("--state={}", path("state")),
        format!("--frontier={}", path("frontier")),
    ];
    frontier_crawl::serve(folder, &args)
}

fn frontier(address: SocketAddr, args: &[&str]) -> Said {
    let url = format!("http://{address}");
    run(politely()
        .arg("frontier")
        .args(args)
        .args(["--coordinator", &url]))
}

#[test]
fn a_crawl_is_imported_counted_and_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_place();
    let _server = serve(folder.path(), address);
    let list = folder.path().join("urls.txt");
    let line = json!({"url": "https://b.com/1", "priority": 9, "metadata": {"depth": 1}});
    let text = format!("# two hosts\nhttps://a.com/1\n\n{line}\nb.com/2\nhttps://a.com/1\n");
    std::fs::write(&list, text).expect("the list is written");
    let said = frontier(address, &["import", "news", list.to_str().expect("UTF-8")]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(
        said.err
            .contains("2 pages are new, 1 known, 0 beyond a bound, 1 invalid"),
        "{}",
        said.err
    );
    assert_eq!(said.lines("line 5: not a URL").len(), 1, "{}", said.err);

    let said = frontier(address, &["stats"]);
    assert!(
        said.out.starts_with("crawl  domains  pages  ready"),
        "{}",
        said.out
    );
    let said = frontier(address, &["stats", "--json"]);
    let row = &said.rows()[0];
    assert_eq!(
        (&row["crawl"], &row["pages"]),
        (&json!("news"), &json!(2)),
        "{row}"
    );

    let mut http = Http::new(address);
    let unit = take(&mut http, "news").expect("a unit")["units"][0].take();
    let page = &unit["pages"][0]["url"];
    assert_eq!(
        page, "https://b.com/1",
        "the page of the highest priority is first"
    );
    let words = json!({"client": "w", "units": [
        {"token": unit["token"], "pages": [{"url": page, "then": "finish"}]},
    ]});
    call(&mut http, "frontier/news/done", &words).expect("an answer");

    let copy = folder.path().join("copy.jsonl");
    let copy = copy.to_str().expect("UTF-8");
    let said = frontier(address, &["export", "news", "--output", copy]);
    assert_eq!(said.code, 0, "{}", said.err);
    let mut pages = rows(&std::fs::read_to_string(copy).expect("the copy"));
    pages.sort_by_key(|page| page["url"].to_string());
    assert_eq!(pages.len(), 2);
    assert_eq!(pages[1]["finished"], true);
    assert_eq!(pages[1]["metadata"]["depth"], 1);
    let said = frontier(address, &["import", "copy", copy]);
    assert_eq!(said.code, 0, "{}", said.err);
    let unit = take(&mut http, "copy").expect("a unit")["units"][0].take();
    assert_eq!(
        unit["pages"][0]["url"], "https://a.com/1",
        "a finished page stays finished"
    );

    for (args, word) in [
        (&["export", "nowhere"][..], "no crawl is named \"nowhere\""),
        (&["import", "a b"], "is not the name of a crawl"),
        (
            &["import", "news", "/nowhere/list"],
            "/nowhere/list: no such file",
        ),
    ] {
        let said = run(politely()
            .arg("frontier")
            .args(args)
            .args(["--coordinator", &format!("http://{address}")])
            .stdin(std::fs::File::open(&list).expect("the list")));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(
            said.err.contains(word) && said.err.lines().count() == 1,
            "{args:?}: {}",
            said.err
        );
    }
}

#[test]
fn a_frontier_that_cannot_be_served_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let free = "--bind=127.0.0.1:0";
    for (args, word) in [
        (&["--memory", "--frontier", file][..], "file"),
        (
            &["--memory", "--frontier-spacing", "fixed:1s"],
            "--frontier",
        ),
        (
            &["--memory", "--frontier", "x", "--frontier-spacing", "1s"],
            "must be fixed:TIME",
        ),
        (
            &[
                "--memory",
                "--frontier",
                "x",
                "--frontier-spacing",
                "mean:-1s",
            ],
            "-1",
        ),
    ] {
        let said = run(politely()
            .args(["serve", free])
            .args(args)
            .current_dir(folder.path()));
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(said.err.contains(word), "{args:?}: {}", said.err);
    }
}

fn take(http: &mut Http, crawl: &str) -> Option<Value> {
    let body = json!({"client": "w", "wait_ms": 10_000});
    call(http, &format!("frontier/{crawl}/take"), &body)
}

#[test]
fn no_acknowledged_page_is_lost_or_done_twice_when_the_coordinator_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let crawl = Crawl::new(1, LEASE_MS);
    let start = || Some(serve(folder.path(), crawl.addresses[0]));
    let mut server = start();
    crawl.import(folder.path());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let crawl = &crawl;
            scope.spawn(move || crawl.work(worker));
        }
        let mut rng = Rng::new(5);
        for _ in 0..kills(KILLS) {
            let until = crawl.exchanges.load(Ordering::Relaxed) + 5 + rng.next_u64() % 40;
            crawl.wait(|| crawl.exchanges.load(Ordering::Relaxed) >= until);
            // A server that is dropped is killed with SIGKILL.
            server.take();
            crawl.grow();
            server = start();
        }
        crawl.wait_for_the_end();
    });
    crawl.check();
    drop(server);
}
