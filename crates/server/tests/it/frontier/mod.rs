//! Tests of the frontier over HTTP: in a folder, and in Redis where several coordinators share it.

mod bad_input;
mod fleet;
mod greedy;
#[cfg(feature = "grpc")]
mod grpc;
mod orders;
mod place;
mod rules;
#[cfg(feature = "grpc")]
mod urlfrontier;

use politely::core::config::Config;
use politely_server::{
    Caps, Coordinator, FrontierService, FrontierSettings, Settings, Spacing, Tokens,
};
use reqwest::StatusCode;
use serde_json::{Value, json};

use self::place::{Place, over_both};
use crate::client::{Served, start_with};

/// A coordinator whose limits delay no test.
fn fast() -> Settings {
    let mut config = Config::fixed(10_000.0, 1_000.0);
    config.limits.in_flight = 1_000;
    Settings {
        config,
        ..Settings::default()
    }
}

async fn open(place: &Place, settings: Settings, tokens: Option<Tokens>) -> Served {
    let (coordinator, frontier) = place.open(settings, FrontierSettings::default());
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
            "attempt": page["attempt"], "free": page["free"].as_u64().unwrap_or(0),
        },
    })
}

async fn done(served: &Served, client: &str, unit: Value) -> Value {
    let body = json!({"client": client, "units": [unit]});
    let mut answer = served.post("frontier/c/done", &body.to_string()).await;
    answer["units"][0].take()
}

async fn exchange(served: &Served, body: &Value) -> Value {
    served.post("frontier/c/exchange", &body.to_string()).await
}

async fn counts(served: &Served) -> Value {
    served.get("/api/v1/frontier/c").await
}

over_both!(a_worker_takes_reports_and_finds_pages);
async fn a_worker_takes_reports_and_finds_pages(place: Place) {
    let served = open(&place, fast(), None).await;
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

over_both!(an_exchange_gives_back_and_takes_in_one_call);
async fn an_exchange_gives_back_and_takes_in_one_call(place: Place) {
    let served = open(&place, fast(), None).await;
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

over_both!(a_waiting_take_is_answered_by_a_put);
async fn a_waiting_take_is_answered_by_a_put(place: Place) {
    let served = open(&place, fast(), None).await;
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

over_both!(words_of_a_stale_owner_or_of_another_worker_are_refused);
async fn words_of_a_stale_owner_or_of_another_worker_are_refused(place: Place) {
    let served = open(&place, fast(), None).await;
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

over_both!(a_kept_unit_lives_on_and_a_dropped_one_returns_its_pages);
async fn a_kept_unit_lives_on_and_a_dropped_one_returns_its_pages(place: Place) {
    let served = open(&place, fast(), None).await;
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

over_both!(the_law_decides_when_a_domain_leaves_and_whether_a_page_is_retried);
async fn the_law_decides_when_a_domain_leaves_and_whether_a_page_is_retried(place: Place) {
    let served = open(&place, Settings::default(), None).await;
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

over_both!(a_put_is_a_stream_and_its_summary_counts);
async fn a_put_is_a_stream_and_its_summary_counts(place: Place) {
    let served = open(&place, fast(), None).await;
    let line = |number| json!({"url": format!("https://h{}.com/{number}", number % 50)});
    let lines: Vec<_> = (0..12_000).map(|number| line(number).to_string()).collect();
    let lines = lines.join("\n") + "\n";
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

over_both!(pages_and_owners_outlive_a_restart);
async fn pages_and_owners_outlive_a_restart(place: Place) {
    let served = open(&place, fast(), None).await;
    put_urls(&served, &["https://a.com/1", "https://b.com/1"]).await;
    let unit = take_one(&served, "w", 1).await;
    served.end().await;
    let served = open(&place, fast(), None).await;
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
