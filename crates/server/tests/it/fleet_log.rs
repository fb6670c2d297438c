//! Tests of what the coordinators of a fleet tell one another: events, and counts of the audit.

#![expect(
    clippy::disallowed_methods,
    reason = "they look again until a coordinator has caught up"
)]

use std::sync::Arc;

use politely::Clock;
use politely::cells::Memory;
use politely::store::Unavailable;
use politely_server::{Caps, Coordinator, Settings};
use reqwest::Method;
use serde_json::json;

use crate::client::{Served, start};

fn shared(memory: &Memory) -> Coordinator {
    let engine = Arc::new(memory.clone());
    let shared = Coordinator::shared(Settings::default(), engine, Unavailable::Closed, None);
    shared.unwrap().share_log(Arc::new(memory.clone()))
}

async fn fleet<const N: usize>() -> [Served; N] {
    let memory = Memory::new(Clock::system());
    let mut fleet = Vec::new();
    for _ in 0..N {
        fleet.push(start(shared(&memory), None, Caps::default()).await);
    }
    fleet.try_into().ok().unwrap()
}

/// A reader of the stream of events.
struct Reader {
    stream: reqwest::Response,
    rest: String,
    /// The id of the last event that was read.
    id: String,
}

impl Reader {
    async fn open(served: &Served, last_event_id: Option<&str>) -> Self {
        let mut request = served.http.get(served.url("/api/v1/events"));
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let stream = request.send().await.unwrap();
        assert_eq!(stream.status(), 200);
        Self {
            stream,
            rest: String::new(),
            id: String::new(),
        }
    }

    /// Reads events until `count` of them are changes of operators. Returns their keys.
    async fn operated(&mut self, count: usize) -> Vec<String> {
        let mut keys = Vec::new();
        while keys.len() < count {
            let Some((event, rest)) = self.rest.split_once("\n\n") else {
                let chunk = self
                    .stream
                    .chunk()
                    .await
                    .unwrap()
                    .expect("the stream goes on");
                self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
                continue;
            };
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            if field("event: ") == Some("operator") {
                let data: serde_json::Value =
                    serde_json::from_str(field("data: ").unwrap()).unwrap();
                keys.push(data["key"].as_str().unwrap().to_owned());
                field("id: ").unwrap().clone_into(&mut self.id);
            }
            let read = self.rest.len() - rest.len();
            self.rest.drain(..read);
        }
        keys
    }
}

/// Changes a key, which is one event.
async fn operate(served: &Served, key: &str) {
    let path = format!("/api/v1/keys/{key}");
    let (status, said) = served.call(Method::PATCH, &path, r#"{"rate": 2.0}"#).await;
    assert_eq!(status, 200, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_all_coordinators_read_the_same_events_in_the_same_order() {
    let served = fleet::<3>().await;
    // The log is joined soon after the start.
    let mut readers = Vec::new();
    for one in &served {
        readers.push(Reader::open(one, None).await);
    }
    let changes = (0..30).map(async |number| {
        operate(&served[number % 3], &format!("k{number}.example")).await;
    });
    futures_util::future::join_all(changes).await;
    let first = readers[0].operated(30).await;
    for reader in &mut readers[1..] {
        assert_eq!(reader.operated(30).await, first);
    }
    let mut sorted = first.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 30, "no event is lost or comes twice");
    // A reader continues at another coordinator.
    let [_, two, _] = &served;
    let mut again = Reader::open(&served[0], None).await;
    operate(two, "later.example").await;
    assert_eq!(again.operated(1).await, ["later.example"]);
    let mut moved = Reader::open(two, Some(&readers[0].id)).await;
    assert_eq!(moved.operated(1).await, ["later.example"]);
    assert_eq!(moved.id, again.id);
    for one in served {
        one.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_key_keep_their_order() {
    let [one, two] = fleet().await;
    let mut reader = Reader::open(&two, None).await;
    let mut expected = Vec::new();
    for number in 0..40 {
        let key = format!("k{number}.example");
        operate(&one, &key).await;
        expected.push(key);
    }
    assert_eq!(reader.operated(40).await, expected);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_is_the_sum_of_all_coordinators() {
    let [one, two] = fleet().await;
    let granted = 3;
    for (number, served) in [&one, &two, &one].into_iter().enumerate() {
        let item = json!({"key": format!("k{number}.example")});
        let body = json!({"client": "w", "items": [item], "wait_ms": 20_000});
        let acquired = served.post("acquire", &body.to_string()).await;
        assert_eq!(acquired["items"][0]["status"], "granted", "{acquired}");
    }
    let expected = json!([["w", granted]]);
    for served in [&one, &two] {
        loop {
            let audit = served.get("/api/v1/audit?by=worker&step=1d").await;
            let rows = audit["rows"].as_array().unwrap().iter();
            let rows: Vec<_> = rows
                .map(|row| json!([row["name"], row["granted"]]))
                .collect();
            if json!(rows) == expected {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    // What the last coordinator counted before its end is not lost.
    let body = json!({"client": "w", "items": [{"key": "other.example"}], "wait_ms": 5_000});
    one.post("acquire", &body.to_string()).await;
    one.end().await;
    let audit = two.get("/api/v1/audit?by=key&name=other.example").await;
    assert_eq!(audit["rows"][0]["granted"], 1, "{audit}");
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_counted_over_all_coordinators_and_blocks_apart() {
    let [one, two] = fleet().await;
    for (served, status, signal) in [(&one, 200, "ok"), (&two, 403, "blocked")] {
        let item = json!({"key": "a.example"});
        let body = json!({"client": "w", "items": [item], "wait_ms": 20_000});
        let acquired = served.post("acquire", &body.to_string()).await;
        let permit = &acquired["items"][0]["permit"];
        let told = json!({"permit": permit, "status": status, "meaning": {"signal": signal}});
        let body = json!({"client": "w", "items": [told]});
        let reported = served.post("report", &body.to_string()).await;
        assert_eq!(reported["items"][0]["error"], json!(null), "{reported}");
    }
    let expected = json!({
        "hours": 24,
        "answers": 2,
        "statuses": {"200": 1, "403": 1},
        "signals": {"ok": 1, "blocked": 1},
    });
    for served in [&one, &two] {
        while served.get("/api/v1/answers?key=a.example").await != expected {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_kept_shown_and_removed_at_all_coordinators() {
    let [one, two] = fleet().await;
    let path = "/api/v1/keys/a.example";
    let patch = async |body: &str| one.call(Method::PATCH, path, body).await;
    let (status, said) = patch(r#"{"rate": 2.0, "metadata": {"owner": "ann"}}"#).await;
    assert_eq!(status, 200, "{said}");
    let ann = json!({"owner": "ann"});
    for served in [&one, &two] {
        assert_eq!(served.get(path).await["limits"]["metadata"], ann);
        let table = served.get("/api/v1/keys?prefix=a.&sort=name").await;
        assert_eq!(table["keys"][0]["set"]["metadata"], ann, "{table}");
    }
    let (status, said) = patch(r#"{"metadata": null}"#).await;
    assert_eq!(status, 200, "{said}");
    let limits = &two.get(path).await["limits"];
    assert_eq!(limits["metadata"], serde_json::Value::Null, "{limits}");
    let many = json!({"metadata": {"text": "x".repeat(5_000)}});
    let (status, said) = patch(&many.to_string()).await;
    assert_eq!(
        (status.as_u16(), &said["field"]),
        (422, &json!("metadata")),
        "{said}"
    );
    one.end().await;
    two.end().await;
}
