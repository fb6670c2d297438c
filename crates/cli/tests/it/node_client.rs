//! Tests of the Node client with the built binary: its type check, which compiles it, and the
//! client's own tests.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Once;

use politely_testkit::repository;

/// The longest time of one of the client's tests, in milliseconds.
const TEST_MS_MAX: &str = "120000";

fn succeeds(command: &mut Command) {
    let output = command.output().expect("node runs");
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
}

fn node() -> Command {
    let mut command = Command::new("node");
    command
        .current_dir(repository().join("clients/node"))
        .env("POLITELY", env!("CARGO_BIN_EXE_politely"))
        .env_remove("POLITELY_TOKEN")
        .env_remove("POLITELY_COORDINATOR")
        .stdin(Stdio::null());
    command
}

/// Returns the compiled tests, also those in folders.
fn tests() -> Vec<OsString> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join("clients/node/dist/tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the tests are compiled") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".test.js") {
                found.push(path.into_os_string());
            }
        }
    }
    found
}

/// Compiles the client, once for all tests of this process.
pub(super) fn compile() {
    static COMPILED: Once = Once::new();
    COMPILED.call_once(|| {
        let compiler = repository().join("clients/node/node_modules/typescript/bin/tsc");
        assert!(
            compiler.exists(),
            "{} is missing: run scripts/setup",
            compiler.display()
        );
        succeeds(node().arg(compiler));
    });
}

#[test]
fn its_types_hold_and_its_own_tests_pass() {
    compile();
    let timeout = format!("--test-timeout={TEST_MS_MAX}");
    succeeds(
        node()
            .args(["--expose-gc", "--test", "--test-concurrency=3", &timeout])
            .args(tests()),
    );
}
