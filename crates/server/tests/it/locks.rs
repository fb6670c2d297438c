//! Tests of sessions and locks over HTTP.

use std::sync::Arc;
use std::time::Duration;

use politely::Clock;
use politely::cells::Memory;
use politely::store::Unavailable;
use politely_server::store::Store;
use politely_server::{Caps, Coordinator, Settings};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Served, serve, start};

async fn open(served: &Served, client: &str, ttl_ms: u32) -> String {
    let body = json!({"client": client, "ttl_ms": ttl_ms});
    let opened = served.post("sessions", &body.to_string()).await;
    opened["session"].as_str().unwrap().to_owned()
}

async fn lock(served: &Served, body: Value) -> (StatusCode, Value) {
    let body = body.to_string();
    served.call(Method::POST, "/api/v1/locks", &body).await
}

async fn held(served: &Served, body: Value) -> u64 {
    let (status, answer) = lock(served, body).await;
    assert_eq!(
        (status.as_u16(), &answer["status"]),
        (200, &json!("held")),
        "{answer}"
    );
    answer["fencing"].as_u64().unwrap()
}

async fn release(served: &Served, body: Value) -> (StatusCode, Value) {
    let body = body.to_string();
    served
        .call(Method::POST, "/api/v1/locks/release", &body)
        .await
}

async fn renew(served: &Served, session: &str) -> (StatusCode, Value) {
    let path = format!("/api/v1/sessions/{session}");
    served.call(Method::PUT, &path, "").await
}

