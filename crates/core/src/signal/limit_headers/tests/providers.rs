//! Tests of the headers of well-known providers, from the examples in their documentation.

use super::super::super::Unit;
use super::*;

/// A quota: unit, limit, window in seconds, remaining, reset in milliseconds.
type Expected = (Unit, Option<u64>, Option<u64>, Option<u64>, Option<u64>);

#[track_caller]
fn check(provider: &str, fields: &[(&'static str, &str)], expected: &[Expected]) {
    let found = quotas(&headers(fields), NOW);
    let found: Vec<Expected> = found
        .iter()
        .map(|quota| {
            let millis = quota.reset.map(|reset| reset.as_millis() as u64);
            let window = quota.window.map(|window| window.as_secs());
            (quota.unit, quota.limit, window, quota.remaining, millis)
        })
        .collect();
    assert_eq!(found, expected, "{provider}");
}

#[test]
fn models() {
    let openai = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    check(
        "OpenAI",
        &openai,
        &[
            (Unit::Requests, Some(60), None, Some(59), Some(1_000)),
            (
                Unit::Tokens,
                Some(150_000),
                None,
                Some(149_984),
                Some(360_000),
            ),
        ],
    );
    let project = [
        ("x-ratelimit-limit-project-tokens", "50000"),
        ("x-ratelimit-remaining-project-tokens", "0"),
        ("x-ratelimit-reset-project-tokens", "6s"),
    ];
    let project: Vec<_> = openai.into_iter().chain(project).collect();
    let found = quotas(&headers(&project), NOW);
    let of_project: Vec<_> = found.iter().map(|quota| quota.of_account).collect();
    assert_eq!(of_project, [true, false, false]);
    let azure = [
        ("x-ratelimit-limit-requests", "-1"),
        ("x-ratelimit-remaining-requests", "-1"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "12ms"),
    ];
    check(
        "Azure OpenAI",
        &azure,
        &[(Unit::Tokens, None, None, Some(0), Some(12))],
    );
    let anthropic = [
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-requests-reset", "2026-11-20T10:44:38Z"),
        ("anthropic-ratelimit-input-tokens-limit", "30000"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        (
            "anthropic-ratelimit-input-tokens-reset",
            "2026-11-20T10:45:37Z",
        ),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "8000"),
        (
            "anthropic-ratelimit-output-tokens-reset",
            "2026-11-20T10:44:37Z",
        ),
        ("anthropic-ratelimit-unified-status", "allowed"),
    ];
    check(
        "Anthropic",
        &anthropic,
        &[
            (Unit::InputTokens, Some(30_000), None, Some(0), Some(60_000)),
            (Unit::Requests, Some(50), None, Some(49), Some(1_000)),
            (Unit::OutputTokens, Some(8_000), None, Some(8_000), Some(0)),
        ],
    );
    let mistral = [
        ("x-ratelimit-limit-req-minute", "60"),
        ("x-ratelimit-remaining-req-minute", "59"),
        ("x-ratelimit-limit-tokens-minute", "500000"),
        ("x-ratelimit-remaining-tokens-minute", "499000"),
    ];
    check(
        "Mistral",
        &mistral,
        &[
            (Unit::Requests, Some(60), Some(60), Some(59), None),
            (Unit::Tokens, Some(500_000), Some(60), Some(499_000), None),
        ],
    );
}

#[test]
fn shops_and_customers() {
    check(
        "Shopify",
        &[("x-shopify-shop-api-call-limit", "40/40")],
        &[(Unit::Requests, Some(40), None, Some(0), None)],
    );
    let hubspot = [
        ("x-hubspot-ratelimit-daily", "250000"),
        ("x-hubspot-ratelimit-daily-remaining", "249952"),
        ("x-hubspot-ratelimit-interval-milliseconds", "10000"),
        ("x-hubspot-ratelimit-max", "100"),
        ("x-hubspot-ratelimit-remaining", "88"),
        ("x-hubspot-ratelimit-secondly", "10"),
        ("x-hubspot-ratelimit-secondly-remaining", "9"),
    ];
    check(
        "HubSpot",
        &hubspot,
        &[
            (
                Unit::Requests,
                Some(250_000),
                Some(86_400),
                Some(249_952),
                None,
            ),
            (Unit::Requests, Some(10), Some(1), Some(9), None),
            (Unit::Requests, Some(100), Some(10), Some(88), None),
        ],
    );
    check(
        "Zendesk",
        &[("x-rate-limit", "700"), ("x-rate-limit-remaining", "699")],
        &[(Unit::Requests, Some(700), None, Some(699), None)],
    );
    let atlassian = [
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "99"),
        ("x-ratelimit-interval-seconds", "60"),
        ("x-ratelimit-fillrate", "10"),
        ("x-ratelimit-nearlimit", "true"),
    ];
    check(
        "Atlassian",
        &atlassian,
        &[(Unit::Requests, Some(100), Some(60), Some(99), None)],
    );
    let linear = [
        ("x-ratelimit-requests-limit", "1500"),
        ("x-ratelimit-requests-remaining", "1499"),
        ("x-ratelimit-requests-reset", "1795175077000"),
        ("x-ratelimit-complexity-limit", "250000"),
        ("x-ratelimit-complexity-remaining", "249000"),
        ("x-complexity", "1000"),
    ];
    check(
        "Linear",
        &linear,
        &[
            (
                Unit::Requests,
                Some(1_500),
                None,
                Some(1_499),
                Some(3_600_000),
            ),
            (Unit::Points, Some(250_000), None, Some(249_000), None),
        ],
    );
}

#[test]
fn talk_and_news() {
    let discord = [
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1795171481.423"),
        ("x-ratelimit-reset-after", "1.5"),
        ("x-ratelimit-bucket", "80c17d2f203122d936070c88c8d10f33"),
        ("x-ratelimit-global", "true"),
        ("x-ratelimit-scope", "user"),
    ];
    check(
        "Discord",
        &discord,
        &[(Unit::Requests, Some(5), None, Some(0), Some(1_500))],
    );
    let reddit = [
        ("x-ratelimit-remaining", "59.0"),
        ("x-ratelimit-used", "1"),
        ("x-ratelimit-reset", "60"),
    ];
    check(
        "Reddit",
        &reddit,
        &[(Unit::Requests, Some(60), None, Some(59), Some(60_000))],
    );
    let x = [
        ("x-rate-limit-limit", "15"),
        ("x-rate-limit-remaining", "14"),
        ("x-rate-limit-reset", "1795172377"),
        ("x-app-limit-24hour-limit", "50"),
        ("x-app-limit-24hour-remaining", "49"),
        ("x-app-limit-24hour-reset", "1795257877"),
    ];
    check(
        "X",
        &x,
        &[
            (
                Unit::Requests,
                Some(50),
                Some(86_400),
                Some(49),
                Some(86_400_000),
            ),
            (Unit::Requests, Some(15), None, Some(14), Some(900_000)),
        ],
    );
}

#[test]
fn gateways_and_clouds() {
    let kong = [
        ("ratelimit-limit", "6"),
        ("ratelimit-remaining", "4"),
        ("ratelimit-reset", "47"),
        ("x-ratelimit-limit-minute", "6"),
        ("x-ratelimit-remaining-minute", "4"),
        ("x-ratelimit-limit-hour", "10"),
        ("x-ratelimit-remaining-hour", "8"),
    ];
    check(
        "Kong",
        &kong,
        &[
            (Unit::Requests, Some(10), Some(3_600), Some(8), None),
            (Unit::Requests, Some(6), None, Some(4), Some(47_000)),
            (Unit::Requests, Some(6), Some(60), Some(4), None),
        ],
    );
    check(
        "Amazon SP-API",
        &[("x-amzn-ratelimit-limit", "0.5")],
        &[(Unit::Requests, Some(5), Some(10), None, None)],
    );
    check(
        "Amazon SP-API",
        &[("x-amzn-ratelimit-limit", "2.0")],
        &[(Unit::Requests, Some(2), Some(1), None, None)],
    );
    check(
        "Azure Resource Manager",
        &[("x-ms-ratelimit-remaining-subscription-reads", "11999")],
        &[(Unit::Requests, None, None, Some(11_999), None)],
    );
    let gitlab = [
        ("ratelimit-limit", "600"),
        ("ratelimit-observed", "6"),
        ("ratelimit-remaining", "594"),
        ("ratelimit-reset", "1795171537"),
        ("ratelimit-resettime", "Fri, 20 Nov 2026 10:45:37 GMT"),
        ("ratelimit-name", "throttle_authenticated_web"),
    ];
    check(
        "GitLab",
        &gitlab,
        &[(Unit::Requests, Some(600), None, Some(594), Some(60_000))],
    );
    let discogs = [
        ("x-discogs-ratelimit", "60"),
        ("x-discogs-ratelimit-used", "1"),
        ("x-discogs-ratelimit-remaining", "59"),
    ];
    check(
        "Discogs",
        &discogs,
        &[(Unit::Requests, Some(60), None, Some(59), None)],
    );
}
