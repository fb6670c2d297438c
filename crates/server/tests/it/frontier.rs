//! Tests of the frontier over HTTP.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use politely::core::config::Config;
use politely_server::{
    Caps, Coordinator, FrontierService, FrontierSettings, Settings, Spacing, Tokens,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Served, serve, start_with};

/// A coordinator whose limits delay no test.
fn fast() -> Settings {
    let mut config = Config::fixed(10_000.0, 1_000.0);
    config.limits.in_flight = 1_000;
    Settings {
        config,
        ..Settings::default()
    }
}

async fn open(folder: &Path, settings: Settings, tokens: Option<Tokens>) -> Served {
    let coordinator = Coordinator::new(settings).unwrap();
    let rules = FrontierSettings::default();
    let frontier = FrontierService::open(folder, rules, &coordinator).unwrap();
    start_with(coordinator, tokens, Caps::default(), Some(frontier)).await
}

async fn put(served: &Served, crawl: &str, lines: &str) -> (StatusCode, Vec<Value>) {
    let url = served.url(&format!("/api/v1/frontier/{crawl}/put"));
    let request = served
        .http
        .post(url)
        .header("content-type", "application/x-ndjson");
    let response = request.body(lines.to_owned()).send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (status, lines.collect())
}

/// Adds pages by URL and returns the words of the answers.
async fn put_urls(served: &Served, urls: &[&str]) -> Vec<String> {
    let lines: Vec<_> = urls
        .iter()
        .map(|url| json!({ "url": url }).to_string())
        .collect();
    let (status, answers) = put(served, "c", &lines.join("\n")).await;
    assert_eq!(status, 200, "{answers:?}");
    let word = |answer: &Value| answer["answer"].as_str().unwrap().to_owned();
    answers.iter().map(word).collect()
}

async fn take(served: &Served, body: Value) -> Value {
    served.post("frontier/c/take", &body.to_string()).await
}

/// Takes one unit with at most `pages` pages.
async fn take_one(served: &Served, client: &str, pages: u16) -> Value {
    let body = json!({"client": client, "pages_per_unit": pages, "wait_ms": 20_000});
    let mut taken = take(served, body).await;
    assert_eq!(taken["units"].as_array().unwrap().len(), 1, "{taken}");
    taken["units"][0].take()
}

fn urls(unit: &Value) -> Vec<&str> {
    let pages = unit["pages"].as_array().unwrap();
    pages
        .iter()
        .map(|page| page["url"].as_str().unwrap())
        .collect()
}

/// Returns the words about a page that was answered with `status`.
fn visited(unit: &Value, slot: usize, status: u16) -> Value {
    let page = &unit["pages"][slot];
    json!({
        "url": page["url"],
        "report": {
            "permit": unit["grant"]["permit"], "slot": slot, "status": status, "latency_ms": 1.0,
            "attempt": page["attempt"], "refused": page["refused"].as_u64().unwrap_or(0),
        },
    })
}

async fn done(served: &Served, client: &str, unit: Value) -> Value {
    let body = json!({"client": client, "units": [unit]});
    let mut answer = served.post("frontier/c/done", &body.to_string()).await;
    answer["units"][0].take()
}

