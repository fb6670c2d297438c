use super::file::parse;
use super::*;
use proptest::prelude::*;

fn settings(knobs: Knobs) -> Settings {
    Settings::checked(knobs).unwrap()
}

#[test]
fn a_typo_names_the_nearest_key_and_its_line() {
    let (line, why) = parse("profile = \"api\"\n\nrtae = 2\n").unwrap_err();
    assert_eq!(
        (line, why.as_str()),
        (3, "unknown key `rtae`; did you mean `rate`?")
    );
    let (_, why) = parse("in_flight = 2\n").unwrap_err();
    assert_eq!(why, "unknown key `in_flight`; did you mean `in-flight`?");
    let (_, why) = parse("zzzzzzzzzzzzzzzz = 2\n").unwrap_err();
    assert!(why.ends_with("names them all"), "{why}");
}

#[test]
fn every_wrong_file_is_told_in_one_line() {
    for text in [
        "rate = \"fast\"",
        "rate = ",
        "[[[",
        "timeout = \"3 parsecs\"",
        "site-rps = 3",
        "law = \"vegas\"",
    ] {
        let (line, why) = parse(text).unwrap_err();
        assert_eq!((line, why.lines().count()), (1, 1), "{text}: {why}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let file = parse("rate = 1\nburst = 3\ntimeout = \"5s\"\nproxy = [\"http://a:1\"]").unwrap();
    let flags = Knobs {
        rate: Some("2.0".parse().unwrap()),
        ..Knobs::default()
    };
    let both = settings(flags.over(file));
    assert_eq!(
        (
            both.numbers.rate,
            both.numbers.burst,
            both.timeout.as_secs()
        ),
        (Some(2.0), Some(3.0), 5)
    );
    assert_eq!(both.proxies, ["http://a:1"]);
}

#[test]
fn global_concurrency_has_the_documented_meanings() {
    let by = |memory: &str| {
        settings(Knobs {
            memory_cap: Some(memory.parse().unwrap()),
            ..Knobs::default()
        })
        .concurrency
    };
    assert_eq!(
        ["256", "257", "512MB", "1GB", "1024MB", "1025"].map(by),
        [3, 5, 5, 8, 8, 12]
    );
    let by = |rps| {
        settings(Knobs {
            max_rps: Some(rps),
            ..Knobs::default()
        })
        .concurrency
    };
    assert_eq!([by(0.5), by(5.0), by(100.0)], [2, 5, 16]);
    assert_eq!(settings(Knobs::default()).concurrency, CONCURRENCY_DEFAULT);
}

#[test]
fn the_robots_token_is_the_one_given_or_the_one_in_the_user_agent() {
    let token = |agent: &str, token: Option<&str>| {
        let knobs = Knobs {
            user_agent: Some(agent.to_owned()),
            robots_token: token.map(str::to_owned),
            ..Knobs::default()
        };
        settings(knobs).robots_token
    };
    let browser = "Mozilla/5.0 (compatible; ExampleBot/1.2; +https://example.com/bot)";
    assert_eq!(token(browser, None), "ExampleBot");
    assert_eq!(token(browser, Some("otherbot")), "otherbot");
    assert_eq!(settings(Knobs::default()).robots_token, "politely");
}

#[test]
fn numbers_out_of_range_are_refused() {
    for knobs in [
        Knobs {
            rate: Some("0.0".parse().unwrap()),
            ..Knobs::default()
        },
        Knobs {
            rate: Some("NaN".parse().unwrap()),
            ..Knobs::default()
        },
        Knobs {
            burst: Some(0.5),
            ..Knobs::default()
        },
        Knobs {
            concurrency: Some(0),
            ..Knobs::default()
        },
        Knobs {
            proxy: vec!["ftp://x".into()],
            ..Knobs::default()
        },
        Knobs {
            user_agent: Some("a\nb".into()),
            ..Knobs::default()
        },
        Knobs {
            robots_token: Some("a b".into()),
            ..Knobs::default()
        },
        Knobs {
            robots_token: Some(String::new()),
            ..Knobs::default()
        },
    ] {
        assert!(Settings::checked(knobs.clone()).is_err(), "{knobs:?}");
    }
}

#[test]
fn the_api_profile_fetches_no_robots() {
    assert!(settings(Knobs::default()).robots);
    assert!(
        !settings(Knobs {
            profile: Some(Profile::Api),
            ..Knobs::default()
        })
        .robots
    );
}

#[test]
fn the_example_shows_every_key_and_is_valid() {
    let example = include_str!("../../../../examples/politely.toml");
    let as_it_is = settings(parse(example).unwrap());
    assert_eq!(as_it_is.concurrency, CONCURRENCY_DEFAULT);
    assert_eq!(
        (as_it_is.timeout, as_it_is.max_body),
        (TIMEOUT_DEFAULT, MAX_BODY_DEFAULT)
    );
    // The example must also be valid with all its commented-out settings.
    let whole: String = example
        .lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|rest| rest.contains(" = "))
                .unwrap_or(line)
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    // A store excludes a coordinator, and these exclude another key.
    let is_other = |line: &&str| {
        let others = [
            "coordinator",
            "client",
            "token-file",
            "on-unavailable",
            "basic-file",
            "data-file",
            "ipv6",
            "resolve",
            "insecure",
            "retry-failed",
            "sitemap",
            "follow",
            "depth",
            "pages-per-host",
        ];
        others.iter().any(|other| line.starts_with(other))
    };
    let stored: String = whole
        .lines()
        .filter(|line| !is_other(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    // A cut needs the law that has one.
    let stored = stored.replace("law = \"discover\"", "law = \"aimd\"");
    settings(parse(&stored).unwrap());
    let table: toml::Table = whole.parse().unwrap();
    let shown: Vec<&str> = table.keys().map(String::as_str).collect();
    let command = <crate::args::Cli as clap::CommandFactory>::command();
    let fetch = command.find_subcommand("fetch").unwrap();
    let flags = fetch.get_arguments().filter_map(clap::Arg::get_long);
    for flag in flags.filter(|flag| {
        ![
            "config", "input", "verbose", "log", "otlp", "help", "version",
        ]
        .contains(flag)
    }) {
        // A name of the policy keeps its spelling.
        let has = |name: &str| shown.contains(&name);
        assert!(
            has(flag) || has(&flag.replace('-', "_")),
            "examples/politely.toml does not show {flag}"
        );
    }
}

/// Asserts that `text` is a valid configuration, or is refused with a message of one line. The fuzz
/// target `config` checks the same.
fn any_text_is_settings_or_one_line(text: &str) {
    match parse(text) {
        Ok(knobs) => _ = Settings::checked(knobs),
        Err((line, why)) => {
            assert!((1..=text.split('\n').count()).contains(&line), "{line}");
            assert_eq!(why.lines().count(), 1, "{why:?}");
        }
    }
}

#[test]
fn a_complaint_in_the_middle_of_a_character_is_told() {
    for text in [
        "é",
        "rate = é",
        "\"é",
        "é\r",
        "\u{feff}é = 1",
        "a = \"\"\"é",
        "a.é\0",
    ] {
        any_text_is_settings_or_one_line(text);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "(\\PC|\\s){0,200}") {
        any_text_is_settings_or_one_line(&text);
    }

    #[test]
    fn any_value_is_read_without_panic(
        key in "(rate|site-rps|timeout|max-body|memory-cap|proxy|law|retries|user-agent|robots-token|no-cookies|no-such)",
        value in "([0-9.eE+-]{0,12}(s|ms|h|MB|GiB|:|,)?|\\PC{0,20}|\"\\PC{0,20}\"|\\[\"\\PC{0,20}\"\\])",
    ) {
        any_text_is_settings_or_one_line(&format!("{key} = {value}\n"));
    }
}
