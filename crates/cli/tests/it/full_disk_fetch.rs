//! `politely fetch` on a disk that is full for a while, or without descriptors for its files: no
//! page is lost, and none is charged.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::misbehaving::{Server, respond};
use crate::run::{fast, fetch_at, rows_of, run};

const PAGES: usize = 300;
/// The pages that are fetched before the disk is full.
const BEFORE: usize = 20;
const BODY: usize = 20_000;
const PATIENCE: Duration = Duration::from_mins(1);

/// A run in a mount namespace of its own, with a small disk at `folder/disk`.
struct Run {
    child: Child,
    /// The small disk as this process sees it.
    disk: PathBuf,
    messages: PathBuf,
}

impl Run {
    /// Starts a run of `urls` with `flags`. The word `DISK` in them is the folder of the disk.
    fn start(folder: &Path, size: &str, flags: &[&str], urls: &[String]) -> Self {
        let disk = folder.join("disk");
        fs::create_dir(&disk).unwrap();
        let list = folder.join("list.txt");
        fs::write(&list, urls.join("\n")).unwrap();
        let messages = folder.join("messages");
        let fetch = fetch_at("50");
        let mount = format!("mount -t tmpfs -o size={size} politely \"$0\" && exec \"$@\"");
        let child = Command::new("unshare")
            .args(["-rm", "sh", "-c", &mount])
            .arg(&disk)
            .arg(fetch.get_program())
            .args(fetch.get_args())
            .args(
                flags
                    .iter()
                    .map(|flag| flag.replace("DISK", disk.to_str().unwrap())),
            )
            .arg("-i")
            .arg(&list)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&messages).unwrap())
            .spawn()
            .expect("this test needs `unshare` of util-linux");
        let root = format!("/proc/{}/root", child.id());
        let disk = Path::new(&root).join(disk.strip_prefix("/").unwrap());
        Self {
            child,
            disk,
            messages,
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.messages).unwrap()
    }

    /// Waits until `is_reached` holds for the messages.
    fn wait_for(&mut self, is_reached: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_reached(&self.said()) {
            let ended = self.child.try_wait().unwrap();
            let hint = "this test needs user namespaces: sysctl kernel.unprivileged_userns_clone=1";
            assert!(ended.is_none(), "{hint}\n{}", self.said());
            assert!(Instant::now() < deadline, "{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a file that takes all room. Returns its path.
    fn fill(&self) -> PathBuf {
        let path = self.disk.join("ballast");
        let mut ballast = File::create(&path).unwrap();
        for size in [1 << 16, 1 << 10, 1] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }

    /// Returns the exit code.
    fn end(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(ended) = self.child.try_wait().unwrap() {
                return ended.code().unwrap();
            }
            assert!(Instant::now() < deadline, "{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server() -> Server {
    Server::start(|_, stream| respond(stream, "200 OK", "", &"x".repeat(BODY)))
}

fn asked(server: &Server) -> usize {
    server.counts().values().sum()
}

fn urls(server: &Server) -> Vec<String> {
    (0..PAGES).map(|n| server.url(&n.to_string())).collect()
}

/// Fills the disk during a run, and frees it again. `name` is the flag whose files are there.
fn pauses_and_goes_on(name: &str, flags: &[&str], results: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = server();
    let mut run = Run::start(folder.path(), "64m", flags, &urls(&server));
    run.wait_for(|_| asked(&server) >= BEFORE);
    let ballast = run.fill();
    run.wait_for(|said| said.contains(&format!("no room for --{name} ")));
    let pauses = |said: &str| said.matches("eta unknown: the run pauses").count();
    let shown = pauses(&run.said());
    run.wait_for(|said| pauses(said) > shown);
    let before = asked(&server);
    run.wait_for(|said| pauses(said) > shown + 1);
    assert_eq!(asked(&server), before, "no request while the disk is full");

    let results = run.disk.join(results);
    fs::remove_file(ballast).unwrap();
    // The disk vanishes with the run, so its lines are read before.
    let kept = folder.path().join("kept.jsonl");
    run.wait_for(|said| said.contains("there is room again after "));
    let deadline = Instant::now() + PATIENCE;
    while run.child.try_wait().unwrap().is_none() {
        let _ = fs::copy(&results, &kept);
        assert!(Instant::now() < deadline, "{}", run.said());
    }
    assert_eq!(run.end(), 0, "{}", run.said());
    let said = run.said();
    assert_eq!(said.matches("no room for").count(), 1, "{said}");
    assert!(
        said.contains(&format!("{PAGES} fetched, 0 failed")),
        "{said}"
    );
    let results = folder.path().join("results.jsonl");
    if results.exists() {
        let rows = rows_of(&results);
        let fetched: BTreeSet<_> = rows
            .iter()
            .map(|row| row["url"].as_str().unwrap())
            .collect();
        assert_eq!((rows.len(), fetched.len()), (PAGES, PAGES));
        assert!(
            rows.iter()
                .all(|row| row["attempts"] == 1 && row["error"].is_null())
        );
    }
    assert!(server.counts().values().all(|times| *times <= 2));
}

#[test]
fn a_full_disk_under_the_bodies_pauses_the_run_and_costs_no_page() {
    let flags = [
        "--save",
        "DISK/pages",
        "--state",
        "run",
        "-o",
        "results.jsonl",
    ];
    pauses_and_goes_on("save", &flags, "none");
}

#[test]
fn a_full_disk_under_the_results_pauses_the_run_and_loses_no_line() {
    let flags = ["--state", "run", "-o", "DISK/results.jsonl"];
    pauses_and_goes_on("output", &flags, "results.jsonl");
}

#[test]
fn a_full_disk_under_the_state_folder_pauses_the_run_and_costs_no_page() {
    let flags = ["--state", "DISK/run", "-o", "results.jsonl"];
    pauses_and_goes_on("state", &flags, "none");
}

#[test]
fn without_a_state_folder_a_full_disk_ends_the_run_with_a_list_of_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let server = server();
    let flags = ["--save", "DISK/pages", "-o", "results.jsonl"];
    let mut run = Run::start(folder.path(), "1m", &flags, &urls(&server));
    assert_eq!(run.end(), 1, "{}", run.said());
    let said = run.said();
    assert_eq!(said.matches("no room for --save ").count(), 1, "{said}");
    let missing = said
        .lines()
        .filter_map(|line| line.strip_prefix("missing: "));
    let mut urls_told: BTreeSet<String> = missing.map(str::to_owned).collect();
    assert!(!urls_told.is_empty(), "{said}");
    for row in rows_of(&folder.path().join("results.jsonl")) {
        assert!(row["error"].is_null(), "{row}");
        assert!(
            urls_told.insert(row["url"].as_str().unwrap().to_owned()),
            "{row}"
        );
    }
    assert_eq!(urls_told, urls(&server).into_iter().collect());
}

#[test]
fn a_process_without_a_descriptor_for_a_body_pauses_and_no_page_is_charged() {
    const DESCRIPTORS: usize = 40;
    const PAGES: usize = 2 * DESCRIPTORS;
    // The first answers wait for more connections than there are descriptors, so none is left for a
    // body.
    let (asked, all_asked) = (Mutex::new(0), Condvar::new());
    let server = Server::start(move |_, stream| {
        let mut count = asked.lock().unwrap();
        *count += 1;
        all_asked.notify_all();
        let few = |count: &mut usize| *count < DESCRIPTORS;
        let waited = all_asked.wait_timeout_while(count, Duration::from_secs(1), few);
        drop(waited.unwrap());
        respond(stream, "200 OK", "", &"x".repeat(BODY))
    });
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.jsonl");
    let fetch = fast();
    let mut shell = Command::new("sh");
    let limit = format!("ulimit -n {DESCRIPTORS}; exec \"$@\"");
    shell.args(["-c", &limit, "sh"]);
    shell.arg(fetch.get_program()).args(fetch.get_args());
    shell.args(["--in-flight", &DESCRIPTORS.to_string(), "--retries", "0"]);
    shell.arg("--save").arg(folder.path().join("pages"));
    shell.arg("-o").arg(&results).stdin(Stdio::null());
    let said = run(shell.args((0..PAGES).map(|n| server.url(&n.to_string()))));
    assert_eq!(said.code, 0, "{}", said.err);
    let words = "this machine seems to be at fault, and no host (too many open files)";
    assert!(said.err.to_lowercase().contains(words), "{}", said.err);
    let rows = rows_of(&results);
    assert_eq!(rows.len(), PAGES);
    assert!(rows.iter().all(|row| row["attempts"] == 1), "{rows:?}");
}
