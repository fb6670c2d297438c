//! Kills `fetch` with SIGKILL and starts it again. Every page is fetched in the end, only pages
//! that were in flight are fetched twice, and no output line is torn.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::misbehaving::{Server, respond};
use crate::run::{fast, killed_at, lines_of, rows_of, run};

const PAGES: usize = 400;
const IN_FLIGHT: usize = 8;

fn slow_server() -> Server {
    Server::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(4));
        respond(stream, "200 OK", "", "page")
    })
}

fn resumable(dir: &Path) -> Command {
    let mut command = fast();
    let in_flight = IN_FLIGHT.to_string();
    command
        .args(["--concurrency", &in_flight, "--in-flight", "100", "--state"])
        .arg(dir.join("state"));
    command.arg("--output").arg(dir.join("results.jsonl"));
    command
}

#[test]
fn killed_three_times_and_every_page_ends_fetched() {
    let servers = [slow_server(), slow_server()];
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.txt");
    let urls: Vec<_> = (0..PAGES)
        .map(|i| servers[i % 2].url(&i.to_string()))
        .collect();
    fs::write(&list, urls.join("\n")).unwrap();
    let results = dir.path().join("results.jsonl");
    for lines in [50, 150, 300] {
        killed_at(lines, &results, resumable(dir.path()).arg("-i").arg(&list));
    }
    let said = run(resumable(dir.path()).arg("-i").arg(&list));
    assert_eq!(said.code, 0, "{}", said.err);

    let rows = rows_of(&results);
    let found: BTreeSet<_> = rows
        .iter()
        .map(|row| row["url"].as_str().unwrap())
        .collect();
    assert_eq!(
        (rows.len(), found.len()),
        (PAGES, PAGES),
        "one line per URL"
    );
    assert!(rows.iter().all(|row| row["status"] == 200));
    let served: usize = servers
        .iter()
        .flat_map(|server| server.counts().into_values())
        .sum();
    assert!(
        servers
            .iter()
            .map(|server| server.counts().len())
            .sum::<usize>()
            == PAGES,
        "every page was served"
    );
    assert!(
        served <= PAGES + 3 * IN_FLIGHT,
        "{served} served: more than those in flight came twice"
    );
}

#[test]
fn a_finished_run_fetches_nothing_again() {
    let server = slow_server();
    let dir = tempfile::tempdir().unwrap();
    let urls = [server.url("a"), server.url("b")];
    assert_eq!(run(resumable(dir.path()).args(&urls)).code, 0);
    assert_eq!(run(resumable(dir.path()).args(&urls)).code, 0);
    assert_eq!(
        run(&mut resumable(dir.path())).code,
        0,
        "no input is needed either"
    );
    assert_eq!(
        (
            server.counts().values().sum::<usize>(),
            lines_of(&dir.path().join("results.jsonl"))
        ),
        (2, 2)
    );
}

#[test]
fn a_list_that_grew_and_another_list_add_their_new_pages() {
    let server = slow_server();
    let dir = tempfile::tempdir().unwrap();
    for pages in [&["a", "b"][..], &["a", "b", "c"], &["d", "c"], &["a"]] {
        let urls = pages.iter().map(|page| server.url(page));
        let said = run(resumable(dir.path()).args(urls));
        assert_eq!(said.code, 0, "{}", said.err);
    }
    assert_eq!(server.counts().len(), 4);
    assert_eq!(server.counts().values().sum::<usize>(), 4);
    assert_eq!(lines_of(&dir.path().join("results.jsonl")), 4);
}

/// The lines that are no URL count as failed pages, and each has one result line.
#[test]
fn a_line_that_is_no_url_is_reported_once_per_run() {
    let server = slow_server();
    let dir = tempfile::tempdir().unwrap();
    let go = || run(resumable(dir.path()).args([&server.url("a"), "nonsense"]));
    for reported in [1, 0] {
        let said = go();
        assert_eq!(
            said.lines("must begin with http").len(),
            reported,
            "{}",
            said.err
        );
        assert_eq!(said.code, 1, "{}", said.err);
    }
    assert_eq!(run(&mut resumable(dir.path())).code, 1);
    assert_eq!(lines_of(&dir.path().join("results.jsonl")), 2);
}

#[test]
fn a_page_that_failed_is_not_tried_again_and_stays_a_failure() {
    let server = Server::start(|_, stream| respond(stream, "404 Not Found", "", "none"));
    let dir = tempfile::tempdir().unwrap();
    let said = run(resumable(dir.path()).arg(server.url("a")));
    assert_eq!(said.code, 1, "{}", said.err);
    let said = run(&mut resumable(dir.path()));
    assert_eq!(
        said.lines("0 fetched and 1 failed before").len(),
        1,
        "{}",
        said.err
    );
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(server.counts().values().sum::<usize>(), 1);
}

