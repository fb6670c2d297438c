//! Tests of `politely policy` and of `--policy`.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::declared_limits::most;
use crate::misbehaving::{Server, respond};
use crate::run::{fast, fetch_at, politely, run};

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
fn a_coordinator_refuses_a_limit_that_nothing_charges() {
    let args = ["serve", "--memory", "--bind", "127.0.0.1:0", "--limits"];
    let said = run(politely().args(args).arg("9 requets/s"));
    assert_eq!(said.code, 2, "{}", said.err);
    let part = "--limits: limit `9 requets/s`: nothing charges the unit requets";
    assert!(said.err.contains(part), "{}", said.err);
}

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
        (
            "https://www.example.com/",
            ["5/s", "a refusal holds www.example.com"],
        ),
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
    fs::write(&file, "# no rules yet\n").unwrap();
    let said = run(politely().args(["policy", "check", &path]));
    assert_eq!(said.code, 0);
    assert!(said.out.contains("--allow-empty-policy"), "{}", said.out);
    let said = run(politely().args(["policy", "check", "/nowhere/rules.toml"]));
    said.demand_one_line(2);
}

#[test]
fn fetch_keeps_the_limits_of_a_rule() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", "", "page"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    fs::write(&file, RULES.replace("3/h", "2/2s")).unwrap();
    let urls = (0..5).map(|i| server.url(&format!("{i}")));
    let began = Instant::now();
    let said = run(fetch_at("1000").arg("--policy").arg(&file).args(urls));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(began.elapsed().as_millis() >= 3_900);
}

