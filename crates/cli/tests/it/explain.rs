//! `politely explain` reads a state folder and a coordinator.

use std::path::Path;
use std::process::Command;

use politely_testkit::process::Server;

use crate::recorder::Recorder;
use crate::run::{politely, run};

/// A host that refuses its third request, and has no second page.
fn host() -> Recorder {
    Recorder::start(|came, before| match (came.path.as_str(), before) {
        ("/gone", _) => Some(("404 Not Found", String::new())),
        (_, 2) => Some(("429 Too Many Requests", "Retry-After: 1\r\n".to_owned())),
        _ => Some(("200 OK", String::new())),
    })
}

fn explain(host: &str, flags: &[&str]) -> Command {
    let mut command = politely();
    command.args(["explain", host]).args(flags);
    command
}

#[test]
fn a_state_folder_tells_what_was_learned_and_how_its_pages_ended() {
    let server = host();
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let name = server.address.to_string();
    let mut fetch = politely();
    fetch.args(["fetch", "--profile", "api", "--concurrency", "1", "--state"]);
    fetch
        .arg(&state)
        .args(["a", "b", "c", "gone"].map(|page| server.url(page)));
    let said = run(&mut fetch);
    assert_eq!(said.code, 1, "{}", said.err);
    let state = state.to_str().unwrap();
    let said = run(&mut explain(&name, &["--state", state, "--profile", "api"]));
    assert_eq!(said.code, 0, "{}", said.err);
    for part in [
        format!("{name}: "),
        "rate: ".to_owned(),
        "last event: 429, Retry-After: 1".to_owned(),
        "pages: 3 fetched, 1 failed, 0 wait".to_owned(),
        "  1 failed: 404 Not Found".to_owned(),
    ] {
        assert!(
            said.out.lines().any(|line| line.starts_with(&part)),
            "{part}: {}",
            said.out
        );
    }
    let said = run(&mut explain("other.example", &["--state", state]));
    said.demand_one_line(2);
    assert!(
        said.err.contains("other.example: not known"),
        "{}",
        said.err
    );
    let said = run(&mut explain(
        &name,
        &["--state", dir.path().to_str().unwrap()],
    ));
    said.demand_one_line(2);
    assert!(said.err.contains("no state folder"), "{}", said.err);
}

#[test]
fn a_coordinator_tells_its_decisions() {
    let server = host();
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let args = ["serve", "--memory", "--bind=127.0.0.1:0"];
    let mut process = Server::start("politely", folder.path(), program, args);
    let line = process.says("politely: http://");
    let url = line.trim_start_matches("politely: ");
    let mut fetch = politely();
    fetch.args([
        "fetch",
        "--no-robots",
        "--concurrency",
        "1",
        "--coordinator",
        url,
    ]);
    fetch.args(["a", "b", "c"].map(|page| server.url(page)));
    let said = run(&mut fetch);
    assert_eq!(said.code, 0, "{}", said.err);
    let name = server.address.to_string();
    let said = run(&mut explain(&name, &["--coordinator", url]));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.starts_with(&format!("{name}: ")), "{}", said.out);
    assert!(
        said.out.contains(" s ago: ") && said.out.contains("429"),
        "{}",
        said.out
    );
    let said = run(&mut explain("other.example", &["--coordinator", url]));
    said.demand_one_line(2);
    assert!(said.err.contains("not known"), "{}", said.err);
    let said = run(&mut explain("a", &["--coordinator", url, "--state", "x"]));
    assert_eq!(said.code, 2, "{}", said.err);
}
