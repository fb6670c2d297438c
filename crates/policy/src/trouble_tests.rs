use politely_core::retry::Backoff;

use super::*;
use crate::RuleBook;

fn rule(fields: &str) -> String {
    format!("[[rule]]\nmatch = [\"a.example\"]\n{fields}\n")
}

fn read(fields: &str) -> TroubleSettings {
    let book: RuleBook = rule(fields).parse().unwrap();
    book.rules()[0].trouble
}

const ALL: &str = "backoff = { base = \"500ms\", factor = 3, max = \"1.5s\" }\n\
    jitter = \"equal\"\nretry_budget = { ratio = 0.1, per_second = 0, burst = 4 }\n\
    breaker = { failures = 2, open = \"5s\", open_max = \"1min\" }\ncut = 0.5";

#[test]
fn a_rule_sets_what_keys_and_retries_follow() {
    let (read, crawler) = (read(ALL), Policy::crawler());
    let (key, retries) = (read.of_key(), read.over(&crawler).into_owned());
    assert_eq!(
        (key.cut, key.backoff_max),
        (Some(0.5), Some(Duration::from_millis(1_500)))
    );
    let breaker = key.breaker.unwrap();
    assert_eq!(breaker.trip_after, 2);
    assert_eq!(
        [breaker.rest_min, breaker.rest_max].map(|rest| rest.as_secs()),
        [5, 60]
    );
    let ms = Duration::from_millis;
    let backoff = Backoff::new(ms(500), 3.0, ms(1_500), Jitter::Equal).unwrap();
    assert_eq!(retries.backoff, backoff);
    assert_eq!(
        retries.budget,
        Some(BudgetRule::new(0.1, 0.0, 4.0).unwrap())
    );
}

#[test]
fn a_flag_has_the_values_of_a_table() {
    let read = read(ALL);
    assert_eq!(
        read.backoff,
        Some(of_flag("base=500ms,factor=3,max=1.5s").unwrap())
    );
    assert_eq!(read.jitter, Some(of_flag("equal").unwrap()));
    let budget = of_flag("ratio=0.1, per_second=0, burst=4").unwrap();
    assert_eq!(read.retry_budget, Some(budget));
    let breaker = of_flag("failures=2,open=5s,open_max=1min").unwrap();
    assert_eq!(read.breaker, Some(breaker));
}

#[test]
fn a_part_that_is_not_set_has_the_usual_value() {
    let budget = read("retry_budget = { ratio = 0.5 }")
        .over(&Policy::crawler())
        .budget;
    assert_eq!(budget, Some(BudgetRule::new(0.5, 1.0, 10.0).unwrap()));
    let breaker = read("breaker = { open = \"2min\" }")
        .of_key()
        .breaker
        .unwrap();
    assert_eq!((breaker.trip_after, breaker.rest_max.as_secs()), (5, 120));
    let all = politely_core::config::Config::api().breaker;
    assert_eq!(
        read("breaker = { failures = 5 }").of_key().breaker,
        Some(all)
    );
    let of_key = RetryBudgetSetting::default().rule().unwrap();
    assert_eq!(of_key, BudgetRule::PER_KEY);
}

#[test]
fn a_rule_says_all_of_it_on_one_line() {
    let book: RuleBook = rule(ALL).parse().unwrap();
    assert_eq!(
        book.rules()[0].to_string(),
        "no limits, backoff from 500ms times 3 up to 1.5s, equal jitter, retry budget 0.1 and 0/s, \
         burst 4, breaker after 2 failures, open 5s to 60s, aimd, cut to 0.5"
    );
    let other: RuleBook = rule(&ALL.replace("cut = 0.5", "cut = 0.6"))
        .parse()
        .unwrap();
    assert_eq!(crate::differences(&book, &other).len(), 1);
    assert!(
        rule("breaker = { failures = 0 }")
            .parse::<RuleBook>()
            .unwrap()
            .rules()[0]
            .to_string()
            .ends_with("no breaker")
    );
}

#[test]
fn the_own_key_follows_and_the_account_does_not() {
    let book: RuleBook = rule(&format!("account = \"a\"\n{ALL}")).parse().unwrap();
    let rule = &book.rules()[0];
    assert_eq!(rule.own.trouble, rule.trouble.of_key());
    let account = rule.account().unwrap().follows();
    assert_eq!(account.trouble, TroubleNumbers::default());
}

#[test]
fn a_number_out_of_bounds_is_one_line_with_its_place() {
    for (wrong, line, part) in [
        ("backoff = 3", 3, "invalid type"),
        ("backoff = { bas = \"1s\" }", 3, "unknown field `bas`"),
        ("backoff = { base = \"1 parsec\" }", 3, "write it as"),
        ("backoff = { base = 1 }", 3, "write it as `500ms`"),
        ("backoff = { base = \"0s\" }", 3, "write it as"),
        ("backoff = { max = \"25h\" }", 3, "at most a day"),
        ("backoff = { max = \"50ms\" }", 1, "at least 100ms"),
        (
            "backoff = { base = \"2s\", max = \"1s\" }",
            1,
            "at least `base`",
        ),
        ("backoff = { factor = 0.5 }", 1, "from 1 to 100"),
        ("backoff = { factor = nan }", 1, "from 1 to 100"),
        ("backoff = { factor = \"2\" }", 3, "expected f64"),
        (
            "jitter = \"some\"",
            3,
            "`none`, `full`, `equal`, `decorrelated`",
        ),
        (
            "retry_budget = { ratio = -0.1 }",
            1,
            "ratio must be between 0 and 1000",
        ),
        (
            "retry_budget = { ratio = nan }",
            1,
            "ratio must be between 0 and 1000",
        ),
        ("retry_budget = { burst = 0 }", 1, "must hold between 1 and"),
        (
            "retry_budget = { per_second = -1 }",
            1,
            "reserve must be between",
        ),
        ("breaker = { failures = 1.5 }", 3, "expected u16"),
        ("breaker = { failures = -1 }", 3, "expected u16"),
        (
            "breaker = { open = \"5s\", open_max = \"1s\" }",
            1,
            "at least `open`",
        ),
        ("cut = 0", 1, "above 0 and below 1"),
        ("cut = 1.0", 1, "above 0 and below 1"),
        ("cut = \"half\"", 3, "expected f64"),
        (
            "limits = [\"9/s\"]\ncut = 0.5\nlearn = false",
            1,
            "beside `learn = false`",
        ),
    ] {
        let error = rule(wrong).parse::<RuleBook>().unwrap_err();
        assert_eq!(error.line(), line, "{wrong}: {error}");
        assert!(error.why().contains(part), "{wrong}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{wrong}: {error}");
    }
    for flag in ["", "base", "base=", "base=1s,,", "=", "base=x"] {
        assert!(of_flag::<BackoffSetting>(flag).is_err(), "{flag}");
    }
}

#[test]
fn a_flag_with_a_wrong_value_says_how_to_write_it() {
    fn check<T: FlagValue>(wrong: &str) {
        assert!(of_flag::<T>(T::EXAMPLE).is_ok(), "{}", T::EXAMPLE);
        let why = of_flag::<T>(wrong).err().expect("it is wrong");
        assert!(why.contains("write it as"), "{wrong}: {why}");
        assert_eq!(why.lines().count(), 1, "{why}");
    }
    check::<BackoffSetting>("5s");
    check::<BackoffSetting>("max=5");
    check::<JitterSetting>("3");
    check::<RetryBudgetSetting>("ratio=x");
    check::<BreakerSetting>("failures=-1");
}
