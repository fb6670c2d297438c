//! Tests of hostile callers: they hold connections, fill memory, or use the permits of other
//! clients.

use std::time::Duration;

use politely::core::config::Config;
use politely_server::{Caps, Coordinator, Settings};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use crate::client::{Served, serve, start};

/// The longest wait of a test, with room for a busy machine.
const LONG: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_has_no_more_connections_than_its_cap() {
    let caps = Caps {
        peer_connections: 4,
        ..Caps::default()
    };
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, None, caps).await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        held.push(stream);
    }
    let ask = async || {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let close = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(close).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        timeout(LONG, read).await.unwrap().unwrap();
        answer
    };
    let refused = ask().await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("127.0.0.1 has 4 connections"), "{refused}");
    held.pop();
    let freed = async {
        let mut ticks = interval(Duration::from_millis(20));
        while !ask().await.starts_with("HTTP/1.1 200") {
            ticks.tick().await;
        }
    };
    timeout(LONG, freed).await.expect("the place is free again");
    served.end().await;
}

/// Regression: the accept loop waited for a free place and did not notice the end of the server.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_heard_while_all_connections_are_taken() {
    let caps = Caps {
        connections: 2,
        ..Caps::default()
    };
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, None, caps).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    let mut answer = String::new();
    let mut beyond = held.pop().unwrap();
    timeout(LONG, beyond.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.contains("all 2 connections are in use"), "{answer}");
    timeout(LONG, served.end()).await.expect("the end is heard");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_waits_for_no_more_items_than_its_cap() {
    let caps = Caps {
        waiting: 3,
        ..Caps::default()
    };
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, None, caps).await;
    let items = |count: usize| vec![json!({"key": "h.example"}); count];
    let ask = |call: &str, body: Value| {
        let (path, body) = (format!("/api/v1/{call}"), body.to_string());
        let served = &served;
        async move { served.call(Method::POST, &path, &body).await }
    };
    let body = json!({"client": "w", "wait_ms": 10, "items": items(4)});
    let (status, said) = ask("acquire", body).await;
    assert_eq!(status, 429, "{said}");
    assert!(
        said["detail"].as_str().unwrap().contains("--waiting"),
        "{said}"
    );
    let body = json!({"client": "w", "items": items(4)});
    assert_eq!(ask("acquire", body).await.0, 200, "these do not wait");
    let permit = "1";
    let report = json!([{"permit": permit, "status": 200}]);
    let body = json!({"client": "w", "wait_ms": 60_000, "report": report, "acquire": items(4)});
    let (status, said) = ask("exchange", body).await;
    assert_eq!(
        (status.as_u16(), said["report"][0]["late"].as_bool()),
        (200, Some(true)),
        "{said}"
    );
    let body = json!({"client": "w", "wait_ms": 1, "items": items(3)});
    assert_eq!(ask("acquire", body).await.0, 200, "the places came back");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_creates_no_more_keys_than_its_cap() {
    let caps = Caps {
        client_keys: 3,
        ..Caps::default()
    };
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let served = start(coordinator, None, caps).await;
    let ask = |call: &str, body: Value| {
        let (path, body) = (format!("/api/v1/{call}"), body.to_string());
        let served = &served;
        async move { served.call(Method::POST, &path, &body).await }
    };
    let items = |names: &[&str]| {
        names
            .iter()
            .map(|key| json!({"key": key}))
            .collect::<Vec<_>>()
    };
    let body = json!({"client": "w", "items": items(&["a.example", "b.example"])});
    assert_eq!(ask("acquire", body).await.0, 200);
    // The keys of `also` count too.
    let both = json!([{"key": "c.example", "also": ["custom/x"]}]);
    let (status, said) = ask("acquire", json!({"client": "w", "items": both})).await;
    assert_eq!(status, 429, "{said}");
    let detail = said["detail"].as_str().unwrap();
    assert!(
        detail.contains("\"w\" would have more than 3 keys") && detail.contains("--client-keys"),
        "{said}"
    );
    // In a batch, the items of known keys are answered as usual.
    let body = json!({"client": "w", "items": items(&["a.example", "c.example", "d.example"])});
    let (status, said) = ask("acquire", body).await;
    assert_eq!(
        (status.as_u16(), &said["items"][2]["code"]),
        (200, &json!("full")),
        "{said}"
    );
    assert_ne!(said["items"][1]["code"], "full", "{said}");
    // A report counts even if the acquire requests of the same call are refused.
    let report = json!([{"permit": "1", "status": 200}]);
    let body = json!({"client": "w", "report": report, "acquire": items(&["e.example"])});
    let (status, said) = ask("exchange", body).await;
    assert_eq!(
        (status.as_u16(), &said["acquire"][0]["code"]),
        (200, &json!("full")),
        "{said}"
    );
    let body = json!({"client": "w", "acquire": items(&["e.example"])});
    assert_eq!(ask("exchange", body).await.0, 429);
    let body = json!({"client": "other", "items": items(&["e.example"])});
    assert_eq!(
        ask("acquire", body).await.0,
        200,
        "other clients are not affected"
    );
    let metrics = served.get("/metrics").await.to_string();
    assert!(
        metrics.contains("politely_client_keys_refused_total"),
        "{metrics}"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_header_is_refused() {
    let served = serve(Settings::default(), None).await;
    let host = "Host: localhost\r\n";
    for (headers, status) in [
        (host.to_owned(), "200"),
        (format!("{host}{host}"), "400"),
        (format!("{host}Host: evil.example\r\n"), "400"),
        (
            format!("{host}Origin: http://localhost\r\nOrigin: http://evil.example\r\n"),
            "400",
        ),
        (
            format!("{host}Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"),
            "400",
        ),
    ] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{headers}: {answer}"
        );
    }
    served.end().await;
}

