//! Orders of operators.

use politely_server::Tokens;
use reqwest::Method;
use serde_json::{Value, json};

use super::place::{Place, over_both};
use super::{counts, done, fast, open, put_urls, take, take_one};
use crate::client::Served;

over_both!(an_operator_orders_and_a_worker_may_not);
async fn an_operator_orders_and_a_worker_may_not(place: Place) {
    let [read, worker, operator] =
        ["read", "worker", "operator"].map(|role| format!("{role}-token-of-some-length"));
    let lines = format!("read r {read}\nworker w {worker}\noperator o {operator}\n");
    let served = open(&place, fast(), Some(Tokens::parse(&lines).unwrap())).await;
    let later = 253_402_300_799_999_u64; // the end of the year 9999
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
            let (status, said) = call(&served, token, method.clone(), path, body.clone()).await;
            assert_eq!(status, expected, "{method} {path} {token}: {said}");
            if path == "/c/take" && status == 200 {
                assert_eq!(said["units"], json!([]), "a paused crawl hands out nothing");
            }
        }
    }
    served.end().await;
}

over_both!(orders_are_in_force_at_once);
async fn orders_are_in_force_at_once(place: Place) {
    let served = open(&place, fast(), None).await;
    put_urls(&served, &["https://a.com/1"]).await;
    let order = async |path: &str, body: Value| call(&served, "", Method::POST, path, body).await;
    let blocked = json!({"domain": "a.com", "until_unix_ms": 253_402_300_799_999_u64});
    assert_eq!(order("/c/block", blocked).await.0, 204);
    assert_eq!(
        take(&served, json!({"client": "w"})).await["units"],
        json!([])
    );
    assert_eq!(order("/c/block", json!({"domain": "a.com"})).await.0, 204);
    let unit = take_one(&served, "w", 1).await;
    assert_eq!(order("/c/purge", json!({})).await.0, 204);
    let stale = done(&served, "w", json!({"token": unit["token"]})).await;
    assert_eq!(stale["error"]["field"], "token", "a purge ends units");
    let numbers = counts(&served).await;
    assert_eq!(
        (&numbers["pages"], &numbers["ready"]),
        (&json!(1), &json!(0)),
        "{numbers}"
    );
    assert_eq!(order("/c/delete", json!({})).await.0, 204);
    assert_eq!(
        call(&served, "", Method::GET, "/c", json!(null)).await.0,
        404
    );
    let log = served.get("/api/v1/audit/changes").await;
    assert_eq!(
        log["changes"][0]["call"], "POST /api/v1/frontier/c/delete",
        "{log}"
    );
    served.end().await;
}

/// Makes a call of the frontier with a token.
async fn call(
    served: &Served,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let request = served
        .http
        .request(method, served.url(&format!("/api/v1/frontier{path}")));
    let is_put = path.ends_with("/put");
    let kind = if is_put {
        "application/x-ndjson"
    } else {
        "application/json"
    };
    let mut request = request.header("content-type", kind);
    if !token.is_empty() {
        request = request.bearer_auth(token);
    }
    let response = request.body(body.to_string()).send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default())
}
