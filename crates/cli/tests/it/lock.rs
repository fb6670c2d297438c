//! Tests of `politely lock`, `keys` and `budgets` with a real coordinator.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use politely::{Key, Limiter};
use politely_testkit::process::{Server, free_place};

use crate::run::{politely, run};

struct Coordinator {
    server: Server,
    url: String,
}

impl Coordinator {
    fn start(folder: &Path) -> Self {
        Self::start_at(free_place(), folder, "--memory")
    }

    fn start_at(place: SocketAddr, folder: &Path, kept: &str) -> Self {
        let bind = format!("--bind={place}");
        let binary = Path::new(env!("CARGO_BIN_EXE_politely"));
        let args = ["serve", kept, &bind];
        let mut server = Server::start("serve", folder, binary, args.iter());
        let url = format!("http://{place}");
        server.says(&url);
        Self { server, url }
    }

    /// Returns `politely lock` with `options` for a shell script.
    fn lock(&self, options: &[&str], script: &str) -> Command {
        let mut command = politely();
        command.args(["lock", "--coordinator", &self.url]);
        command.args(options);
        command.args(["custom/job", "--", "sh", "-c", script]);
        command
    }
}

/// Starts a command and waits for the first line of its script.
fn started(command: &mut Command) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("UTF-8");
    assert_eq!(line, "in\n");
    child
}

fn code(child: Child) -> (i32, String) {
    let ended = child.wait_with_output().expect("it ends");
    let err = String::from_utf8(ended.stderr).expect("UTF-8");
    (ended.status.code().expect("no signal"), err)
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let script = "test \"$POLITELY_FENCING\" -gt 0 && echo \"$POLITELY_KEY\"; exit 7";
    let said = run(&mut coordinator.lock(&[], script));
    assert_eq!(
        (said.code, said.out.as_str()),
        (7, "custom/job\n"),
        "{}",
        said.err
    );
    let said = run(&mut coordinator.lock(&[], "kill -KILL $$"));
    assert_eq!(said.code, 128 + 9);
    let missing = [
        "lock",
        "--coordinator",
        &coordinator.url,
        "k",
        "--",
        "/no/such/command",
    ];
    assert_eq!(run(politely().args(missing)).code, 127);
    let said = run(politely().args(["lock", "--coordinator", "http://127.0.0.1:1", "k"]));
    assert_eq!(said.code, 2, "a command is required");
}

#[test]
fn a_held_lock_is_waited_for_and_released_with_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let order = folder.path().join("order");
    let add = |word: &str| format!("echo {word} >> {}", order.display());
    let mut first = started(&mut coordinator.lock(&[], &format!("echo in; cat; {}", add("1"))));
    let said = run(&mut coordinator.lock(&["--wait", "0"], "exit 0"));
    assert_eq!(said.code, 122, "{}", said.err);
    assert!(said.err.contains("is locked"), "{}", said.err);
    let mut second = coordinator.lock(&["--wait", "10m"], &add("2"));
    let second = second
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(first.stdin.take());
    assert_eq!(code(first).0, 0);
    assert_eq!(code(second).0, 0);
    assert_eq!(fs::read_to_string(&order).expect("written"), "1\n2\n");
}

#[test]
fn a_signal_is_passed_on_to_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let script = "trap 'exit 9' TERM; echo in; while :; do sleep 0.05; done";
    let child = started(&mut coordinator.lock(&[], script));
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(code(child).0, 9);
}

