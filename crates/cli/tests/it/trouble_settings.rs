//! Tests of the backoff, the jitter, the retry budget, the breaker and the cut that an operator
//! sets: by flags, in the settings file and in a policy.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::durable::{call, serve_with};
use crate::fleet::http::Http;
use crate::misbehaving::{Server, respond};
use crate::run::{Said, fast, fetch_at, politely, run};

/// Returns a host with one page that always answers 500.
fn host() -> Server {
    Server::start(|path, stream| match path {
        "/bad" => respond(stream, "500 Internal Server Error", "", ""),
        _ => respond(stream, "200 OK", "", "page"),
    })
}

/// The number of good pages. They last for four seconds, so the bad page never fails alone.
const GOOD: usize = 20;

/// Fetches the bad page among good ones. Returns the output and the times of the bad page.
fn fetch_bad(server: &Server, args: &[&str]) -> (Said, Vec<Instant>) {
    let good = (1..GOOD).map(|page| server.url(&page.to_string()));
    let said = run(fetch_at("5")
        .args(["--in-flight", "1"])
        .args(args)
        .args([server.url("0"), server.url("bad")])
        .args(good));
    assert_eq!(said.rows().len(), GOOD + 1, "{}", said.err);
    let times = server.times().into_iter();
    let bad = times.filter_map(|(path, at)| (path == "/bad").then_some(at));
    (said, bad.collect())
}

/// The same settings by flags, in the settings file and in a policy. Each has its own file.
fn three_ways(dir: &std::path::Path, flags: &[&str], file: &str, rule: &str) -> [Vec<String>; 3] {
    let (config, policy) = (dir.join("politely.toml"), dir.join("rules.toml"));
    fs::write(&config, file).expect("the folder is writable");
    let rule = format!("[[rule]]\nmatch = [\"127.0.0.1\"]\n{rule}");
    fs::write(&policy, rule).expect("the folder is writable");
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    [
        flags,
        vec![format!("--config={}", config.display())],
        vec![format!("--policy={}", policy.display())],
    ]
}

#[test]
fn retries_of_a_page_wait_as_the_backoff_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let table = "backoff = { base = \"700ms\", factor = 1, max = \"700ms\" }\njitter = \"none\"\n";
    let flags = [
        "--backoff",
        "base=700ms,factor=1,max=700ms",
        "--jitter",
        "none",
    ];
    for way in three_ways(dir.path(), &flags, table, table) {
        let server = host();
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        let (said, bad) = fetch_bad(&server, &way);
        assert_eq!((said.code, bad.len()), (1, 5), "{way:?}: {}", said.err);
        let gaps = bad.windows(2).map(|pair| pair[1] - pair[0]);
        let gaps: Vec<Duration> = gaps.collect();
        // The test's server notes a request when it is read.
        let least = Duration::from_millis(690);
        assert!(gaps.iter().all(|gap| *gap >= least), "{way:?}: {gaps:?}");
    }
}

#[test]
fn a_page_ends_when_the_retry_budget_is_spent() {
    let dir = tempfile::tempdir().expect("a folder");
    let table = "{ ratio = 0, per_second = 0, burst = 1 }\n";
    let flags = ["--retry-budget", "ratio=0,per_second=0,burst=1"];
    let file = format!("retry_budget = {table}");
    let rule = format!("retry_budget = {table}");
    for way in three_ways(dir.path(), &flags, &file, &rule) {
        let server = host();
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        let (said, bad) = fetch_bad(&server, &way);
        // The first failure may be the host's, and then its retry is free.
        assert!(matches!(bad.len(), 2 | 3), "{way:?}: {}", said.err);
        let why = said.errors()["bad"].clone().expect("an error");
        assert!(why.contains("the retry budget is spent"), "{way:?}: {why}");
    }
}