#[test]
fn a_url_that_is_given_twice_is_fetched_once() {
    let server = slow_server();
    let said = run(fast().args([server.url("a"), server.url("a#top"), server.url("b")]));
    assert_eq!((said.code, said.rows().len()), (0, 2), "{}", said.err);
    assert_eq!(
        said.lines("1 of the URLs were given before").len(),
        1,
        "{}",
        said.err
    );
    assert_eq!(server.counts().values().sum::<usize>(), 2);
}

#[test]
fn the_state_folder_is_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let at = |url: &str| {
        let mut command = fast();
        command.arg("--state").arg(&state).arg(url);
        command
    };
    let server = slow_server();
    assert_eq!(run(&mut at(&server.url("a"))).code, 0);
    for kept in ["frontier/lock", "sent.log", "politely.redb"] {
        let kept = state.join(kept);
        let before = fs::read(&kept).unwrap();
        let said = run(at(&server.url("a")).arg("--output").arg(&kept));
        let told = said.lines("is a file of the state folder");
        assert_eq!((said.code, told.len()), (2, 1), "{}", said.err);
        assert!(kept.ends_with("politely.redb") || fs::read(&kept).unwrap() == before);
    }
    assert_eq!(run(&mut at(&server.url("a"))).code, 0, "nothing is lost");
}

#[test]
fn an_interrupted_input_goes_on_where_it_was() {
    let server = slow_server();
    let dir = tempfile::tempdir().unwrap();
    let list = |n| {
        (0..n)
            .map(|i| server.url(&format!("{i}\n")))
            .collect::<String>()
    };
    let mut child = resumable(dir.path())
        .args(["-i", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // This writes half of the input, with half a line at its end, and keeps the pipe open.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(list(20).as_bytes()).unwrap();
    stdin.write_all(server.url("hal").as_bytes()).unwrap();
    stdin.flush().unwrap();
    let results = dir.path().join("results.jsonl");
    while lines_of(&results) < 20 {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let said = run(&mut resumable(dir.path()));
    assert_eq!(
        said.lines("the input was cut when the last run ended")
            .len(),
        1,
        "{}",
        said.err
    );

    fs::write(dir.path().join("list.txt"), list(40)).unwrap();
    let said = run(resumable(dir.path())
        .arg("-i")
        .arg(dir.path().join("list.txt")));
    assert_eq!(said.code, 0, "{}", said.err);
    let found: BTreeSet<_> = rows_of(&results)
        .iter()
        .map(|row| row["url"].to_string())
        .collect();
    assert_eq!((lines_of(&results), found.len()), (40, 40));
    assert!(
        !server.counts().contains_key("/hal"),
        "half a line is no URL"
    );
}

#[test]
fn what_was_learned_survives_a_kill() {
    // The server refuses the first request with a long hold, and would serve later ones.
    let server = Server::start({
        let asked = std::sync::atomic::AtomicU32::new(0);
        move |_, stream| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => respond(stream, "429 Too Many Requests", "Retry-After: 6\r\n", ""),
            _ => respond(stream, "200 OK", "", "page"),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let mut child = resumable(dir.path())
        .arg(server.url("a"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while server.counts().is_empty() {
        std::thread::yield_now();
    }
    // Learned state reaches the disk within a second. The hold lasts six seconds, so it still
    // exists when the process is killed.
    std::thread::sleep(Duration::from_millis(2_500));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(run(&mut resumable(dir.path())).code, 0);
    let times = server.times();
    assert_eq!(times.len(), 2);
    let gap = times[1].1 - times[0].1;
    assert!(
        gap >= Duration::from_secs(6),
        "the hold was kept over the kill: {gap:?}"
    );
}

#[test]
fn an_interrupt_drains_and_says_what_is_left() {
    drains("-INT");
}

/// SIGTERM is the signal with which service managers and containers stop processes.
#[test]
fn so_does_a_request_to_end() {
    drains("-TERM");
}

fn drains(signal: &str) {
    let server = Server::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(200));
        respond(stream, "200 OK", "", "page")
    });
    let dir = tempfile::tempdir().unwrap();
    let urls = (0..50).map(|i| server.url(&i.to_string()));
    let mut child = resumable(dir.path())
        .args(urls)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.counts().len() < 4 {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    assert!(
        Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("interrupted, ") && err.contains(" left"),
        "{err}"
    );
    let asked = server.counts().len();
    assert_eq!(
        lines_of(&dir.path().join("results.jsonl")),
        asked,
        "what was in flight is finished"
    );
    let said = run(&mut resumable(dir.path()));
    assert_eq!(
        (said.code, server.counts().values().sum::<usize>()),
        (0, 50),
        "{}",
        said.err
    );
}
