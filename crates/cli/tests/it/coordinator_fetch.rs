//! Several `politely fetch` processes share hosts through one `politely serve`. Together they are
//! as polite as one process, and nothing is lost when the coordinator is killed.
//!
//! The tests judge by the hosts' own records.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use politely_target::{HostSpec, LimitSpec, Report, RetryAfter, Service, Signals};

use crate::hosts::Hosts;
use crate::misbehaving::{Server, respond};
use crate::run::{politely, run, write_secret};

const PAGES: u32 = 36;
pub(crate) const TOKEN: &str = "a-token-of-the-tests";

/// Returns hosts with limits of several kinds.
fn hosts() -> Vec<HostSpec> {
    let host = |name: &str, limit: LimitSpec, retry_after: RetryAfter, mean_ms: f64| {
        let mut host = HostSpec::new(name, limit);
        host.signals = Signals {
            retry_after,
            ..Signals::default()
        };
        host.service = Service { mean_ms, cv: 0.3 };
        host.pages = PAGES;
        host
    };
    let bucket = LimitSpec::TokenBucket {
        rate: 5.0,
        burst: 5,
    };
    let window = LimitSpec::FixedWindow {
        count: 20,
        window_s: 10.0,
        aligned: false,
    };
    let slots = LimitSpec::ConcurrencyReject { slots: 4 };
    vec![
        host("bucket", bucket, RetryAfter::None, 20.0),
        host("window", window, RetryAfter::Seconds, 20.0),
        host("slots", slots, RetryAfter::None, 200.0),
        host("open", LimitSpec::None {}, RetryAfter::None, 20.0),
    ]
}

/// A coordinator, which is killed when this value is dropped.
pub(crate) struct Coordinator {
    process: Child,
    pub(crate) url: String,
}

impl Coordinator {
    fn start(folder: &Path, bind: &str) -> Self {
        Self::start_with(folder, bind, &[])
    }

