//! Helpers that run the binary and read its output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn politely() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.env_remove("HTTP_PROXY").stdin(Stdio::null());
    command
}

/// Returns a `politely fetch` command with a fixed rate, in requests per second.
pub(crate) fn fetch_at(rate: &str) -> Command {
    let mut command = politely();
    command.args(["fetch", "--profile", "api", "--law", "fixed"]);
    command.args(["--rate", rate]);
    command
}

/// Returns a `politely fetch` command that is as fast as the test's own server allows, without
/// robots.txt.
pub(crate) fn fast() -> Command {
    let mut command = fetch_at("5000");
    command.args(["--burst", "100"]);
    command
}

/// Returns a `politely fetch` command that obeys robots.txt, as fast as the test's own server
/// allows.
pub(crate) fn obedient() -> Command {
    let mut command = politely();
    command.args([
        "fetch", "--law", "fixed", "--rate", "5000", "--burst", "100",
    ]);
    command
}

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the secret is written");
    let owner: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, owner).expect("its mode is set");
}

pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(command: &mut Command) -> Said {
    let output = command.output().expect("the binary runs");
    Said {
        code: output.status.code().expect("it ended by itself"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Said {
    /// Demands that the command ended with `code` and one line of standard error.
    #[track_caller]
    pub(crate) fn demand_one_line(&self, code: i32) {
        assert_eq!(
            (self.code, self.err.lines().count()),
            (code, 1),
            "{}",
            self.err
        );
    }

    /// Returns the lines of standard error that contain `text`.
    pub(crate) fn lines(&self, text: &str) -> Vec<&str> {
        self.err
            .lines()
            .filter(|line| line.contains(text))
            .collect()
    }

    pub(crate) fn rows(&self) -> Vec<serde_json::Value> {
        rows(&self.out)
    }

    /// Returns the error of each URL, by its path.
    pub(crate) fn errors(&self) -> BTreeMap<String, Option<String>> {
        let path = |url: &str| url.splitn(4, '/').nth(3).unwrap_or(url).to_owned();
        let error = |row: &serde_json::Value| row["error"].as_str().map(str::to_owned);
        self.rows()
            .iter()
            .map(|row| (path(row["url"].as_str().expect("a url")), error(row)))
            .collect()
    }
}

pub(crate) fn rows(lines: &str) -> Vec<serde_json::Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

/// Returns how many lines a file has that are whole.
pub(crate) fn lines_of(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.split(|byte| *byte == b'\n').count() - 1
}

/// Runs a command, and kills it as soon as `results` has this many lines.
pub(crate) fn killed_at(lines: usize, results: &Path, command: &mut Command) {
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    while lines_of(results) < lines {
        let ended = child.try_wait().expect("it is a child");
        assert!(ended.is_none(), "it ended before it was killed");
        std::thread::yield_now();
    }
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
}

pub(crate) fn rows_of(path: &Path) -> Vec<serde_json::Value> {
    rows(&std::fs::read_to_string(path).expect("the results are there"))
}

/// Returns the last segments of the URLs that a run of a state folder finished.
pub(crate) fn paths_of_run(results: &Path, run: u64) -> BTreeSet<String> {
    let rows = rows_of(results).into_iter();
    let of_run = rows.filter(|row| row["run"].as_u64().unwrap_or(1) == run);
    of_run
        .map(|row| {
            let url = row["url"].as_str().expect("a row has a URL");
            url.rsplit('/').next().unwrap_or_default().to_owned()
        })
        .collect()
}
