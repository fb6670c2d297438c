//! Tests of every file: no unfinished code, no overlong file, no broken link in a document.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{politely, run};
use politely_testkit::repository;

/// The most lines of a file. A longer file has more than one purpose.
const LINES_MAX: usize = 600;

/// Words that must not be in a source file, and the advice for each. They are cut in halves, so
/// that this file passes too.
const BANNED: [(&str, &str, &str); 5] = [
    ("todo", "!(", "write it, or open an issue"),
    ("unimplemented", "!(", "write it, or open an issue"),
    ("FIX", "ME", "fix it, or open an issue"),
    ("db", "g!(", "use tracing"),
    (
        "#[ign",
        "ore",
        "a test that never runs proves nothing: run it or delete it",
    ),
];

/// Beginnings of absolute paths. A path of a developer's machine must not be in a file.
const MACHINE: [(&str, &str); 4] = [
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/wo", "rk/"),
    ("/Us", "ers/"),
];

/// Directories that are generated, and so are not checked. Directories that cargo marks as a cache
/// are not checked either.
const MADE: [&str; 7] = [
    ".git",
    ".tools",
    ".venv",
    "node_modules",
    "dist",
    "corpus",
    "artifacts",
];

fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder that can be read") {
            let entry = entry.expect("an entry");
            let made = MADE.iter().any(|name| entry.file_name() == *name)
                || entry.path().join("CACHEDIR.TAG").exists();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !made => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && !made => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

pub(super) fn texts(wanted: impl Fn(&Path) -> bool) -> Vec<(PathBuf, String)> {
    let texts = files().into_iter().filter(|path| wanted(path));
    texts
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a text");
            let short = path.strip_prefix(repository()).expect("inside").to_owned();
            (short, text)
        })
        .collect()
}

pub(super) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

fn read(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A profile inherits the settings of packages as well. `release` has some for a short build.
#[test]
fn the_packages_are_compiled_for_speed() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).expect("the workspace");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let of = |profile: &str| {
        manifest["profile"][profile]["package"]
            .as_table()
            .expect("a table")
    };
    let names = |profile: &str| of(profile).keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names("release"), names("dist"));
    for (name, set) in of("dist") {
        assert_eq!(set["opt-level"].as_integer(), Some(3), "{name}");
    }
}

#[test]
fn no_source_file_is_too_long_or_half_done() {
    let mut wrong = Vec::new();
    for (path, text) in texts(|path| has_extension(path, &["rs"])) {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!(
                "{}: {lines} lines, at most {LINES_MAX}",
                path.display()
            ));
        }
        for (i, line) in text.lines().enumerate() {
            for (one, two, instead) in BANNED {
                if line.contains(&format!("{one}{two}")) {
                    wrong.push(format!(
                        "{}:{}: `{one}{two}`: {instead}",
                        path.display(),
                        i + 1
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_file_knows_where_it_was_written() {
    let mut wrong = Vec::new();
    let written = |path: &Path| {
        has_extension(
            path,
            &["rs", "md", "toml", "sh", "py", "js", "json", "svg", "conf"],
        )
    };
    for (path, text) in texts(written) {
        for (one, two) in MACHINE {
            if text.contains(&format!("{one}{two}")) {
                wrong.push(format!(
                    "{}: a path of one machine: {one}{two}",
                    path.display()
                ));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in texts(|path| has_extension(path, &["md"])) {
        let folder = repository().join(&path);
        let folder = folder.parent().expect("a file is in a folder");
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = link.split('#').next().unwrap_or_default();
            let inside = !file.is_empty() && !file.contains("://");
            if inside && !folder.join(file).exists() {
                wrong.push(format!("{}: there is no {link}", path.display()));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_readmes_commands_are_there() {
    let readme = read("README.md");
    for command in [
        "scripts/test",
        "cargo run --release -p politely-cli -- demo",
    ] {
        assert!(readme.contains(command), "{command}");
    }
    assert!(read(".ci/run").lines().any(|line| line == "scripts/test"));
    let mut wrong = Vec::new();
    for (path, text) in texts(|path| has_extension(path, &["md"])) {
        for named in text.split('`').skip(1).step_by(2) {
            let file = named.split(' ').next().unwrap_or_default();
            let ours = [
                "scripts/",
                "crates/",
                "benches/",
                "docs/",
                "examples/",
                "fuzz/",
                "tests/",
                ".ci/",
            ];
            let one_file = !file.contains(['*', '<', '{', '…', '\n']);
            let from_root = ours.iter().any(|folder| file.starts_with(folder));
            // `file:test` names a test in that file.
            let file = file.split(':').next().unwrap_or_default();
            if from_root && one_file && !repository().join(file).exists() {
                wrong.push(format!("{}: there is no {file}", path.display()));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn tests_named_in_documents_exist() {
    let mut wrong = Vec::new();
    for (path, text) in texts(|path| has_extension(path, &["md"])) {
        for named in text.split('`').skip(1).step_by(2) {
            let Some((file, test)) = named.split_once(".rs:") else {
                continue;
            };
            let source = repository().join(format!("{file}.rs"));
            let found =
                fs::read_to_string(source).is_ok_and(|text| text.contains(&format!("fn {test}(")));
            if !found {
                wrong.push(format!("{}: there is no {named}", path.display()));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_example_is_named_in_a_document() {
    let documents: String = texts(|path| has_extension(path, &["md"]))
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let examples = files().into_iter().filter(|path| {
        let folder = path.parent().and_then(Path::file_name);
        folder.is_some_and(|folder| folder == "examples")
    });
    for example in examples {
        let name = example
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        assert!(
            documents.contains(&format!("examples/{name}")),
            "{name} is named nowhere"
        );
    }
}

/// Returns the flags in `text`: `--` and a name.
fn flags(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("--").map(|(at, _)| &text[at + 2..]);
    let names = starts.map(|rest| {
        let end = rest
            .find(|c: char| !c.is_ascii_lowercase() && c != '-')
            .unwrap_or(rest.len());
        rest[..end].trim_end_matches('-')
    });
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn flags_are_documented_and_documented_flags_exist() {
    for command in ["fetch", "proxy", "target", "simulate"] {
        let help = run(politely().args([command, "--help"])).out;
        let known = flags(&help);
        let told = flags(&read(&format!("docs/reference/{command}.md")));
        let untold: Vec<_> = known
            .difference(&told)
            .filter(|flag| !["help", "version"].contains(&flag.as_str()))
            .collect();
        assert!(
            untold.is_empty(),
            "docs/reference/{command}.md does not tell of {untold:?}"
        );
        let cargo = ["release"];
        let unknown: Vec<_> = told
            .difference(&known)
            .filter(|flag| !cargo.contains(&flag.as_str()))
            .collect();
        assert!(
            unknown.is_empty(),
            "docs/reference/{command}.md tells of {unknown:?}"
        );
    }
}
