//! A policy in a program: through the layer, through the middleware, and by plans.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{Empty, Full};
use politely::layer::PoliteLayer;
use politely::policy::RuleBook;
use politely::{
    AcquireError, Arrival, Clock, Config, Key, Labels, Limiter, Plan, Refusal, RefusalReason,
    RequestView,
};
use tower::{Layer, ServiceExt};
use url::Url;

use crate::support::{client, get, service, unlimited};

const RULES: &str = r#"
[[rule]]
match = ["127.0.0.1/search/*"]
account = "search"
limits = ["1/h"]

[[rule]]
match = ["127.0.0.1"]
account = "team/{team}"
limits = ["2/h"]
"#;

fn limiter(rules: &str) -> Limiter {
    let rules: RuleBook = rules.parse().unwrap();
    let builder = Limiter::builder().config(Config::fixed(1_000.0, 100.0));
    builder.clock(Clock::tokio()).policy(rules).build().unwrap()
}

fn plan(limiter: &Limiter, url: &str, labels: &Labels) -> Plan {
    let url = Url::parse(url).unwrap();
    let view = RequestView {
        keys: vec![Key::of_url(&url).unwrap()],
        url: Some(&url),
        method: &Method::GET,
        labels: &|name| labels.get(name),
    };
    limiter.plan(view).unwrap()
}

fn try_plan(limiter: &Limiter, plan: &Plan) -> Result<politely::Permit, Refusal> {
    limiter.try_in_turn(plan.keys(), plan.ask().clone(), Arrival::LAST)
}

fn custom(name: &str) -> Key {
    Key::custom(name).unwrap()
}

#[tokio::test]
async fn the_layer_counts_a_request_under_the_keys_of_its_path_and_its_labels() {
    let server = unlimited().await;
    let limiter = limiter(RULES);
    let service = service(limiter.clone());
    get(&service, &server.url("/search/1")).await;
    for team in ["red", "blue", "red"] {
        let mut request = Request::get(server.url("/1"))
            .body(Empty::<Bytes>::new())
            .unwrap();
        let labels = Labels::from_iter([("team", team)]);
        request.extensions_mut().insert(labels);
        service.clone().oneshot(request).await.unwrap();
    }
    let granted = |key: &str| limiter.explain(&custom(key)).unwrap().tally.granted;
    assert_eq!(granted("search"), 1);
    assert_eq!((granted("team/red"), granted("team/blue")), (2, 1));
}

/// Telegram states its wait in the body only.
#[tokio::test(start_paused = true)]
async fn the_layer_waits_as_long_as_the_body_of_a_refusal_says() {
    let rules = "[[rule]]\nmatch = [\"a.example\"]\nlimits = [\"100/s\"]\n[[rule.answer]]\n\
                 when = { status = 429 }\nsignal = \"rate_limited\"\n\
                 retry_after = \"body:/parameters/retry_after\"\n";
    let limiter = limiter(rules);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (log, clock) = (Arc::clone(&sent), limiter.clone());
    let host = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let mut log = log.lock().unwrap();
        log.push(clock.now());
        let mut response = http::Response::new(Full::<Bytes>::from("page"));
        if log.len() == 1 {
            *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            *response.body_mut() = Full::from(r#"{"parameters":{"retry_after":35}}"#);
        }
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let request = Request::get("http://a.example/x").body(Empty::new());
    let service = PoliteLayer::new(limiter).layer(host);
    let page = service.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(page.status(), 200);
    let sent = sent.lock().unwrap();
    let waited = sent[1].since(sent[0]).as_secs_f64();
    assert!(
        sent.len() == 2 && (35.0..40.0).contains(&waited),
        "{waited}"
    );
}

#[tokio::test]
async fn the_middleware_reads_labels_too() {
    let server = unlimited().await;
    let limiter = limiter(RULES);
    let client = client(limiter.clone());
    let request = client.get(server.url("/1"));
    let request = request.with_extension(Labels::from_iter([("team", "red")]));
    request.send().await.unwrap();
    let red = limiter.explain(&custom("team/red")).unwrap();
    assert_eq!(red.tally.granted, 1);
}

#[tokio::test]
async fn a_request_without_the_label_of_its_rule_is_an_error_that_names_it() {
    let limiter = limiter(RULES);
    let key = Key::host("http://127.0.0.1/").unwrap();
    let Err(AcquireError::Label(missing)) = limiter.acquire(&key).await else {
        panic!("it has no label")
    };
    assert_eq!(
        missing.to_string(),
        "the rule of line 7 of the policy counts under custom/team/{team}; send the label \"team\""
    );
    let refusal = limiter.try_acquire(&key).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::NoLabel);
    let served = client(limiter).get("http://127.0.0.1:1/").send().await;
    assert!(
        format!("{served:?}").contains("send the label"),
        "{served:?}"
    );
}

