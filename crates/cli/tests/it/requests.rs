//! Tests of what `fetch` sends beside a URL: header fields, credentials, methods and bodies, from
//! flags and from lines of JSON.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::recorder::Recorder;
use crate::run::{fast, politely, rows_of, run, write_secret};

const SECRET: &str = "s3cret-0123456789";

#[test]
fn the_fields_of_flags_and_of_the_settings_file_are_sent() {
    let server = Recorder::fine();
    let dir = tempfile::tempdir().unwrap();
    let (file, token) = (dir.path().join("p.toml"), dir.path().join("token"));
    fs::write(&file, "header = [\"X-File: 1\", \"Accept: text/csv\"]\n").unwrap();
    write_secret(&token, &format!("{SECRET}\n"));
    let said = run(fast().arg("--config").arg(&file).arg(server.url("a")));
    assert_eq!(said.code, 0, "{}", said.err);
    let flags = ["--header", "X-Flag: 2", "--header", "X-Flag: 3"];
    let mut command = fast();
    command.args(flags).arg("--bearer-file").arg(&token);
    let said = run(command.arg("--config").arg(&file).arg(server.url("b")));
    assert_eq!(said.code, 0, "{}", said.err);
    let [a, b] = &server.came()[..] else {
        panic!("two requests")
    };
    assert_eq!(a.header("x-file").as_deref(), Some("1"));
    assert_eq!(a.header("accept").as_deref(), Some("text/csv"));
    assert_eq!(b.header("x-flag").as_deref(), Some("2, 3"));
    assert_eq!(
        b.header("x-file"),
        None,
        "a flag replaces the key of the file"
    );
    let bearer = b.header("authorization");
    assert_eq!(bearer, Some(format!("Bearer {SECRET}")));
    let login = dir.path().join("login");
    write_secret(&login, "ann:pass word\n");
    let said = run(fast().arg("--basic-file").arg(&login).arg(server.url("c")));
    assert_eq!(said.code, 0, "{}", said.err);
    let basic = server.came()[2].header("authorization");
    assert_eq!(basic.as_deref(), Some("Basic YW5uOnBhc3Mgd29yZA=="));
}

