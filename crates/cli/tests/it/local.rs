//! Tests of `politely local` with real processes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{politely, run};

/// The folders of a user. The coordinators in them end with this value.
struct User {
    folder: TempDir,
}

impl User {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    /// Returns `politely local` for this user, whose cache, run time and temporary folders are
    /// `cache`, `run` and `tmp` in one folder.
    fn local(&self) -> Command {
        let mut command = politely();
        command.arg("local").stderr(Stdio::piped());
        for (name, folder) in [
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_RUNTIME_DIR", "run"),
            ("TMPDIR", "tmp"),
        ] {
            let folder = self.folder.path().join(folder);
            fs::create_dir_all(&folder).expect("a folder");
            command.env(name, folder);
        }
        command
    }

    /// Returns the line about the coordinator, and starts it if it does not run.
    fn coordinator(&self) -> Value {
        line(&mut self.local())
    }

    /// Returns a file of the coordinator in the folder `base`.
    fn file(&self, base: &str, name: &str) -> PathBuf {
        let version = format!("local-{}", env!("CARGO_PKG_VERSION"));
        let base = self.folder.path().join(base).join("politely");
        base.join(version).join(name)
    }

    /// Waits until the coordinator in the folder `cache` has ended.
    fn wait_for_end(&self) {
        let lock = File::create(self.file("cache", "lock")).expect("the lock");
        lock.lock().expect("it ends");
    }

    fn kill(&self) {
        kill(&self.file("cache", "ready.json"));
        self.wait_for_end();
    }

    /// Returns the number of coordinators that were started in the folder `cache`.
    fn starts(&self) -> usize {
        let log = fs::read_to_string(self.file("cache", "log")).expect("the log");
        log.matches("politely: http://127.0.0.1:").count()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for base in ["cache", "run", "home/.cache"] {
            kill(&self.file(base, "ready.json"));
        }
        let of_user = fs::read_dir(self.folder.path().join("tmp"));
        for found in of_user.into_iter().flatten().flatten() {
            let version = format!("local-{}/ready.json", env!("CARGO_PKG_VERSION"));
            kill(&found.path().join(version));
        }
    }
}

/// Kills the coordinator that a file names.
fn kill(ready: &Path) {
    let Ok(text) = fs::read(ready) else { return };
    let about: Value = serde_json::from_slice(&text).expect("JSON");
    let pid = about["pid"].to_string();
    let _ = Command::new("kill")
        .args(["-KILL", &pid])
        .stderr(Stdio::null())
        .status();
}

fn line(command: &mut Command) -> Value {
    let said = run(command);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.out.lines().count(), 1, "{}", said.out);
    serde_json::from_str(&said.out).expect("JSON")
}

