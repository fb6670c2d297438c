//! Tests of what a rule of a policy says beside limits.

use super::*;

/// Returns a coordinator that follows `rules`, and the folder of its policy file.
pub(super) fn ruled(config: Config, rules: &str) -> (Coordinator, tempfile::TempDir) {
    let coordinator = coordinator(config);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    std::fs::write(&file, rules).unwrap();
    coordinator.load_policy(&file, false).unwrap();
    (coordinator, dir)
}

pub(super) fn of_url(url: &str, method: &str) -> Item {
    Item {
        url: Some(url.to_owned()),
        key: None,
        method: (!method.is_empty()).then(|| method.to_owned()),
        ..item("", "")
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_costs_what_its_rule_says() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\naccount = \"a\"\nlimits = [\"10 points/min\"]\n\
                 cost = { points = { GET = 1, default = 5 } }\n";
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), rules);
    let worker = coordinator.worker("w");
    let left = || coordinator.explain("custom/a").unwrap().budgets[0].remaining;
    for (method, after) in [("", 9), ("POST", 4), ("GET", 3)] {
        let asked = of_url("https://a.example/", method);
        coordinator.one(&worker, asked, AT_ONCE).await.granted();
        assert_eq!(left(), after, "{method}");
    }
    // An amount that the item states comes first.
    let stated = Item {
        cost: serde_json::from_value(serde_json::json!({"points": 2})).unwrap(),
        ..of_url("https://a.example/", "POST")
    };
    coordinator.one(&worker, stated, AT_ONCE).await.granted();
    assert_eq!(left(), 1);
    let wrong = of_url("https://a.example/", "NO METHOD");
    let Answer::Error { error, .. } = coordinator.one(&worker, wrong, AT_ONCE).await else {
        panic!("a method has no space")
    };
    assert_eq!(error.field, "method");
}

#[tokio::test(start_paused = true)]
async fn an_answer_means_what_its_rule_says() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\n[[rule.answer]]\n\
                 when = { status = 200, body = \"(?i)slow down\" }\nsignal = \"rate_limited\"\n\
                 hold = \"60s\"\nnotify = true\n";
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), rules);
    let worker = coordinator.worker("w");
    let mut events = coordinator.watch().events().from_now();
    let asked = || of_url("https://a.example/x", "");
    let grant = coordinator.one(&worker, asked(), AT_ONCE).await.granted();
    let good = Told {
        body_start: Some("A page".to_owned()),
        ..told(&grant)
    };
    let answer = coordinator.tell(&worker, &good);
    assert_eq!((answer.next, answer.hold_ms), (Next::Done, 0));
    let grant = coordinator.one(&worker, asked(), AT_ONCE).await.granted();
    let soft = Told {
        body_start: Some("Please SLOW down".to_owned()),
        ..told(&grant)
    };
    let answer = coordinator.tell(&worker, &soft);
    assert!(matches!(answer.next, Next::Retry { .. }), "{answer:?}");
    assert!(answer.hold_ms >= 60_000, "{answer:?}");
    let (retry_in_ms, ..) = coordinator.one(&worker, asked(), AT_ONCE).await.wait();
    assert!(retry_in_ms > 50_000);
    let Some(crate::watch::Next::Event(_, event)) = events.next().await else {
        panic!("an event comes")
    };
    assert_eq!(event.kind, politely_api::wire::EventKind::Answer);
    let counts = coordinator.0.usage.answers(None, 24, coordinator.now());
    assert_eq!(
        (counts.signals["ok"], counts.signals["rate_limited"]),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_the_account_if_its_rule_says_so() {
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"a\"\nlimits = [\"50/s\"]\n\
                 feedback = \"account\"\n";
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), rules);
    let worker = coordinator.worker("w");
    let asked = |host: &str| of_url(&format!("https://{host}.example/"), "");
    let grant = coordinator
        .one(&worker, asked("one"), AT_ONCE)
        .await
        .granted();
    coordinator.tell(&worker, &refusal(&grant, "30"));
    let (retry_in_ms, reason, _) = coordinator.one(&worker, asked("two"), AT_ONCE).await.wait();
    assert!(
        retry_in_ms >= 30_000 && reason.starts_with("hold"),
        "{retry_in_ms} {reason}"
    );
}