#[test]
fn fetch_keeps_the_limits_of_a_path_and_those_of_the_rest_of_its_host() {
    let came = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&came);
    let server = Server::start(move |path, stream| {
        let is_search = path.starts_with("/search");
        notes.lock().unwrap().push((is_search, Instant::now()));
        respond(stream, "200 OK", "", "page")
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let rules = "[[rule]]\nmatch = [\"127.0.0.1/search/*\"]\naccount = \"search\"\n\
                 limits = [\"2/2s\"]\n[[rule]]\nmatch = [\"127.0.0.1\"]\n\
                 account = \"rest\"\nlimits = [\"5/2s\"]\n";
    fs::write(&file, rules).unwrap();
    let searches = (0..4).map(|i| server.url(&format!("search/{i}")));
    let others = (0..8).map(|i| server.url(&format!("{i}")));
    let said = run(fetch_at("1000")
        .arg("--policy")
        .arg(&file)
        .args(searches.chain(others)));
    assert_eq!(said.code, 0, "{}", said.err);
    let came = came.lock().unwrap();
    for (kind, count, quantity) in [(true, 4, 2), (false, 8, 5)] {
        let of_kind = came.iter().filter(|(is_search, _)| *is_search == kind);
        let of_kind: Vec<Instant> = of_kind.map(|(_, at)| *at).collect();
        assert_eq!(of_kind.len(), count);
        // A request may come late on a busy machine, so the window of the judge is shorter.
        assert!(
            most(&of_kind, Duration::from_millis(1_500)) <= quantity,
            "{kind}"
        );
    }
}

#[test]
fn two_policies_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let old = file("old.toml", RULES);
    let new = RULES
        .replace("5/s", "6/s")
        .replace("\"127.0.0.1\"", "\"::1\"");
    let new = file("new.toml", &new.replace("::1", "other.example"));
    let diff = |old, new| run(politely().args(["policy", "diff"]).arg(old).arg(new));
    let said = diff(&old, &new);
    assert_eq!(said.code, 1, "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].starts_with("~ *.example.com: 5/s -> 6/s"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("- 127.0.0.1: "), "{lines:?}");
    assert!(lines[2].starts_with("+ other.example: "), "{lines:?}");
    let said = diff(&old, &old);
    assert_eq!((said.code, said.out.as_str()), (0, ""));
}

#[test]
fn presets_are_listed_shown_and_are_policies() {
    let said = run(politely().args(["presets", "list"]));
    assert_eq!((said.code, said.out.lines().count()), (0, 13));
    let dir = tempfile::tempdir().unwrap();
    for line in said.out.lines() {
        let name = line.split_whitespace().next().unwrap();
        let shown = run(politely().args(["presets", "show", name]));
        let file = dir.path().join(name);
        fs::write(&file, shown.out).unwrap();
        let said = run(politely().args(["policy", "check"]).arg(&file));
        assert_eq!(said.code, 0, "{}", said.err);
    }
    let said = run(politely().args(["presets", "show", "nobody"]));
    said.demand_one_line(2);
    assert!(said.err.contains("github"), "{}", said.err);
}

#[test]
fn wrong_fields_are_one_line_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let rule = "[[rule]]\nmatch = [\"a.example\"]\n";
    let answer = "[[rule.answer]]\nsignal = \"ok\"\n";
    for (text, line, part) in [
        ("cost = { points = -1 }", 3, "from 0 to"),
        ("cost = { points = { get = 1 } }", 3, "`get` is no method"),
        ("cost = { requests = 0 }", 3, "from 1 to 1000"),
        ("cost = { bytes = 1 }", 3, "known from the request"),
        ("learn = false", 3, "needs `limits`"),
        ("spacing = \"poisson\"", 3, "fixed, uniform or exponential"),
        ("share = { a = 0, b = 1 }", 3, "from 1 to 1000"),
        ("share = { a = 1 }", 3, "name two"),
        ("resend = [\"post\"]", 3, "`post` is no method"),
        ("block_share = 1.5", 3, "from 0 to 1"),
        ("scope = \"search\"", 3, "needs an `account`"),
        (
            "account = \"a\"\nscope = \"a b\"",
            4,
            "scope `a b`: use 1 to 64",
        ),
        (&format!("{answer}when = {{}}"), 3, "`when` is empty"),
        (
            &format!("{answer}when = {{ status = 99 }}"),
            5,
            "from 100 to 999",
        ),
        (
            &format!("{answer}when = {{ body = \"(\" }}"),
            5,
            "pattern `(`",
        ),
        (
            &format!("{answer}when = {{ body = \"((a{{99}}){{99}}){{99}}\" }}"),
            5,
            "too large",
        ),
        (
            &format!("{answer}when = {{ status = 200 }}\nhold = \"2d\""),
            6,
            "at most a day",
        ),
        (
            "[[rule.answer]]\nsignal = \"rate_limited\"\nwhen = { status = 429 }\n\
             retry_after = \"body:/a~2\"",
            6,
            "retry_after `body:/a~2`",
        ),
        (
            &format!("{answer}when = {{ status = 429 }}\nretry_after = \"body:/a\""),
            6,
            "the signal ok has no wait",
        ),
    ] {
        fs::write(&file, format!("{rule}{text}\n")).unwrap();
        let said = run(politely().args(["policy", "check"]).arg(&file));
        let place = format!("rules.toml:{line}: ");
        assert_eq!(said.code, 1, "{text}");
        assert_eq!(said.err.lines().count(), 1, "{text}: {}", said.err);
        let is_right = said.err.contains(&place) && said.err.contains(part);
        assert!(is_right, "{text}: {}", said.err);
    }
}

#[test]
fn fetch_reads_answers_as_its_rules_say() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |_, stream| {
        let count = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let page = if count == 1 {
            "please slow down"
        } else {
            "page"
        };
        respond(stream, "200 OK", "", page)
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let rules = "[[rule]]\nmatch = [\"127.0.0.1\"]\n[[rule.answer]]\n\
                 when = { status = 200, body = \"slow down\" }\nsignal = \"rate_limited\"\n\
                 hold = \"1s\"\nnotify = true\n";
    fs::write(&file, rules).unwrap();
    let urls: Vec<String> = (0..3).map(|i| server.url(&format!("{i}"))).collect();
    let fetch = || {
        let mut command = politely();
        command
            .args(["fetch", "--profile", "api", "--policy"])
            .arg(&file);
        command
    };
    let began = Instant::now();
    let said = run(fetch().args(&urls));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(began.elapsed().as_millis() >= 1_000, "the host was held");
    assert!(said.err.contains("fits the rule of line 3"), "{}", said.err);
}