#[test]
fn a_field_of_the_program_and_a_wrong_one_are_refused_in_one_line() {
    for (flags, why) in [
        (
            &["--header", "Host: a"][..],
            "--header 1: Host: the program sets this field itself",
        ),
        (
            &["--header", "A: b", "--header", "Connection: close"],
            "--header 2: Connection",
        ),
        (&["--header", "Content-Length: 3"], "Content-Length"),
        (
            &["--header", "transfer-encoding: chunked"],
            "transfer-encoding",
        ),
        (&["--header", SECRET], "write it as NAME: VALUE"),
        (&["--header", "User-Agent: x"], "use --user-agent"),
        (&["--method", "a b"], "--method `A B`: not a method"),
        (
            &["--data", "x", "--data-file", "y"],
            "--data cannot be combined",
        ),
        (
            &["--bearer-file", "x", "--basic-file", "y"],
            "--bearer-file cannot be combined",
        ),
    ] {
        let said = run(fast().args(flags).arg("http://127.0.0.1:1/"));
        said.demand_one_line(2);
        assert!(
            said.err.to_lowercase().contains(&why.to_lowercase()),
            "{why}: {}",
            said.err
        );
        assert!(!said.err.contains(SECRET), "{}", said.err);
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let token = dir.path().join("token");
    write_secret(&token, SECRET);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    for flag in ["--bearer-file", "--basic-file"] {
        let said = run(fast().arg(flag).arg(&token).arg("http://127.0.0.1:1/"));
        assert_eq!(said.code, 2, "{}", said.err);
        assert_eq!(said.lines("run chmod 600").len(), 1, "{}", said.err);
        assert!(!said.err.contains(SECRET), "{}", said.err);
    }
}

/// Returns all bytes below a folder.
fn bytes_below(folder: &Path, all: &mut Vec<u8>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            bytes_below(&entry.path(), all);
        } else {
            all.extend(fs::read(entry.path()).unwrap());
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[test]
fn a_secret_stays_at_its_origin_and_stands_in_no_row_log_or_state() {
    let other = Recorder::fine();
    let away = other.url("landed");
    let server = Recorder::start(move |came, _| match came.path.as_str() {
        "/away" => Some(("302 Found", format!("Location: {away}\r\n"))),
        "/here" => Some(("302 Found", "Location: /landed\r\n".to_owned())),
        "/robots.txt" => Some(("404 Not Found", String::new())),
        _ => Some(("200 OK", String::new())),
    });
    let dir = tempfile::tempdir().unwrap();
    let (token, more) = (dir.path().join("token"), dir.path().join("more"));
    write_secret(&token, SECRET);
    write_secret(&more, &format!("# fields\nX-Mine: {SECRET}\n"));
    let state = dir.path().join("state");
    let mut command = politely();
    command.args(["fetch", "--rate", "10", "-v", "--header", "X-Plain: 1"]);
    command.args(["--header", &format!("Cookie: sid={SECRET}")]);
    command.args(["--header", &format!("X-Api-Key: {SECRET}")]);
    command.args(["--header", &format!("@{}", more.display())]);
    command
        .arg("--bearer-file")
        .arg(&token)
        .arg("--state")
        .arg(&state);
    let said = run(command.args([server.url("here"), server.url("away")]));
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(
        said.lines("in the list of processes").len(),
        1,
        "{}",
        said.err
    );
    let names = ["authorization", "cookie", "x-api-key", "x-mine"];
    for came in server.came() {
        let is_page = came.path != "/robots.txt";
        for name in names {
            let has_secret = came
                .header(name)
                .is_some_and(|value| value.contains(SECRET));
            assert_eq!(has_secret, is_page, "{name} of {}", came.path);
        }
    }
    let landed = other.came();
    let landed = landed.iter().find(|came| came.path == "/landed").unwrap();
    for name in names {
        assert_eq!(landed.header(name), None, "{name}");
    }
    assert_eq!(landed.header("x-plain").as_deref(), Some("1"));
    assert!(!said.out.contains(SECRET) && !said.err.contains(SECRET));
    let mut kept = Vec::new();
    bytes_below(&state, &mut kept);
    assert!(contains(&kept, "/landed") || !kept.is_empty());
    assert!(!contains(&kept, SECRET));
}

#[test]
fn a_method_and_a_body_are_sent_to_every_page() {
    let server = Recorder::fine();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body");
    fs::write(&file, "{\"q\": \"\u{e9}\"}").unwrap();
    let urls = [server.url("a"), server.url("b")];
    let said = run(fast().arg("--data-file").arg(&file).args(&urls));
    assert_eq!(said.code, 0, "{}", said.err);
    let said = run(fast()
        .args(["--data", "a=1&b=2", "--method", "put"])
        .arg(&urls[0]));
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(run(fast().args(["--method", "HEAD"]).arg(&urls[0])).code, 0);
    assert_eq!(run(fast().args(["--method", "POST"]).arg(&urls[0])).code, 0);
    let came = server.came();
    for request in &came[..2] {
        assert_eq!(
            (request.method.as_str(), request.body.as_str()),
            ("POST", "{\"q\": \"\u{e9}\"}")
        );
        assert_eq!(
            request.header("content-type").as_deref(),
            Some("application/json")
        );
    }
    assert_eq!(
        (came[2].method.as_str(), came[2].body.as_str()),
        ("PUT", "a=1&b=2")
    );
    let form = "application/x-www-form-urlencoded";
    assert_eq!(came[2].header("content-type").as_deref(), Some(form));
    assert_eq!(came[3].method, "HEAD");
    assert_eq!(came[4].header("content-length").as_deref(), Some("0"));
}

#[test]
fn a_line_of_json_is_a_request_and_its_meta_comes_back() {
    let server = Recorder::fine();
    let dir = tempfile::tempdir().unwrap();
    let (list, results) = (dir.path().join("list"), dir.path().join("results"));
    let url = server.url("search");
    let meta = r#"{"z": 1.50,  "a": [null, 12345678901234567890123]}"#;
    let lines = [
        format!(r#"{{"url": "{url}", "body": {{"q": 1}}, "meta": {meta}}}"#),
        format!(r#"{{"url": "{url}", "body": {{"q": 2}}, "headers": {{"X-A": "b"}}}}"#),
        format!(r#"{{"url": "{url}", "method": "DELETE"}}"#),
        format!(r#"{{"url": "{url}", "meta": "the plain one"}}"#),
        url.clone(),
        format!(r#"{{"url": "{url}", "bdoy": "{SECRET}"}}"#),
        format!(r#"{{"url": 5, "body": "{SECRET}"}}"#),
        server.url("plain"),
    ];
    fs::write(&list, lines.join("\n")).unwrap();
    let mut command = fast();
    command.arg("-i").arg(&list).arg("-o").arg(&results);
    let said = run(command.arg("--save").arg(dir.path().join("pages")));
    assert_eq!(said.code, 1, "{}", said.err);
    let saved: BTreeSet<_> = (rows_of(&results).iter())
        .filter_map(|row| row["saved"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(saved.len(), 5, "each page has a file: {saved:?}");
    for (line, why) in [
        (6, "unknown key `bdoy`; did you mean `body`?"),
        (7, "expected a string"),
    ] {
        let place = format!("{}:{line}: ", list.display());
        let told = said.lines(&place);
        assert_eq!(told.len(), 1, "{}", said.err);
        assert!(told[0].contains(why), "{told:?}");
    }
    let came: Vec<_> = server.came();
    let mut sent: Vec<_> = (came.iter())
        .map(|came| (came.method.as_str(), came.path.as_str(), came.body.as_str()))
        .collect();
    sent.sort_unstable();
    let wanted = [
        ("DELETE", "/search", ""),
        ("GET", "/plain", ""),
        ("GET", "/search", ""),
        ("POST", "/search", r#"{"q": 1}"#),
        ("POST", "/search", r#"{"q": 2}"#),
    ];
    assert_eq!(
        sent, wanted,
        "a URL with another method or body is another page"
    );
    let rows = fs::read_to_string(&results).unwrap();
    assert!(rows.contains(&format!("\"meta\":{meta}")), "{rows}");
    assert!(rows.contains("\"meta\":\"the plain one\""), "{rows}");
    assert_eq!(rows.matches("\"request\":").count(), 3, "{rows}");
    assert!(
        !rows.contains(SECRET) && !said.err.contains(SECRET),
        "{rows}{}",
        said.err
    );
}