/// A refusal that belongs to an account: of the host of one token, the others go on.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_account_holds_no_other_of_its_host() {
    let headers: [&[(&str, &str)]; 4] = [
        &[("Retry-After", "30")],
        &[],
        &[("Retry-After", "0")],
        &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "30")],
    ];
    let by_token =
        "[[rule]]\nmatch = [\"*.example\"]\naccount = \"a/{team}\"\nlimits = [\"50/s\"]\n";
    let one_for_all = by_token.replace("a/{team}", "a") + "feedback = \"account\"\n";
    let told_so = by_token.to_owned() + "feedback = \"account\"\n";
    for (rules, headers) in [by_token, &told_so, &one_for_all]
        .into_iter()
        .flat_map(|rules| headers.map(|each| (rules, each)))
    {
        let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), rules);
        let worker = coordinator.worker("w");
        let asked = |team: &str| Item {
            labels: [("team".to_owned(), team.to_owned())].into(),
            ..of_url("https://a.example/", "")
        };
        let grant = coordinator
            .one(&worker, asked("red"), AT_ONCE)
            .await
            .granted();
        let fields = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let refused = Told {
            status: Some(429),
            headers: fields.collect(),
            ..told(&grant)
        };
        coordinator.tell(&worker, &refused);
        let (retry_in_ms, ..) = coordinator.one(&worker, asked("red"), AT_ONCE).await.wait();
        let is_named = headers.iter().any(|(_, value)| *value == "30");
        let least = if is_named { 29_000 } else { 900 };
        assert!(retry_in_ms >= least, "{rules} {headers:?}: {retry_in_ms}");
        let of_host = coordinator.explain("a.example").expect("a key").hold;
        assert_eq!(of_host, None, "{rules} {headers:?}");
        if rules.contains("{team}") {
            coordinator
                .one(&worker, asked("blue"), AT_ONCE)
                .await
                .granted();
        }
    }
}

const KEYS: &str = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"a/{team}\"\n\
    limits = [\"10/s\"]\nfeedback = [\"consumer/{client}\"]\n\
    [[rule.key]]\nname = \"consumer/{client}\"\nlimits = [\"3/s\"]\n\
    [[rule.key]]\nname = \"writes\"\nclass = \"write\"\nlimits = [\"1/s\"]\n";

/// Returns an item for `host` with the label `team`.
fn of_team(host: &str, method: &str) -> Item {
    Item {
        labels: [("team".to_owned(), "red".to_owned())].into(),
        ..of_url(&format!("https://{host}.example/"), method)
    }
}

/// Six workers ask for ten seconds, each as fast as it can.
#[tokio::test(start_paused = true)]
async fn each_worker_keeps_its_rate_and_all_keep_that_of_the_account() {
    let mut config = Config::fixed(1_000.0, 10.0);
    config.limits.in_flight = 1_000;
    let (coordinator, _dir) = ruled(config, KEYS);
    let ends = coordinator.now() + Duration::from_secs(10);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..6 {
        let coordinator = coordinator.clone();
        tasks.spawn(async move {
            let worker = coordinator.worker(&format!("w{i}"));
            let mut starts = Vec::new();
            while coordinator.now() < ends {
                let asked = of_team(&format!("h{i}"), "");
                let wait = Duration::from_secs(2);
                let Answer::Granted(grant) = coordinator.one(&worker, asked, wait).await else {
                    continue;
                };
                starts.push(coordinator.now() + Duration::from_millis(grant.start_in_ms));
                coordinator.tell(&worker, &told(&grant));
            }
            starts
        });
    }
    let mut all = Vec::new();
    while let Some(starts) = tasks.join_next().await {
        let starts = starts.unwrap();
        assert!(starts.len() > 10, "{}", starts.len());
        let is_apart =
            |pair: &[politely::core::Timestamp]| pair[3].since(pair[0]) >= Duration::from_secs(1);
        assert!(starts.windows(4).all(is_apart), "{starts:?}");
        all.extend(starts);
    }
    all.sort_unstable();
    let is_apart =
        |pair: &[politely::core::Timestamp]| pair[10].since(pair[0]) >= Duration::from_secs(1);
    assert!(all.windows(11).all(is_apart));
    assert!(all.len() > 95, "{}", all.len());
}

#[tokio::test(start_paused = true)]
async fn a_class_of_methods_has_limits_of_its_own() {
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), KEYS);
    let worker = coordinator.worker("w");
    let post = of_team("a", "POST");
    coordinator.one(&worker, post, AT_ONCE).await.granted();
    let post = of_team("b", "PUT");
    let (_, reason, _) = coordinator.one(&worker, post, AT_ONCE).await.wait();
    assert_eq!(reason, "budget");
    let get = of_team("b", "GET");
    coordinator.one(&worker, get, AT_ONCE).await.granted();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_the_keys_that_feedback_names() {
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), KEYS);
    let (one, two) = (coordinator.worker("one"), coordinator.worker("two"));
    let grant = coordinator
        .one(&one, of_team("a", ""), AT_ONCE)
        .await
        .granted();
    coordinator.tell(&one, &refusal(&grant, "30"));
    let (retry_in_ms, reason, _) = coordinator
        .one(&one, of_team("b", ""), AT_ONCE)
        .await
        .wait();
    assert!(
        retry_in_ms >= 30_000 && reason.starts_with("hold"),
        "{retry_in_ms} {reason}"
    );
    coordinator
        .one(&two, of_team("b", ""), AT_ONCE)
        .await
        .granted();
}

