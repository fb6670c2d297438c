//! Several coordinators over one frontier in Redis.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::place::Place;
use super::{counts, done, fast, open, put, put_urls, take, take_one, urls, visited};

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_of_one_coordinator_is_given_back_at_another() {
    let place = Place::redis();
    let (one, two) = (
        open(&place, fast(), None).await,
        open(&place, fast(), None).await,
    );
    assert_eq!(
        put_urls(&one, &["https://a.com/1", "https://a.com/2"]).await,
        ["new", "new"]
    );
    assert_eq!(put_urls(&two, &["https://a.com/1"]).await, ["known"]);
    let unit = take_one(&one, "w", 1).await;
    let none = take(&two, json!({"client": "w"})).await;
    assert_eq!(none["units"], json!([]), "the domain has an owner");
    let words = json!({"token": unit["token"], "pages": [visited(&unit, 0, 200)],
        "found": [{"url": "https://b.com/"}]});
    let answer = done(&two, "w", words.clone()).await;
    assert_eq!(answer["error"], Value::Null, "{answer}");
    for served in [&one, &two] {
        let again = done(served, "w", words.clone()).await;
        assert_eq!(again["error"]["field"], "token", "{again}");
        let numbers = counts(served).await;
        let numbers = [&numbers["pages"], &numbers["finished"], &numbers["ready"]];
        assert_eq!(numbers, [3, 1, 2]);
    }
    let later = take_one(&two, "w", 1).await;
    assert!(later["token"].as_u64() > unit["token"].as_u64());
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_hand_out_each_page_of_a_cluster_once() {
    let place = Place::cluster();
    let (one, two) = (
        open(&place, fast(), None).await,
        open(&place, fast(), None).await,
    );
    let line = |number| json!({"url": format!("https://h{}.com/{number}", number % 40)});
    let lines: Vec<_> = (0..400).map(|number| line(number).to_string()).collect();
    let (status, answers) = put(&one, "c", &lines.join("\n")).await;
    assert_eq!((status.as_u16(), answers.len()), (200, 400));
    assert!(answers.iter().all(|answer| answer["answer"] == "new"));
    let work = async |served, client: &str| {
        let mut seen = Vec::new();
        let mut words = json!([]);
        loop {
            let body = json!({"client": client, "done": words, "units": 3, "pages_per_unit": 4,
                "wait_ms": 300});
            let said = super::exchange(served, &body).await;
            let units = said["units"].as_array().unwrap();
            if units.is_empty() {
                return seen;
            }
            seen.extend(units.iter().flat_map(urls).map(str::to_owned));
            let words_of = |unit: &Value| {
                let pages = (0..urls(unit).len()).map(|slot| visited(unit, slot, 200));
                json!({"token": unit["token"], "pages": pages.collect::<Vec<_>>()})
            };
            words = units.iter().map(words_of).collect();
        }
    };
    let (ones, twos) = tokio::join!(work(&one, "one"), work(&two, "two"));
    assert!(!ones.is_empty() && !twos.is_empty(), "both work");
    assert_eq!(ones.len() + twos.len(), 400, "each page comes once");
    assert_eq!(ones.iter().chain(&twos).collect::<BTreeSet<_>>().len(), 400);
    let numbers = counts(&two).await;
    assert_eq!(
        (&numbers["finished"], &numbers["domains"]),
        (&json!(400), &json!(40))
    );
    let listed = two
        .get("/api/v1/frontier/c/domains?limit=3&after=h1.com")
        .await;
    let names = listed["domains"].as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|domain| domain["domain"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["h10.com", "h11.com", "h12.com"]);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_is_lost_is_built_again() {
    let Place::Redis(redis) = Place::redis() else {
        unreachable!("it is a Redis");
    };
    let place = Place::Redis(redis);
    let served = open(&place, fast(), None).await;
    let pages: Vec<_> = (0..30).map(|n| format!("https://h{n}.com/")).collect();
    let pages: Vec<_> = pages.iter().map(String::as_str).collect();
    put_urls(&served, &pages).await;
    let Place::Redis(redis) = &place else {
        unreachable!("it is a Redis");
    };
    // All keys of all shards.
    let keys = redis.cli(&["keys", "pf:{*#*"]);
    let del: Vec<_> = ["del"].into_iter().chain(keys.lines()).collect();
    redis.cli(&del);
    let mut seen = BTreeSet::new();
    while seen.len() < pages.len() {
        let unit = take_one(&served, "w", 1).await;
        assert!(seen.insert(urls(&unit)[0].to_owned()));
    }
    assert_eq!(counts(&served).await["domains"], 30);
    // The keys of a deleted crawl go.
    let (status, _) = served
        .call(Method::POST, "/api/v1/frontier/c/delete", "{}")
        .await;
    assert_eq!(status, 204);
    politely_testkit::redis::wait_for("the keys are gone", || {
        redis.cli(&["keys", "pf:{*[/#]*"]).is_empty()
    });
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_answer_of_the_engine_is_503_and_later_ones_succeed() {
    let place = Place::redis();
    let Place::Redis(redis) = &place else {
        unreachable!("it is a Redis");
    };
    let served = open(&place, fast(), None).await;
    put_urls(&served, &["https://a.com/1", "https://b.com/1"]).await;
    let unit = take_one(&served, "w", 1).await;
    redis.freeze();
    for (path, body) in [
        ("c/take", json!({"client": "w"})),
        (
            "c/done",
            json!({"client": "w", "units": [{"token": unit["token"]}]}),
        ),
        ("c/purge", json!({"domain": "a.com"})),
    ] {
        let path = format!("/api/v1/frontier/{path}");
        let (status, problem) = served.call(Method::POST, &path, &body.to_string()).await;
        assert_eq!(status, 503, "{path}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(!detail.contains('\n') && detail.len() < 200, "{detail}");
    }
    let (status, _) = put(&served, "c", r#"{"url":"https://c.com/"}"#).await;
    assert_eq!(status, 503);
    redis.thaw();
    let accepted = loop {
        let answer = done(&served, "w", json!({"token": unit["token"]})).await;
        if !answer.is_null() {
            break answer;
        }
    };
    // The word of the frozen server may have been carried out after all.
    let error = &accepted["error"]["field"];
    assert!(error.is_null() || error == "token", "{accepted}");
    let answers = put_urls(&served, &["https://a.com/1", "https://d.com/"]).await;
    assert_eq!(answers, ["known", "new"]);
    take_one(&served, "w", 1).await;
    served.end().await;
}
