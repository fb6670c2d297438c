//! Properties that hold for every file.

use proptest::prelude::*;

use crate::robots::Robots;
use crate::robots::pattern::{Rule, normalise_path};

fn robots(body: &[u8]) -> Robots {
    Robots::from_response(Some(200), body, "foobot")
}

fn line() -> impl Strategy<Value = String> {
    let agent = prop_oneof!["foobot", "FooBot/1.2", "other", r"\*", "[a-z*/ ]{0,6}"]
        .prop_map(|name| format!("User-agent: {name}"));
    let rule = ("(Allow|Disallow|Dissallow)", "[/ab*$%2é]{0,8}")
        .prop_map(|(field, path)| format!("{field}: {path}"));
    let delay = ("(Crawl-delay|Request-rate)", "[0-9./e-]{0,6}")
        .prop_map(|(field, value)| format!("{field}: {value}"));
    prop_oneof![2 => agent, 5 => rule, 1 => delay, 1 => "[ -~]{0,20}"]
}

fn body() -> impl Strategy<Value = String> {
    (prop::collection::vec(line(), 0..30), "(\n|\r|\r\n)").prop_map(|(lines, end)| lines.join(&end))
}

/// One group: a name and its rules, complete, so that groups may change places.
fn group() -> impl Strategy<Value = String> {
    let rules = prop::collection::vec(("(Allow|Disallow|Crawl-delay)", "/[ab*$]{0,5}"), 0..6);
    ("(foobot|other|\\*)", rules).prop_map(|(name, rules)| {
        let rules: Vec<_> = rules
            .iter()
            .map(|(field, path)| format!("{field}: {path}\n"))
            .collect();
        let rules = rules.concat();
        format!("User-agent: {name}\n{rules}Disallow:\n")
    })
}

/// The obvious matcher: tries every place for every star.
fn matches_slowly(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => true,
        b"$" => path.is_empty(),
        [b'*', rest @ ..] => (0..=path.len()).any(|at| matches_slowly(rest, &path[at..])),
        [byte, rest @ ..] => path.first() == Some(byte) && matches_slowly(rest, &path[1..]),
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), path in "\\PC*", agent in "\\PC{0,10}") {
        let robots = Robots::from_response(Some(200), &bytes, &agent);
        let _ = (robots.allows_path(&path), robots.crawl_delay());
    }

    #[test]
    fn no_file_panics(body in body(), path in "[/ab*$%2é?#]{0,12}") {
        let robots = robots(body.as_bytes());
        let verdict = robots.allows_path(&path);
        prop_assert!(verdict.allowed || verdict.rule.is_some_and(|rule| rule.starts_with("Disallow: ")));
    }

    #[test]
    fn the_order_of_groups_changes_nothing(mut groups in prop::collection::vec(group(), 0..6), turn in 0..6_usize) {
        let before = robots(groups.concat().as_bytes());
        groups.reverse();
        if !groups.is_empty() {
            let turn = turn % groups.len();
            groups.rotate_left(turn);
        }
        prop_assert_eq!(before, robots(groups.concat().as_bytes()));
    }

    #[test]
    fn the_fast_matcher_agrees_with_the_obvious_one(pattern in "/[ab*]{0,8}\\$?", path in "/[ab]{0,10}") {
        let rule = Rule::parse(false, pattern.as_bytes()).expect("not empty");
        prop_assert_eq!(rule.matches(&path), matches_slowly(pattern.as_bytes(), path.as_bytes()));
    }

    #[test]
    fn normalising_twice_changes_nothing(value in prop::collection::vec(prop_oneof![Just(b'%'), Just(b'2'), Just(b'4'), Just(b'$'), any::<u8>()], 1..20)) {
        let value: Vec<u8> = value.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
        if let Some(once) = Rule::parse(true, &value) {
            let again = Rule::parse(true, &once.line().as_bytes()["Allow: ".len()..]).expect("not empty");
            prop_assert_eq!(once, again);
        }
        let path = normalise_path(&String::from_utf8_lossy(&value));
        prop_assert_eq!(normalise_path(&path), path);
    }
}