/// Makes a call of the coordinator and returns its status and its body.
fn call(about: &Value, path: &str, body: Option<&Value>) -> (u16, String) {
    let host = about["address"]
        .as_str()
        .expect("an address")
        .trim_start_matches("http://");
    let token = about["token"].as_str().expect("a token");
    let body = body.map(Value::to_string).unwrap_or_default();
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut stream = TcpStream::connect(host).expect("it listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status.expect("a status"), body.to_owned())
}

fn acquire(about: &Value, wait_ms: u32) -> (u16, String) {
    let body = json!({ "client": "w", "wait_ms": wait_ms, "items": [{ "key": "custom/a" }] });
    call(about, "/api/v1/acquire", Some(&body))
}

/// Runs the command in 20 processes at once.
fn twenty(user: &User) -> Vec<Value> {
    let start = |_| {
        let command = user.local().stdout(Stdio::piped()).spawn();
        command.expect("the binary runs")
    };
    let children: Vec<Child> = (0..20).map(start).collect();
    let said = children.into_iter().map(|child| {
        let output = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {err}"))
    });
    said.collect()
}

#[test]
fn many_starts_at_once_give_one_coordinator_also_after_a_kill() {
    let user = User::new();
    for starts in 1..=3 {
        let said = twenty(&user);
        assert!(said.iter().all(|each| *each == said[0]), "{said:?}");
        assert_eq!(user.starts(), starts);
        assert_eq!(acquire(&said[0], 0).0, 200);
        user.kill();
    }
}

#[test]
fn only_the_user_can_read_the_token_and_a_call_needs_it() {
    let user = User::new();
    let mut about = user.coordinator();
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
    let started = user.file("cache", "started.json");
    assert_eq!(mode(&started), 0o600);
    assert_eq!(mode(&user.file("cache", "log")), 0o600);
    let folder = started.parent().expect("a folder");
    assert_eq!(mode(folder), 0o700);
    assert_eq!(mode(folder.parent().expect("a folder")), 0o700);
    about["token"] = "0123456789abcdef".into();
    assert_eq!(acquire(&about, 0).0, 401);
}

#[test]
fn files_that_a_kill_left_are_not_trusted() {
    let user = User::new();
    user.coordinator();
    user.kill();
    // The port and the process id belong to other programs now.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", other.local_addr().expect("its port"));
    let stale = json!({ "address": address, "pid": std::process::id() });
    fs::write(user.file("cache", "ready.json"), stale.to_string()).expect("written");
    let about = user.coordinator();
    assert_ne!(about["address"], address);
    assert_ne!(about["pid"], std::process::id());
    assert_eq!(acquire(&about, 0).0, 200);
}

#[test]
fn broken_files_of_an_earlier_start_are_replaced() {
    let user = User::new();
    user.coordinator();
    user.kill();
    for name in ["ready.json", "started.json"] {
        fs::write(user.file("cache", name), "{\"add").expect("written");
    }
    assert_eq!(acquire(&user.coordinator(), 0).0, 200);
}

#[test]
fn a_coordinator_of_another_machine_is_left_alone() {
    let user = User::new();
    let there = user.coordinator();
    let started = user.file("cache", "started.json");
    let about = json!({ "token": there["token"], "machine": "another" });
    fs::write(started, about.to_string()).expect("written");
    let here = user.coordinator();
    assert_ne!(here["address"], there["address"]);
    assert!(user.file("run", "ready.json").exists());
    assert_eq!(acquire(&there, 0).0, 200, "it still runs");
}

#[test]
fn a_home_that_cannot_be_written_is_passed_over() {
    let user = User::new();
    let home = || {
        let mut command = user.local();
        command
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", "/dev/null");
        command
    };
    let about = line(&mut home());
    assert!(user.file("run", "ready.json").exists());
    assert_eq!(line(&mut home()), about, "a second process finds it");
    let tmp = line(home().env_remove("XDG_RUNTIME_DIR"));
    assert_ne!(tmp["address"], about["address"]);
    let said = run(home()
        .env("XDG_RUNTIME_DIR", "/dev/null")
        .env("TMPDIR", "/dev/null"));
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    let why =
        "error: no folder for a local coordinator: /dev/null/.cache/politely: not a directory; ";
    assert!(said.err.starts_with(why), "{}", said.err);
    assert!(
        said.err.ends_with("name another with XDG_CACHE_HOME\n"),
        "{}",
        said.err
    );
}

#[test]
fn without_an_xdg_folder_the_cache_is_in_the_home() {
    let user = User::new();
    let home = user.folder.path().join("home");
    line(user.local().env_remove("XDG_CACHE_HOME").env("HOME", home));
    assert!(user.file("home/.cache", "ready.json").exists());
}

#[test]
fn an_idle_coordinator_ends_and_the_next_one_keeps_its_state() {
    let user = User::new();
    let about = line(user.local().args(["--exit-when-idle", "2s"]));
    assert!(acquire(&about, 0).1.contains("granted"));
    user.wait_for_end();
    let next = user.coordinator();
    assert_ne!(next["pid"], about["pid"]);
    assert_eq!(user.starts(), 2);
    let (_, key) = call(&next, "/api/v1/keys/custom%2Fa", None);
    assert!(key.contains("custom/a"), "{key}");
}

#[test]
fn a_coordinator_that_cannot_start_says_why() {
    let user = User::new();
    user.coordinator();
    user.kill();
    let state = user.file("cache", "state");
    fs::remove_dir_all(&state).expect("removed");
    fs::write(&state, "no folder").expect("written");
    let said = run(&mut user.local());
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    let why = "error: the local coordinator did not start: ";
    assert!(
        said.err.starts_with(why) && said.err.contains("state"),
        "{}",
        said.err
    );
}
