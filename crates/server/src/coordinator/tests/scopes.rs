//! Tests of quotas that a server states for a part of itself.

use super::*;

const GITHUB: &str = include_str!("../../../../../presets/github.toml");
const DISCORD: &str = include_str!("../../../../../presets/discord.toml");
const API: &str = "https://api.github.com";
const CHANNELS: &str = "https://discord.com/api/v10/channels";

/// Returns a coordinator whose keys have room, under `rules`.
fn under(rules: &str) -> Coordinator {
    let mut config = Config::fixed(1_000.0, 1_000.0);
    config.limits.in_flight = 1_000;
    let coordinator = coordinator(config);
    coordinator.limiter().set_policy(rules.parse().unwrap());
    coordinator
}

fn get(url: &str) -> Item {
    of("GET", url)
}

fn of(method: &str, url: &str) -> Item {
    Item {
        url: Some(url.to_owned()),
        key: None,
        method: Some(method.to_owned()),
        ..item("", "")
    }
}

/// Returns the report of an answer with nothing left for a minute, and `more` headers.
fn spent(grant: &Grant, status: u16, more: &[(&str, &str)]) -> Told {
    let fields = [
        ("x-ratelimit-limit", "30"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset-after", "60"),
    ];
    let fields = fields.iter().chain(more);
    Told {
        status: Some(status),
        headers: fields
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..told(grant)
    }
}

impl Coordinator {
    /// Sends `item` and reports that its answer left nothing.
    async fn spend(&self, item: Item, status: u16, more: &[(&str, &str)]) -> ToldAnswer {
        let worker = self.worker("w");
        let grant = self.one(&worker, item, AT_ONCE).await.granted();
        self.tell(&worker, &spent(&grant, status, more))
    }

    /// Returns how long `item` has to wait, in seconds. `None`: it is granted.
    async fn waits_s(&self, item: Item) -> Option<u64> {
        let worker = self.worker("other");
        match self.one(&worker, item, AT_ONCE).await {
            Answer::Granted(_) => None,
            other => Some(other.wait().0.div_ceil(1_000)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_resource_of_github_holds_its_account_and_no_other() {
    let pages = [
        ("search", "/search/issues", "/search/users"),
        ("code_search", "/search/code", "/search/code"),
        ("core", "/repos/a/b", "/users/c"),
        ("graphql", "/graphql", "/graphql"),
    ];
    for status in [200, 403, 429] {
        for (resource, spends, same) in pages {
            let coordinator = under(GITHUB);
            let named = [("x-ratelimit-resource", resource)];
            let url = format!("{API}{spends}");
            coordinator.spend(get(&url), status, &named).await;
            for (other, _, path) in pages {
                let waits = coordinator.waits_s(get(&format!("{API}{path}"))).await;
                let expected = (other == resource).then_some(60);
                assert_eq!(waits, expected, "{status}: {resource}, {path}");
            }
            assert_eq!(
                coordinator.waits_s(get(&format!("{API}{same}"))).await,
                Some(60)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_resources_are_spent_at_a_time() {
    let coordinator = under(GITHUB);
    let search = get(&format!("{API}/search/issues"));
    let code = get(&format!("{API}/search/code"));
    coordinator
        .spend(search.clone(), 200, &[("x-ratelimit-resource", "search")])
        .await;
    tokio::time::advance(Duration::from_secs(20)).await;
    coordinator
        .spend(
            code.clone(),
            429,
            &[("x-ratelimit-resource", "code_search")],
        )
        .await;
    assert_eq!(coordinator.waits_s(search).await, Some(40));
    assert_eq!(coordinator.waits_s(code).await, Some(60));
    assert_eq!(
        coordinator.waits_s(get(&format!("{API}/repos/a"))).await,
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_no_rule_names_holds_its_route_alone() {
    let coordinator = under(GITHUB);
    let upload = of("POST", &format!("{API}/repos/a/b/code-scanning/sarifs"));
    let named = [("x-ratelimit-resource", "code_scanning_upload")];
    coordinator.spend(upload.clone(), 429, &named).await;
    assert_eq!(coordinator.waits_s(upload).await, Some(60));
    assert_eq!(
        coordinator.waits_s(get(&format!("{API}/repos/a/b"))).await,
        None
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_name_a_spent_quota_holds_the_whole_key() {
    for status in [403, 429] {
        let coordinator = under(GITHUB);
        coordinator
            .spend(get(&format!("{API}/search/issues")), status, &[])
            .await;
        let other = coordinator.waits_s(get(&format!("{API}/repos/a"))).await;
        assert!(other.is_some_and(|wait| wait >= 60), "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secondary_limit_of_github_holds_the_whole_key() {
    let coordinator = under(GITHUB);
    let worker = coordinator.worker("w");
    let search = get(&format!("{API}/search/issues"));
    let grant = coordinator.one(&worker, search, AT_ONCE).await.granted();
    let mut refused = refusal(&grant, "60");
    for (name, value) in [
        ("x-ratelimit-remaining", "20"),
        ("x-ratelimit-resource", "search"),
    ] {
        refused.headers.insert(name.to_owned(), value.to_owned());
    }
    coordinator.tell(&worker, &refused);
    let other = coordinator.waits_s(get(&format!("{API}/repos/a"))).await;
    assert!(other.is_some_and(|wait| wait >= 60), "{other:?}");
}

#[tokio::test(start_paused = true)]
async fn a_spent_bucket_of_discord_holds_its_route_and_channel() {
    let bucket = ("x-ratelimit-bucket", "abcd1234");
    let post = |channel| of("POST", &format!("{CHANNELS}/{channel}/messages"));
    let user = ("x-ratelimit-scope", "user");
    let shared = ("x-ratelimit-scope", "shared");
    for (status, more) in [
        (200, &[bucket][..]),
        (429, &[bucket, user]),
        (429, &[bucket, shared]),
        (429, &[shared]),
    ] {
        // With the preset and without any rule.
        for rules in [DISCORD, ""] {
            let coordinator = under(rules);
            let answer = coordinator.spend(post(1), status, more).await;
            assert_eq!(answer.hold_ms, 0, "{answer:?}");
            assert_eq!(coordinator.waits_s(post(1)).await, Some(60), "{more:?}");
            assert_eq!(coordinator.waits_s(post(2)).await, None, "{more:?}");
            for path in ["channels/1", "channels/1/messages", "users/@me", "guilds/1"] {
                let url = format!("https://discord.com/api/v10/{path}");
                assert_eq!(coordinator.waits_s(get(&url)).await, None, "{path}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_global_refusal_of_discord_holds_everything() {
    for global in [
        ("x-ratelimit-scope", "global"),
        ("x-ratelimit-global", "true"),
    ] {
        let coordinator = under(DISCORD);
        let post = of("POST", &format!("{CHANNELS}/1/messages"));
        let named = [("x-ratelimit-bucket", "abcd1234"), global];
        coordinator.spend(post, 429, &named).await;
        let me = coordinator
            .waits_s(get("https://discord.com/api/v10/users/@me"))
            .await;
        assert!(me.is_some_and(|wait| wait >= 60), "{me:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_judges_answers_itself_names_the_scope() {
    let coordinator = under(GITHUB);
    let worker = coordinator.worker("w");
    let search = get(&format!("{API}/search/issues"));
    let grant = coordinator
        .one(&worker, search.clone(), AT_ONCE)
        .await
        .granted();
    let meaning = serde_json::json!({
        "signal": "rate_limited", "retry_after_ms": 60_000, "scope": {"resource": "search"},
        "quotas": [{"remaining": 0, "reset_ms": 60_000}],
    });
    let refused = Told {
        status: Some(403),
        meaning: Some(serde_json::from_value(meaning).unwrap()),
        ..told(&grant)
    };
    coordinator.tell(&worker, &refused);
    assert_eq!(coordinator.waits_s(search).await, Some(60));
    assert_eq!(
        coordinator.waits_s(get(&format!("{API}/repos/a"))).await,
        None
    );
}

/// Two projects of one organisation, each with an account of its own.
#[tokio::test(start_paused = true)]
async fn the_spent_quota_of_a_project_holds_that_project() {
    let rules = "[[rule]]\nmatch = [\"api.openai.com\"]\naccount = \"openai/{project}\"\n\
                 feedback = \"account\"\n";
    let asked = |project: &str| Item {
        labels: BTreeMap::from([("project".to_owned(), project.to_owned())]),
        ..of("POST", "https://api.openai.com/v1/responses")
    };
    for status in [200, 429] {
        let coordinator = under(rules);
        let worker = coordinator.worker("w");
        let grant = coordinator
            .one(&worker, asked("a"), AT_ONCE)
            .await
            .granted();
        let fields = [
            ("x-ratelimit-remaining-tokens", "90000"),
            ("x-ratelimit-reset-tokens", "1s"),
            ("x-ratelimit-remaining-project-tokens", "0"),
            ("x-ratelimit-reset-project-tokens", "60s"),
        ];
        let headers = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let told = Told {
            status: Some(status),
            headers: headers.into(),
            ..told(&grant)
        };
        coordinator.tell(&worker, &told);
        assert_eq!(coordinator.waits_s(asked("a")).await, Some(60), "{status}");
        assert_eq!(coordinator.waits_s(asked("b")).await, None, "{status}");
    }
}

/// Anthropic states what is left of the tokens that a model reads and writes.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_unit_of_which_too_little_is_left() {
    let preset = include_str!("../../../../../presets/anthropic.toml");
    for (unit, left) in [("input", "10"), ("output", "0")] {
        let coordinator = under(preset);
        let worker = coordinator.worker("w");
        let costs = |input: u64, output: u64| Item {
            cost: serde_json::from_value(
                serde_json::json!({"input_tokens": input, "output_tokens": output}),
            )
            .unwrap(),
            ..of("POST", "https://api.anthropic.com/v1/messages")
        };
        let grant = coordinator
            .one(&worker, costs(5, 5), AT_ONCE)
            .await
            .granted();
        let headers = [
            (
                format!("anthropic-ratelimit-{unit}-tokens-remaining"),
                left.to_owned(),
            ),
            (
                format!("anthropic-ratelimit-{unit}-tokens-reset"),
                "30s".to_owned(),
            ),
        ];
        let told = Told {
            headers: headers.into(),
            ..told(&grant)
        };
        coordinator.tell(&worker, &told);
        let (needs, other) = match unit {
            "input" => (costs(11, 1), costs(10, 100)),
            _ => (costs(1, 1), costs(1, 0)),
        };
        assert!(coordinator.waits_s(needs.clone()).await.is_some(), "{unit}");
        assert_eq!(coordinator.waits_s(other).await, None, "{unit}");
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(coordinator.waits_s(needs).await, None, "{unit}");
    }
}

/// Regression: the quota of one tenant stopped the host, so all tenants waited for its reset.
#[tokio::test(start_paused = true)]
async fn a_stated_quota_holds_the_keys_that_feedback_names() {
    let rules =
        "[[rule]]\nmatch = [\"*.example\"]\naccount = \"t/{org}\"\nfeedback = \"account\"\n";
    let asked = |org: &str| Item {
        labels: BTreeMap::from([("org".to_owned(), org.to_owned())]),
        ..get("https://api.example/x")
    };
    // With one left, the other request under way takes it.
    for (unit, left, waits) in [
        ("requests", "0", true),
        ("tokens", "0", true),
        ("requests", "1", true),
        ("requests", "2", false),
    ] {
        let coordinator = under(rules);
        let worker = coordinator.worker("w");
        let grant = coordinator.one(&worker, asked("a"), AT_ONCE).await;
        let other = coordinator.one(&worker, asked("a"), AT_ONCE).await;
        other.granted();
        let mut told = told(&grant.granted());
        told.headers = BTreeMap::from([
            (format!("x-ratelimit-limit-{unit}"), "600".to_owned()),
            (format!("x-ratelimit-remaining-{unit}"), left.to_owned()),
            (format!("x-ratelimit-reset-{unit}"), "3000s".to_owned()),
        ]);
        coordinator.tell(&worker, &told);
        let wait = coordinator.waits_s(asked("a")).await;
        assert_eq!(wait, waits.then_some(3_000), "{unit} {left}");
        assert_eq!(coordinator.waits_s(asked("b")).await, None, "{unit} {left}");
    }
}

/// Regression: the costs of requests that left before the first statement were not reserved.
#[tokio::test(start_paused = true)]
async fn what_a_server_says_is_left_of_tokens_is_reserved_for_requests_under_way() {
    let coordinator = under("[[rule]]\nmatch = [\"other.example\"]\nlimits = [\"1/s\"]\n");
    let worker = coordinator.worker("w");
    let costs = |tokens: u64| Item {
        cost: serde_json::from_value(serde_json::json!({"tokens": tokens})).unwrap(),
        ..get("https://api.example/x")
    };
    let mut grants = Vec::new();
    for tokens in [100, 300, 300] {
        let asked = coordinator.one(&worker, costs(tokens), AT_ONCE);
        grants.push(asked.await.granted());
    }
    let mut told = told(&grants[0]);
    let fields = [("remaining-tokens", "1000"), ("reset-tokens", "50s")];
    let fields = fields.map(|(name, value)| (format!("x-ratelimit-{name}"), value.to_owned()));
    told.headers = fields.into();
    coordinator.tell(&worker, &told);
    assert_eq!(coordinator.waits_s(costs(401)).await, Some(50));
    assert_eq!(coordinator.waits_s(costs(400)).await, None);
}
