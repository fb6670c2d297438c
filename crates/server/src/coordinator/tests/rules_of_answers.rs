//! Tests of rules about answers, and of the bodies that they read.

use politely_api::wire::{Meaning, ReportedSignal, SendBodies};

use super::rules::{of_url, ruled};
use super::*;

const SOFT: &str = "[[rule]]\nmatch = [\"a.example\"]\n[[rule.answer]]\n\
    when = { body = \"slow down\" }\nsignal = \"rate_limited\"\n";

/// Returns the meaning of a worker that took an answer for a good one.
fn meaning(signal: ReportedSignal) -> Meaning {
    Meaning {
        signal,
        retry_after_ms: None,
        quotas: Vec::new(),
        scope: None,
        may_retry: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_asks_for_the_bodies_that_rules_read() {
    let rule = |when: &str| {
        format!(
            "[[rule]]\nmatch = [\"a.example\"]\n[[rule.answer]]\nwhen = {{ {when} }}\n\
             signal = \"rate_limited\"\n"
        )
    };
    for (rules, asked) in [
        ("[[rule]]\nmatch = [\"a.example\"]\n".to_owned(), None),
        (SOFT.to_owned(), Some(SendBodies::All)),
        (rule("status = 200, body = \"x\""), Some(SendBodies::All)),
        (
            rule("status = [403, 404], body = \"x\""),
            Some(SendBodies::All),
        ),
        (
            rule("status = [403, 429], body = \"x\""),
            Some(SendBodies::Errors),
        ),
        (
            rule("status = 200, header = { a = \"b\" }"),
            Some(SendBodies::Errors),
        ),
        (
            rule("status = 200") + "retry_after = \"body:/wait\"\n",
            Some(SendBodies::All),
        ),
    ] {
        let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), &rules);
        let worker = coordinator.worker("w");
        let again = Item {
            id: Some("1".to_owned()),
            ..of_url("https://a.example/", "")
        };
        for _ in 0..2 {
            let grant = coordinator.one(&worker, again.clone(), AT_ONCE).await;
            assert_eq!(grant.granted().send_bodies, asked, "{rules}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_without_the_body_that_a_rule_reads_is_an_error_that_names_the_rule() {
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), SOFT);
    let worker = coordinator.worker("w");
    let asked = of_url("https://a.example/x", "");
    let grant = coordinator.one(&worker, asked, AT_ONCE).await.granted();
    let ok = meaning(ReportedSignal::Ok);
    for meaning in [None, Some(ok.clone())] {
        let bare = Told {
            meaning,
            ..told(&grant)
        };
        let error = coordinator.tell(&worker, &bare).error.unwrap();
        assert_eq!(error.field, "body_start");
        assert!(
            error.detail.contains("line 3") && error.detail.contains("200"),
            "{error:?}"
        );
    }
    // The rule comes before the judgement of the worker.
    let soft = Told {
        meaning: Some(ok),
        body_start: Some("please slow down".to_owned()),
        ..told(&grant)
    };
    let answer = coordinator.tell(&worker, &soft);
    let limited = Some(ReportedSignal::RateLimited);
    assert_eq!((answer.signal, &answer.error), (limited, &None));
    assert!(
        matches!(answer.next, Next::Retry { free: true, .. }),
        "{answer:?}"
    );
    assert_eq!(
        coordinator.tell(&worker, &soft).signal,
        limited,
        "asked again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_only_the_body_states_holds_the_account() {
    let gemini = r#"[{"error":{"code":429,"details":[{"@type":"Help"},{"retryDelay":"34.5s"}]}}]"#;
    for (preset, url, body, secs) in [
        (
            include_str!("../../../../../presets/gemini.toml"),
            "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent",
            gemini,
            35,
        ),
        (
            include_str!("../../../../../presets/telegram.toml"),
            "https://api.telegram.org/bot1/sendMessage",
            r#"{"ok":false,"error_code":429,"parameters":{"retry_after":35}}"#,
            35,
        ),
        (
            include_str!("../../../../../presets/discord.toml"),
            "https://discord.com/api/v10/users/1",
            r#"{"message":"You are being rate limited.","retry_after":64.57,"global":true}"#,
            65,
        ),
        (
            include_str!("../../../../../presets/slack.toml"),
            "https://slack.com/api/users.list",
            r#"{"ok":false,"error":"ratelimited","retry_after":30}"#,
            30,
        ),
        (
            include_str!("../../../../../presets/openai.toml"),
            "https://api.openai.com/v1/responses",
            r#"{"error":{"message":"Rate limit reached. Please try again in 7m12s."}}"#,
            432,
        ),
    ] {
        let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), preset);
        let worker = coordinator.worker("w");
        let asked = || of_url(url, "POST");
        let grant = coordinator.one(&worker, asked(), AT_ONCE).await.granted();
        let refused = Told {
            status: Some(429),
            method: Some("POST".to_owned()),
            body_start: Some(body.to_owned()),
            ..told(&grant)
        };
        let answer = coordinator.tell(&worker, &refused);
        assert!(
            matches!(answer.next, Next::Retry { free: true, .. }),
            "{url}: {answer:?}"
        );
        let (retry_in_ms, reason, _) = coordinator.one(&worker, asked(), AT_ONCE).await.wait();
        assert!(reason.starts_with("hold"), "{url}: {reason}");
        // A hold has up to a tenth of jitter.
        let wait_s = retry_in_ms as f64 / 1e3;
        assert!(
            (f64::from(secs) - 1.0..f64::from(secs) * 1.2).contains(&wait_s),
            "{url}: {wait_s}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_without_credit_is_not_tried_again_and_holds_nothing() {
    let coordinator = coordinator(Config::fixed(100.0, 10.0));
    let worker = coordinator.worker("w");
    for (status, body) in [
        (
            429,
            r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (
            400,
            r#"{"error":{"message":"Your credit balance is too low to access the API."}}"#,
        ),
    ] {
        for _ in 0..5 {
            let asked = of_url("https://a.example/x", "");
            let grant = coordinator.one(&worker, asked, AT_ONCE).await.granted();
            let spent = Told {
                status: Some(status),
                body_start: Some(body.to_owned()),
                headers: [("retry-after".to_owned(), "600".to_owned())].into(),
                ..told(&grant)
            };
            let answer = coordinator.tell(&worker, &spent);
            assert!(matches!(answer.next, Next::GiveUp { .. }), "{answer:?}");
            assert_eq!(answer.hold_ms, 0, "{status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_judges_for_itself_hands_on_the_servers_word_on_retries() {
    let coordinator = coordinator(Config::fixed(100.0, 10.0));
    let worker = coordinator.worker("w");
    for (status, signal, may_retry) in [
        (409, ReportedSignal::UrlError, true),
        (503, ReportedSignal::Overloaded, false),
    ] {
        let host = format!("https://h{status}.example/");
        let grant = coordinator.one(&worker, of_url(&host, ""), AT_ONCE).await;
        let told = Told {
            status: Some(status),
            meaning: Some(Meaning {
                may_retry: Some(may_retry),
                ..meaning(signal)
            }),
            ..told(&grant.granted())
        };
        let answer = coordinator.tell(&worker, &told);
        let retries = matches!(answer.next, Next::Retry { .. });
        assert_eq!(retries, may_retry, "{status}: {answer:?}");
    }
}
