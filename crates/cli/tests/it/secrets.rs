//! Tests of the secrets of `politely serve`: token files and their reload, the engine's password,
//! the state directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::run::{politely, run};
use politely_testkit::process::Server;

fn start(folder: &Path, args: &[&str]) -> (Server, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let args = ["serve", "--bind=127.0.0.1:0"].iter().chain(args);
    let mut process = Server::start("politely", folder, program, args);
    let line = process.says("politely: http://");
    (process, line.trim_start_matches("politely: ").to_owned())
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn status(url: &str, token: &str) -> u16 {
    let client = reqwest::Client::builder();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let request = client
        .no_proxy()
        .build()
        .unwrap()
        .get(format!("{url}/api/v1/stats"));
    let answer = runtime.block_on(request.bearer_auth(token).send());
    answer.unwrap().status().as_u16()
}

#[test]
fn tokens_are_read_again_at_sighup_and_a_wrong_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let (old, new) = ("the-old-token-0123456789", "the-new-token-0123456789");
    write(
        &file,
        &format!("worker ci {old}\noperator ann the-token-of-ann-0123\n"),
        0o600,
    );
    let flag = format!("--token-file={}", file.display());
    let (mut process, url) = start(folder.path(), &["--memory", &flag]);
    assert_eq!((status(&url, old), status(&url, new)), (200, 401));
    write(&file, &format!("worker ci {new}\n"), 0o600);
    process.hang_up();
    process.says("SIGHUP: the tokens of");
    assert_eq!((status(&url, old), status(&url, new)), (401, 200));
    write(&file, "boss ci whatever-this-may-be\n", 0o600);
    process.hang_up();
    let line = process.says("the tokens from before stay in force");
    assert!(
        line.contains("line 1: the role must be read, worker or operator"),
        "{line}"
    );
    assert_eq!(status(&url, new), 200);
    let talk = process.talk();
    assert!(!talk.contains("whatever") && !talk.contains(new), "{talk}");
}

#[test]
fn a_token_file_for_every_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("token");
    write(&file, "0123456789abcdef", 0o644);
    let mut serve = politely();
    let said = run(serve.args(["serve", "--memory", "--token-file"]).arg(&file));
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("run chmod 600"), "{}", said.err);
}

#[test]
fn the_engines_password_is_in_no_argument_and_in_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    write(&file, "pass word/@:\n", 0o600);
    let flag = format!("--store-password-file={}", file.display());
    let (mut process, _) = start(folder.path(), &["--store=redis://ann@127.0.0.1:1", &flag]);
    process.says("the engine");
    let talk = process.talk();
    assert!(
        !talk.contains("pass word") && !talk.contains("pass%20word"),
        "{talk}"
    );
    let twice = ["serve", "--store=redis://ann:secret@127.0.0.1:1", &flag];
    let said = run(politely().args(twice));
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(
        said.err.contains("the URL has a password") && !said.err.contains("secret"),
        "{}",
        said.err
    );
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const FILES: [&str; 4] = [
    "permits.secret",
    "permits.journal",
    "politely.redb",
    "politely.state",
];

#[test]
fn a_state_folder_is_for_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("new/state");
    let flag = format!("--state={}", state.display());
    let (process, _) = start(folder.path(), &[&flag]);
    assert_eq!(mode(&state), 0o700);
    for file in FILES {
        assert_eq!(mode(&state.join(file)), 0o600, "{file}");
    }
    drop(process);
    // A known folder, and an empty one, that others may enter.
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for state in [state, empty] {
        fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
        let flag = format!("--state={}", state.display());
        let (process, _) = start(folder.path(), &[&flag]);
        assert_eq!(mode(&state), 0o700);
        let talk = process.talk();
        assert!(
            talk.contains("changed its mode from 0755 to 0700"),
            "{talk}"
        );
    }
}

#[test]
fn a_state_folder_with_files_of_other_programs_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("home");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("letter"), "of another program").unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    let flag = format!("--state={}", state.display());
    let (process, _) = start(folder.path(), &[&flag]);
    assert_eq!(mode(&state), 0o755);
    for file in FILES {
        assert_eq!(mode(&state.join(file)), 0o600, "{file}");
    }
    let talk = process.talk();
    assert!(
        talk.contains("other users may enter it (mode 0755)"),
        "{talk}"
    );
}