/// The first answer states its wait in the body only.
#[test]
fn fetch_waits_as_long_as_the_body_of_a_refusal_says() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |_, stream| {
        if asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            return respond(stream, "200 OK", "", "page");
        }
        let body = r#"{"error":{"details":[{"a":1},{"retryDelay":"1500ms"}]}}"#;
        respond(stream, "429 Too Many Requests", "", body)
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    let rules = "[[rule]]\nmatch = [\"127.0.0.1\"]\n[[rule.answer]]\n\
                 when = { status = 429 }\nsignal = \"rate_limited\"\n\
                 retry_after = \"body:/error/details/*/retryDelay\"\n";
    fs::write(&file, rules).unwrap();
    let said = run(fast().arg("--policy").arg(&file).arg(server.url("x")));
    assert_eq!(said.code, 0, "{}", said.err);
    let [(_, first), (_, second)] = &server.times()[..] else {
        panic!("two requests: {:?}", server.times())
    };
    assert!(second.duration_since(*first).as_millis() >= 1_500);
}

/// The quota of searches is spent with the first of them. The other pages do not wait for it.
#[test]
fn fetch_holds_the_part_of_a_host_whose_quota_is_spent() {
    let server = Server::start(|path, stream| {
        let spent = "x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 2\r\n\
                     x-ratelimit-resource: search\r\n";
        let headers = if path == "/search?1" { spent } else { "" };
        respond(stream, "200 OK", headers, "page")
    });
    let pages = ["search?1", "search?2", "a", "search?3", "b", "c"];
    let urls = pages.map(|page| server.url(page));
    let said = run(fast().args(["--in-flight", "1"]).args(&urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let sent = server.times();
    let order: Vec<&str> = sent.iter().map(|(path, _)| path.as_str()).collect();
    let expected = ["/search?1", "/a", "/b", "/c", "/search?2", "/search?3"];
    assert_eq!(order, expected);
}

#[test]
fn a_policy_is_read_again_when_it_changes_and_a_wrong_one_leaves_the_old_in_force() {
    use std::path::Path;

    use politely_testkit::process::Server;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    fs::write(&file, RULES).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let flag = format!("--policy={}", file.display());
    let args = ["serve", "--bind=127.0.0.1:0", "--memory", &flag];
    let mut process = Server::start("politely", dir.path(), program, args);
    process.says("politely: http://");
    fs::write(&file, format!("{RULES}[[rule]]\nmatch = [\"c.example\"]\n")).unwrap();
    process.says("change: 3 rules of");
    fs::write(
        &file,
        "[[rule]]\nmatch = [\"c.example\"]\nlimits = [\"0/s\"]\n",
    )
    .unwrap();
    let line = process.says("the policy from before stays in force");
    assert!(line.contains("rules.toml:3: limit `0/s`"), "{line}");
    // A file that was truncated lifts no limit.
    fs::write(&file, "").unwrap();
    let line = process.says("the policy has no rule");
    assert!(
        line.contains("stays in force") && line.contains("--allow-empty-policy"),
        "{line}"
    );
    process.hang_up();
    process.says("SIGHUP: ");
    fs::remove_file(&file).unwrap();
    let line = process.says("cannot use the policy file");
    assert!(line.contains("stays in force"), "{line}");
    process.hang_up();
    let line = process.says("SIGHUP: cannot use the policy file");
    assert!(line.contains("stays in force"), "{line}");
    fs::write(&file, RULES).unwrap();
    process.says("change: 2 rules of");
    process.hang_up();
    process.says("SIGHUP: 2 rules of");
}

#[test]
fn an_empty_policy_needs_its_flag() {
    use std::path::Path;

    use politely_testkit::process::Server;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    fs::write(&file, "# no rule\n").unwrap();
    let flag = format!("--policy={}", file.display());
    let args = ["serve", "--bind=127.0.0.1:0", "--memory", &flag];
    let said = run(politely().args(args));
    said.demand_one_line(2);
    assert!(said.err.contains("--allow-empty-policy"), "{}", said.err);

    let program = Path::new(env!("CARGO_BIN_EXE_politely"));
    let args = args.into_iter().chain(["--allow-empty-policy"]);
    let mut process = Server::start("politely", dir.path(), program, args);
    process.says("politely: http://");
    fs::write(&file, RULES).unwrap();
    process.says("change: 2 rules of");
    fs::write(&file, "").unwrap();
    process.says("change: 0 rules of");
}