#[tokio::test]
async fn a_plan_is_applied_once() {
    let limiter = limiter(RULES);
    let red = Labels::from_iter([("team", "red")]);
    let plan = plan(&limiter, "http://127.0.0.1/1", &red);
    assert_eq!(plan.keys().as_slice().len(), 2);
    for _ in 0..2 {
        try_plan(&limiter, &plan)
            .unwrap()
            .report(&politely::Report::of(politely::Signal::Ok));
    }
    let refusal = try_plan(&limiter, &plan).unwrap_err();
    assert_eq!(refusal.key, custom("team/red"));
    let tally = limiter.explain(plan.key()).unwrap().tally;
    assert_eq!((tally.reported, tally.live), (2, 0));
}

#[tokio::test]
async fn a_new_policy_applies_from_the_next_request_on() {
    let limiter = limiter(RULES);
    let none = Labels::default();
    let url = "http://127.0.0.1/search/1";
    drop(try_plan(&limiter, &plan(&limiter, url, &none)).unwrap());
    limiter.set_policy("[[rule]]\nmatch = [\"*\"]".parse().unwrap());
    assert_eq!(plan(&limiter, url, &none).keys().as_slice().len(), 1);
    limiter.set_policy(RULES.parse().unwrap());
    assert_eq!(
        plan(&limiter, url, &none).keys().as_slice()[1],
        custom("search")
    );
}

/// Two groups of requests wait for one host, whose permits go three to one.
#[tokio::test]
async fn the_layer_divides_a_host_by_the_weights_of_its_groups() {
    let server = unlimited().await;
    let rules = "[[rule]]\nmatch = [\"*\"]\nlimits = [\"1 concurrent\"]\n\
                 share = { batch = 1, interactive = 3 }\n";
    let limiter = limiter(rules);
    let service = service(limiter.clone());
    let first = plan(&limiter, &server.url("/"), &Labels::default());
    let holder = try_plan(&limiter, &first).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for group in ["batch", "interactive"] {
        for _ in 0..40 {
            let mut request = Request::get(server.url("/1"))
                .body(Empty::<Bytes>::new())
                .unwrap();
            let labels = Labels::from_iter([(Labels::CLIENT, group)]);
            request.extensions_mut().insert(labels);
            let (service, order) = (service.clone(), order.clone());
            waiting.push(tokio::spawn(async move {
                let response = service.oneshot(request).await.unwrap();
                order.lock().unwrap().push(group);
                drop(response);
            }));
        }
    }
    while limiter.stats().waiting < waiting.len() as u64 {
        tokio::task::yield_now().await;
    }
    drop(holder);
    for task in waiting {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    let early = order[..40].iter().filter(|group| **group == "interactive");
    assert_eq!(early.count(), 30, "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_leaves_its_share_to_its_group() {
    let rules = "[[rule]]\nmatch = [\"*\"]\nshare = { a = 1, b = 1 }\n";
    let limiter = limiter(rules);
    let plan = plan(&limiter, "http://127.0.0.1/1", &Labels::default());
    let enter = |group| limiter.enter_share(&plan, group, 1).unwrap();
    let first = enter("a").arrival();
    assert_eq!(enter("a").arrival(), first, "the one before was dropped");
    let kept = enter("a");
    kept.keep();
    drop(kept);
    assert!(enter("a").arrival() > first);
    assert_eq!(enter("b").arrival(), first);
}

/// Returns the seconds before each attempt of a page that always answers 503, under `rules`.
async fn gaps_of_attempts(rules: &str) -> Vec<f64> {
    let limiter = limiter(rules);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (log, clock) = (Arc::clone(&sent), limiter.clone());
    let host = tower::service_fn(move |request: Request<Empty<Bytes>>| {
        let mut response = http::Response::new(Full::<Bytes>::from("page"));
        if request.uri().path() == "/bad" {
            log.lock().unwrap().push(clock.now());
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let service = PoliteLayer::new(limiter).layer(host);
    // The host serves another page, so the failures are the page's own.
    for path in ["good", "bad"] {
        let request = Request::get(format!("http://a.example/{path}"));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    }
    let sent = sent.lock().unwrap();
    // A last attempt follows when the page has failed alone for a minute.
    let gaps = sent.windows(2).take(4);
    gaps.map(|pair| pair[1].seconds_since(pair[0])).collect()
}

#[tokio::test(start_paused = true)]
async fn the_layer_waits_as_the_backoff_of_a_rule_says() {
    let rule = "[[rule]]\nmatch = [\"a.example\"]\nbreaker = { failures = 0 }\n";
    let of = |fields: &str| format!("{rule}{fields}");
    let still = of("backoff = { base = \"7s\", factor = 1, max = \"7s\" }\njitter = \"none\"\n");
    let gaps = gaps_of_attempts(&still).await;
    assert_eq!(gaps.len(), 4, "{gaps:?}");
    assert!(gaps.iter().all(|gap| (7.0..7.9).contains(gap)), "{gaps:?}");
    let equal = still.replace("none", "equal");
    let gaps = gaps_of_attempts(&equal).await;
    assert!(gaps.iter().all(|gap| (3.5..7.9).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap < 6.9), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn the_layer_spends_no_more_retries_than_the_budget_of_a_rule() {
    let rule = "[[rule]]\nmatch = [\"a.example\"]\nbreaker = { failures = 0 }\n\
                retry_budget = { ratio = 0, per_second = 0, burst = 2 }\n";
    assert_eq!(gaps_of_attempts(rule).await.len(), 2);
}
