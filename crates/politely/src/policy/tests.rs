use super::*;

const POLICY: &str = r#"
[[rule]]
match = ["api.example.com"]
account = "example"
limits = ["10/s", "1000/day@UTC"]

[[rule]]
match = ["*.example.com"]
limits = ["5/s"]

[[rule]]
match = ["*.deep.example.com"]
limits = ["4/s"]

[[rule]]
match = ["site:example.co.uk"]
limits = ["3/s"]

[[rule]]
match = ["api.example.com/repos/{owner}/*", "api.example.com/repos/me/*"]
limits = ["2/s"]

[[rule]]
match = ["api.example.com/search"]
limits = ["30/min"]

[[rule]]
match = ["custom/team-7", "custom/team*"]
limits = ["1/s"]

[[rule]]
match = ["custom/team-8"]
limits = ["8/s"]
"#;

fn of(book: &RuleBook, url: &str) -> String {
    let url = Url::parse(url).unwrap();
    let key = Key::of_url(&url).unwrap();
    let ruling = book.of_url(&url, &key);
    ruling.map_or_else(String::new, |ruling| ruling.rule.limits.to_string())
}

#[test]
fn the_most_specific_rule_wins() {
    let book: RuleBook = POLICY.parse().unwrap();
    for (url, limits) in [
        ("https://api.example.com/", "10/s; 1000/day@UTC"),
        ("https://API.example.com./", "10/s; 1000/day@UTC"),
        ("https://www.example.com/", "5/s"),
        ("https://a.b.deep.example.com/", "4/s"),
        ("https://example.com/", ""),
        ("https://www.example.co.uk:8080/", "3/s"),
        ("https://api.example.com/repos/a/b/c", "2/s"),
        ("https://api.example.com/repos/a", "2/s"),
        ("https://api.example.com/repos", "10/s; 1000/day@UTC"),
        ("https://api.example.com/search?q=1", "30/min"),
        ("https://api.example.com/search/more", "10/s; 1000/day@UTC"),
    ] {
        assert_eq!(of(&book, url), limits, "{url}");
    }
    for (key, limits) in [
        ("custom/team-7", "1/s"),
        ("custom/team-8", "8/s"),
        ("custom/team-9", "1/s"),
        ("custom/else", ""),
        ("api.example.com", "10/s; 1000/day@UTC"),
        ("www.example.com:8080", "5/s"),
    ] {
        let key = Key::parse(key).unwrap();
        let found = book
            .of_key(&key)
            .map(|ruling| ruling.rule.limits.to_string());
        assert_eq!(found.unwrap_or_default(), limits, "{key}");
    }
}

#[test]
fn an_account_has_the_limits_of_its_rule() {
    let book: RuleBook = POLICY.parse().unwrap();
    let url = Url::parse("https://api.example.com/").unwrap();
    let ruling = book.of_url(&url, &Key::of_url(&url).unwrap()).unwrap();
    assert_eq!(ruling.own().limits, None);
    let (account, rule) = ruling.account().unwrap();
    let limits = rule.limits.as_ref().unwrap();
    assert_eq!(account.as_str(), "custom/example");
    assert_eq!(limits.windows().len(), 2);
}

#[test]
fn a_wrong_file_is_one_line_with_its_place() {
    for (text, line, part) in [
        ("[[rule]]\nmatch = []", 1, "`match` is empty"),
        ("[[rule]]\nlimits = [\"1/s\"]", 1, "match"),
        (
            "[[rule]]\nmatch = [\"a.example\"]\nlimits = [\n\"1/s\",\n\"0/s\"]",
            5,
            "from 1 to 2^53",
        ),
        (
            "[[rule]]\nmatch = [\"a.example\"]\nlimit = []",
            3,
            "unknown field `limit`",
        ),
        ("\n\n[[rule", 3, ""),
        ("[[rule]]\nmatch = [\"a b\"]", 2, "`a b`"),
        ("[[rule]]\nmatch = [\"a.example/{x\"]", 2, "path segment"),
        (
            "[[rule]]\nmatch = [\"a.example\"]\naccount = \"\"",
            3,
            "account",
        ),
    ] {
        let wrong = text.parse::<RuleBook>().unwrap_err();
        assert_eq!(wrong.line(), line, "{text}: {wrong}");
        assert!(wrong.why().contains(part), "{text}: {wrong}");
        assert_eq!(wrong.to_string().lines().count(), 1);
    }
}

#[test]
fn a_tie_names_both_lines() {
    for pattern in [
        "a.example",
        "*.a.example",
        "site:example.com",
        "custom/a",
        "custom/*",
        "*",
        "a.example/{x}/b",
    ] {
        let text = format!("[[rule]]\nmatch = [\"{pattern}\"]\n[[rule]]\nmatch = [\"{pattern}\"]");
        let wrong = text.parse::<RuleBook>().unwrap_err();
        assert_eq!(wrong.line(), 4);
        assert!(wrong.why().contains("the rule of line 1"), "{wrong}");
    }
    let names = "[[rule]]\nmatch = [\"a.example/{x}\"]\n[[rule]]\nmatch = [\"a.example/{y}\"]";
    assert!(names.parse::<RuleBook>().is_err());
}

#[test]
fn a_hundred_thousand_rules_are_read_and_matched() {
    use std::fmt::Write as _;

    let mut text = String::new();
    for i in 0..100_000 {
        writeln!(
            text,
            "[[rule]]\nmatch = [\"h{i}.example\"]\nlimits = [\"{}/s\"]",
            i + 1
        )
        .unwrap();
    }
    let book: RuleBook = text.parse().unwrap();
    assert_eq!(book.rules().len(), 100_000);
    assert_eq!(of(&book, "https://h99999.example/a/b"), "100000/s");
}
