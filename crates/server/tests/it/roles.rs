//! Tests of tokens with roles, of wrong tokens, and of the audit log.

use politely_server::store::Store;
use politely_server::{Caps, Coordinator, Settings, Tokens};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Served, serve, start};

const READ: &str = "read-token-of-some-length";
const WORKER: &str = "worker-token-of-some-length";
const OPERATOR: &str = "operator-token-of-some-length";

fn tokens() -> Tokens {
    let lines = format!("read grafana {READ}\nworker ci {WORKER}\noperator ann {OPERATOR}\n");
    Tokens::parse(&lines).unwrap()
}

async fn call(
    served: &Served,
    token: &str,
    method: Method,
    path: &str,
    body: &str,
) -> (u16, Value) {
    let request = served.http.request(method, served.url(path));
    let request = request
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(body.to_owned());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, value)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_does_its_part_and_no_more() {
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, Some(tokens()), Caps::default()).await;
    let acquire = r#"{"client":"w","items":[{"key":"h.example"}]}"#;
    let patch = r#"{"rate":1.0}"#;
    let calls = [
        (Method::GET, "/api/v1/keys", "", [200, 200, 200]),
        (Method::GET, "/metrics", "", [200, 200, 200]),
        (Method::GET, "/api/v1/audit/changes", "", [403, 403, 200]),
        (Method::POST, "/api/v1/acquire", acquire, [403, 200, 200]),
        (
            Method::PATCH,
            "/api/v1/keys/h.example",
            patch,
            [403, 403, 200],
        ),
        (Method::PATCH, "/api/v1/config", "{}", [403, 403, 200]),
    ];
    for (method, path, body, expected) in calls {
        for (token, expected) in [READ, WORKER, OPERATOR].into_iter().zip(expected) {
            let (status, said) = call(&served, token, method.clone(), path, body).await;
            assert_eq!(status, expected, "{method} {path} {token}: {said}");
            if status == 403 {
                assert!(
                    said["detail"].as_str().unwrap().contains("needs the role"),
                    "{said}"
                );
            }
        }
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_replaced_while_it_runs() {
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, Some(tokens()), Caps::default()).await;
    let events = served.http.get(served.url("/api/v1/events"));
    let mut events = events.bearer_auth(READ).send().await.unwrap();
    let ask = async |token| {
        call(&served, token, Method::GET, "/api/v1/stats", "")
            .await
            .0
    };
    assert_eq!((ask(READ).await, ask(WORKER).await), (200, 200));
    let new = Tokens::parse(&format!("operator ann {READ}\n")).unwrap();
    assert!(served.reload.replace(new));
    assert_eq!((ask(READ).await, ask(WORKER).await), (200, 401));
    let patched = call(&served, READ, Method::PATCH, "/api/v1/config", "{}")
        .await
        .0;
    assert_eq!(patched, 200, "the token has its new role");
    while events.chunk().await.unwrap().is_some() {}
    served.end().await;
    let open = serve(Settings::default(), None).await;
    assert!(
        !open.reload.replace(tokens()),
        "it was started without tokens"
    );
    open.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_two_tokens_are_two_clients() {
    let other = "another-worker-token-of-some-length";
    let lines = format!("worker ci {WORKER}\nworker cd {other}\n");
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let tokens = Tokens::parse(&lines).unwrap();
    let served = start(coordinator, Some(tokens), Caps::default()).await;
    let acquire = r#"{"client":"w","items":[{"id":"one","key":"h.example"}]}"#;
    let post = async |token, path: &str, body: &str| {
        call(
            &served,
            token,
            Method::POST,
            &format!("/api/v1/{path}"),
            body,
        )
        .await
        .1
    };
    let granted = post(WORKER, "acquire", acquire).await;
    let permit = granted["items"][0]["permit"].as_str().unwrap();
    assert_ne!(
        post(other, "acquire", acquire).await["items"][0]["permit"],
        permit
    );
    let body = json!({"client": "w", "permits": [permit]}).to_string();
    let cancelled = async |token| post(token, "cancel", &body).await["cancelled"].clone();
    assert_eq!(cancelled(other).await, json!([]));
    assert_eq!(cancelled(WORKER).await, json!([permit]));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_limited_and_a_known_one_is_not() {
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, Some(tokens()), Caps::default()).await;
    let ask = async |token: &str| {
        call(&served, token, Method::GET, "/api/v1/stats", "")
            .await
            .0
    };
    assert_eq!(ask(OPERATOR).await, 200);
    let mut refused = [0_u32; 2];
    for i in 0..400 {
        match ask(&format!("wrong-token-number-{i}")).await {
            401 => refused[0] += 1,
            429 => refused[1] += 1,
            other => panic!("{other}"),
        }
    }
    // The bounds are inequalities, because the budget grows by one per second and a slow machine
    // takes longer.
    assert!(refused[0] >= 100 && refused[1] >= 200, "{refused:?}");
    assert_eq!(ask(OPERATOR).await, 200);
    let metrics = call(&served, OPERATOR, Method::GET, "/metrics", "").await.1;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("politely_login_failures_total")
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_logged_with_their_author_and_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let key = "/api/v1/keys/h.example";
    for round in 0..2 {
        let (store, kept) = Store::open(folder.path()).unwrap();
        let coordinator = Coordinator::resume(Settings::default(), store, kept).unwrap();
        let served = start(coordinator, Some(tokens()), Caps::default()).await;
        let patch = async |path, body| {
            let (status, said) = call(&served, OPERATOR, Method::PATCH, path, body).await;
            assert_eq!(status, 200, "{said}");
        };
        if round == 0 {
            patch(key, r#"{"rate":2.0,"hold_ms":600000}"#).await;
            patch(key, r#"{"rate":0.5}"#).await;
            let wrong = call(&served, OPERATOR, Method::PATCH, key, r#"{"rate":-1}"#).await;
            assert_eq!(wrong.0, 422);
            patch("/api/v1/config", r#"{"crawling":{"rate_per_host":3.0}}"#).await;
        }
        let path = "/api/v1/audit/changes?limit=2";
        let (_, page) = call(&served, OPERATOR, Method::GET, path, "").await;
        assert_eq!(
            (&page["durable"], &page["next"]),
            (&json!(true), &json!(2)),
            "{page}"
        );
        let [config, second] = [&page["changes"][0], &page["changes"][1]];
        assert_eq!(config["call"], "PATCH /api/v1/config");
        assert_eq!(config["after"]["rate_per_host"], 3.0);
        assert_eq!(second["before"]["rate"], 2.0);
        assert!(
            second["before"]["hold_ms"].as_f64().unwrap() > 500_000.0,
            "{second}"
        );
        assert_eq!(second["after"]["rate"], 0.5);
        let author = [
            &second["token"],
            &second["role"],
            &second["peer"],
            &second["key"],
        ];
        assert_eq!(author, ["ann", "operator", "127.0.0.1", "h.example"]);
        assert!(second["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
        let path = format!("{path}&before={}", page["next"]);
        let (_, rest) = call(&served, OPERATOR, Method::GET, &path, "").await;
        assert_eq!(rest["changes"].as_array().unwrap().len(), 1);
        assert_eq!(rest["changes"][0]["before"]["rate"], Value::Null);
        served.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_of_a_budget_is_logged_with_what_was_left() {
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, Some(tokens()), Caps::default()).await;
    let key = "/api/v1/keys/h.example";
    let patch = async |body| call(&served, OPERATOR, Method::PATCH, key, body).await;
    let (_, set) = patch(r#"{"limits":["5/h"]}"#).await;
    assert_eq!(set["budgets"][0]["remaining"], 5, "{set}");
    let acquire = r#"{"client":"w","items":[{"key":"h.example"}]}"#;
    call(&served, OPERATOR, Method::POST, "/api/v1/acquire", acquire).await;
    let (status, said) = patch(r#"{"reset_budget":"6/h"}"#).await;
    assert_eq!(
        (status, said["field"].as_str()),
        (422, Some("reset_budget"))
    );
    let (status, said) = patch(r#"{"reset_budget":"5/h"}"#).await;
    assert_eq!((status, &said["budgets"][0]["remaining"]), (200, &json!(5)));
    let path = "/api/v1/audit/changes?limit=1";
    let (_, page) = call(&served, OPERATOR, Method::GET, path, "").await;
    let change = &page["changes"][0];
    assert_eq!(change["body"], r#"{"reset_budget":"5/h"}"#);
    let left = [&change["before"], &change["after"]].map(|numbers| &numbers["left of 5/h"]);
    assert_eq!(left, [&json!(4.0), &json!(5.0)], "{change}");
    served.end().await;
}