async fn granted(served: &Served, client: &str, items: usize) -> Vec<Value> {
    let items = vec![json!({"key": "h.example"}); items];
    let body = json!({"client": client, "items": items}).to_string();
    let answer = served.post("acquire", &body).await;
    let items = answer["items"].as_array().unwrap().clone();
    let permits = items.into_iter().filter(|item| item["status"] == "granted");
    permits.map(|item| item["permit"].clone()).collect()
}

/// Serves a coordinator whose key allows four requests in flight, at a rate that never limits.
async fn with_four_slots() -> Served {
    let mut config = Config::fixed(1_000.0, 100.0);
    config.limits.in_flight = 4;
    let settings = Settings {
        config,
        ..Settings::default()
    };
    serve(settings, None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_of_use_to_its_client_only() {
    let served = with_four_slots().await;
    let permits = granted(&served, "owner", 8).await;
    assert_eq!(permits.len(), 4);
    let key = served.get("/api/v1/keys/h.example").await;
    let shown: Vec<_> = key["out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|out| out["permit"].clone())
        .collect();
    assert_eq!(shown.len(), 4);
    assert!(shown.iter().all(|shown| !permits.contains(shown)), "{key}");
    // The thief repeats whole names, and tries bare numbers under its own name and the owner's
    // name.
    for (client, names) in [("thief", &permits), ("thief", &shown), ("owner", &shown)] {
        let body = json!({"client": client, "permits": names}).to_string();
        assert_eq!(
            served.post("renew", &body).await["renewed"],
            json!([]),
            "{client}"
        );
        assert_eq!(
            served.post("cancel", &body).await["cancelled"],
            json!([]),
            "{client}"
        );
        let told: Vec<_> = names
            .iter()
            .map(|name| json!({"permit": name, "status": 429}))
            .collect();
        let body = json!({"client": client, "items": told}).to_string();
        for answer in served.post("report", &body).await["items"]
            .as_array()
            .unwrap()
        {
            assert_eq!(answer["error"]["field"], "permit", "{client}: {answer}");
        }
        let body = json!({"client": client, "report": told}).to_string();
        served.post("exchange", &body).await;
    }
    assert!(
        granted(&served, "thief", 8).await.is_empty(),
        "the slots are taken still"
    );
    // Another slot of a permit does not give access to the next permit.
    let told = json!([{"permit": permits[0], "slot": 1, "status": 200}]);
    let body = json!({"client": "owner", "items": told}).to_string();
    let answer = served.post("report", &body).await;
    assert_eq!(answer["items"][0]["error"]["field"], "slot", "{answer}");
    let told: Vec<_> = permits
        .iter()
        .map(|name| json!({"permit": name, "status": 200}))
        .collect();
    let body = json!({"client": "owner", "items": told}).to_string();
    for round in 0..3 {
        for answer in served.post("report", &body).await["items"]
            .as_array()
            .unwrap()
        {
            assert_eq!(
                answer["late"].as_bool().unwrap_or(false),
                round > 0,
                "{answer}"
            );
        }
    }
    // A repeated report of old names frees no slot of the next permits.
    assert_eq!(granted(&served, "owner", 8).await.len(), 4);
    served.post("report", &body).await;
    assert!(granted(&served, "owner", 8).await.is_empty());
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_names_take_no_permit_away() {
    let served = with_four_slots().await;
    let permits = granted(&served, "owner", 4).await;
    for i in 0..10_001 {
        let body = json!({"client": format!("stranger-{i}"), "permits": ["1"]}).to_string();
        served.post("renew", &body).await;
    }
    let body = json!({"client": "owner", "permits": permits}).to_string();
    assert_eq!(
        served.post("renew", &body).await["renewed"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    let told: Vec<_> = permits
        .iter()
        .map(|name| json!({"permit": name, "status": 200}))
        .collect();
    let body = json!({"client": "owner", "items": told}).to_string();
    for answer in served.post("report", &body).await["items"]
        .as_array()
        .unwrap()
    {
        assert!(!answer["late"].as_bool().unwrap_or(false), "{answer}");
        assert_eq!(answer["error"], Value::Null, "{answer}");
    }
    served.end().await;
}
