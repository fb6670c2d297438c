//! Tests of runs that are killed in a loop, whose terminal hangs up, or whose disk is full. They
//! stay polite, and the exit code shows the cause.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::misbehaving::{Server, respond};
use crate::run::{fast, politely, run};

/// Returns a `fetch` command with one request per second and a state directory.
fn slow(dir: &Path, server: &Server) -> Command {
    let mut command = politely();
    command.args(["fetch", "--profile", "api", "--law", "fixed", "--rate", "1"]);
    command.arg("--state").arg(dir.join("state"));
    command.arg("--output").arg(dir.join("results.jsonl"));
    command.args((0..50).map(|i| server.url(&i.to_string())));
    command.stderr(Stdio::null());
    command
}

/// Waits until `done` returns true, for `longest` at most. Returns whether it did.
fn wait(longest: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < longest {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_crash_loop_keeps_the_rate() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    // Each run is killed as soon as one of its requests has arrived.
    while server.times().len() < 4 {
        assert!(began.elapsed() < Duration::from_mins(2), "nothing arrives");
        let before = server.times().len();
        let child = slow(dir.path(), &server).spawn().unwrap();
        wait(Duration::from_millis(700), || server.times().len() > before);
        kill(child);
    }
    let times = server.times();
    for pair in times.windows(2) {
        let gap = pair[1].1 - pair[0].1;
        assert!(gap >= Duration::from_millis(900), "{gap:?}");
    }
}

#[test]
fn a_crash_loop_keeps_a_retry_after() {
    let server = Server::start(|_, stream| {
        respond(stream, "429 Too Many Requests", "Retry-After: 60\r\n", "")
    });
    let dir = tempfile::tempdir().unwrap();
    let child = slow(dir.path(), &server).spawn().unwrap();
    let size =
        |name: &str| fs::metadata(dir.path().join("state").join(name)).map_or(0, |file| file.len());
    // The request is one record of at most this length; the hold follows it.
    let is_held =
        || size("sent.log") + size("sent.log.old") > 64 || size("politely.redb") > 1 << 24;
    assert!(wait(Duration::from_mins(1), is_held), "no hold is written");
    kill(child);
    for _ in 0..4 {
        let child = slow(dir.path(), &server).spawn().unwrap();
        wait(Duration::from_millis(700), || server.times().len() > 1);
        kill(child);
    }
    assert_eq!(server.times().len(), 1);
}

#[test]
fn a_hang_up_ends_a_run_like_a_termination() {
    for signal in ["HUP", "TERM"] {
        let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
        let dir = tempfile::tempdir().unwrap();
        // A test run under `nohup` ignores SIGHUP, and its children would too.
        let mut command = Command::new("env");
        let slow = slow(dir.path(), &server);
        command.arg("--default-signal=HUP").arg(slow.get_program());
        command.args(slow.get_args()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        assert!(wait(Duration::from_mins(1), || !server.times().is_empty()));
        let pid = child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(1), "SIG{signal}");
    }
}

#[test]
fn without_a_summary_the_rows_are_still_written() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
    let said = run(fast().args(["--summary", "none", &server.url("a")]));
    assert_eq!((said.code, said.rows().len()), (0, 1), "{}", said.err);
    assert_eq!(said.lines("fetched,").len(), 0, "{}", said.err);
}

/// Returns a command that runs `script` with a file system of two megabytes, in its own mount
/// namespace. It needs `unshare` of util-linux, and user namespaces.
fn on_a_small_disk(script: &str) -> Command {
    let mount = "mount -t tmpfs -o size=2m none \"$DISK\"";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-ec", script]);
        command.stdin(Stdio::null());
        command
    };
    unshare(&format!("{mount}; {script}"))
}

/// Returns whether a line names a full disk. A write in the background may be the first to fail.
fn is_full(line: &str) -> bool {
    line.contains("no space left on device") || line.contains("the disk may be full")
}

#[test]
fn a_full_disk_under_the_temporary_queue_is_named_and_ends_the_run() {
    let script = "TMPDIR=\"$DISK\" exec \"$POLITELY\" fetch --no-robots --retries 0 \
                  --summary none --output /dev/null -i \"$LIST\"";
    let mut command = on_a_small_disk(script);
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.txt");
    let long = "x".repeat(60);
    let urls = (0..60_000).map(|page| format!("http://127.0.0.1:1/{page}/{long}\n"));
    fs::write(&list, urls.collect::<String>()).unwrap();
    let disk = tempfile::tempdir().unwrap();
    command.env("DISK", disk.path()).env("LIST", &list);
    command.env("POLITELY", env!("CARGO_BIN_EXE_politely"));
    let said = run(&mut command);
    assert_eq!(said.code, 1, "{}", said.err);
    let told = said.lines("cannot keep the queue in");
    assert_eq!(
        (told.len(), said.lines("error: ").len()),
        (1, 1),
        "{}",
        said.err
    );
    assert!(is_full(told[0]), "{told:?}");
    assert_eq!(said.lines("interrupted, ").len(), 1, "{}", said.err);
}