#[tokio::test(start_paused = true)]
async fn wrong_labels_are_errors_of_their_item() {
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), KEYS);
    let worker = coordinator.worker("w");
    let labels = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let many: Vec<String> = (0..9).map(|i| format!("l{i}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "x")).collect();
    for (pairs, field, part) in [
        (&[][..], "labels", "send the label \"team\""),
        (&[("client", "x")], "labels", "\"client\" is no label"),
        (&[("Team", "x")], "labels", "\"Team\" is no label"),
        (&[("team", "")], "labels.team", "1 to 128"),
        (&[("team", "a\nb")], "labels.team", "control"),
        (&many, "labels", "at most 8"),
    ] {
        let asked = Item {
            labels: labels(pairs),
            ..of_team("a", "")
        };
        let Answer::Error { error, .. } = coordinator.one(&worker, asked, AT_ONCE).await else {
            panic!("{pairs:?} is granted")
        };
        assert_eq!(error.field, field, "{error:?}");
        assert!(error.detail.contains(part), "{error:?}");
    }
}

/// An item that also names the account by itself, and a policy that is removed while an item waits.
#[tokio::test(start_paused = true)]
async fn the_account_keeps_its_limits_and_waiting_items_outlive_their_policy() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\naccount = \"a\"\nlimits = [\"1/h\"]\n";
    let (coordinator, dir) = ruled(Config::fixed(100.0, 10.0), rules);
    let worker = coordinator.worker("w");
    let asked = |id: &str| Item {
        id: Some(id.to_owned()),
        also: vec!["custom/a".to_owned()],
        ..of_url("https://a.example/", "")
    };
    coordinator
        .one(&worker, asked("1"), AT_ONCE)
        .await
        .granted();
    let (_, reason, _) = coordinator.one(&worker, asked("2"), AT_ONCE).await.wait();
    assert_eq!(reason, "budget");
    let file = dir.path().join("rules.toml");
    std::fs::write(&file, "[[rule]\n").unwrap();
    assert!(coordinator.load_policy(&file, false).is_err());
    let (_, reason, _) = coordinator.one(&worker, asked("2"), AT_ONCE).await.wait();
    assert_eq!(reason, "budget", "a file that is no policy changes nothing");
    std::fs::write(&file, "").unwrap();
    assert!(coordinator.load_policy(&file, false).is_err());
    let (_, reason, _) = coordinator.one(&worker, asked("2"), AT_ONCE).await.wait();
    assert_eq!(reason, "budget", "an empty file changes nothing");
    coordinator.load_policy(&file, true).unwrap();
    coordinator
        .one(&worker, asked("2"), AT_ONCE)
        .await
        .granted();
}

/// A client that names the key itself, as the Rust library does.
#[tokio::test(start_paused = true)]
async fn a_url_beside_a_key_finds_the_rule_of_its_path() {
    let rules = "[[rule]]\nmatch = [\"a.example/search\"]\naccount = \"search\"\n\
                 limits = [\"1/h\"]\n";
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), rules);
    let worker = coordinator.worker("w");
    let asked = |path: &str, key: &str| Item {
        key: Some(key.to_owned()),
        ..of_url(&format!("https://a.example{path}"), "")
    };
    for (path, key, refused) in [
        ("/search", "a.example", None),
        ("/other", "a.example", None),
        ("/search", "site/a.example", Some("budget")),
    ] {
        let answer = coordinator.one(&worker, asked(path, key), AT_ONCE).await;
        match refused {
            None => assert_eq!(answer.granted().key, key),
            Some(reason) => assert_eq!(answer.wait().1, reason),
        }
    }
    let Answer::Error { error, .. } =
        (coordinator.one(&worker, asked("/", "no key"), AT_ONCE)).await
    else {
        panic!("the key is read although the URL has one")
    };
    assert_eq!(error.field, "key");
}

#[tokio::test(start_paused = true)]
async fn a_refused_post_is_sent_again_only_if_its_rule_says_so() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\nresend = [\"POST\"]\n";
    let (coordinator, _dir) = ruled(Config::fixed(100.0, 10.0), rules);
    let worker = coordinator.worker("w");
    for (host, is_resent) in [("a.example", true), ("b.example", false)] {
        let asked = of_url(&format!("https://{host}/"), "POST");
        let grant = coordinator.one(&worker, asked, AT_ONCE).await.granted();
        let refused = Told {
            method: Some("POST".to_owned()),
            ..refusal(&grant, "1")
        };
        let answer = coordinator.tell(&worker, &refused);
        assert_eq!(
            matches!(answer.next, Next::Retry { .. }),
            is_resent,
            "{host}"
        );
    }
    // A connection that broke may have delivered the request.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = of_url("https://a.example/", "POST");
    let grant = coordinator
        .one(&worker, asked, Duration::from_secs(5))
        .await
        .granted();
    let broken = Told {
        method: Some("POST".to_owned()),
        status: None,
        error: Some(politely_api::wire::ErrorKind::Reset),
        ..told(&grant)
    };
    let answer = coordinator.tell(&worker, &broken);
    assert!(matches!(answer.next, Next::GiveUp { .. }), "{answer:?}");
}

