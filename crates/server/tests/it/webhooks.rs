//! Webhooks: signed, in order, sent again after a failure, and dead after too many.

#![expect(
    clippy::disallowed_methods,
    reason = "they look again until a coordinator has caught up"
)]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use politely_server::{Caps, Coordinator, Settings, Webhook};
use reqwest::Method;
use serde_json::Value;

use crate::client::start;

const KEY: &[u8] = b"a secret of twenty-four b";

/// A request that the receiver got.
#[derive(Clone, Debug)]
struct Got {
    id: String,
    is_signed: bool,
    login: String,
    body: Value,
}

/// A receiver that answers the first `failures` requests with 500.
#[derive(Clone, Default)]
struct Receiver {
    failures: usize,
    got: Arc<Mutex<Vec<Got>>>,
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: String) -> StatusCode {
    let header = |name: &str| headers[name].to_str().unwrap();
    let (id, at) = (header("webhook-id"), header("webhook-timestamp"));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY);
    let signature = header("webhook-signature").strip_prefix("v1,").unwrap();
    let tag = STANDARD.decode(signature).unwrap();
    let signed = format!("{id}.{at}.{body}");
    let got = Got {
        id: id.to_owned(),
        is_signed: ring::hmac::verify(&key, signed.as_bytes(), &tag).is_ok(),
        login: header("authorization").to_owned(),
        body: serde_json::from_str(&body).unwrap(),
    };
    let mut all = receiver.got.lock().unwrap();
    all.push(got);
    if all.len() <= receiver.failures {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    StatusCode::NO_CONTENT
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_the_chosen_kinds_are_sent_in_order_and_again_after_a_failure() {
    let receiver = Receiver {
        failures: 1,
        ..Receiver::default()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://ann:pw@{}/hook", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/hook", post(receive))
        .with_state(receiver.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let webhook = Webhook::new(&url, &["operator".to_owned()], &secret).unwrap();
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let coordinator = coordinator.call_webhooks(vec![webhook]);
    let served = start(coordinator, None, Caps::default()).await;
    for (path, body) in [
        ("keys/a.example", r#"{"rate": 2.0}"#),
        ("config", r#"{"crawling": {"rate_burst": 2.0}}"#),
        ("keys/b.example", r#"{"rate": 3.0}"#),
    ] {
        let path = format!("/api/v1/{path}");
        let (status, said) = served.call(Method::PATCH, &path, body).await;
        assert_eq!(status, 200, "{said}");
    }
    let got = loop {
        let got = receiver.got.lock().unwrap().clone();
        if got.len() >= 3 {
            break got;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let is_right = |got: &Got| got.is_signed && got.login == "Basic YW5uOnB3";
    assert!(got.iter().all(is_right), "{got:?}");
    let keys: Vec<_> = got.iter().map(|got| &got.body["data"]["key"]).collect();
    assert_eq!(keys, ["a.example", "a.example", "b.example"]);
    assert_eq!(got[0].id, got[1].id, "a retry has the same id");
    assert_ne!(got[1].id, got[2].id);
    assert_eq!(got[2].body["type"], "operator");
    served.end().await;
}
