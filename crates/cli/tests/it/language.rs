//! The language of the sources: plain sentences, and one type per name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use politely_testkit::repository;

/// The longest line of a comment, in columns.
const COLUMNS_MAX: usize = 100;
/// A comment must not begin with these words: the subject of a sentence is a thing of the program.
const BEGINNINGS: [&str; 7] = [
    "…", "Who", "Whoever", "Whose", "Those", "Somebody", "Nobody",
];

/// Names that were replaced, and the names in use. They are cut in halves, so that this file passes
/// too.
const OLD_NAMES: [(&str, &str, &str); 13] = [
    ("gre", "et", "ping"),
    ("when_a", "way", "when_unavailable"),
    ("store-a", "way", "store-unavailable"),
    ("store_a", "way", "store_unavailable"),
    ("engine_a", "way", "engine_unavailable"),
    ("A", "way", "Unavailable"),
    ("Tu", "rn", "Arrival"),
    ("line_", "max", "queue_max"),
    ("Line", "Full", "QueueFull"),
    ("line_", "full", "queue_full"),
    ("cou", "rier", "driver"),
    ("h", "ub", "node"),
    ("pul", "se", "heartbeat"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder that can be read") {
        let path = entry.expect("an entry").path();
        let is_made = path.join("CACHEDIR.TAG").exists() || path.ends_with("node_modules");
        if path.is_dir() && !is_made {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["crates", "benches", "fuzz"] {
        sources(&repository().join(folder), &mut found);
    }
    found.sort();
    let text = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let short = path.strip_prefix(repository()).expect("inside");
        (short.display().to_string(), text)
    };
    found.into_iter().map(text).collect()
}

/// Returns the text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

fn begins_badly(text: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| {
        let rest = text.strip_prefix(beginning);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    })
}

#[test]
fn comments_are_short_lines_that_begin_with_a_subject() {
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        let mut before = None;
        for (number, line) in (1..).zip(text.lines()) {
            let now = comment(line);
            // Rows of tables and hidden lines of examples cannot be wrapped.
            let is_text = now.is_some_and(|text| !text.starts_with(['|', '#']));
            if is_text && line.chars().count() > COLUMNS_MAX {
                wrong.push(format!(
                    "{path}:{number}: longer than {COLUMNS_MAX} columns"
                ));
            }
            let begins_block = before.is_none_or(str::is_empty);
            if begins_block && let Some(text) = now.filter(|text| begins_badly(text)) {
                wrong.push(format!("{path}:{number}: begins with {text:.20}"));
            }
            before = now;
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_crate_has_one_public_type_per_name() {
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (path, text) in texts() {
        let mut parts = path.split('/');
        let (Some("crates"), Some(name), Some("src")) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        // The types of a build without a feature have the names of those with it.
        if path.ends_with("/absent.rs") {
            continue;
        }
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some("pub"), Some("struct" | "enum" | "trait" | "type"), Some(found)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let found: String = found.chars().take_while(|c| c.is_alphanumeric()).collect();
            let place = places.entry((name.to_owned(), found)).or_default();
            place.push(path.clone());
        }
    }
    places.retain(|_, found| found.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

/// Returns the words of `text`: letters, digits, `_`, `-` and `::`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !['_', '-', ':'].contains(&c))
}

#[test]
fn old_names_stay_gone() {
    let old_names = OLD_NAMES.map(|(one, two, instead)| (format!("{one}{two}"), instead));
    let old_names = BTreeMap::from(old_names);
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        for (number, line) in (1..).zip(text.lines()) {
            for word in words(line).map(|word| word.trim_matches(':')) {
                if let Some(instead) = old_names.get(word) {
                    wrong.push(format!("{path}:{number}: {word}: say {instead}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