    /// Starts a coordinator with further arguments.
    pub(crate) fn start_with(folder: &Path, bind: &str, args: &[&str]) -> Self {
        let token = folder.join("token");
        write_secret(&token, TOKEN);
        let mut process = politely()
            .args(["serve", "--bind", bind, "--token-file"])
            .arg(&token)
            .arg("--state")
            .arg(folder.join("state"))
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let talk = process.stderr.take().expect("its standard error");
        let mut line = String::new();
        BufReader::new(talk).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("politely: ");
        let url = url
            .unwrap_or_else(|| panic!("no coordinator: {line}"))
            .to_owned();
        Self { process, url }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("no TLS here")
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // This sends SIGKILL.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the command `politely fetch` for `urls`, without robots.txt, so that one process or four
/// send the same requests.
pub(crate) fn fetch(folder: &Path, name: &str, urls: &[String]) -> Command {
    let list = folder.join(format!("{name}.txt"));
    fs::write(&list, urls.join("\n")).expect("the list is written");
    let mut command = politely();
    command.args(["fetch", "--no-robots", "--summary", "none", "-i"]);
    command
        .arg(list)
        .arg("--output")
        .arg(folder.join(format!("{name}.jsonl")));
    command
}

fn shared(folder: &Path, name: &str, urls: &[String], url: &str) -> Command {
    let mut command = fetch(folder, name, urls);
    command.args(["--coordinator", url, "--token-file"]);
    command.arg(folder.join("token"));
    command
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Returns the hosts' report of one process that limits itself.
fn alone() -> Report {
    let (hosts, folder) = (Hosts::start(hosts()), folder());
    let said = run(&mut fetch(folder.path(), "one", &hosts.lists(1)[0]));
    assert_eq!(said.code, 0, "{}", said.err);
    hosts.end()
}

/// Runs `processes` processes that share a coordinator, and returns the hosts' report.
fn together(processes: usize) -> Report {
    let (hosts, folder) = (Hosts::start(hosts()), folder());
    let coordinator = Coordinator::start(folder.path(), "127.0.0.1:0");
    let lists = hosts.lists(processes);
    std::thread::scope(|scope| {
        for (i, urls) in lists.iter().enumerate() {
            let mut command = shared(folder.path(), &i.to_string(), urls, &coordinator.url);
            scope.spawn(move || {
                let said = run(&mut command);
                assert_eq!(said.code, 0, "{}", said.err);
            });
        }
    });
    hosts.end()
}

#[test]
fn two_and_four_processes_are_as_polite_as_one() {
    let (one, two, four) = std::thread::scope(|scope| {
        let one = scope.spawn(alone);
        let two = scope.spawn(|| together(2));
        let four = scope.spawn(|| together(4));
        let report = |run: std::thread::ScopedJoinHandle<'_, Report>| run.join().expect("a run");
        (report(one), report(two), report(four))
    });
    let refused = |report: &Report| report.hosts.iter().map(|host| host.refused).sum::<u64>();
    let story = format!("\none\n{one}\ntwo\n{two}\nfour\n{four}");
    for several in [&two, &four] {
        for (alone, host) in one.hosts.iter().zip(&several.hosts) {
            assert_eq!(host.pages, u64::from(PAGES), "{}: {story}", host.host);
            assert_eq!(host.duplicates, 0, "{}: {story}", host.host);
            assert_eq!(host.during_hold, 0, "{}: {story}", host.host);
            // A law's course depends on timing: two runs of one process differ by as much.
            assert!(host.refused <= alone.refused + 4, "{}: {story}", host.host);
            assert!(
                host.in_flight_max <= alone.in_flight_max.max(4),
                "{}: {story}",
                host.host
            );
        }
        assert!(refused(several) <= refused(&one) + 5, "{story}");
    }
}

#[test]
fn a_killed_coordinator_costs_no_page() {
    let (hosts, folder) = (Hosts::start(hosts()), folder());
    let coordinator = Coordinator::start(folder.path(), "127.0.0.1:0");
    let lists = hosts.lists(2);
    let mut workers: Vec<Child> = (0..2)
        .map(|i| {
            let mut command = shared(folder.path(), &i.to_string(), &lists[i], &coordinator.url);
            let talk = fs::File::create(folder.path().join(format!("{i}.talk"))).expect("a file");
            command.stderr(talk).spawn().expect("the binary runs")
        })
        .collect();
    let mut bind = coordinator.address().to_owned();
    let mut coordinator = Some(coordinator);
    for enough in [30, 80] {
        while hosts.arrivals() < enough {
            assert!(
                workers
                    .iter_mut()
                    .all(|worker| worker.try_wait().unwrap().is_none())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(coordinator.take());
        let heard = || {
            let talk = fs::read_to_string(folder.path().join("0.talk")).expect("its talk");
            talk.rfind("does not answer") > talk.rfind("answers again")
        };
        while !heard() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // The fleet fails closed: requests that had a permit leave within a second, and no others
        // follow.
        std::thread::sleep(Duration::from_secs(1));
        let before = hosts.arrivals();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(hosts.arrivals(), before);
        let again = Coordinator::start(folder.path(), &bind);
        again.address().clone_into(&mut bind);
        coordinator = Some(again);
    }
    for worker in &mut workers {
        let ended = worker.wait().expect("it ends");
        let talk = fs::read_to_string(folder.path().join("0.talk")).expect("its talk");
        assert!(ended.success(), "{talk}");
    }
    let report = hosts.end();
    for host in &report.hosts {
        assert_eq!(
            (host.pages, host.duplicates),
            (u64::from(PAGES), 0),
            "{report}"
        );
        assert_eq!(host.during_hold, 0, "{report}");
    }
}

#[test]
fn a_library_client_is_one_line_from_local_to_shared() {
    let (hosts, folder) = (Hosts::start(hosts()), folder());
    let coordinator = Coordinator::start(folder.path(), "127.0.0.1:0");
    let _ = rustls::crypto::ring::default_provider().install_default();
    hosts.runtime.block_on(async {
        let limiter = politely::Limiter::builder()
            .coordinator(&coordinator.url)
            .client("library")
            .token(TOKEN)
            .build()
            .expect("a limiter");
        let client = politely::middleware::client(limiter.clone()).expect("a client");
        let host = hosts.target.host("bucket").expect("the host");
        for url in host.page_urls().take(10) {
            let page = client.get(&url).send().await.expect("an answer");
            assert_eq!(page.status(), 200);
            page.bytes().await.expect("a body");
        }
        assert!(limiter.flush(Duration::from_secs(30)).await);
        let stats = limiter.stats();
        assert_eq!(stats.granted, stats.reported);
        let answer = shown_at(&coordinator, "keys").await;
        let row = &answer["keys"][0];
        assert_eq!(row["in_flight"], 0, "{answer}");
    });
}

/// Returns the coordinator's answer to `/api/v1/{what}`.
pub(crate) async fn shown_at(coordinator: &Coordinator, what: &str) -> serde_json::Value {
    let url = format!("{}/api/v1/{what}", coordinator.url);
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let answer = client
        .get(url)
        .bearer_auth(TOKEN)
        .send()
        .await
        .expect("an answer");
    let text = answer.text().await.expect("a body");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_coordinator_that_refuses_is_told_in_one_line() {
    let folder = folder();
    let coordinator = Coordinator::start(folder.path(), "127.0.0.1:0");
    let page = ["http://127.0.0.1:1/".to_owned()];
    let mut stranger = fetch(folder.path(), "stranger", &page);
    let said = run(stranger.args(["--coordinator", &coordinator.url]));
    assert_eq!(
        (said.code, said.lines("error: ").len()),
        (2, 1),
        "{}",
        said.err
    );
    assert_eq!(said.lines("token").len(), 1, "{}", said.err);
    for wrong in [&["--rate", "3"], &["--law", "aimd"], &["--in-flight", "2"]] {
        let mut command = shared(folder.path(), "knob", &page, &coordinator.url);
        let said = run(command.args(wrong));
        assert_eq!(
            (said.code, said.lines(wrong[0]).len()),
            (2, 1),
            "{}",
            said.err
        );
    }
    let said = run(fetch(folder.path(), "url", &page).args(["--coordinator", "nowhere"]));
    assert_eq!(
        (said.code, said.lines("nowhere").len()),
        (2, 1),
        "{}",
        said.err
    );
}

/// The refusal has status 200. Only the rule of the coordinator knows its words.
#[test]
fn fetch_sends_the_body_that_a_rule_of_the_coordinator_reads() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |_, stream| {
        let count = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let soft = "please slow down: wait 1 seconds";
        respond(stream, "200 OK", "", if count == 0 { soft } else { "page" })
    });
    let folder = folder();
    let rules = folder.path().join("rules.toml");
    let text = "[[rule]]\nmatch = [\"127.0.0.1\"]\n[[rule.answer]]\n\
                when = { status = 200, body = \"slow down\" }\nsignal = \"rate_limited\"\n\
                retry_after = \"body:wait (?<s>[0-9]+) seconds\"\n";
    fs::write(&rules, text).expect("the rules are written");
    let policy = format!("--policy={}", rules.display());
    let coordinator = Coordinator::start_with(folder.path(), "127.0.0.1:0", &[&policy]);
    let said = run(&mut shared(
        folder.path(),
        "soft",
        &[server.url("x")],
        &coordinator.url,
    ));
    assert_eq!(said.code, 0, "{}", said.err);
    let output = fs::read_to_string(folder.path().join("soft.jsonl")).expect("the output");
    let rows = crate::run::rows(&output);
    assert_eq!(
        (&rows[0]["status"], &rows[0]["refused"]),
        (&200.into(), &1.into())
    );
    let [(_, first), (_, second)] = &server.times()[..] else {
        panic!("two requests: {:?}", server.times())
    };
    assert!(second.duration_since(*first) >= Duration::from_secs(1));
}
