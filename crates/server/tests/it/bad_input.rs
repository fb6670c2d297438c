//! Tests of invalid, oversized and slow requests: each is answered, and other callers are not
//! affected.

use std::time::Duration;

use politely_server::Settings;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::serve;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named() {
    let served = serve(Settings::default(), None).await;
    let cases = [
        ("acquire", "", 400, None),
        ("acquire", "{", 400, None),
        ("acquire", "[]", 422, None),
        ("acquire", "7", 422, None),
        ("acquire", r#"{"items":[{"key":"h"}]}"#, 422, Some("client")),
        (
            "report",
            r#"{"client":"w","items":[{"permit":"1","status":200},{"status":200}]}"#,
            422,
            Some("items[1].permit"),
        ),
        (
            "acquire",
            r#"{"client":"w","itmes":[]}"#,
            422,
            Some("itmes"),
        ),
        (
            "acquire",
            r#"{"client":"w","items":[]}"#,
            422,
            Some("items"),
        ),
        (
            "acquire",
            r#"{"client":"","items":[{"key":"h"}]}"#,
            422,
            Some("client"),
        ),
        (
            "acquire",
            r#"{"client":"w","items":[{"key":"h"},{"key":7}]}"#,
            422,
            Some("items[1].key"),
        ),
        (
            "acquire",
            r#"{"client":"w","wait_ms":-1,"items":[{"key":"h"}]}"#,
            422,
            Some("wait_ms"),
        ),
        (
            "acquire",
            r#"{"client":"w","want":"some","items":[{"key":"h"}]}"#,
            422,
            Some("want"),
        ),
        (
            "report",
            r#"{"client":"w","items":[{"permit":"1","status":"ok"}]}"#,
            422,
            Some("items[0].status"),
        ),
        (
            "report",
            r#"{"client":"w","items":[{"permit":"1","error":"sad"}]}"#,
            422,
            Some("items[0].error"),
        ),
        (
            "exchange",
            r#"{"client":"w","report":[{}]}"#,
            422,
            Some("report[0].permit"),
        ),
        (
            "renew",
            r#"{"client":"w","permits":[]}"#,
            422,
            Some("permits"),
        ),
    ];
    for (call, body, status, field) in cases {
        let (said, problem) = served
            .call(Method::POST, &format!("/api/v1/{call}"), body)
            .await;
        assert_eq!(said.as_u16(), status, "{body}: {problem}");
        assert_eq!(problem["field"].as_str(), field, "{body}: {problem}");
        assert_eq!(problem["status"].as_u64(), Some(u64::from(status)));
        let detail = problem["detail"].as_str().unwrap();
        for word in ["struct", "f64", "u32", "sequence"] {
            assert!(!detail.contains(word), "{body}: {detail}");
        }
    }
    served.end().await;
}

/// Each wrong amount is an error that names its place. It settles nothing, and the right report
/// that follows is settled once.
#[tokio::test(flavor = "multi_thread")]
async fn amounts_that_are_none_settle_nothing() {
    let served = serve(Settings::default(), None).await;
    let key = "/api/v1/keys/custom%2Fllm";
    let limits = r#"{"rate":1000,"limits":["1000 tokens/h"]}"#;
    assert_eq!(served.call(Method::PATCH, key, limits).await.0, 200);
    let asked = r#"{"client":"w","items":[{"key":"custom/llm","cost":{"tokens":600}}]}"#;
    let granted = served.post("acquire", asked).await;
    let permit = granted["items"][0]["permit"].as_str().unwrap();
    let report = |used: &str| {
        format!(r#"{{"client":"w","items":[{{"permit":"{permit}","status":200,"used":{used}}}]}}"#)
    };
    for used in [
        r#"{"tokens":-1}"#,
        r#"{"tokens":1.5}"#,
        r#"{"tokens":1e300}"#,
        r#"{"tokens":"NaN"}"#,
        r#"{"tokens":null}"#,
        r#"{"tokens":NaN}"#,
        r#"{"tokens":9007199254740993}"#,
        r#"{"Tokens":1}"#,
        r#"{"a":1,"b":1,"c":1,"d":1}"#,
        "7",
    ] {
        let (status, said) = served
            .call(Method::POST, "/api/v1/report", &report(used))
            .await;
        let error = match status.as_u16() {
            200 => &said["items"][0]["error"],
            400 | 422 => &said,
            other => panic!("{used}: {other} {said}"),
        };
        let detail = error["detail"].as_str().unwrap();
        assert_eq!(detail.lines().count(), 1, "{used}: {said}");
        let is_named = error["field"]
            .as_str()
            .is_some_and(|field| field.contains("used"));
        assert!(is_named || status == 400, "{used}: {said}");
        assert_eq!(
            served.get(key).await["budgets"][0]["remaining"],
            400,
            "{used}"
        );
    }
    for (used, is_late) in [(r#"{"tokens":340}"#, false), (r#"{"tokens":1}"#, true)] {
        let told = served.post("report", &report(used)).await;
        assert_eq!(told["items"][0]["late"].as_bool().unwrap_or(false), is_late);
        assert_eq!(served.get(key).await["budgets"][0]["remaining"], 660);
    }
    served.end().await;
}

/// Regression: a path that is not UTF-8 was answered in plain text, and the problem of a query did
/// not name the field.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_url_is_a_problem_too() {
    let served = serve(Settings::default(), None).await;
    for (path, field, why) in [
        ("keys/%FF", "key", "UTF-8"),
        ("keys?limit=-1", "limit", "a whole number"),
        ("keys?limit=99999999999", "limit", "too large"),
        ("keys?sort=size", "sort", "expected one of `name`"),
        ("keys?colour=red", "colour", "expected one of `q`"),
        ("keys?limit=5&limit=6", "limit", "twice"),
        ("stats?workers=many", "workers", "a whole number"),
    ] {
        let path = format!("/api/v1/{path}");
        let (said, problem) = served.call(Method::GET, &path, "").await;
        assert_eq!(said, 400, "{path}: {problem}");
        assert_eq!(problem["field"], field, "{path}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(why), "{path}: {detail}");
    }
    served.end().await;
}

/// Regression: an array was read as the fields in their order, and an empty change was recorded in
/// the key's history.
#[tokio::test(flavor = "multi_thread")]
async fn what_sets_nothing_changes_nothing() {
    let served = serve(Settings::default(), None).await;
    for path in ["/api/v1/keys/h.example", "/api/v1/config"] {
        let (said, problem) = served.call(Method::PATCH, path, "[]").await;
        assert_eq!(said, 422, "{problem}");
    }
    let key = "/api/v1/keys/h.example";
    let (said, _) = served.call(Method::PATCH, key, r#"{"rate":1}"#).await;
    assert_eq!(said, 200);
    let before = served.get(key).await["decisions"].as_array().unwrap().len();
    let (said, detail) = served.call(Method::PATCH, key, "{}").await;
    assert_eq!(said, 200);
    assert_eq!(detail["decisions"].as_array().unwrap().len(), before);
    let (said, config) = served.call(Method::PATCH, "/api/v1/config", "{}").await;
    assert_eq!((said.as_u16(), config["version"].as_u64()), (200, Some(1)));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_get_wrong_is_named() {
    let served = serve(Settings::default(), None).await;
    for (path, body, status, field) in [
        ("/api/v1/keys/h.example", r#"{"rate":0}"#, 422, Some("rate")),
        (
            "/api/v1/keys/h.example",
            r#"{"rate":1e300}"#,
            422,
            Some("rate"),
        ),
        (
            "/api/v1/keys/h.example",
            r#"{"rate":1e-320}"#,
            422,
            Some("rate"),
        ),
        (
            "/api/v1/keys/h.example",
            r#"{"burst":1e308}"#,
            422,
            Some("burst"),
        ),
        (
            "/api/v1/config",
            r#"{"crawling":{"rate_start":1e300}}"#,
            422,
            Some("crawling.rate_start"),
        ),
        (
            "/api/v1/config",
            r#"{"crawling":{"rate_per_host":1e-9}}"#,
            422,
            Some("crawling.rate_per_host"),
        ),
        ("/api/v1/keys/%20", r"{}", 404, Some("key")),
        (
            "/api/v1/config",
            r#"{"crawling":{"rate_per_hots":1}}"#,
            422,
            Some("crawling.rate_per_hots"),
        ),
        (
            "/api/v1/config",
            r#"{"crawling":{"rate_burst":0}}"#,
            422,
            Some("crawling.rate_burst"),
        ),
    ] {
        let (said, problem) = served.call(Method::PATCH, path, body).await;
        assert_eq!(
            (said.as_u16(), problem["field"].as_str()),
            (status, field),
            "{problem}"
        );
    }
    let (status, _) = served.call(Method::DELETE, "/api/v1/config", "").await;
    assert_eq!(status, 405);
    let (status, _) = served
        .call(Method::GET, "/api/v1/keys/unknown.example", "")
        .await;
    assert_eq!(status, 404);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_item_does_not_spoil_the_others() {
    let served = serve(Settings::default(), None).await;
    let answer = served
        .post("acquire", r#"{"client":"w","items":[{"key":"a.example"},{"url":"nonsense"},{},{"key":"b.example","priority":10},{"key":"c.example"}]}"#)
        .await;
    let of = |i: usize| {
        (
            answer["items"][i]["status"].as_str(),
            answer["items"][i]["error"]["field"].as_str(),
        )
    };
    assert_eq!([of(0), of(4)], [(Some("granted"), None); 2]);
    assert_eq!(
        [of(1).1, of(2).1, of(3).1],
        [Some("url"), Some("key"), Some("priority")]
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_of_garbage_and_more_than_may_be() {
    let served = serve(Settings::default(), None).await;
    let garbage: Vec<u8> = (0..1_u32 << 20)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let send = |body: Vec<u8>| {
        // Each request has its own connection, because the server closes a connection whose body it
        // refused half-way.
        let request = reqwest::Client::new().post(served.url("/api/v1/acquire"));
        request
            .header("content-type", "application/json")
            .body(body)
            .send()
    };
    assert_eq!(send(garbage).await.unwrap().status(), 400);
    // The server refuses the body while it is still sent. The client may find the connection closed
    // before it reads the answer.
    match send(vec![b' '; 5 << 20]).await {
        Ok(answer) => assert_eq!(answer.status(), 413),
        Err(why) => assert!(why.is_request(), "{why:?}"),
    }
    assert_eq!(
        send(vec![b'['; 1 << 20]).await.unwrap().status().as_u16() / 100,
        4
    );
    let items: Vec<_> = (0..4_097)
        .map(|i| json!({"key": format!("h{i}.example")}))
        .collect();
    let many = json!({"client": "w", "items": items}).to_string();
    assert_eq!(send(many.into_bytes()).await.unwrap().status(), 413);
    served.get("/healthz").await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_keys_of_one_client_push_nobody_out() {
    let settings = Settings {
        capacity: 10_000,
        ..Settings::default()
    };
    let served = serve(settings, None).await;
    let held = served
        .post(
            "acquire",
            r#"{"client":"good","items":[{"key":"held.example"}]}"#,
        )
        .await;
    let told = json!({"client": "good", "items": [{"permit": held["items"][0]["permit"], "status": 429, "headers": {"retry-after": "600"}}]});
    served.post("report", &told.to_string()).await;
    let mut refused = 0;
    for call in 0..25 {
        let items: Vec<_> = (0..4_000)
            .map(|i| json!({"key": format!("h{}.example", call * 4_000 + i)}))
            .collect();
        let answer = served
            .post(
                "acquire",
                &json!({"client": "greedy", "items": items}).to_string(),
            )
            .await;
        let full = answer["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["status"] == "refused");
        refused += full.count();
    }
    assert!(
        refused >= 90_000,
        "{refused}: keys with permits out are not forgotten"
    );
    let stats = served.get("/api/v1/stats").await;
    assert!(stats["keys"].as_u64().unwrap() <= 10_000, "{stats}");
    assert_eq!(
        served.get("/api/v1/keys/held.example").await["state"],
        "hold"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_slowly_is_sent_away() {
    let served = serve(Settings::default(), None).await;
    // Regression: connections without a single byte stayed open for ever.
    let mut heads = vec![TcpStream::connect(served.address).await.unwrap()];
    for _ in 0..200 {
        let mut slow = TcpStream::connect(served.address).await.unwrap();
        slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc")
            .await
            .unwrap();
        heads.push(slow);
    }
    let mut body = TcpStream::connect(served.address).await.unwrap();
    let head = "POST /api/v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    body.write_all(head.as_bytes()).await.unwrap();
    served.get("/healthz").await;
    let mut answer = Vec::new();
    let read = body.read_to_end(&mut answer);
    // The server allows ten seconds. The longer bound is for a busy machine.
    tokio::time::timeout(Duration::from_mins(1), read)
        .await
        .unwrap()
        .unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 408"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    for mut slow in heads {
        let mut rest = Vec::new();
        let read = slow.read_to_end(&mut rest);
        let _ = tokio::time::timeout(Duration::from_mins(1), read)
            .await
            .unwrap();
    }
    served.end().await;
}
