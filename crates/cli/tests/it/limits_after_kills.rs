//! Kills a coordinator and `fetch` in a loop, just after each request, before the learned states
//! are on disk. No declared limit is exceeded.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::durable::{Serve, call, serve_with};
use crate::fleet::http::Http;
use crate::misbehaving::{Server, respond};
use crate::run::fetch_at;

const LIVES: usize = 12;

/// Kills the coordinator when `lives` have each taken at most `each` permits. Returns the answers
/// to the acquire calls.
fn grants(
    dir: &Path,
    rules: &str,
    each: usize,
    item: &Value,
    report: Option<&Value>,
) -> Vec<Value> {
    let file = dir.join("rules.toml");
    fs::write(&file, rules).expect("the folder is writable");
    let policy = format!("--policy={}", file.display());
    let mut answers = Vec::new();
    for life in 0..LIVES {
        let serve: Serve = serve_with(&dir.join("state"), &["--law=fixed", "--rate=1000", &policy]);
        let mut http = Http::new(serve.address);
        for n in 0..each {
            let mut item = item.clone();
            item["key"] = json!(format!("h{}.example", (life + n) % 3));
            let asked = json!({ "client": "w", "wait_ms": 300, "items": [item] });
            let (status, answer) =
                call(&mut http, "POST", "/api/v1/acquire", &asked).expect("it answers");
            assert_eq!(status, 200, "{answer}");
            let answer = answer["items"][0].clone();
            if let (Some(report), Some(permit)) = (report, answer["permit"].as_str()) {
                let mut report = report.clone();
                report["permit"] = json!(permit);
                let told = json!({ "client": "w", "items": [report] });
                let (status, said) =
                    call(&mut http, "POST", "/api/v1/report", &told).expect("it answers");
                assert!(
                    status == 200 && said["items"][0]["error"].is_null(),
                    "{said}"
                );
            }
            answers.push(answer);
        }
    }
    answers
}

fn granted(answers: &[Value]) -> usize {
    answers
        .iter()
        .filter(|answer| answer["permit"].is_string())
        .count()
}

#[test]
fn an_account_keeps_its_requests() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"account\"\nlimits = [\"10/h\"]\n";
    let answers = grants(dir.path(), rules, 2, &json!({}), None);
    assert_eq!(granted(&answers), 10, "{answers:#?}");
}

#[test]
fn a_host_keeps_its_requests() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[rule]]\nmatch = [\"*.example\"]\nlimits = [\"3/h\"]\n";
    let answers = grants(dir.path(), rules, 2, &json!({}), None);
    assert_eq!(granted(&answers), 9, "{answers:#?}");
}

#[test]
fn a_gap_between_requests_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"account\"\n\
                 limits = [\"60/h\"]\nspacing = \"fixed\"\n";
    let answers = grants(dir.path(), rules, 1, &json!({}), None);
    assert_eq!(granted(&answers), 1, "{answers:#?}");
}

#[test]
fn tokens_that_were_used_beyond_the_estimate_stay_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules =
        "[[rule]]\nmatch = [\"*.example\"]\naccount = \"account\"\nlimits = [\"1000 tokens/h\"]\n";
    let item = json!({ "cost": { "requests": 1, "tokens": 10 } });
    let report = json!({ "status": 200, "used": { "tokens": 200 } });
    let answers = grants(dir.path(), rules, 1, &item, Some(&report));
    assert_eq!(granted(&answers), 5, "{answers:#?}");
}

#[test]
fn bytes_that_were_received_stay_spent() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"account\"\nlimits = [\"1 MB/h\"]\n";
    let report = json!({ "status": 200, "bytes": 300_000 });
    let answers = grants(dir.path(), rules, 1, &json!({}), Some(&report));
    assert_eq!(granted(&answers), 4, "{answers:#?}");
}

#[test]
fn a_killed_fetch_keeps_its_requests() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
    let dir = tempfile::tempdir().expect("a folder");
    for _ in 0..LIVES {
        let before = server.times().len();
        let mut child = fetch_at("1000")
            .args(["--no-robots", "--limits", "6/h", "--state"])
            .arg(dir.path().join("state"))
            .args((0..50).map(|i| server.url(&i.to_string())))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let began = Instant::now();
        while server.times().len() == before && began.elapsed() < Duration::from_millis(500) {
            thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("it is killed");
        child.wait().expect("it is gone");
    }
    let came = server.times().len();
    assert!((1..=6).contains(&came), "{came}");
}

#[test]
fn a_later_run_keeps_the_account_of_an_ended_one() {
    for pattern in ["127.0.0.1", "127.0.0.1/*"] {
        let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("rules.toml");
        let rules = format!(
            "[[rule]]\nmatch = [\"{pattern}\"]\naccount = \"account\"\nlimits = [\"3/h\"]\n"
        );
        fs::write(&file, rules).expect("the folder is writable");
        let fetch = |pages: std::ops::Range<usize>| {
            let mut fetch = fetch_at("1000");
            fetch
                .args(["--no-robots", "--state"])
                .arg(dir.path().join("state"))
                .arg("--policy")
                .arg(&file)
                .args(pages.map(|i| server.url(&i.to_string())))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            fetch
        };
        assert!(fetch(0..2).status().expect("it runs").success());
        let mut later = fetch(2..9).spawn().expect("the binary runs");
        let began = Instant::now();
        while server.times().len() < 4 && began.elapsed() < Duration::from_millis(1_500) {
            thread::sleep(Duration::from_millis(2));
        }
        later.kill().expect("it is killed");
        later.wait().expect("it is gone");
        assert_eq!(server.times().len(), 3, "{pattern}");
    }
}