/// Two groups wait for one account at 50 requests per second for a minute.
#[tokio::test(start_paused = true)]
async fn shares_divide_an_account_by_weight() {
    let rules = "[[rule]]\nmatch = [\"*.example\"]\naccount = \"a\"\nlimits = [\"50/s\"]\n\
                 share = { interactive = 3, batch = 1 }\n";
    let mut config = Config::fixed(1_000.0, 10.0);
    config.limits.in_flight = 1_000;
    let (coordinator, _dir) = ruled(config, rules);
    let counts: Arc<[std::sync::atomic::AtomicU64; 2]> = Arc::default();
    // The first second's burst is free for both groups, so counting starts after it.
    let begins = coordinator.now() + Duration::from_secs(1);
    let ends = begins + Duration::from_mins(1);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..16 {
        let (coordinator, counts) = (coordinator.clone(), Arc::clone(&counts));
        tasks.spawn(async move {
            let name = ["interactive", "batch"][i % 2];
            let worker = coordinator.worker(&format!("{name}-{i}"));
            while coordinator.now() < ends {
                let asked = of_url(&format!("https://h{i}.example/"), "");
                let answer = coordinator
                    .one(&worker, asked, Duration::from_secs(30))
                    .await;
                let Answer::Granted(grant) = answer else {
                    continue;
                };
                let counted = u64::from(coordinator.now() >= begins);
                counts[i % 2].fetch_add(counted, std::sync::atomic::Ordering::Relaxed);
                coordinator.tell(&worker, &told(&grant));
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let [interactive, batch] = [0, 1].map(|i| counts[i].load(std::sync::atomic::Ordering::Relaxed));
    let ratio = interactive as f64 / batch as f64;
    assert!((ratio / 3.0 - 1.0).abs() < 0.02, "{interactive}:{batch}");
    assert!(
        interactive + batch > 2_900,
        "the account is used: {interactive}:{batch}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_share_of_blocks_above_the_rules_makes_an_event() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\nblock_share = 0.5\n[[rule.answer]]\n\
                 when = { status = 403 }\nsignal = \"blocked\"\n";
    let (coordinator, _dir) = ruled(Config::fixed(1_000.0, 100.0), rules);
    let worker = coordinator.worker("w");
    let mut events = coordinator.watch().events().from_now();
    let mut grants = Vec::new();
    for _ in 0..4 {
        for _ in 0..4 {
            let asked = of_url("https://a.example/x", "");
            let answer = coordinator
                .one(&worker, asked, Duration::from_secs(1))
                .await;
            grants.push(answer.granted());
        }
        for grant in grants.drain(..) {
            coordinator.tell(&worker, &told(&grant));
        }
    }
    for _ in 0..40 {
        let asked = of_url("https://a.example/x", "");
        let answer = coordinator
            .one(&worker, asked, Duration::from_mins(1))
            .await;
        let Answer::Granted(grant) = answer else {
            continue;
        };
        let blocked = Told {
            status: Some(403),
            ..told(&grant)
        };
        coordinator.tell(&worker, &blocked);
        coordinator
            .limiter()
            .unpark(&Key::host("a.example").unwrap());
    }
    let mut kinds = Vec::new();
    while let Some(Some(crate::watch::Next::Event(_, event))) =
        futures_util::FutureExt::now_or_never(events.next())
    {
        kinds.push(event.kind);
    }
    let blocks = kinds
        .iter()
        .filter(|kind| **kind == politely_api::wire::EventKind::Blocks);
    assert_eq!(blocks.count(), 1, "{kinds:?}");
}

/// Regression: a PUT replaced a link by a file.
#[tokio::test(start_paused = true)]
async fn a_put_writes_through_a_link() {
    let (coordinator, dir) = ruled(Config::fixed(100.0, 10.0), KEYS);
    let (link, file) = (dir.path().join("link.toml"), dir.path().join("rules.toml"));
    std::os::unix::fs::symlink("rules.toml", &link).unwrap();
    coordinator.load_policy(&link, false).unwrap();
    let text = KEYS.replace("10/s", "9/s");
    coordinator
        .replace_policy(text.clone(), false)
        .await
        .unwrap();
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
}