#[test]
fn keys_are_exported_as_they_were_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let keys = |args: &[&str]| {
        run(politely()
            .args(["keys", "--coordinator", &coordinator.url])
            .args(args))
    };
    let file = folder.path().join("keys.jsonl");
    let lines: Vec<String> = (0..2_500)
        .map(|at| match at % 2 {
            0 => format!("{{\"key\":\"h{at:04}.example\"}}\n"),
            _ => format!("{{\"key\":\"h{at:04}.example\",\"set\":{{\"rate\":2.5}}}}\n"),
        })
        .collect();
    let text = lines.concat();
    fs::write(&file, &text).expect("written");
    let path = file.to_str().expect("UTF-8");
    let said = keys(&["import", path]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.err.contains("2500 keys imported, 0 refused"),
        "{}",
        said.err
    );
    assert!(
        keys(&["export"]).out == text,
        "the export differs from the import"
    );
    let part = keys(&["export", "--prefix", "h000"]).out;
    assert_eq!(part, lines[..10].concat());
    fs::write(
        &file,
        "{\"key\":\"a.example\",\"set\":{\"rate\":0}}\n{\"key\":\"b.example\"}\n",
    )
    .expect("written");
    let said = keys(&["import", path]);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("a.example: rate: must be from"),
        "{}",
        said.err
    );
    fs::write(&file, "{}\n").expect("written");
    let said = keys(&["import", path]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("keys.jsonl:1: missing field `key`"),
        "{}",
        said.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_and_the_command_exclude_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let limiter = Limiter::builder().coordinator(&coordinator.url).build();
    let limiter = limiter.expect("the URL is valid");
    let key = Key::custom("job").expect("a key");
    let lock = limiter.lock(&key, 1).await.expect("it is free");
    assert!(lock.fencing() > 0 && !lock.is_lost());
    let mut other = coordinator.lock(&["--wait", "0"], "exit 0");
    assert_eq!(run(&mut other).code, 122);
    // A caller that leaves the queue is not served later.
    let waits = limiter.lock(&key, 1);
    let left = tokio::time::timeout(Duration::from_millis(200), waits).await;
    assert!(left.is_err(), "the key is locked");
    drop(lock);
    let said = run(&mut coordinator.lock(&["--wait", "10m"], "exit 0"));
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_lock_survives_a_killed_coordinator() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = format!("--state={}", folder.path().join("state").display());
    let place = free_place();
    let start = || Coordinator::start_at(place, folder.path(), &kept);
    let coordinator = start();
    let mut first = started(&mut coordinator.lock(&["--ttl", "1h"], "echo in; cat"));
    let pid = coordinator.server.pid().to_string();
    let kill = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(kill.expect("kill runs").success());
    drop(coordinator);
    let coordinator = start();
    let said = run(&mut coordinator.lock(&["--wait", "0"], "exit 0"));
    assert_eq!(said.code, 122, "{}", said.err);
    drop(first.stdin.take());
    let (ended, err) = code(first);
    assert_eq!(ended, 0, "{err}");
    let said = run(&mut coordinator.lock(&["--wait", "10m"], "exit 0"));
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_lost_lock_ends_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let child = started(&mut coordinator.lock(&["--ttl", "1s"], "echo in; exec sleep 600"));
    drop(coordinator.server);
    let (code, err) = code(child);
    assert_eq!(code, 121, "{err}");
    assert!(err.contains("the lock on custom/job is lost"), "{err}");
}

/// A wait without a bound may be a wrong address.
#[test]
fn a_lock_says_that_no_coordinator_serves() {
    let url = format!("http://{}", free_place());
    let lock = ["lock", "--wait", "2s", "--coordinator", &url];
    let said = run(politely().args(lock).args(["custom/job", "--", "true"]));
    assert_eq!(said.code, 2, "{}", said.err);
    assert_eq!(said.lines("trying again").len(), 1, "{}", said.err);
}

#[test]
fn a_budget_is_reset_and_an_unknown_one_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = Coordinator::start(folder.path());
    let file = folder.path().join("keys.jsonl");
    let line = "{\"key\":\"custom/team\",\"set\":{\"limits\":[\"900 tokens/30d\"]}}\n";
    fs::write(&file, line).expect("written");
    let import = ["keys", "import", "--coordinator", &coordinator.url];
    assert_eq!(run(politely().args(import).arg(&file)).code, 0);
    let reset = |key: &str, budget: &str| {
        let args = ["budgets", "reset", "--coordinator", &coordinator.url];
        run(politely().args(args).args([key, budget]))
    };
    for budget in ["900 tokens/30d", "all"] {
        let said = reset("custom/team", budget);
        assert_eq!(
            (said.code, said.err.as_str()),
            (0, "custom/team: 900 of 900 tokens/30day\n")
        );
    }
    let said = reset("custom/team", "5/h");
    assert_eq!(said.code, 2);
    let has = "the key custom/team has no budget `5/h`; it has 900 tokens/30day";
    assert!(said.err.contains(has), "{}", said.err);
    let said = reset("custom/other", "all");
    assert_eq!(said.code, 2);
    let unknown = "the key custom/other is not known";
    assert!(said.err.contains(unknown), "{}", said.err);
}
