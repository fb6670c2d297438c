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
    let account = ruling.rule.account().unwrap();
    assert_eq!(account.to_string(), "custom/example: 10/s; 1000/day@UTC");
}

const KEYS: &str = r#"
[[rule]]
match = ["*.example.com"]
account = "example/{token_name}"
limits = ["10/s"]
feedback = ["account", "consumer/{client}"]

[[rule.key]]
name = "consumer/{client}"
limits = ["3/s"]

[[rule.key]]
name = "{site}/writes"
class = "write"
limits = ["1/s"]
"#;

/// Returns the keys that the rules add to a request, and whether a refusal holds them.
fn added(book: &RuleBook, method: &Method, labels: &[(&str, &str)]) -> Vec<(String, bool)> {
    let url = Url::parse("https://a.example.com/x").unwrap();
    let key = Key::of_url(&url).unwrap();
    let value = |name: &str| {
        let found = labels.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value)
    };
    let caller = Caller {
        url: Some(&url),
        key: &key,
        method,
        labels: &value,
    };
    let ruling = book.of_url(&url, &key).unwrap();
    let keys = ruling.keys(&caller);
    keys.map(|(key, of_rule)| (key.to_string(), of_rule.is_held))
        .collect()
}

#[test]
fn a_rule_adds_keys_by_worker_label_host_and_method() {
    let book: RuleBook = KEYS.parse().unwrap();
    let labels = [("client", "w1"), ("token_name", "ci")];
    let account = ("custom/example/ci".to_owned(), true);
    let consumer = ("custom/consumer/w1".to_owned(), true);
    let writes = ("custom/example.com/writes".to_owned(), false);
    assert_eq!(
        added(&book, &Method::HEAD, &labels),
        [account.clone(), consumer.clone()]
    );
    let all = [account, consumer, writes];
    assert_eq!(added(&book, &Method::POST, &labels), all);
    assert_eq!(book.missing_label(), Some((2, "token_name")));
    let filled = book.with_labels(labels).unwrap();
    assert_eq!(filled.missing_label(), None);
    assert_eq!(added(&filled, &Method::POST, &[]), all);
    for (name, value) in [("host", "a"), ("A", "a"), ("a", ""), ("a", "b\n")] {
        let wrong = filled.clone().with_labels([(name, value)]).unwrap_err();
        assert_eq!(wrong.to_string().lines().count(), 1, "{wrong}");
    }
}

#[test]
fn two_rules_with_one_key_agree_on_its_limits() {
    let rule = |host: &str, limit: &str| {
        format!("[[rule]]\nmatch = [\"{host}\"]\naccount = \"a\"\nlimits = [\"{limit}\"]\n")
    };
    let equal = rule("a.example", "1/s") + &rule("b.example", "1/s");
    assert!(equal.parse::<RuleBook>().is_ok());
    let other = rule("a.example", "1/s") + &rule("b.example", "2/s");
    let wrong = other.parse::<RuleBook>().unwrap_err();
    assert_eq!(wrong.line(), 5);
    assert!(wrong.why().contains("the rule of line 1"), "{wrong}");
}

#[test]
fn a_wrong_file_is_one_line_with_its_place() {
    let key = "[[rule]]\nmatch = [\"a.example\"]\n";
    let of_key = |text: &str| format!("{key}[[rule.key]]\n{text}");
    let many = "[[rule.key]]\nname = \"{a}\"\nlimits = [\"1/s\"]\n";
    let many = |count: usize| {
        let keys = (0..count).map(|i| many.replace("{a}", &format!("k{i}")));
        key.to_owned() + &keys.collect::<String>()
    };
    assert!(many(3).parse::<RuleBook>().is_ok());
    for (text, line, part) in [
        (of_key("limits = [\"1/s\"]"), 3, "name"),
        (of_key("name = \"a\"\nlimits = []"), 5, "`limits` is empty"),
        (
            of_key("name = \"{A}\"\nlimits = [\"1/s\"]"),
            4,
            "`A` is no label",
        ),
        (
            of_key("name = \"a\"\nlimits = [\"1/s\"]\nclass = \"GET\""),
            6,
            "unknown class",
        ),
        (many(4), 13, "more than 3 keys"),
        (
            format!("{key}limits = [\"100 requets/min\"]"),
            1,
            "nothing charges the unit requets",
        ),
        (
            format!("{key}limits = [\"9 toknes/s\"]\ncost = {{ tokens = 10 }}"),
            1,
            "nothing charges the unit toknes",
        ),
        (
            of_key("name = \"a\"\nlimits = [\"9 pages/s\"]"),
            1,
            "nothing charges the unit pages",
        ),
        (many(2).replace("k1", "k0"), 7, "two keys `k0`"),
        (
            format!("{key}feedback = \"account\""),
            3,
            "feedback `account` is no key",
        ),
        (
            format!("{key}account = \"a\"\nfeedback = [\"b\"]"),
            4,
            "name \"account\"",
        ),
        (
            format!("{key}account = \"{{x\""),
            3,
            "a brace is not closed",
        ),
    ] {
        let wrong = text.parse::<RuleBook>().unwrap_err();
        assert_eq!(wrong.line(), line, "{text}: {wrong}");
        assert!(wrong.why().contains(part), "{text}: {wrong}");
        assert_eq!(wrong.to_string().lines().count(), 1);
    }

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
            "[[rule]]\nmatch = [\"127.0.3.*\"]",
            2,
            "name each other host",
        ),
        (
            "[[rule]]\nmatch = [\"api.*.example/v1/*\"]",
            2,
            "name each other host",
        ),
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

#[test]
fn a_unit_is_charged_by_a_rule_or_stated_by_requests() {
    let rule = "[[rule]]\nmatch = [\"a.example\"]\nlimits = [\"5 pages/s\", \"9 tokens/s\"]\n";
    let charged = format!("{rule}cost = {{ pages = 0 }}\n");
    let book: RuleBook = charged.parse().expect("a rule charges it");
    let check = |book: &RuleBook, text: &str| book.check_units(&text.parse().expect("limits"));
    assert_eq!(
        check(&book, "5 pages/min; 3 input_tokens/s; 5MB/s; 7 points/h"),
        Ok(())
    );
    let wrong = check(&RuleBook::default(), "3 tokens/s; 5 pages/min").unwrap_err();
    assert!(
        wrong.starts_with("limit `5 pages/min`: nothing charges"),
        "{wrong}"
    );
}
