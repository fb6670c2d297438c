//! Tests of the Python client with the built binary: the client's own tests, its type check, and
//! Scrapy over sixteen limited hosts.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::run::politely;
use politely_testkit::repository;

/// Number of pages of each host of the town `demo`.
const PAGES: u32 = 45;
const HOSTS: usize = 16;
/// The largest share of refused requests. Runs had 1.6 to 2.4 %, and `politely demo` had 1.9 %. A
/// host of 45 pages ends before its limit is known well.
const REFUSED_SHARE_MAX: f64 = 0.035;

/// A `politely` process that runs until it is interrupted, and the first lines of its output.
struct Running {
    child: Child,
    first: Vec<String>,
}

impl Running {
    fn start(args: &[&str], lines: usize) -> Self {
        let mut child = politely()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut talk = BufReader::new(child.stderr.take().expect("piped"));
        let first = talk
            .by_ref()
            .lines()
            .take(lines)
            .collect::<Result<Vec<_>, _>>();
        let first = first.expect("UTF-8");
        assert_eq!(first.len(), lines, "{args:?} said only {first:?}");
        // If its output were not read, a full pipe would block the process.
        thread::spawn(move || std::io::copy(&mut talk, &mut std::io::sink()));
        Self { child, first }
    }

    /// Interrupts the process, and returns its standard output.
    fn end(mut self) -> String {
        let kill = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        assert!(kill.expect("kill").success());
        let mut out = String::new();
        let stdout = self.child.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut out).expect("UTF-8");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command for a tool of the environment that `scripts/setup` makes. It runs in the
/// client's directory.
fn python(tool: &str) -> Command {
    let tool = repository().join(".venv/bin").join(tool);
    assert!(
        tool.exists(),
        "{} is missing: run scripts/setup",
        tool.display()
    );
    let client = repository().join("clients/python");
    let mut command = Command::new(tool);
    command
        .current_dir(&client)
        .env("PYTHONPATH", client.join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("POLITELY_TOKEN")
        .stdin(Stdio::null());
    command
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

/// The client's own tests whose processes of Scrapy take half of the time of all.
const OF_SCRAPY: [&str; 2] = ["tests/test_frontier.py", "tests/test_scrapy.py"];

fn pytest() -> Command {
    let mut command = python("python");
    command
        .args(["-m", "pytest"])
        .env("POLITELY_BIN", env!("CARGO_BIN_EXE_politely"));
    command
}

#[test]
fn its_own_tests_of_scrapy_pass() {
    succeeds(pytest().args(OF_SCRAPY));
}

#[test]
fn its_other_tests_pass() {
    succeeds(pytest().args(OF_SCRAPY.map(|file| format!("--ignore={file}"))));
}

#[test]
fn its_types_hold() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    succeeds(python("mypy").arg("--cache-dir").arg(cache.path()));
}

#[test]
fn pyright_agrees() {
    let pyright = repository().join("tests/tools/node_modules/pyright/index.js");
    assert!(pyright.exists(), "pyright is missing: run scripts/setup");
    let python = repository().join(".venv/bin/python");
    succeeds(
        Command::new("node")
            .arg(pyright)
            .arg("--pythonpath")
            .arg(python)
            .current_dir(repository().join("clients/python")),
    );
}

#[test]
fn scrapy_gets_every_page() {
    let town = Running::start(&["target", "demo", "--json"], HOSTS);
    let coordinator = Running::start(&["serve", "--memory", "--bind", "127.0.0.1:0"], 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("urls.txt");
    fs::write(&list, urls(&town.first)).expect("the list is written");

    let url = coordinator.first[0].split_whitespace().last();
    let said = succeeds(
        python("python")
            .arg(repository().join("benches/peers/directed.py"))
            .arg(Path::new(&list))
            .env("POLITELY_COORDINATOR", url.expect("its address")),
    );
    drop(coordinator);
    let seen = town.end();
    let story = format!("{said}\n{seen}");

    let said: Value = serde_json::from_str(&said).expect("a line of JSON");
    assert_eq!(said["lost"], 0, "{story}");
    let seen: Value = serde_json::from_str(&seen).expect("the judge's JSON");
    let sum = |field: &str| -> f64 {
        let hosts = seen["hosts"].as_array().expect("a list");
        hosts.iter().filter_map(|host| host[field].as_f64()).sum()
    };
    assert!(
        sum("refused") <= REFUSED_SHARE_MAX * sum("arrivals"),
        "{story}"
    );
    assert!(sum("blocked") < 1.0, "{story}");
}

/// Returns the pages of all hosts in turn, the order in which a crawler finds them.
fn urls(hosts: &[String]) -> String {
    let hosts: Vec<_> = hosts
        .iter()
        .map(|line| line.split_whitespace().next().expect("a URL"))
        .collect();
    let mut urls = String::new();
    for page in 0..PAGES {
        for host in &hosts {
            writeln!(urls, "{host}/page/{page}").expect("a string grows");
        }
    }
    urls
}
