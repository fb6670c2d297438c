use politely_core::Timestamp;
use politely_core::config::Config;

use super::{field, study, timeline};
use crate::backoff::Row;
use crate::polite::Polite;
use crate::summary::{Spread, Summary};
use crate::{Scenario, run, score};

/// Returns the texts of a plot. Fails if it is not well-formed or a number is NaN or infinite.
fn texts(svg: &str) -> Vec<String> {
    let picture = roxmltree::Document::parse(svg).expect("well-formed");
    for node in picture.descendants() {
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{node:?}");
        }
    }
    (picture.descendants())
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text().map(str::to_owned))
        .collect()
}

fn drawn(limit: &str, rest: &str) -> Vec<String> {
    let json = format!(
        r#"[{{"name": "<of> & \"one\"", "duration_s": 120, "demand": {{"kind": "greedy"}}, "rtt_ms": 20,
             "limit": {limit} {rest}}}]"#
    );
    let scenario = Scenario::read(&json).expect("a scenario").remove(0);
    let trace = run(&scenario, 1, true, |_| {
        Box::new(Polite::new(Config::api(), Timestamp::ZERO))
    });
    texts(&timeline(
        &scenario,
        &score(&scenario, "aimd", 1, &trace),
        &trace,
    ))
}

#[test]
fn every_kind_of_limit_can_be_drawn() {
    for limit in [
        r#"{"kind": "token_bucket", "rate": 5, "burst": 2}"#,
        r#"{"kind": "fixed_window", "count": 100, "window_s": 30, "aligned": true}"#,
        r#"{"kind": "leaky", "rate": 5, "queue": 3}"#,
        r#"{"kind": "steps", "at": [[0, {"kind": "token_bucket", "rate": 5, "burst": 2}], [60, {"kind": "none"}]]}"#,
        r#"{"kind": "all", "of": [{"kind": "sliding_log", "count": 10, "window_s": 1},
                                  {"kind": "concurrency_reject", "slots": 2}]}"#,
    ] {
        let texts = drawn(limit, "");
        assert!(
            texts.contains(&"the limit".to_owned()),
            "{limit}: {texts:?}"
        );
        assert!(texts.contains(&"<of> & \"one\" under aimd".to_owned()));
    }
}

#[test]
fn without_a_limit_there_is_no_line_for_it() {
    let texts = drawn(r#"{"kind": "none"}"#, "");
    assert!(!texts.contains(&"the limit".to_owned()));
    assert!(texts.contains(&"no refusal".to_owned()));
}

#[test]
fn an_outage_is_marked_and_a_run_without_one_answer_is_drawn() {
    let down = r#", "faults": [{"kind": "outage", "from_s": 0, "to_s": 1e6, "status": 503}]"#;
    let texts = drawn(r#"{"kind": "token_bucket", "rate": 5, "burst": 2}"#, down);
    assert!(texts.contains(&"outage".to_owned()));
}

fn summary(law: &str, used: f64, refused: f64) -> Summary {
    let spread = |good_tail, median, bad_tail| Spread {
        good_tail,
        median,
        bad_tail,
        worst: bad_tail,
    };
    Summary {
        law: law.to_owned(),
        runs: 30,
        utilisation: spread(used + (1.0 - used) * 0.4, used, used * 0.93),
        refused_share: spread(refused * 0.4, refused, (refused * 2.5).min(1.0)),
        good_share: None,
        refused_worst_minute_p95: 3.0,
    }
}

#[test]
fn every_law_has_a_name_in_the_field_however_close_they_are() {
    let crowd = [
        ("discover", 0.985, 0.002),
        ("aimd", 0.96, 0.012),
        ("aws-adaptive-2.0", 0.90, 0.06),
        ("aws-adaptive-2.1", 0.91, 0.065),
        ("vector-arc", 0.93, 0.3),
        ("autothrottle-1", 0.3, 0.0),
        ("autothrottle-8", 0.62, 0.35),
        ("scrapy-bisect", 0.7, 0.04),
        ("crawlee", 0.88, 0.4),
        ("aimd-bucket", 0.92, 0.055),
        ("netflix-aimd", 0.94, 0.45),
        ("netflix-vegas", 0.95, 0.5),
        ("gradient2", 0.95, 0.52),
        ("envoy-gradient", 0.94, 0.55),
        ("sre-throttling", 0.97, 0.48),
        ("atb", 0.98, 0.02),
        ("aimd-0.5", 0.86, 0.008),
        ("aimd-0.9", 0.96, 0.015),
        ("full-jitter", 0.99, 0.6),
        ("fixed-1", 0.2, 0.0),
        ("oracle", 0.99, 0.0),
    ];
    let summaries: Vec<Summary> = (crowd.iter())
        .map(|(law, used, refused)| summary(law, *used, *refused))
        .collect();
    let svg = field("suite", &summaries, &["discover", "aimd"]);
    let texts = texts(&svg);
    for (law, ..) in crowd {
        assert_eq!(texts.iter().filter(|text| *text == law).count(), 1, "{law}");
    }
}

#[test]
fn nothing_to_compare_is_an_empty_field() {
    texts(&field("suite", &[], &[]));
    texts(&study(&[]));
}

#[test]
fn the_study_names_each_backoff_in_both_panels() {
    let row = |backoff, clients, calls| Row {
        backoff,
        clients,
        calls,
        time_s: 1.0,
    };
    let rows = [
        row("none", 20, 200.0),
        row("none", 200, 20_000.0),
        row("full", 20, 60.0),
        row("full", 200, 600.0),
    ];
    let texts = texts(&study(&rows));
    for backoff in ["none", "full"] {
        assert_eq!(texts.iter().filter(|text| *text == backoff).count(), 2);
    }
}
