//! Tests of `politely simulate`: equal runs print equal bytes, and errors name the wrong input.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::run::{Said, politely, run};

/// Two short scenarios with refusals.
const SCENARIOS: &str = r#"[
  {"name": "bucket", "duration_s": 60, "demand": {"kind": "greedy"}, "rtt_ms": 20,
   "limit": {"kind": "token_bucket", "rate": 5, "burst": 3}},
  {"name": "pages & slots", "duration_s": 60, "demand": {"kind": "pages", "count": 50}, "rtt_ms": 20,
   "service": {"mean_ms": 100, "cv": 0.3}, "limit": {"kind": "concurrency_reject", "slots": 2},
   "faults": [{"kind": "noise", "share": 0.05, "status": 429}], "workers": 2, "coordinated": false}
]"#;

/// The field names of a JSON line, in order.
const FIELDS: [&str; 13] = [
    "scenario",
    "law",
    "seed",
    "utilisation",
    "refused_share",
    "refused_worst_minute",
    "t90_s",
    "overshoot_1s",
    "latency_p50_ms",
    "latency_p95_ms",
    "accepted",
    "refused",
    "jain",
];

struct Case {
    dir: TempDir,
    file: PathBuf,
}

impl Case {
    fn of(scenarios: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("mine.json");
        fs::write(&file, scenarios).expect("a file");
        Self { dir, file }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = politely();
        command.arg("simulate").arg(&self.file).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        run(&mut self.command(args))
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let case = Case::of(SCENARIOS);
    for args in [
        &["--law", "aimd,fixed", "--seeds", "3", "--json"][..],
        &["--law", "aimd,fixed", "--seeds", "3", "--worst", "2"],
    ] {
        let first = case.run(args);
        assert_eq!(first.code, 0, "{}", first.err);
        assert_eq!(first.out, case.run(args).out);
    }
}

#[test]
fn a_json_line_has_the_issues_fields_first_and_in_order() {
    let case = Case::of(SCENARIOS);
    let said = case.run(&["--law", "aimd,fixed", "--seeds", "2", "--json"]);
    let mut order = Vec::new();
    for (line, row) in said.out.lines().zip(said.rows()) {
        let mut from = 0;
        for field in FIELDS {
            let named = format!("\"{field}\":");
            let at = line[from..].find(&named).map(|at| from + at);
            assert!(at.is_some(), "{field} is not where it should be: {line}");
            let fields_before = line[..at.unwrap_or(0)].matches("\":").count();
            assert_eq!(FIELDS[fields_before], field, "{line}");
            from = at.unwrap_or(0);
        }
        order.push(format!(
            "{} {} {}",
            row["scenario"], row["law"], row["seed"]
        ));
    }
    let expected: Vec<_> = ["bucket", "pages & slots"]
        .iter()
        .flat_map(|scenario| ["aimd", "fixed"].map(|law| (scenario, law)))
        .flat_map(|(scenario, law)| [1, 2].map(|seed| format!("\"{scenario}\" \"{law}\" {seed}")))
        .collect();
    assert_eq!(order, expected);
    assert_eq!(said.lines("requests simulated").len(), 1, "{}", said.err);
    assert_eq!(said.lines("worst min p95").len(), 1, "{}", said.err);
}

#[test]
fn the_table_has_a_row_per_scenario_and_law_and_a_summary_per_law() {
    let case = Case::of(SCENARIOS);
    let said = case.run(&["--law", "aimd,fixed", "--seeds", "2", "--worst", "1"]);
    let starts = |text: &str| {
        said.out
            .lines()
            .filter(|line| line.starts_with(text))
            .count()
    };
    // Each scenario has two rows in the table, and each is in the list of the worst runs of each
    // law.
    assert_eq!(starts("bucket ") + starts("pages & slots "), 4 + 4);
    assert_eq!(starts("aimd "), 1, "{}", said.out);
    assert_eq!(starts("aimd: least used") + starts("aimd: most refused"), 2);
}

#[test]
fn only_some_scenarios_can_be_run() {
    let case = Case::of(SCENARIOS);
    let said = case.run(&["--law", "fixed", "--only", "slots", "--json"]);
    assert_eq!(said.rows().len(), 1);
    let said = case.run(&["--law", "fixed", "--only", "ponies"]);
    assert_eq!((said.code, said.lines("--only ponies").len()), (2, 1));
}

#[test]
fn whatever_is_wrong_is_named_in_one_line() {
    let scenario = |fields: &str| {
        format!(
            r#"[{{"name": "mine", "duration_s": 60, "demand": {{"kind": "greedy"}}, {fields}}}]"#
        )
    };
    let none = r#""limit": {"kind": "none"}"#;
    for (scenarios, named) in [
        (
            scenario(&format!(r#""rtt_ms": 20, "colour": "red", {none}"#)),
            "mine.json: scenario mine: colour: unknown field `colour`",
        ),
        (
            scenario(&format!(r#""rtt_ms": -20, {none}"#)),
            "mine.json: scenario mine: rtt_ms must be",
        ),
        (
            scenario(r#""rtt_ms": 20, "limit": {"kind": "leaky", "rate": 5, "burst": 3}"#),
            "mine.json: scenario mine: limit: unknown field `burst`",
        ),
        ("[".to_owned(), "mine.json: "),
        ("[]".to_owned(), "mine.json: no scenarios in it"),
    ] {
        let said = Case::of(&scenarios).run(&["--law", "fixed"]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{scenarios}");
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert_eq!(said.lines(named).len(), 1, "{named}: {}", said.err);
    }
    let said = run(politely().args(["simulate", "no-such-file.json", "--law", "fixed"]));
    assert_eq!(said.code, 2);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert_eq!(said.lines("no-such-file.json").len(), 1, "{}", said.err);
}

#[test]
fn an_unknown_law_is_named_with_the_choices() {
    let said = Case::of(SCENARIOS).run(&["--law", "aimd,vegass"]);
    said.demand_one_line(2);
    let named = "unknown law \"vegass\": choose from ";
    assert_eq!(said.lines(named).len(), 1, "{}", said.err);
    assert_eq!(said.lines("aimd, fixed, ").len(), 1, "{}", said.err);
}

#[test]
fn pictures_of_each_run_and_of_all_laws_are_drawn() {
    let case = Case::of(SCENARIOS);
    let folder = case.dir.path().join("new/plots");
    let draw = || {
        let said = run(case
            .command(&["--law", "aimd,fixed", "--seeds", "2", "--plot"])
            .arg(&folder));
        assert_eq!(said.code, 0, "{}", said.err);
        let mut pictures: Vec<(String, String)> = fs::read_dir(&folder)
            .expect("the folder was made")
            .map(|entry| entry.expect("an entry").path())
            .map(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                let name = name.expect("a name").to_owned();
                (name, fs::read_to_string(&path).expect("a text"))
            })
            .collect();
        pictures.sort();
        pictures
    };
    let pictures = draw();
    let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "bucket--aimd.svg",
        "bucket--fixed.svg",
        "mine.svg",
        "pages---slots--aimd.svg",
        "pages---slots--fixed.svg",
    ];
    assert_eq!(names, expected);
    for (name, svg) in &pictures {
        roxmltree::Document::parse(svg).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    assert_eq!(pictures, draw(), "the same bytes again");
}

#[test]
fn an_unknown_set_is_told_with_the_known_ones() {
    let said = run(politely().args(["simulate", "hold-out"]));
    assert_eq!(said.code, 2, "{}", said.err);
    assert_eq!(said.lines("hold-out: no file").len(), 1, "{}", said.err);
    assert!(said.err.contains("held-out, train-field"), "{}", said.err);
}

#[test]
fn the_study_of_declared_limits_has_no_picture() {
    let dir = tempfile::tempdir().unwrap();
    let said = run(politely()
        .args(["simulate", "declared", "--plot"])
        .arg(dir.path()));
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("--plot has no effect"), "{}", said.err);
}

#[test]
fn the_backoff_study_is_a_table_and_a_picture() {
    let dir = tempfile::tempdir().unwrap();
    let said = run(politely()
        .args(["simulate", "backoff", "--plot"])
        .arg(dir.path()));
    assert_eq!(said.code, 0, "{}", said.err);
    for backoff in ["none", "equal", "full", "decorrelated"] {
        let rows = said.out.lines().filter(|line| line.starts_with(backoff));
        assert!(rows.count() > 1, "{backoff}: {}", said.out);
    }
    let svg = fs::read_to_string(dir.path().join("backoff.svg")).unwrap();
    roxmltree::Document::parse(&svg).unwrap();
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure_either() {
    let case = Case::of(SCENARIOS);
    let mut child = case
        .command(&["--law", "fixed", "--seeds", "200", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_documents_example_can_be_run() {
    let page =
        fs::read_to_string(politely_testkit::repository().join("docs/reference/simulate.md"))
            .unwrap();
    let example = page
        .split("```json")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let said = Case::of(example.expect("an example")).run(&["--law", "fixed", "--json"]);
    assert_eq!((said.code, said.rows().len()), (0, 1), "{}", said.err);
}

/// Every example of a limit, fault or demand in the reference page is valid.
#[test]
fn every_kind_in_the_document_can_be_written() {
    let page =
        fs::read_to_string(politely_testkit::repository().join("docs/reference/simulate.md"))
            .unwrap();
    let kinds: Vec<&str> = page
        .split('`')
        .filter(|span| span.starts_with("{\"kind\":") && !span.contains('…'))
        .collect();
    assert!(kinds.len() > 10, "{kinds:?}");
    for kind in kinds {
        let readable = [
            format!(r#""demand": {{"kind": "greedy"}}, "limit": {kind}"#),
            format!(
                r#""demand": {{"kind": "greedy"}}, "limit": {{"kind": "none"}}, "faults": [{kind}]"#
            ),
            format!(r#""demand": {kind}, "limit": {{"kind": "none"}}"#),
        ]
        .map(|fields| {
            let scenario = format!(r#"[{{"name": "a", "duration_s": 1, "rtt_ms": 20, {fields}}}]"#);
            Case::of(&scenario).run(&["--law", "fixed"]).code == 0
        });
        assert!(readable.contains(&true), "{kind}");
    }
}
