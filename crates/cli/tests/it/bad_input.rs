//! Tests that each wrong argument and input gives one clear line, and that the rest of the run goes
//! on.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::misbehaving::Server;
use crate::run::{fast, politely, rows_of, run};

/// The reason for refusing a path.
const A_FILE: &str = "expected a directory, found a file";

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
fn an_engine_that_cannot_be_used_is_reported_in_one_line() {
    for (url, told) in [
        (
            "postgres://ann@127.0.0.1:1/db",
            "start it, or correct the URL",
        ),
        (
            "postgres://ann@127.0.0.1:x/db",
            "use postgres://user:password@host",
        ),
        (
            "postgres://ann@127.0.0.1/db?sslmode=prefer",
            "use sslmode=require",
        ),
        ("zookeeper://127.0.0.1:1", "start a majority of the servers"),
        ("zookeeper://127.0.0.1:0", "is not a server's address"),
        ("zookeeper://127.0.0.1//x", "is not a ZooKeeper path"),
        ("zookeeper://ann@127.0.0.1", "user:password@"),
        ("zookeepers://127.0.0.1", "unknown scheme \"zookeepers\""),
    ] {
        let said = run(politely().args(["fetch", "--store", url, "http://127.0.0.1:1/"]));
        assert_eq!(said.code, 2, "{url}: {}", said.err);
        assert_eq!(said.lines(told).len(), 1, "{url}: {}", said.err);
        assert_eq!(said.lines("error: ").len(), 1, "{url}: {}", said.err);
    }
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
        said.demand_one_line(2);
        assert!(said.err.starts_with("error: "), "{}", said.err);
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["fetch", "--no-such-flag"][..],
        &["fetch", "-i", "/no/such/file"],
        &["fetch", "-i", "/"],
        &["fetch", "--proxy", "ftp://x", "http://a/"],
        &["nonsense"],
    ] {
        assert_eq!(run(politely().args(args)).code, 2, "{args:?}");
    }
}

/// Regression: the messages did not name the cause. `--rate -1` gave "unexpected argument '-1'
/// found", `--save FILE` gave "file exists", an empty argument gave nothing, and a compressed list
/// gave a thousand failed URLs.
#[test]
fn what_is_wrong_is_said_in_the_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = file("text", b"http://127.0.0.1:1/\n");
    let packed = file("packed", b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
    let latin = file("latin", b"\xff\xfe\xfd");
    let object = file("object", b"{}");
    let huge = file(
        "huge",
        br#"[{"name":"n","duration_s":1e308,"demand":{"kind":"greedy"},"rtt_ms":1,"service":{"mean_ms":1,"cv":0},"limit":{"kind":"none"}}]"#,
    );
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    let foreign = foreign.to_str().unwrap();
    file("foreign/frontier", b"http://127.0.0.1:1/\n");
    let folder = dir.path().to_str().unwrap().to_owned();
    let url = "http://127.0.0.1:1/";
    let cases: [(Vec<&str>, &str); _] = [
        (vec!["fetch", ""], "an argument is empty"),
        (vec!["fetch", "-i", &packed], "is no text"),
        (vec!["fetch", "--timeout", "-0.1ms", url], "at least 1ms"),
        (
            vec!["fetch", "--retries", "-1", url],
            "must be a whole number",
        ),
        (vec!["fetch", "--save", &text, url], A_FILE),
        (vec!["fetch", "--state", &text, url], A_FILE),
        (vec!["fetch", "--output", &folder, url], "is a directory"),
        (
            vec!["fetch", "--output", &text, "-i", &text],
            "is the input",
        ),
        (
            vec!["fetch", "--state", foreign, url],
            "foreign/frontier\": ",
        ),
        (vec!["fetch", "--config", &latin, url], "is no text (UTF-8)"),
        (
            vec!["fetch", "--proxy", "nonsense", url],
            "it must begin with http:// or https://",
        ),
        (vec!["fetch", "--coordinator", "", url], "an empty URL"),
        (
            vec!["fetch", "--coordinator", "nonsense", url],
            "must begin with http:// or https://",
        ),
        (
            vec!["fetch", "--coordinator", "http://u:pw@127.0.0.1:1", url],
            "127.0.0.1: a coordinator takes a token",
        ),
        (
            vec!["fetch", "--coordinator", "http://127.0.0.1:1/?x", url],
            "ends before any",
        ),
        (
            vec!["top", "--coordinator", "nonsense"],
            "must begin with http:// or https://",
        ),
        (vec!["serve", "--state", &text], A_FILE),
        (
            vec!["serve", "--memory", "--tls-cert", &text, "--tls-key", &text],
            "has no certificate in PEM form",
        ),
        (
            vec!["serve", "--memory", "--token-file", &latin],
            "is no text (UTF-8)",
        ),
        (
            vec!["simulate", "suite", "--seeds", "-1"],
            "-1 is not in 1..=10000",
        ),
        (vec!["simulate", "suite", "--plot", &text], A_FILE),
        (
            vec!["simulate", &object],
            "a JSON array of scenarios is needed",
        ),
        (
            vec!["simulate", &huge],
            "duration_s must be 0.001 to 10000000, not 1e308",
        ),
        (
            vec!["serve", "--memory", "--capacity", "-1"],
            "-1 is not in 1..=4294967296",
        ),
        (
            vec!["simulate", "suite", "--worst", "-1"],
            "-1 is not in 0..=4294967295",
        ),
        (vec!["target", "--port", "-1"], "-1 is not in 0..=65535"),
        (vec!["demo", "--pages", "-1"], "-1 is not in 1..=10000"),
    ];
    for (args, why) in cases {
        is_refused(&args, why);
    }
}