async fn counts(served: &Served) -> Value {
    served.get("/api/v1/frontier/c").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_reports_and_finds_pages() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    let answers = put_urls(
        &served,
        &["https://a.com/1", "https://a.com/2", "https://a.com/1#x"],
    );
    assert_eq!(answers.await, ["new", "new", "known"]);
    let unit = take_one(&served, "w", 10).await;
    assert_eq!(unit["domain"], "a.com");
    assert_eq!(urls(&unit), ["https://a.com/1", "https://a.com/2"]);
    assert_eq!(unit["grant"]["slots"], 2);
    let body = json!({"client": "w"});
    let none = take(&served, body).await;
    assert_eq!(none["units"], json!([]), "the domain has an owner");
    let found = json!([{"url": "https://a.com/3"}, {"url": "https://b.com/"}, {"url": "b.com"}]);
    let words = json!({
        "token": unit["token"], "pages": [visited(&unit, 0, 200)], "found": found,
    });
    let answer = done(&served, "w", words.clone()).await;
    assert_eq!(answer["error"], Value::Null);
    assert_eq!(answer["reports"][0]["next"], "done", "{answer}");
    let words_of = |answers: &Value| -> Vec<String> {
        let answers = answers.as_array().unwrap().iter();
        answers
            .map(|answer| answer["answer"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(words_of(&answer["found"]), ["new", "new", "invalid"]);
    let again = done(&served, "w", words).await;
    assert_eq!(again["error"]["field"], "token", "{again}");
    let numbers = counts(&served).await;
    assert_eq!(
        [
            &numbers["pages"],
            &numbers["ready"],
            &numbers["finished"],
            &numbers["domains"]
        ],
        [4, 3, 1, 2],
        "{numbers}"
    );
    let page = served
        .get("/api/v1/frontier/c/urls/https%3A%2F%2Fa.com%2F1")
        .await;
    assert_eq!(
        (&page["status"], &page["domain"]),
        (&json!(200), &json!("a.com"))
    );
    // The unreported departure was refunded: no request is in flight.
    let key = served.get("/api/v1/keys/a.com").await;
    assert_eq!(key["in_flight"], 0, "{key}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_gives_back_and_takes_in_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(
        &served,
        &["https://a.com/1", "https://a.com/2", "https://a.com/3"],
    )
    .await;
    let mut seen = Vec::new();
    let mut words = json!([]);
    loop {
        let body = json!({"client": "w", "done": words, "pages_per_unit": 2});
        let answer = served.post("frontier/c/exchange", &body.to_string()).await;
        assert!(
            answer["done"]
                .as_array()
                .unwrap()
                .iter()
                .all(|done| done["error"].is_null())
        );
        let Some(unit) = answer["units"].get(0) else {
            break;
        };
        seen.extend(urls(unit).into_iter().map(str::to_owned));
        let pages: Vec<_> = (0..urls(unit).len())
            .map(|slot| visited(unit, slot, 200))
            .collect();
        words = json!([{"token": unit["token"], "pages": pages}]);
    }
    assert_eq!(
        seen,
        ["https://a.com/1", "https://a.com/2", "https://a.com/3"]
    );
    assert_eq!(counts(&served).await["finished"], 3);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_take_is_answered_by_a_put() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    take_one(&served, "w", 1).await;
    let (unit, answers) = tokio::join!(
        take_one(&served, "w", 1),
        put_urls(&served, &["https://b.com/1"])
    );
    assert_eq!(
        (answers, urls(&unit)),
        (vec!["new".to_owned()], vec!["https://b.com/1"])
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_a_stale_owner_or_of_another_worker_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    let body = json!({"client": "first", "lease_ms": 50});
    let mut first = take(&served, body).await["units"][0].take();
    let second = take_one(&served, "second", 1).await;
    assert!(second["token"].as_u64() > first["token"].as_u64());
    for (client, unit) in [("first", &mut first), ("first", &mut second.clone())] {
        let words = json!({"token": unit["token"], "pages": [{"url": "https://a.com/1", "then": "finish"}]});
        let answer = done(&served, client, words).await;
        let detail = answer["error"]["detail"].as_str().unwrap();
        assert!(
            detail.ends_with("has ended; drop its pages and take another unit"),
            "{detail}"
        );
    }
    let words = json!({"token": second["token"], "pages": [visited(&second, 0, 200)]});
    assert_eq!(done(&served, "second", words).await["error"], Value::Null);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_unit_lives_on_and_a_dropped_one_returns_its_pages() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(&served, &["https://a.com/1", "https://a.com/2"]).await;
    let unit = take_one(&served, "w", 2).await;
    let token = &unit["token"];
    let kept = json!({"token": token, "keep": true, "lease_ms": 30_000, "pages": [visited(&unit, 0, 200)]});
    assert_eq!(done(&served, "w", kept).await["kept"], 1);
    let wrong = json!({"token": token, "lease_ms": 30_000});
    assert_eq!(
        done(&served, "w", wrong).await["error"]["field"],
        "lease_ms"
    );
    assert_eq!(done(&served, "w", json!({"token": token})).await["kept"], 0);
    let unit = take_one(&served, "w", 2).await;
    assert_eq!(urls(&unit), ["https://a.com/2"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_law_decides_when_a_domain_leaves_and_whether_a_page_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), Settings::default(), None).await;
    put_urls(
        &served,
        &["https://a.com/1", "https://a.com/2", "https://b.com/1"],
    )
    .await;
    // At first a host gets one request per second, so a unit of two pages leaves over a second.
    let unit = take_one(&served, "w", 2).await;
    assert_eq!(unit["domain"], "a.com");
    let refused = {
        let mut page = visited(&unit, 0, 429);
        page["report"]["headers"] = json!({"retry-after": "100"});
        page
    };
    let answer = done(
        &served,
        "w",
        json!({"token": unit["token"], "pages": [refused]}),
    )
    .await;
    assert!(
        answer["reports"][0]["hold_ms"].as_u64().unwrap() > 90_000,
        "{answer}"
    );
    assert_eq!(take_one(&served, "w", 2).await["domain"], "b.com");
    let none = take(&served, json!({"client": "w", "pages_per_unit": 2})).await;
    assert_eq!(none["units"], json!([]), "the host a.com is held");
    let domains = served.get("/api/v1/frontier/c/domains").await;
    let a = &domains["domains"][0];
    assert!(a["wait_ms"].as_u64().unwrap() > 30_000, "{domains}");
    let numbers = counts(&served).await;
    assert_eq!(numbers["finished"], 0, "the refused page is retried");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_report_or_with_a_wrong_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    let unit = take_one(&served, "w", 1).await;
    let url = "https://a.com/1";
    let report = |permit: &str| json!({"permit": permit, "status": 200});
    let permit = unit["grant"]["permit"].as_str().unwrap();
    for (page, field) in [
        (json!({"url": url}), "pages[0].then"),
        (
            json!({"url": url, "report": report("nonsense")}),
            "pages[0].report.permit",
        ),
        (
            json!({"url": url, "report": {"permit": permit}}),
            "pages[0].report.status",
        ),
        (
            json!({"url": url, "then": "finish", "again_unix_ms": 1_u64 << 63}),
            "pages[0].again_unix_ms",
        ),
        (json!({"url": "https://a.com/2", "then": "finish"}), "pages"),
        (json!({"url": "nonsense", "then": "finish"}), "pages"),
    ] {
        let words = json!({"token": unit["token"], "pages": [page]});
        let answer = done(&served, "w", words).await;
        assert_eq!(answer["error"]["field"], field, "{answer}");
        let detail = answer["error"]["detail"].as_str().unwrap();
        assert!(!detail.contains('\n') && detail.len() < 200, "{detail}");
    }
    // A page is handed out again after a date in the past at once, and never after a later date.
    let words = json!({"token": unit["token"], "pages": [{"url": url, "again_unix_ms": 1}]});
    assert_eq!(done(&served, "w", words).await["error"], Value::Null);
    let unit = take_one(&served, "w", 1).await;
    let year_9999 = 253_402_300_799_999_u64;
    let words =
        json!({"token": unit["token"], "pages": [{"url": url, "again_unix_ms": year_9999}]});
    assert_eq!(done(&served, "w", words).await["error"], Value::Null);
    let none = take(&served, json!({"client": "w"})).await;
    assert_eq!(none["units"], json!([]));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wrong_page_of_a_put_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    let long_url = format!("https://a.com/{}", "x".repeat(65_536 - 14));
    let long_line = format!("{{\"url\":\"https://a.com/{}\"}}", "x".repeat(1 << 20));
    let key = "k".repeat(1_024);
    let metadata = "m".repeat(17 << 10);
    let page = |fields: Value| fields.to_string();
    let u = "https://a.com/1";
    let lines = [
        (
            page(json!({"url": long_url})),
            "the URL has 65536 bytes; at most 8192 are accepted",
        ),
        (
            page(json!({"url": "example.com/a"})),
            "not a URL: relative URL without a base",
        ),
        (page(json!({"url": "mailto:a@b.c"})), "only http and https"),
        (
            page(json!({"url": u, "key": key})),
            "the key has 1024 bytes; at most 520 are accepted",
        ),
        (
            page(json!({"url": u, "metadata": metadata})),
            "at most 16384 are accepted",
        ),
        (
            page(json!({"url": u, "due_unix_ms": 1_u64 << 63})),
            "is after the year 9999",
        ),
        (
            page(json!({"url": u, "due_unix_ms": -1})),
            "invalid value: integer `-1`",
        ),
        (
            page(json!({"url": u, "priority": 10})),
            "the priority 10 is not from 0 to 9",
        ),
        (
            page(json!({"url": u, "depth": 10})),
            "unknown field `depth`",
        ),
        (page(json!({"key": "a.com"})), "missing field `url`"),
        ("nonsense".to_owned(), "not a JSON object"),
        ("[\"https://a.com/1\"]".to_owned(), "not a JSON object"),
        ("{\"url\":".to_owned(), "EOF while parsing"),
        (long_line, "the line is longer than 262144 bytes"),
    ];
    let text: Vec<_> = lines.iter().map(|(line, _)| line.as_str()).collect();
    // Good pages between bad ones are stored.
    let good = r#"{"url":"https://a.com/good","due_unix_ms":1}"#;
    let text = format!(
        "{good}\r\n\n{}\n{{\"url\":\"https://a.com/last\"}}",
        text.join("\n")
    );
    let (status, answers) = put(&served, "c", &text).await;
    assert_eq!(
        (status.as_u16(), answers.len()),
        (200, lines.len() + 2),
        "{answers:?}"
    );
    for (answer, (_, wanted)) in answers[1..].iter().zip(&lines) {
        assert_eq!(answer["answer"], "invalid", "{answer} {wanted}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains(wanted), "{detail}: {wanted}");
        assert!(!detail.contains('\n') && detail.len() < 300, "{detail}");
    }
    let [first, .., last] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(
        (&first["answer"], &last["answer"]),
        (&json!("new"), &json!("new"))
    );
    let numbers = counts(&served).await;
    assert_eq!(
        (&numbers["pages"], &numbers["ready"]),
        (&json!(2), &json!(2))
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wrong_call_is_a_problem_document() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    let long = "c".repeat(65);
    let post = Method::POST;
    for (method, path, body, status, field) in [
        (&post, "d/take", r#"{"client":"w"}"#, 404, "crawl"),
        (&post, "d/purge", "{}", 404, "crawl"),
        (&post, "c/purge", r#"{"domain":"b.com"}"#, 404, "domain"),
        (&post, "a%20b/take", r#"{"client":"w"}"#, 422, "crawl"),
        (
            &post,
            &format!("{long}/take"),
            r#"{"client":"w"}"#,
            422,
            "crawl",
        ),
        (&post, "c/take", r#"{"client":""}"#, 422, "client"),
        (&post, "c/take", r#"{"client":"w","units":0}"#, 422, "units"),
        (
            &post,
            "c/take",
            r#"{"client":"w","units":101}"#,
            422,
            "units",
        ),
        (
            &post,
            "c/take",
            r#"{"client":"w","pages_per_unit":1001}"#,
            422,
            "pages_per_unit",
        ),
        (
            &post,
            "c/done",
            r#"{"client":"w","units":[]}"#,
            422,
            "units",
        ),
        (
            &post,
            "c/block",
            r#"{"domain":"a.com","until_unix_ms":9223372036854775808}"#,
            422,
            "until_unix_ms",
        ),
        (&Method::GET, "d/domains", "", 404, "crawl"),
        (&Method::GET, "c/urls/nonsense", "", 422, "url"),
        (
            &Method::GET,
            "c/urls/https%3A%2F%2Fa.com%2F2",
            "",
            404,
            "url",
        ),
        (&Method::GET, "c/domains?limit=x", "", 400, "limit"),
    ] {
        let path = format!("/api/v1/frontier/{path}");
        let (found, problem) = served.call(method.clone(), &path, body).await;
        assert_eq!(
            (found.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{path} {body}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(!detail.contains('\n') && detail.len() < 300, "{detail}");
    }
    let (status, answers) = put(&served, &long, "").await;
    assert_eq!(status, 422, "{answers:?}");
    let (status, _) = served.call(post, "/api/v1/frontier/c/put", "{}").await;
    assert_eq!(status, 415);
    served.end().await;

    let without = serve(Settings::default(), None).await;
    let (status, problem) = without.call(Method::GET, "/api/v1/frontier", "").await;
    assert_eq!(status, 404);
    assert_eq!(
        problem["detail"],
        "this coordinator has no frontier; start it with --frontier DIR"
    );
    without.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_is_a_stream_and_its_summary_counts() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    let lines: String = (0..12_000)
        .map(|number| format!("{{\"url\":\"https://h{}.com/{number}\"}}\n", number % 50))
        .collect();
    let (status, answers) = put(&served, "c", &lines).await;
    assert_eq!((status.as_u16(), answers.len()), (200, 12_000));
    assert!(answers.iter().all(|answer| answer["answer"] == "new"));
    let url = served.url("/api/v1/frontier/c/put?summary=true");
    let request = served
        .http
        .post(url)
        .header("content-type", "application/x-ndjson");
    let response = request.body(lines + "nonsense\n").send().await.unwrap();
    let sum: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(
        (&sum["known"], &sum["new"], &sum["invalid"]),
        (&json!(12_000), &json!(0), &json!(1))
    );
    assert!(
        sum["first_invalid"]
            .as_str()
            .unwrap()
            .starts_with("page 12001: not a JSON"),
        "{sum}"
    );
    assert_eq!(put(&served, "c", "").await.1.len(), 0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_orders_and_a_worker_may_not() {
    let folder = tempfile::tempdir().unwrap();
    let [read, worker, operator] =
        ["read", "worker", "operator"].map(|role| format!("{role}-token-of-some-length"));
    let lines = format!("read r {read}\nworker w {worker}\noperator o {operator}\n");
    let served = open(folder.path(), fast(), Some(Tokens::parse(&lines).unwrap())).await;
    let call = async |token: &str, method: Method, path: &str, body: Value| {
        let request = served
            .http
            .request(method, served.url(&format!("/api/v1/frontier{path}")));
        let kind = if path.ends_with("/put") {
            "application/x-ndjson"
        } else {
            "application/json"
        };
        let request = request.bearer_auth(token).header("content-type", kind);
        let response = request.body(body.to_string()).send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, value)
    };
    let later = SystemTime::now() + Duration::from_hours(1);
    let later = later.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let take = json!({"client": "w"});
    let calls = [
        (
            Method::POST,
            "/c/put",
            json!({"url": "https://a.com/1"}),
            [403, 200, 200],
        ),
        (Method::GET, "", json!(null), [200, 200, 200]),
        (Method::GET, "/c/domains", json!(null), [200, 200, 200]),
        (
            Method::POST,
            "/c/pause",
            json!({"paused": true}),
            [403, 403, 200],
        ),
        (Method::POST, "/c/take", take.clone(), [403, 200, 200]),
        (
            Method::POST,
            "/c/pause",
            json!({"paused": false}),
            [403, 403, 200],
        ),
        (
            Method::POST,
            "/c/block",
            json!({"domain": "a.com", "until_unix_ms": later}),
            [403, 403, 204],
        ),
        (
            Method::POST,
            "/c/delay",
            json!({"domain": "a.com", "delay_ms": 1}),
            [403, 403, 204],
        ),
        (
            Method::POST,
            "/c/purge",
            json!({"domain": "b.com"}),
            [403, 403, 404],
        ),
    ];
    for (method, path, body, expected) in calls {
        for (token, expected) in [&read, &worker, &operator].into_iter().zip(expected) {
            let (status, said) = call(token, method.clone(), path, body.clone()).await;
            assert_eq!(status, expected, "{method} {path} {token}: {said}");
            if path == "/c/take" && status == 200 {
                assert_eq!(said["units"], json!([]), "a paused crawl hands out nothing");
            }
        }
    }
    let order = async |path: &str, body: Value| call(&operator, Method::POST, path, body).await;
    assert_eq!(
        order("/c/take", take.clone()).await.1["units"],
        json!([]),
        "blocked"
    );
    assert_eq!(order("/c/block", json!({"domain": "a.com"})).await.0, 204);
    let taken = order("/c/take", json!({"client": "w", "wait_ms": 20_000}))
        .await
        .1;
    assert_eq!(taken["units"][0]["domain"], "a.com", "{taken}");
    assert_eq!(order("/c/purge", json!({})).await.0, 204);
    let words = json!({"client": "w", "units": [{"token": taken["units"][0]["token"]}]});
    let stale = order("/c/done", words).await.1;
    assert_eq!(
        stale["units"][0]["error"]["field"], "token",
        "a purge ends units"
    );
    let numbers = call(&read, Method::GET, "/c", json!(null)).await.1;
    assert_eq!(
        (&numbers["pages"], &numbers["ready"]),
        (&json!(1), &json!(0)),
        "{numbers}"
    );
    assert_eq!(order("/c/delete", json!({})).await.0, 204);
    assert_eq!(call(&read, Method::GET, "/c", json!(null)).await.0, 404);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_owners_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let served = open(folder.path(), fast(), None).await;
    put_urls(&served, &["https://a.com/1", "https://b.com/1"]).await;
    let unit = take_one(&served, "w", 1).await;
    served.end().await;
    let served = open(folder.path(), fast(), None).await;
    assert_eq!(take_one(&served, "w", 1).await["domain"], "b.com");
    let words =
        json!({"token": unit["token"], "pages": [{"url": urls(&unit)[0], "then": "finish"}]});
    assert_eq!(done(&served, "w", words).await["error"], Value::Null);
    assert_eq!(counts(&served).await["finished"], 1);
    served.end().await;
}

#[tokio::test]
async fn a_folder_has_one_frontier_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::new(fast()).unwrap();
    let rules = || FrontierSettings {
        spacing: Spacing::default(),
        ..FrontierSettings::default()
    };
    let first = FrontierService::open(folder.path(), rules(), &coordinator).unwrap();
    let why = FrontierService::open(folder.path(), rules(), &coordinator).unwrap_err();
    assert!(
        why.to_string().contains("another process has it open"),
        "{why}"
    );
    drop(first);
}
