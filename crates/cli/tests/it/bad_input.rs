//! One clear line each, and the rest of the run goes on.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::misbehaving::Server;
use crate::run::{fast, politely, rows_of, run};

#[test]
fn a_malformed_url_in_line_40012_is_told_with_its_place() {
    let server = Server::bad();
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.txt");
    let mut text = String::new();
    for line in 1..=40_020 {
        match line {
            40_012 => text.push_str("http://exa mple/\n"),
            _ if line % 1000 == 0 => {
                writeln!(text, "{}", server.url(&format!("page/{line}"))).unwrap();
            }
            _ => text.push_str("# nothing\n"),
        }
    }
    fs::write(&list, text).unwrap();
    let said = run(fast().arg("-i").arg(&list));
    let place = format!("{}:40012: ", list.display());
    assert_eq!(said.lines(&place).len(), 1, "{}", said.err);
    assert_eq!(said.code, 1);
    assert_eq!(
        said.rows()
            .iter()
            .filter(|row| row["status"] == 200)
            .count(),
        40
    );
    assert_eq!(
        said.rows().len(),
        41,
        "the malformed line has its result, too"
    );
}

#[test]
fn bad_site_rates_are_told_piece_by_piece() {
    let said = run(politely().args(["fetch", "--site-rps", "a:,b:-1", "http://127.0.0.1:1/"]));
    assert_eq!(said.code, 2);
    assert_eq!(
        (said.lines("`a:`").len(), said.lines("`b:-1`").len()),
        (1, 1),
        "{}",
        said.err
    );
}

#[test]
fn a_store_that_does_not_let_us_begin_is_told_with_what_to_do() {
    let said = run(politely().args([
        "fetch",
        "--store",
        "redis://127.0.0.1:1",
        "http://127.0.0.1:1/",
    ]));
    assert_eq!(said.code, 2, "{}", said.err);
    let told = said.lines("the store refuses us: ");
    assert_eq!(told.len(), 1, "{}", said.err);
    assert!(told[0].contains("start it, or correct the URL"), "{told:?}");
}

#[test]
fn a_typo_in_the_settings_names_the_nearest_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("politely.toml");
    fs::write(&file, "rate = 1\nburts = 2\n").unwrap();
    let said = run(politely()
        .arg("fetch")
        .arg("--config")
        .arg(&file)
        .arg("http://127.0.0.1:1/"));
    assert_eq!(said.code, 2);
    let wanted = format!(
        "error: {}:2: unknown key `burts`; did you mean `burst`?\n",
        file.display()
    );
    assert_eq!(said.err, wanted);
}

#[test]
fn an_unusable_state_folder_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for state in [file.clone(), file.join("below"), "/proc/politely".into()] {
        let said = run(politely()
            .args(["fetch", "http://127.0.0.1:1/", "--state"])
            .arg(&state));
        assert_eq!(
            (said.code, said.err.lines().count()),
            (2, 1),
            "{}",
            said.err
        );
        assert!(said.err.starts_with("error: "), "{}", said.err);
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["fetch", "--rate", "0", "http://a/"][..],
        &["fetch", "--no-such-flag"],
        &["fetch", "-i", "/no/such/file"],
        &["fetch", "-i", "/"],
        &["fetch", "--proxy", "ftp://x", "http://a/"],
        &["nonsense"],
    ] {
        assert_eq!(run(politely().args(args)).code, 2, "{args:?}");
    }
}

#[test]
fn servers_that_misbehave_cost_their_own_urls_only() {
    let server = Server::bad();
    let bad = [
        "bomb",
        "endless",
        "loop",
        "nowhere",
        "drip",
        "torn-head",
        "torn-body",
        "garbage",
        "not-gzip",
        "gone",
    ];
    let good: Vec<_> = (0..50).map(|i| format!("page/{i}")).collect();
    let urls = bad
        .iter()
        .map(|path| server.url(path))
        .chain(good.iter().map(|path| server.url(path)));
    let said = run(fast()
        .args([
            "--timeout",
            "1s",
            "--retries",
            "0",
            "--max-body",
            "1MiB",
            "--in-flight",
            "100",
        ])
        .args(urls));
    assert_eq!(said.code, 1);
    let errors = said.errors();
    for path in &good {
        assert_eq!(errors[path.as_str()], None, "{path}");
    }
    for (path, why) in [
        ("bomb", "body exceeds 1048576 bytes"),
        ("endless", "body exceeds 1048576 bytes"),
        ("loop", "redirect loop"),
        ("nowhere", "no web address"),
        ("drip", "time-out"),
        ("torn-head", "connection broken"),
        ("torn-body", "connection broken"),
        ("garbage", "malformed"),
        ("not-gzip", "malformed"),
        ("gone", "404 Not Found"),
    ] {
        let error = errors[path].as_deref().unwrap_or("none");
        assert!(error.contains(why), "{path}: {error}");
        let listed = said.lines(&format!("failed: {}", server.url(path))).len();
        assert!(listed >= 1, "{path} is listed: {}", said.err);
    }
}

