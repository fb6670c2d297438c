//! Tests that a flag without an effect is refused, and that a run without an end is not started.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use crate::run::{politely, run};

const URL: &str = "http://127.0.0.1:1/";

fn is_refused(args: &[&str], named: &str) {
    let said = run(politely().args(args));
    assert_eq!(
        (said.code, said.out.as_str()),
        (2, ""),
        "{args:?}: {}",
        said.err
    );
    assert!(said.err.contains(named), "{args:?}: {}", said.err);
}

#[test]
fn flags_of_another_backend_are_refused() {
    let (coordinator, store) = (["--coordinator", URL], ["--store", "redis://127.0.0.1:1"]);
    for (flag, value) in [
        ("--rate", "2"),
        ("--limits", "2/s"),
        ("--policy", "rules.toml"),
        ("--burst", "2"),
        ("--in-flight", "2"),
        ("--law", "fixed"),
        ("--breaker", "failures=1"),
        ("--lease", "9s"),
        ("--store-unavailable", "share"),
    ] {
        is_refused(
            &[&["fetch", URL], &coordinator[..], &[flag, value]].concat(),
            flag,
        );
    }
    for (flag, value) in [
        ("--lease", "9s"),
        ("--store-unavailable", "share"),
        ("--on-unavailable", "share"),
        ("--token-file", "t"),
        ("--client", "w"),
        ("--labels", "a=b"),
    ] {
        is_refused(&["fetch", URL, flag, value], flag);
    }
    is_refused(
        &["fetch", URL, "--limits", "5/s; 9 tokens/min"],
        "9 tokens/min",
    );
    is_refused(
        &[&["fetch", URL], &store[..], &["--token-file", "t"]].concat(),
        "--token-file",
    );
    is_refused(
        &[&["fetch", URL], &store[..], &["--lease", "1s"]].concat(),
        "at least 5s",
    );
    is_refused(
        &["serve", "--memory", "--store-unavailable", "share"],
        "--store-unavailable",
    );
    for flag in [
        &["--law", "aimd"][..],
        &["--seeds", "2"],
        &["--json"],
        &["--worst", "3"],
    ] {
        is_refused(&[&["simulate", "backoff"], flag].concat(), flag[0]);
        is_refused(&[&["simulate", "declared"], flag].concat(), flag[0]);
    }
}

/// The same settings are refused in a file.
#[test]
fn so_are_they_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("politely.toml");
    std::fs::write(
        &file,
        "coordinator = \"http://127.0.0.1:1\"\nlease = \"9s\"\n",
    )
    .unwrap();
    let file = file.display().to_string();
    is_refused(&["fetch", URL, "--config", &file], "--lease");
}

/// Regression: virtual time stood still, and memory grew without end.
#[test]
fn a_scenario_that_cannot_make_progress_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let slots = r#"{"kind": "concurrency_reject", "slots": 4}"#;
    let all = format!(r#"{{"kind": "all", "of": [{slots}]}}"#);
    for (rtt_ms, limit) in [("0", r#"{"kind": "none"}"#), ("0", slots), ("0.0001", &all)] {
        let scenario = format!(
            r#"[{{"name": "a", "duration_s": 0.001, "demand": {{"kind": "greedy"}}, "rtt_ms": {rtt_ms}, "limit": {limit}}}]"#
        );
        let file = dir.path().join("a.json");
        std::fs::write(&file, scenario).unwrap();
        is_refused(&["simulate", &file.display().to_string()], "rtt_ms");
    }
    let paced = r#"[{"name": "a", "duration_s": 0.01, "demand": {"kind": "greedy"}, "rtt_ms": 0, "limit": {"kind": "token_bucket", "rate": 5, "burst": 1}}]"#;
    let file = dir.path().join("paced.json");
    std::fs::write(&file, paced).unwrap();
    let file = file.display().to_string();
    assert_eq!(run(politely().args(["simulate", &file])).code, 0);
}

#[test]
fn a_target_that_is_asked_to_end_reports() {
    for signal in ["-INT", "-TERM"] {
        let mut target = politely()
            .args(["target", "demo", "--json", "--bind", "127.0.7.1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut talk = BufReader::new(target.stderr.take().unwrap());
        talk.read_line(&mut String::new()).unwrap();
        let killed = Command::new("kill")
            .args([signal, &target.id().to_string()])
            .status();
        assert!(killed.unwrap().success());
        let mut out = String::new();
        target
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        assert!(target.wait().unwrap().success(), "{signal}");
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(report["hosts"].is_array(), "{signal}");
    }
}