async fn close(served: &Served, session: &str) -> (StatusCode, Value) {
    let path = format!("/api/v1/sessions/{session}");
    served.call(Method::DELETE, &path, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hold_a_key_and_the_third_waits_until_a_session_ends() {
    let served = serve(Settings::default(), None).await;
    let [a, b, c] = [
        open(&served, "a", 30_000).await,
        open(&served, "b", 30_000).await,
        open(&served, "c", 30_000).await,
    ];
    let claim = |session: &str| json!({"session": session, "key": "h.example", "max": 2});
    let first = held(&served, claim(&a)).await;
    let second = held(&served, claim(&b)).await;
    assert!(second > first);
    let (_, waits) = lock(&served, claim(&c)).await;
    assert_eq!(
        (&waits["status"], &waits["position"]),
        (&json!("wait"), &json!(0))
    );
    let body = json!({"session": c, "key": "h.example", "max": 2, "wait_ms": 30_000});
    let (third, closed) = tokio::join!(held(&served, body), async {
        let shown = loop {
            let shown = served.get("/api/v1/locks?key=h.example").await;
            if shown["waiting"] == 1 {
                break shown;
            }
        };
        assert_eq!(shown["holders"][0]["client"], "a");
        close(&served, &a).await.1
    });
    assert_eq!(closed["released"], json!(["h.example"]));
    assert!(third > second);
    let (_, state) = renew(&served, &c).await;
    assert_eq!(
        state["locks"],
        json!([{"key": "h.example", "fencing": third}])
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_sessions_are_served_in_order_and_an_id_keeps_the_place() {
    let served = serve(Settings::default(), None).await;
    let [a, b, c] = [
        open(&served, "a", 30_000).await,
        open(&served, "b", 30_000).await,
        open(&served, "c", 30_000).await,
    ];
    let claim = |session: &str, mode: &str| json!({"session": session, "key": "h.example", "mode": mode, "id": "1"});
    let first = held(&served, claim(&a, "shared")).await;
    for (session, position) in [(&b, 0), (&c, 1), (&b, 0)] {
        let (_, waits) = lock(&served, claim(session, "exclusive")).await;
        assert_eq!(waits["position"], position, "{waits}");
    }
    let again = held(&served, claim(&a, "shared")).await;
    assert_eq!(again, first, "a repeated call gets the same lock");
    let (_, released) = release(&served, json!({"session": a, "key": "h.example"})).await;
    assert_eq!(released, json!({"released": true}));
    let (_, waits) = lock(&served, claim(&c, "exclusive")).await;
    assert_eq!(waits["status"], "wait");
    assert!(held(&served, claim(&b, "exclusive")).await > first);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_misuse_has_one_clear_answer() {
    let served = serve(Settings::default(), None).await;
    let a = open(&served, "a", 30_000).await;
    let claim = json!({"session": a, "key": "h.example"});
    let fencing = held(&served, claim.clone()).await;
    let (status, twice) = lock(&served, claim).await;
    assert_eq!(status, 409);
    assert!(
        twice["detail"]
            .as_str()
            .unwrap()
            .contains(&fencing.to_string()),
        "{twice}"
    );
    let stale = json!({"session": a, "key": "h.example", "fencing": fencing - 1});
    let (status, said) = release(&served, stale).await;
    assert_eq!(
        (status.as_u16(), &said["field"]),
        (409, &json!("fencing")),
        "{said}"
    );
    let right = json!({"session": a, "key": "h.example", "fencing": fencing});
    assert_eq!(
        release(&served, right.clone()).await.1,
        json!({"released": true})
    );
    assert_eq!(release(&served, right).await.0, 409);
    assert_eq!(close(&served, &a).await.0, 200);
    for session in [&a, "0000000000000000", "no session"] {
        let call = json!({"session": session, "key": "h.example"});
        assert_eq!(lock(&served, call.clone()).await.0, 410, "{session}");
        assert_eq!(release(&served, call).await.0, 410, "{session}");
        assert_eq!(
            renew(&served, &session.replace(' ', "%20")).await.0,
            410,
            "{session}"
        );
        assert_eq!(
            close(&served, &session.replace(' ', "%20")).await.0,
            410,
            "{session}"
        );
    }
    let b = open(&served, "b", 30_000).await;
    for (wrong, field) in [
        (json!({"session": b, "key": "h.example", "max": 0}), "max"),
        (
            json!({"session": b, "key": "h.example", "max": 1001}),
            "max",
        ),
        (
            json!({"session": b, "key": "h.example", "max": 2, "mode": "exclusive"}),
            "max",
        ),
        (json!({"session": b, "key": ""}), "key"),
        (json!({"session": b, "key": "h.example", "id": ""}), "id"),
    ] {
        let (status, said) = lock(&served, wrong).await;
        assert_eq!(
            (status.as_u16(), &said["field"]),
            (422, &json!(field)),
            "{said}"
        );
    }
    let wrong = json!({"client": "b", "ttl_ms": 999}).to_string();
    let (status, _) = served.call(Method::POST, "/api/v1/sessions", &wrong).await;
    assert_eq!(status, 422);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_silent_ends_with_its_locks_and_permits() {
    let served = serve(Settings::default(), None).await;
    let a = open(&served, "a", 1_000).await;
    held(&served, json!({"session": a, "key": "h.example"})).await;
    let body = json!({"client": "a", "session": a, "items": [{"key": "p.example"}]});
    let acquired = served.post("acquire", &body.to_string()).await;
    assert_eq!(acquired["items"][0]["status"], "granted");
    assert_eq!(served.get("/api/v1/stats").await["live"], 1);
    let b = open(&served, "b", 1_000).await;
    // The waiting call renews its own session, which would otherwise end first.
    let body = json!({"session": b, "key": "h.example", "wait_ms": 30_000});
    held(&served, body).await;
    assert_eq!(
        renew(&served, &a).await.0,
        410,
        "a lost session does not return"
    );
    let gone = async { while served.get("/api/v1/stats").await["live"] != 0 {} };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    gone.expect("the permit ends with its session");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_sessions_and_locks() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = || {
        let (store, kept) = Store::open(folder.path()).unwrap();
        Coordinator::resume(Settings::default(), store, kept).unwrap()
    };
    let served = start(coordinator(), None, Caps::default()).await;
    let a = open(&served, "a", 30_000).await;
    let b = open(&served, "b", 30_000).await;
    let gone = open(&served, "gone", 30_000).await;
    let claim = |session: &str| json!({"session": session, "key": "h.example", "id": "1"});
    let first = held(&served, claim(&a)).await;
    close(&served, &gone).await;
    served.end().await;

    let served = start(coordinator(), None, Caps::default()).await;
    assert_eq!(renew(&served, &gone).await.0, 410);
    let (_, waits) = lock(&served, claim(&b)).await;
    assert_eq!(waits["status"], "wait");
    let (_, state) = renew(&served, &a).await;
    assert_eq!(
        state["locks"],
        json!([{"key": "h.example", "fencing": first}])
    );
    assert_eq!(held(&served, claim(&a)).await, first);
    close(&served, &a).await;
    assert!(held(&served, claim(&b)).await > first);
    served.end().await;
}

/// Returns two coordinators that share one engine.
async fn two() -> [Served; 2] {
    let memory = Memory::new(Clock::system());
    let shared = || {
        let engine = Arc::new(memory.clone());
        Coordinator::shared(Settings::default(), engine, Unavailable::Closed, None).unwrap()
    };
    [
        start(shared(), None, Caps::default()).await,
        start(shared(), None, Caps::default()).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_at_one_coordinator_wakes_a_waiter_at_the_other() {
    let [one, two] = two().await;
    let a = open(&one, "a", 30_000).await;
    let b = open(&two, "b", 30_000).await;
    let first = held(&one, json!({"session": a, "key": "h.example"})).await;
    let body = json!({"session": b, "key": "h.example", "wait_ms": 30_000});
    let (second, ()) = tokio::join!(held(&two, body), async {
        while one.get("/api/v1/locks?key=h.example").await["waiting"] != 1 {}
        let (_, released) = release(&one, json!({"session": a, "key": "h.example"})).await;
        assert_eq!(released, json!({"released": true}));
    });
    assert!(second > first);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_coordinator_continues_a_session() {
    let [one, two] = two().await;
    let a = open(&one, "a", 30_000).await;
    let first = held(&one, json!({"session": a, "key": "h.example", "id": "1"})).await;
    one.end().await;
    let (_, state) = renew(&two, &a).await;
    assert_eq!(
        state["locks"],
        json!([{"key": "h.example", "fencing": first}]),
        "{state}"
    );
    let again = json!({"session": a, "key": "h.example", "id": "1"});
    assert_eq!(held(&two, again).await, first);
    assert_eq!(close(&two, &a).await.1["released"], json!(["h.example"]));
    assert_eq!(renew(&two, &a).await.0, 410);
    two.end().await;
}

/// Reads a stream of events until it contains `text`.
async fn read_until(stream: &mut reqwest::Response, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
        read.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_and_continue_after_an_id() {
    let served = serve(Settings::default(), None).await;
    let open_stream = async |query: &str, last: &str| {
        let url = served.url(&format!("/api/v1/events?{query}"));
        let mut request = served.http.get(url);
        if !last.is_empty() {
            request = request.header("last-event-id", last);
        }
        request.send().await.unwrap()
    };
    let mut locks = open_stream("kind=lock&prefix=H.", "").await;
    let a = open(&served, "a", 30_000).await;
    for key in ["other.example", "h.example"] {
        let hold = r#"{"hold_ms": 5000}"#;
        let path = format!("/api/v1/keys/{key}");
        served.call(Method::PATCH, &path, hold).await;
        held(&served, json!({"session": a, "key": key})).await;
    }
    let read = read_until(&mut locks, "h.example").await;
    assert!(
        read.contains("held by a") && !read.contains("other"),
        "{read}"
    );
    assert!(!read.contains("event: operator"), "{read}");
    close(&served, &a).await;
    let id = read.lines().find_map(|line| line.strip_prefix("id: "));
    let mut later = open_stream("key=H.Example.", id.unwrap()).await;
    let read = read_until(&mut later, "released").await;
    assert!(!read.contains("held by a"), "{read}");
    for (query, last, status) in [
        ("", "1-1", 410),
        ("", "no id", 400),
        ("kind=nonsense", "", 400),
    ] {
        let answer = open_stream(query, last).await;
        assert_eq!(answer.status(), status, "{query} {last}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_are_imported_paged_and_changed_by_pattern() {
    let served = serve(Settings::default(), None).await;
    let keys: Vec<Value> = (0..25)
        .map(|at| json!({"key": format!("h{at:02}.example"), "set": {"in_flight": 3}}))
        .chain([json!({"key": "custom/x"}), json!({"key": ""})])
        .collect();
    let imported = served
        .post("keys", &json!({"keys": keys}).to_string())
        .await;
    assert_eq!(imported["changed"], 26);
    assert_eq!(
        imported["failed"].as_array().unwrap().len(),
        1,
        "{imported}"
    );
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = served
            .get(&format!("/api/v1/keys?prefix=h&sort=name&limit=10{cursor}"))
            .await;
        for row in page["keys"].as_array().unwrap() {
            assert_eq!(row["set"], json!({"in_flight": 3}), "{row}");
            names.push(row["key"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 25);
    assert!(names.is_sorted());
    let patch = async |query: &str, body: &str| {
        let path = format!("/api/v1/keys?{query}");
        served.call(Method::PATCH, &path, body).await
    };
    let (_, changed) = patch("prefix=h1", r#"{"hold_ms": 60000}"#).await;
    assert_eq!(changed["changed"], 10);
    let held = served.get("/api/v1/keys?state=hold").await;
    assert_eq!(held["matching"], 10);
    let (_, changed) = patch("state=hold", r#"{"unpark": true}"#).await;
    assert_eq!(changed["changed"], 10);
    assert_eq!(patch("", r#"{"unpark": true}"#).await.0, 422);
    let path = "/api/v1/keys?cursor=a&sort=rate";
    assert_eq!(served.call(Method::GET, path, "").await.0, 400);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_sums_what_workers_did_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = || {
        let (store, kept) = Store::open(folder.path()).unwrap();
        Coordinator::resume(Settings::default(), store, kept).unwrap()
    };
    let served = start(coordinator(), None, Caps::default()).await;
    for (client, key) in [("a", "one.example"), ("b", "two.example")] {
        let body = json!({"client": client, "items": [{"key": key}]});
        let acquired = served.post("acquire", &body.to_string()).await;
        let permit = &acquired["items"][0]["permit"];
        let body =
            json!({"client": client, "items": [{"permit": permit, "status": 200, "bytes": 700}]});
        served.post("report", &body.to_string()).await;
    }
    served.end().await;
    let served = start(coordinator(), None, Caps::default()).await;
    let audit = served.get("/api/v1/audit?by=key&step=30d").await;
    let rows = audit["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{audit}");
    let row = &rows[0];
    assert_eq!(
        (&row["name"], &row["granted"]),
        (&json!("one.example"), &json!(1))
    );
    assert_eq!((&row["ok"], &row["bytes"]), (&json!(1), &json!(700)));
    let one = served.get("/api/v1/audit?by=worker&name=b&step=720h").await;
    assert_eq!(one["rows"].as_array().unwrap().len(), 1, "{one}");
    let path = "/api/v1/audit?step=0h";
    assert_eq!(served.call(Method::GET, path, "").await.0, 400);
    served.end().await;
}
