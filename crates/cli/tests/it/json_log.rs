//! With `--log json` each line on standard error is one JSON object.

use serde_json::Value;

use crate::run::{fast, politely, rows, run};
use politely_testkit::process::Server;

/// Returns the lines as JSON, and fails if one has no time, level or message.
fn logged(lines: &str) -> Vec<Value> {
    let rows = rows(lines);
    for row in &rows {
        let has = |name: &str| row[name].is_string();
        assert!(has("timestamp") && has("level") && has("target"), "{row}");
        assert!(row["fields"]["message"].is_string(), "{row}");
    }
    rows
}

#[test]
fn a_run_logs_json_only() {
    let said = run(fast().args([
        "--log",
        "json",
        "--verbose",
        "http://127.0.0.1:1/",
        "--give-up-after",
        "1s",
    ]));
    let rows = logged(&said.err);
    let summary = rows.last().expect("a summary");
    assert_eq!(summary["fields"]["message"], "summary", "{}", said.err);
    assert_eq!(summary["fields"]["failed"], 1, "{summary}");
}

#[test]
fn a_usage_error_after_the_arguments_is_json_as_well() {
    let said = run(politely().args(["fetch", "--log", "json", "--input", "/does/not/exist"]));
    assert_eq!(said.code, 2);
    let rows = logged(&said.err);
    assert_eq!(rows.len(), 1, "{}", said.err);
    assert_eq!(rows[0]["level"], "ERROR");
}

#[test]
fn a_coordinator_logs_json_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_politely"));
    let args = ["serve", "--memory", "--bind=127.0.0.1:0", "--log=json"];
    let mut server = Server::start("politely", folder.path(), program, args);
    server.says("http://127.0.0.1:");
    server.hang_up();
    server.says("SIGHUP");
    let rows = logged(&server.talk());
    assert_eq!(rows.len(), 2, "{}", server.talk());
    assert_eq!(rows[1]["level"], "INFO");
}
