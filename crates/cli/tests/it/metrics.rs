//! `/metrics` of a live coordinator, and the alert rules and the dashboard that use it.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::run::{politely, run};
use politely_testkit::process::{Server, tool};
use politely_testkit::repository;

/// A coordinator and its address.
struct Live {
    server: Server,
    http: Http,
    url: String,
    folder: tempfile::TempDir,
}

impl Live {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Path::new(env!("CARGO_BIN_EXE_politely"));
        let state = folder.path().join("state").display().to_string();
        let fixed = [
            "serve",
            "--bind=127.0.0.1:0",
            "--rate=5",
            "--burst=2",
            "--state",
            &state,
        ];
        let all: Vec<&str> = fixed.iter().chain(args).copied().collect();
        let mut server = Server::start("politely", folder.path(), program, all);
        let line = server.says("politely: http://");
        let address: SocketAddr = line
            .trim_start_matches("politely: http://")
            .parse()
            .expect("an address");
        Self {
            server,
            http: Http::new(address),
            url: line.trim_start_matches("politely: ").to_owned(),
            folder,
        }
    }

    fn call(&mut self, path: &str, body: &Value) -> Value {
        let deadline = Instant::now() + Duration::from_mins(1);
        let path = format!("/api/v1/{path}");
        let answer = self.http.call("POST", &path, &body.to_string(), deadline);
        serde_json::from_slice(&answer.expect("an answer").body).expect("JSON")
    }

    /// Acquires a permit of `key` and reports `outcome` for it.
    fn visit(&mut self, key: &str, outcome: Value) {
        let asked = json!({ "client": "w", "items": [{ "key": key }], "wait_ms": 30_000 });
        let permit = self.call("acquire", &asked)["items"][0]["permit"].clone();
        assert!(permit.is_string(), "{key}: {}", self.server.talk());
        let mut item = outcome;
        item["permit"] = permit;
        self.call("report", &json!({ "client": "w", "items": [item] }));
    }

    /// Adds a page to the frontier.
    fn import(&self, url: &str) {
        let list = self.folder.path().join("urls.txt");
        std::fs::write(&list, url).expect("the list is written");
        let mut politely = politely();
        politely.args(["frontier", "import", "news"]).arg(&list);
        let said = run(politely.args(["--coordinator", &self.url]));
        assert_eq!(said.code, 0, "{}", said.err);
    }

    fn scrape(&mut self) -> String {
        let deadline = Instant::now() + Duration::from_mins(1);
        let answer = self.http.call("GET", "/metrics", "", deadline);
        String::from_utf8(answer.expect("an answer").body).expect("text")
    }
}

/// A coordinator with traffic of every kind, and one whose engine is unavailable.
fn scrapes() -> [String; 2] {
    let frontier = tempfile::tempdir().expect("a folder");
    let frontier = frontier.path().display().to_string();
    let mut alone = Live::start(&["--frontier", &frontier]);
    alone.import("https://host0.example/");
    for key in 0..15 {
        let key = format!("host{key}.example");
        alone.visit(&key, json!({ "status": 200, "latency_ms": 5.0 }));
        alone.visit(
            &key,
            json!({ "status": 429, "headers": { "retry-after": "60" } }),
        );
    }
    alone.visit("down.example", json!({ "error": "timeout" }));
    for _ in 0..4 {
        alone.visit("waits.example", json!({ "status": 200, "latency_ms": 5.0 }));
    }
    let mut shared = Live::start(&["--store", "redis://127.0.0.1:1"]);
    [alone.scrape(), shared.scrape()]
}

fn promtool(args: &[&str], folder: &Path, input: &str) {
    let mut promtool = Command::new(tool("promtool"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    let mut stdin = promtool.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{args:?}: {said}\n{input}");
    // `check metrics` prints findings only.
    assert!(
        args[0] != "check" || args[1] != "metrics" || said.is_empty(),
        "{said}"
    );
}

/// The names of all families in a scrape.
fn families(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        line.strip_prefix("# TYPE ")?
            .split(' ')
            .next()
            .map(str::to_owned)
    };
    text.lines().filter_map(name).collect()
}

/// The names of all metrics in a query or in a document.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metric = |word: &&str| word.starts_with("politely_") || word.starts_with("process_");
    words.filter(metric).map(str::to_owned).collect()
}

/// The name of the family of a series: a histogram has three series per name.
fn family<'a>(name: &'a str, known: &BTreeSet<String>) -> &'a str {
    let ends = ["_bucket", "_sum", "_count"];
    let base = ends.iter().find_map(|end| name.strip_suffix(end));
    base.filter(|base| known.contains(*base)).unwrap_or(name)
}

#[test]
fn metrics_follow_the_conventions_and_are_documented() {
    let [alone, shared] = scrapes();
    promtool(&["check", "metrics"], repository(), &alone);
    promtool(&["check", "metrics"], repository(), &shared);

    let count = |of: &str| alone.lines().filter(|line| line.starts_with(of)).count();
    for ranking in ["politely_top_wait_seconds{", "politely_top_refused_total{"] {
        assert_eq!(count(ranking), 10, "{ranking} {alone}");
    }
    for line in [
        "politely_responses_total{class=\"4xx\"} 15",
        "politely_responses_total{class=\"none\"} 1",
        "politely_outcomes_total{signal=\"rate_limited\"} 15",
        "politely_key_states{state=\"parked\"}",
        "politely_wait_seconds_bucket{le=\"+Inf\"}",
        "politely_build_info{version=\"",
        "politely_frontier_pages{crawl=\"news\",state=\"ready\"} 1",
        "process_resident_memory_bytes ",
    ] {
        assert!(alone.contains(line), "{line}: {alone}");
    }

    let live: BTreeSet<String> = families(&alone)
        .union(&families(&shared))
        .cloned()
        .collect();
    let read = |name: &str| std::fs::read_to_string(repository().join(name)).expect(name);
    let documented = read("docs/reference/metrics.md");
    let rows = documented.lines().filter(|line| line.starts_with("| `"));
    let rows: BTreeSet<String> = rows
        .filter_map(|row| names(row).into_iter().next())
        .collect();
    let rate = "politely_top_rate".to_owned(); // exists only after ten seconds
    let live: BTreeSet<String> = live.into_iter().chain([rate]).collect();
    assert_eq!(rows, live, "the reference and the scrapes differ");

    let used = names(&read("deploy/prometheus/alerts.yml"));
    let used = used
        .union(&names(&queries().join(" ")))
        .cloned()
        .collect::<BTreeSet<_>>();
    for name in &used {
        let family = family(name, &live);
        assert!(live.contains(family), "{name} does not exist");
    }
}

/// All queries of the dashboard.
fn queries() -> Vec<String> {
    let path = repository().join("deploy/grafana/politely.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    queries.map(str::to_owned).collect()
}

#[test]
fn alert_rules_pass_their_tests() {
    let folder = repository().join("deploy/prometheus");
    promtool(&["check", "rules", "alerts.yml"], &folder, "");
    promtool(&["test", "rules", "alerts_test.yml"], &folder, "");
}

#[test]
fn every_query_of_the_dashboard_is_valid() {
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let rule = |(i, query): (usize, &String)| {
        let query = query.replace("$__rate_interval", "5m");
        json!({ "record": format!("panel:{i}"), "expr": query })
    };
    let rules: Vec<Value> = queries.iter().enumerate().map(rule).collect();
    // JSON is YAML.
    let file = json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(folder.path().join("rules.yml"), file.to_string()).expect("the rules");
    promtool(&["check", "rules", "rules.yml"], folder.path(), "");
}
