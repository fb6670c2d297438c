//! The `politely fetch` processes of a fleet, and the hosts that they crawl.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use politely_target::{HostSpec, Record, Target, Town};
use tokio::runtime::Runtime;

use crate::fleet::verdict::Numbers;
use politely_testkit::process::Server;

/// Longest wait for an event that must come, on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// The number of a process's last output lines in the message of a failed assertion.
const LINES: usize = 12;

pub(super) struct Crew {
    // The fields are declared in the order in which they must be dropped.
    pub(super) members: Vec<Member>,
    pub(super) target: Target,
    /// The time at which the hosts' clocks were zero.
    began: Instant,
    folder: tempfile::TempDir,
    pub(super) runtime: Runtime,
}

/// One `politely fetch` process and its arguments.
pub(super) struct Member {
    folder: PathBuf,
    args: Vec<String>,
    process: Option<Server>,
}

impl Crew {
    /// Starts the hosts, without processes.
    pub(super) fn start(hosts: Vec<HostSpec>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let town = Target::start_with(Town::new(hosts), Record::Memory);
        let target = runtime.block_on(town).expect("the town starts");
        Self {
            members: Vec::new(),
            target,
            began: Instant::now(),
            folder: tempfile::tempdir().expect("a temporary folder"),
            runtime,
        }
    }

    /// Starts one process for each URL in `stores`, with the further arguments `args`. Each process
    /// gets a share of every host's pages.
    pub(super) fn hire(&mut self, stores: &[String], args: &[String]) {
        self.hire_for(stores, args, |url| url);
    }

    /// Starts processes that fetch each page at the URL that `at` returns, instead of the host's
    /// own.
    pub(super) fn hire_for(
        &mut self,
        stores: &[String],
        args: &[String],
        at: impl Fn(String) -> String,
    ) {
        let mut urls = vec![Vec::new(); stores.len()];
        for host in self.target.hosts() {
            for (page, url) in host.page_urls().enumerate() {
                urls[page % stores.len()].push(at(url));
            }
        }
        for (number, (store, urls)) in stores.iter().zip(urls).enumerate() {
            let folder = self.folder.path().join(format!("member-{number}"));
            fs::create_dir(&folder).expect("the folder can be written");
            fs::write(folder.join("urls.txt"), urls.join("\n")).expect("the list is written");
            let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
            let words = "fetch --no-robots --summary none --store";
            let mut all: Vec<String> = words.split(' ').map(str::to_owned).collect();
            all.push(store.clone());
            for (flag, file) in [
                ("-i", "urls.txt"),
                ("--output", "out.jsonl"),
                ("--state", "state"),
            ] {
                all.extend([flag.to_owned(), path(file)]);
            }
            all.extend_from_slice(args);
            let mut member = Member {
                folder,
                args: all,
                process: None,
            };
            member.start();
            self.members.push(member);
        }
    }

    /// Returns the time on the hosts' clocks.
    pub(super) fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Returns the number of requests that have arrived at the hosts.
    pub(super) fn arrivals(&self) -> u64 {
        let rows = self.target.judge().hosts;
        rows.iter().map(|row| row.arrivals).sum()
    }

    /// Returns the number of pages of all hosts.
    pub(super) fn pages(&self) -> u64 {
        let hosts = self.target.hosts().iter();
        hosts.map(|host| u64::from(host.pages)).sum()
    }

    /// Waits until `is_true` returns true. Fails if a process has failed.
    pub(super) fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_true(self) {
            self.demand_nobody_failed();
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.story());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `count` requests have arrived.
    pub(super) fn until_arrivals(&mut self, count: u64) {
        self.until("the work goes on", |crew| crew.arrivals() >= count);
    }

    /// Waits until one more request arrives, and returns how long that took.
    pub(super) fn until_it_goes_on(&mut self) -> Duration {
        let (since, before) = (Instant::now(), self.arrivals());
        self.until_arrivals(before + 1);
        since.elapsed()
    }

    /// Waits until all processes have all their pages.
    pub(super) fn finish(&mut self) {
        self.until("all processes are done", |crew| {
            crew.members
                .iter_mut()
                .all(|member| member.is_done() == Some(true))
        });
        eprintln!("all done after {:.1?}", self.began.elapsed());
    }

    fn demand_nobody_failed(&mut self) {
        let failed = self
            .members
            .iter_mut()
            .position(|member| member.is_done().is_none());
        if let Some(number) = failed {
            panic!("process {number} failed{}", self.story());
        }
    }

    /// Returns the state of the fleet, for the message of a failed assertion.
    pub(super) fn story(&self) -> String {
        let mut story = format!("\n{}", self.target.judge());
        for (number, member) in self.members.iter().enumerate() {
            let talk = member
                .process
                .as_ref()
                .map(Server::talk)
                .unwrap_or_default();
            let lines: Vec<&str> = talk.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES)..];
            let _ = writeln!(story, "process {number}:\n  {}", last.join("\n  "));
        }
        story
    }
}

impl Member {
    pub(super) fn start(&mut self) {
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_politely"));
        self.process = Some(Server::start("fetch", &self.folder, &binary, &self.args));
    }

    /// Kills the process with SIGKILL. Returns `false` if it had finished before.
    pub(super) fn kill(&mut self) -> bool {
        let done = self.is_done() == Some(true);
        self.process = None;
        !done
    }

    pub(super) fn freeze(&self) {
        self.process.as_ref().expect("it runs").freeze();
    }

    pub(super) fn thaw(&self) {
        self.process.as_ref().expect("it runs").thaw();
    }

    /// Returns whether the process has ended by itself with all its pages, or `None` if it has
    /// failed.
    pub(super) fn is_done(&mut self) -> Option<bool> {
        let Some(process) = &mut self.process else {
            return Some(false);
        };
        match process.ended() {
            Some(status) => status.success().then_some(true),
            None => Some(false),
        }
    }
}

/// Returns the arguments for a fixed law with the operator's numbers. The tests can check such
/// limits exactly.
pub(super) fn fixed(numbers: Numbers, more: &str) -> Vec<String> {
    let mut args = numbers.args();
    // Under the profile `crawler`, the busy share would limit the rate further.
    args.extend(["--profile", "api"].map(str::to_owned));
    args.extend(more.split_whitespace().map(str::to_owned));
    args
}

/// Returns the same store's URL for `count` processes.
pub(super) fn same(url: &str, count: usize) -> Vec<String> {
    vec![url.to_owned(); count]
}