#[test]
fn a_host_rests_as_the_breaker_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let table = "breaker = { failures = 1, open = \"1500ms\", open_max = \"1500ms\" }\n";
    let flags = ["--breaker", "failures=1,open=1500ms,open_max=1500ms"];
    for way in three_ways(dir.path(), &flags, table, table) {
        let server = Server::start(|_, stream| respond(stream, "503 Service Unavailable", "", ""));
        let urls = ["1", "2", "3"].map(|path| server.url(path));
        let said = run(fast()
            .args(["--no-robots", "--in-flight", "1", "--give-up-after", "4s"])
            .args(&way)
            .args(urls));
        assert_eq!(said.code, 1, "{}", said.err);
        let times = server.times();
        let gap = times[1].1 - times[0].1;
        assert!(gap >= Duration::from_millis(1_490), "{way:?}: {gap:?}");
    }
}

#[test]
fn the_advice_of_a_coordinator_has_its_backoff() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = [
        "--backoff=base=7s,factor=1,max=7s",
        "--jitter=none",
        "--law=fixed",
    ];
    let serve = serve_with(&dir.path().join("state"), &flags);
    let mut http = Http::new(serve.address);
    let mut advice = Value::Null;
    for (page, status) in [("good", 200), ("bad", 503)] {
        let url = format!("https://a.example/{page}");
        let asked = json!({ "client": "w", "wait_ms": 9000, "items": [{ "url": url }] });
        let (_, grants) = call(&mut http, "POST", "/api/v1/acquire", &asked).expect("it answers");
        let permit = &grants["items"][0]["permit"];
        let told = json!({ "client": "w", "items": [{ "permit": permit, "status": status }] });
        let (_, answers) = call(&mut http, "POST", "/api/v1/report", &told).expect("it answers");
        advice = answers["items"][0].clone();
    }
    assert_eq!(advice["next"]["retry"]["after_ms"], 7_000, "{advice}");
}

#[test]
fn a_setting_without_an_effect_or_out_of_bounds_is_one_line() {
    const URL: &str = "http://127.0.0.1:1/";
    let fetch = ["fetch", URL];
    let fleet = ["fetch", URL, "--coordinator", URL];
    let serve = ["serve", "--memory"];
    for (command, flags, part) in [
        (
            &fetch[..],
            &["--cut", "0.5"][..],
            "--cut has an effect only with --law aimd",
        ),
        (
            &serve,
            &["--cut", "0.5"],
            "--cut has an effect only with --law aimd",
        ),
        (
            &fetch,
            &["--law", "aimd", "--cut", "1"],
            "above 0 and below 1",
        ),
        (
            &fleet,
            &["--breaker", "failures=1"],
            "--breaker cannot be combined",
        ),
        (
            &fleet,
            &["--law", "aimd", "--cut", "0.5"],
            "cannot be combined with --coordinator",
        ),
        (&fetch, &["--backoff", "base=2s,max=1s"], "at least `base`"),
        (&serve, &["--backoff", "factor=0"], "from 1 to 100"),
        (
            &fetch,
            &["--jitter", "some"],
            "`none`, `full`, `equal`, `decorrelated`",
        ),
        (
            &serve,
            &["--retry-budget", "ratio=-1"],
            "ratio must be between",
        ),
        (&fetch, &["--breaker", "open=x"], "`x`: write it as"),
    ] {
        let said = run(politely().args(command).args(flags));
        assert_eq!(said.code, 2, "{command:?} {flags:?}: {}", said.err);
        let first = said.err.lines().next().unwrap_or_default();
        assert!(first.contains(part), "{command:?} {flags:?}: {first}");
    }
}

#[test]
fn check_and_explain_show_the_settings_of_a_rule() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("rules.toml");
    let rules = "[[rule]]\nmatch = [\"a.example\"]\njitter = \"full\"\nretry_budget = { ratio = 0.1 }\ncut = 0.5\n";
    fs::write(&file, rules).expect("the folder is writable");
    let policy = |args: &[&str]| run(politely().arg("policy").args(args));
    let path = file.display().to_string();
    let said = policy(&["explain", &path, "https://a.example/"]);
    let all = "full jitter, retry budget 0.1 and 1/s, burst 10, aimd, cut to 0.5";
    assert!(said.out.contains(all), "{}", said.out);
    fs::write(&file, rules.replace("0.5", "5")).expect("the folder is writable");
    let said = policy(&["check", &path]);
    assert_eq!(said.code, 1);
    assert!(
        said.err
            .contains("rules.toml:1: cut: the share that remains"),
        "{}",
        said.err
    );
}
