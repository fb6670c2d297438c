//! Tests of the calls over HTTP.

use std::time::Duration;

use politely::Config;
use politely_server::Settings;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::serve;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_asks_sends_reports_and_asks_again_in_one_call() {
    let served = serve(Settings::default(), None).await;
    let asked = served
        .post("acquire", r#"{"client":"w","items":[{"url":"http://Example.com:80/a"},{"key":"site/example.co.uk","also":["custom/account-7"]}]}"#)
        .await;
    let [first, second] = [&asked["items"][0], &asked["items"][1]];
    assert_eq!(
        (&first["status"], &first["key"]),
        (&json!("granted"), &json!("example.com"))
    );
    assert_eq!(second["key"], "site/example.co.uk");
    let body = json!({
        "client": "w",
        "wait_ms": 3_000,
        "report": [{"permit": first["permit"], "status": 200, "latency_ms": 12.5, "bytes": 1000, "headers": {"Server": "nginx"}}],
        "acquire": [{"url": "http://example.com/b"}],
    });
    let exchanged = served.post("exchange", &body.to_string()).await;
    assert_eq!(exchanged["report"][0]["next"], "done");
    assert_eq!(exchanged["acquire"][0]["status"], "granted");
    let refused = json!({"client": "w", "items": [{"permit": exchanged["acquire"][0]["permit"], "status": 429, "headers": {"Retry-After": "7"}}]});
    let reported = served.post("report", &refused.to_string()).await;
    assert_eq!(reported["items"][0]["next"]["retry"]["after_ms"], 0);
    assert!(
        reported["items"][0]["hold_ms"].as_u64().unwrap() >= 6_900,
        "{reported}"
    );
    let detail = served.get("/api/v1/keys/example.com").await;
    assert_eq!(
        (&detail["state"], &detail["refused"]),
        (&json!("hold"), &json!(1))
    );
    assert!(
        detail["why"].as_str().unwrap().contains("Retry-After"),
        "{detail}"
    );
    assert!(
        detail["decisions"][0]["text"]
            .as_str()
            .unwrap()
            .contains("429"),
        "{detail}"
    );
    // A step of the history may have ended between the first request and the refusal.
    let steps = detail["history"].as_array().unwrap();
    let refused = steps.iter().map(|step| step["refused"].as_u64().unwrap());
    assert_eq!(refused.sum::<u64>(), 1, "{detail}");
    let stats = served.get("/api/v1/stats").await;
    assert_eq!(
        (
            &stats["workers"][0]["client"],
            &stats["workers"][0]["refused"]
        ),
        (&json!("w"), &json!(1))
    );
    let metrics = served.get("/metrics").await;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("politely_refused_total 1"),
        "{metrics}"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_searched_sorted_and_paged() {
    let served = serve(Settings::default(), None).await;
    let items: Vec<Value> = (0..50)
        .map(|i| json!({"key": format!("h{i:02}.example")}))
        .collect();
    served
        .post(
            "acquire",
            &json!({"client": "w", "items": items}).to_string(),
        )
        .await;
    let (status, _) = served
        .call(
            Method::PATCH,
            "/api/v1/keys/h07.example",
            r#"{"rate": 0.5, "hold_ms": 60000}"#,
        )
        .await;
    assert_eq!(status, 200);
    let names = |page: &Value| -> Vec<String> {
        let rows = page["keys"].as_array().unwrap();
        rows.iter()
            .map(|row| row["key"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = served.get("/api/v1/keys?q=h0&limit=3&offset=1").await;
    assert_eq!(
        (names(&page), &page["matching"], &page["total"]),
        (
            vec![
                "h01.example".to_owned(),
                "h02.example".to_owned(),
                "h03.example".to_owned()
            ],
            &json!(10),
            &json!(50)
        )
    );
    let page = served.get("/api/v1/keys?sort=rate&limit=1").await;
    assert_eq!(names(&page), ["h07.example"]);
    let page = served.get("/api/v1/keys?state=hold").await;
    assert_eq!(names(&page), ["h07.example"]);
    let page = served
        .get("/api/v1/keys?sort=name&descending=true&limit=1")
        .await;
    assert_eq!(names(&page), ["h49.example"]);
    let (status, problem) = served.call(Method::GET, "/api/v1/keys?srot=rate", "").await;
    assert_eq!(
        (status.as_u16(), problem["status"].as_u64()),
        (400, Some(400))
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_streamed() {
    let served = serve(Settings::default(), None).await;
    let mut stream = served
        .http
        .get(served.url("/api/v1/events"))
        .send()
        .await
        .unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    served
        .call(
            Method::PATCH,
            "/api/v1/keys/h.example",
            r#"{"hold_ms": 5000}"#,
        )
        .await;
    served
        .call(
            Method::PATCH,
            "/api/v1/config",
            r#"{"crawling":{"rate_per_host":2.0,"rate_burst":5}}"#,
        )
        .await;
    let mut text = String::new();
    let read = async {
        while !text.contains("event: config") {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap();
    assert!(
        text.contains("event: operator\ndata: {\"kind\":\"operator\",\"key\":\"h.example\""),
        "{text}"
    );
    // An open stream does not delay the coordinator's end.
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn to_the_letter() {
    let served = serve(Settings::default(), None).await;
    let (status, body) = served
        .call(
            Method::PATCH,
            "/api/v1/config",
            r#"{"crawling":{"rate_per_host":2.0,"rate_burst":5}}"#,
        )
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        (
            &body["crawling"]["rate_per_host"],
            &body["crawling"]["rate_burst"]
        ),
        (&json!(2.0), &json!(5.0))
    );
    assert_eq!(served.get("/api/v1/config").await, body);
    // Null restores the value of the start, and an absent field keeps its value.
    let back = r#"{"crawling":{"rate_burst":null}}"#;
    let (_, body) = served.call(Method::PATCH, "/api/v1/config", back).await;
    let crawling = (
        &body["crawling"]["rate_per_host"],
        &body["crawling"]["rate_burst"],
    );
    let started = Settings::default().config.limits.burst;
    assert_eq!(crawling, (&json!(2.0), &json!(started)));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_told_when_the_coordinator_ends() {
    let settings = Settings {
        config: Config::fixed(0.01, 1.0),
        ..Settings::default()
    };
    let served = serve(settings, None).await;
    served
        .post("acquire", r#"{"client":"w","items":[{"key":"h.example"}]}"#)
        .await;
    let (http, url) = (served.http.clone(), served.url("/api/v1/acquire"));
    let waiting = tokio::spawn(async move {
        let body = r#"{"client":"w","wait_ms":60000,"items":[{"key":"h.example"}]}"#;
        let request = http
            .post(url)
            .header("content-type", "application/json")
            .body(body);
        request.send().await.unwrap().text().await.unwrap()
    });
    while served.coordinator.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    served.end().await;
    let answer = waiting.await.unwrap();
    assert!(
        answer.contains("refused") && answer.contains("closed"),
        "{answer}"
    );
}
