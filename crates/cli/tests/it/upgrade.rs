//! State folders of earlier versions, in `tests/fixtures`, are read.
//!
//! To add one, run `tests/fixtures/make VERSION` with the program of that version.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::http::Http;
use crate::run::{politely, run};
use politely_testkit::process::Server;
use politely_testkit::repository;

/// Unpacks a state folder.
fn unpacked(archive: &Path, folder: &Path) {
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(folder);
    assert!(tar.status().expect("tar runs").success(), "{tar:?}");
    let owner = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.join("state"), owner).expect("its mode is set");
}

fn get(http: &mut Http, path: &str) -> Value {
    let deadline = Instant::now() + Duration::from_mins(1);
    let answer = http.call("GET", path, "", deadline).expect("an answer");
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// What `tests/fixtures/make` sets and reports.
fn has_all(state: &Path, folder: &Path, version: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let state = state.to_str().expect("UTF-8");
    let args = ["serve", "--bind=127.0.0.1:0", "--state", state];
    let mut server = Server::start("politely", folder, program, args);
    let line = server.says("politely: http://");
    let address: SocketAddr = line
        .trim_start_matches("politely: http://")
        .parse()
        .expect("an address");
    let mut http = Http::new(address);
    let set = get(&mut http, "/api/v1/keys/set.example");
    for (name, value) in [
        ("rate", json!(2.5)),
        ("burst", json!(3.0)),
        ("in_flight", json!(7)),
    ] {
        assert_eq!(set["limits"][name], value, "{version}: {set}");
    }
    let config = get(&mut http, "/api/v1/config");
    assert_eq!(
        config["crawling"]["rate_start"],
        json!(4.0),
        "{version}: {config}"
    );
    // The host refused one of six requests.
    let held = get(&mut http, "/api/v1/keys/learned.example");
    assert!(held["refused"].as_u64() >= Some(1), "{version}: {held}");
    let stats = get(&mut http, "/api/v1/keys?prefix=learned");
    assert_eq!(
        stats["keys"].as_array().map(Vec::len),
        Some(1),
        "{version}: {stats}"
    );
    // The address and the state folder, and no warning.
    let talk = server.talk();
    assert_eq!(talk.lines().count(), 2, "{version}: {talk}");
}

#[test]
fn the_state_of_each_earlier_version_is_read() {
    let fixtures = repository().join("tests/fixtures");
    let mut versions = 0;
    for file in std::fs::read_dir(fixtures).expect("the fixtures") {
        let archive = file.expect("a file").path();
        if archive.extension().is_none_or(|ending| ending != "gz") {
            continue;
        }
        versions += 1;
        let version = archive.display().to_string();
        let folder = tempfile::tempdir().expect("a folder");
        unpacked(&archive, folder.path());
        let state = folder.path().join("state");
        let checked = run(politely().args(["state", "check"]).arg(&state));
        assert_eq!(checked.code, 0, "{version}: {}", checked.err);
        has_all(&state, folder.path(), &version);
        // The state is written in today's layout now, and read again.
        has_all(&state, folder.path(), &version);
    }
    assert!(versions > 0, "there are no fixtures");
}