#[test]
fn a_full_disk_under_the_results_is_told_once() {
    let server = Server::bad();
    let urls = (0..30).map(|i| server.url(&format!("page/{i}")));
    let said = run(fast().args(["--output", "/dev/full"]).args(urls));
    assert_eq!(said.code, 1);
    assert_eq!(
        said.lines("/dev/full: no space left on device").len(),
        1,
        "{}",
        said.err
    );
    assert_eq!(
        said.lines("30 results were not written").len(),
        1,
        "{}",
        said.err
    );
    assert_eq!(server.counts().len(), 30, "every page was fetched");
}

#[test]
fn a_full_disk_under_the_bodies_fails_those_urls_only() {
    let server = Server::start(|path, stream| {
        let body = "x".repeat(if path == "/large" { 100_000 } else { 100 });
        crate::misbehaving::respond(stream, "200 OK", "", &body)
    });
    let dir = tempfile::tempdir().unwrap();
    // Files may have 32 KiB; the signal that goes with it is ignored, as a full disk sends none.
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"])
        .stdin(Stdio::null());
    shell.arg(fast().get_program()).args(fast().get_args());
    let said = run(shell
        .arg("--save")
        .arg(dir.path())
        .args([server.url("large"), server.url("small")]));
    let errors = said.errors();
    assert!(
        errors["large"]
            .as_deref()
            .is_some_and(|why| why.contains("not saved: file too large")),
        "{errors:?}"
    );
    assert_eq!(errors["small"], None);
    let folder = fs::read_dir(dir.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        1,
        "no half body stays"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let server = Server::bad();
    let urls: Vec<_> = (0..5_000)
        .map(|i| server.url(&format!("page/{i}")))
        .collect();
    let mut run = fast()
        .args(["-i", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(run.stdout.take());
    let mut stdin = run.stdin.take().unwrap();
    let _ = stdin.write_all(urls.join("\n").as_bytes());
    drop(stdin);
    assert_eq!(run.wait().unwrap().code(), Some(0));
}

#[test]
fn a_state_folder_in_use_is_refused() {
    let server = Server::start(|_, stream| {
        std::thread::sleep(std::time::Duration::from_secs(3));
        crate::misbehaving::respond(stream, "200 OK", "", "late")
    });
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut first = fast()
        .arg("--state")
        .arg(&state)
        .arg(server.url("a"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while server.counts().is_empty() {
        std::thread::yield_now();
    }
    let said = run(fast().arg("--state").arg(&state).arg(server.url("b")));
    assert_eq!(
        (said.code, said.err.lines().count()),
        (2, 1),
        "{}",
        said.err
    );
    assert!(said.err.contains("in use by another run"), "{}", said.err);
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let _ = rows_of;
}

#[test]
fn a_list_given_as_a_url_gets_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.txt");
    fs::write(&list, "http://127.0.0.1:1/\n").unwrap();
    let hint = "hint: a list of URLs goes to --input FILE";
    let said = run(politely().arg("fetch").arg(&list));
    assert_eq!((said.code, said.lines(hint).len()), (1, 1), "{}", said.err);
    let said = run(politely().args(["fetch", "no-such-file.txt"]));
    assert_eq!(said.lines("hint").len(), 0, "{}", said.err);
}

#[test]
fn a_bad_log_filter_is_told_in_one_line() {
    let said = run(politely()
        .env("POLITELY_LOG", "politely=loud")
        .args(["fetch", "http://127.0.0.1:1/"]));
    assert_eq!(said.code, 2);
    assert_eq!(
        (said.err.lines().count(), said.lines("POLITELY_LOG").len()),
        (1, 1),
        "{}",
        said.err
    );
}
