//! Tests of `politely policy` and of `--policy`.

use std::fs;

use crate::misbehaving::{Server, respond};
use crate::run::{politely, run};

const RULES: &str = "\
[[rule]]
match = [\"api.example.com\", \"127.0.0.1\"]
account = \"example\"
limits = [\"3/h\", \"1000/day@UTC\"]

[[rule]]
match = [\"*.example.com\"]
limits = [\"5/s\"]
";

#[test]
fn a_policy_is_checked_and_explained() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let path = file.display().to_string();
    fs::write(&file, RULES).unwrap();
    let said = run(politely().args(["policy", "check", &path]));
    assert_eq!(
        (said.code, said.out.trim()),
        (0, &*format!("{path}: 2 rules"))
    );
    for (url, parts) in [
        (
            "https://api.example.com/v1",
            ["rule of line 1", "custom/example: 3/h; 1000/day@UTC"],
        ),
        ("https://www.example.com/", ["rule of line 6", "5/s"]),
        ("custom/team", ["custom/team: no rule", "all keys"]),
    ] {
        let said = run(politely().args(["policy", "explain", &path, url]));
        assert_eq!(said.code, 0, "{}", said.err);
        for part in parts {
            assert!(said.out.contains(part), "{}", said.out);
        }
    }
    fs::write(
        &file,
        format!("{RULES}[[rule]]\nmatch = [\"api.example.com\"]\n"),
    )
    .unwrap();
    let said = run(politely().args(["policy", "check", &path]));
    assert_eq!(said.code, 1);
    let line = said.err.lines().next().unwrap_or_default();
    assert!(line.contains(":10: `api.example.com`"), "{line}");
    assert!(line.contains("the rule of line 1"), "{line}");
    let said = run(politely().args(["policy", "check", "/nowhere/rules.toml"]));
    assert_eq!(
        (said.code, said.err.lines().count()),
        (2, 1),
        "{}",
        said.err
    );
}

#[test]
fn fetch_keeps_the_limits_of_a_rule() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    fs::write(&file, RULES.replace("3/h", "2/2s")).unwrap();
    let urls = (0..5).map(|i| server.url(&format!("{i}")));
    let began = std::time::Instant::now();
    let said = run(politely()
        .args([
            "fetch",
            "--profile",
            "api",
            "--law",
            "fixed",
            "--rate",
            "1000",
        ])
        .arg("--policy")
        .arg(&file)
        .args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(began.elapsed().as_millis() >= 3_900);
    fs::write(&file, "[[rule]]\nmatch = [\"a.example/x/*\"]\n").unwrap();
    let said = run(politely()
        .args(["fetch", "http://127.0.0.1:1/", "--policy"])
        .arg(&file));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("has a path"), "{}", said.err);
}