#[test]
fn a_number_that_makes_no_sense_is_told_with_its_flag() {
    for command in [
        &["fetch", "http://127.0.0.1:1/"][..],
        &["serve", "--memory"],
    ] {
        for (flag, value, why) in [
            ("--rate", "0", "must be between 0.000001 and 1000000"),
            ("--rate", "-1", "--rate -1: must be between"),
            ("--rate", "nan", "must be between"),
            ("--rate", "1e999", "must be between"),
            ("--rate", "fast", "is not a number"),
            ("--burst", "-1", "--burst -1: must be between"),
            ("--in-flight", "0", "must be between 1 and 10000"),
            ("--in-flight", "-1", "must be a whole number"),
            ("--in-flight", "1.5", "must be a whole number"),
        ] {
            is_refused(&[command, &[flag, value]].concat(), why);
        }
    }
}

/// Asserts that the exit code is 2 and that the first line contains the reason `why`.
fn is_refused(args: &[&str], why: &str) {
    let said = run(politely().args(args));
    let first = said.err.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("error: ") && first.contains(why),
        "{args:?}: {}",
        said.err
    );
    assert!(first.len() < 300, "{first}");
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{args:?}");
}

#[test]
fn an_address_in_use_is_told_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = run(politely().args(["serve", "--memory", "--bind", &address]));
    let wanted = format!(
        "error: {address} is in use, by another coordinator perhaps: choose another with --bind\n"
    );
    assert_eq!((said.code, said.err), (2, wanted));
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
        ("loop", "it is hop 11 of at most 10"),
        ("nowhere", "it is not an http or https URL"),
        ("drip", "answer broke off: no whole answer"),
        ("torn-head", "connection broken"),
        ("torn-body", "answer broke off"),
        ("garbage", "malformed"),
        ("not-gzip", "malformed"),
        ("gone", "404 Not Found"),
    ] {
        let error = errors[path].as_deref().unwrap_or("none");
        assert!(error.contains(why), "{path}: {error}");
        let listed = said.lines(why).iter().any(|line| line.contains("  "));
        assert!(listed, "{path} is listed: {}", said.err);
    }
}

#[test]
fn results_without_room_are_listed_as_missing() {
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
    assert_eq!(
        said.lines("missing result: http://").len(),
        30,
        "{}",
        said.err
    );
}

#[test]
fn a_body_that_is_too_large_for_a_file_fails_its_url_only() {
    let server = Server::start(|path, stream| {
        let body = "x".repeat(if path == "/large" { 100_000 } else { 100 });
        crate::misbehaving::respond(stream, "200 OK", "", &body)
    });
    let dir = tempfile::tempdir().unwrap();
    // Files may have 32 KiB. The signal for a larger file does not end the run.
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "ulimit -f 64; exec \"$@\"", "sh"])
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
    said.demand_one_line(2);
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
