//! The judge's counts are the client's counts.

use politely_target::{FaultSpec, HostSpec, Kind, LimitSpec, Record, Target, Town, arrivals_above};

use crate::client::Client;

fn host(name: &str, limit: LimitSpec) -> HostSpec {
    HostSpec::new(name, limit)
}

#[tokio::test]
async fn accepted_refused_and_duplicates_are_the_clients_counts() {
    let limit = LimitSpec::FixedWindow {
        count: 7,
        window_s: 3600.0,
        aligned: false,
    };
    let target = Target::start_with(Town::new(vec![host("window", limit)]), Record::Memory)
        .await
        .unwrap();
    let mut client = Client::connect(target.hosts()[0].addr).await;
    let mut statuses = Vec::new();
    for path in [
        "/",
        "/page/1",
        "/page/2",
        "/page/1",
        "/robots.txt",
        "/page/150",
        "/page/149",
        "/page/3",
        "/",
    ] {
        statuses.push(client.get(path).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 404, 404, 200, 429, 429]);
    let entries = target.entries("window");
    let report = target.shutdown();
    let row = report.host("window").unwrap();
    assert_eq!((row.arrivals, row.accepted, row.refused), (9, 7, 2));
    assert_eq!((row.pages, row.duplicates), (3, 1));
    assert_eq!(
        row.in_flight_max, 1,
        "one connection, one request at a time"
    );
    assert_eq!(row.best_s, Some(0.0));
    assert!(row.took_s.unwrap() >= 0.0 && row.gap_min_ms.is_some());
    assert_eq!(
        entries
            .iter()
            .filter(|entry| entry.kind == Kind::Refused)
            .count(),
        2
    );
    assert!(
        entries
            .windows(2)
            .all(|pair| pair[0].departed_us <= pair[1].arrived_us)
    );
}

#[tokio::test]
async fn forty_clients_at_once_are_counted_one_by_one() {
    let limit = LimitSpec::TokenBucket {
        rate: 50.0,
        burst: 20,
    };
    let noise = FaultSpec::Noise {
        share: 0.2,
        status: 500,
    };
    let mut spec = host("bucket", limit);
    spec.faults = vec![noise];
    let target = Target::start_with(Town::new(vec![spec]), Record::Memory)
        .await
        .unwrap();
    let addr = target.hosts()[0].addr;
    let clients: Vec<_> = (0..40)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = Client::connect(addr).await;
                let mut counts = [0_u64; 3];
                for page in 0..25 {
                    match client.get(&format!("/page/{page}")).await.status {
                        200 => counts[0] += 1,
                        429 => counts[1] += 1,
                        500 => counts[2] += 1,
                        other => panic!("{other}"),
                    }
                }
                counts
            })
        })
        .collect();
    let mut sums = [0; 3];
    for client in clients {
        let counts = client.await.unwrap();
        sums.iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    let entries = target.entries("bucket");
    let report = target.shutdown();
    let row = &report.hosts[0];
    assert_eq!([row.accepted, row.refused, row.failed], sums);
    assert_eq!(row.arrivals, 1000);
    assert!(row.in_flight_max <= 40);
    // The limit held on the socket as it does in the model.
    let charged = entries
        .iter()
        .filter(|entry| entry.kind != Kind::Refused)
        .map(politely_target::Entry::arrived);
    let mut charged: Vec<_> = charged.collect();
    charged.sort_unstable();
    assert!(arrivals_above(charged, 50.0) <= 20.0 + 1e-6);
}

#[tokio::test]
async fn every_request_is_a_line_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.jsonl");
    let limit = LimitSpec::SlidingLog {
        count: 2,
        window_s: 60.0,
    };
    let target = Target::start_with(
        Town::new(vec![host("log", limit)]),
        Record::File(path.clone()),
    )
    .await
    .unwrap();
    let mut client = Client::connect(target.hosts()[0].addr).await;
    for page in 0..3 {
        client.get(&format!("/page/{page}")).await;
    }
    target.shutdown();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["accepted", "accepted", "refused"]);
    assert_eq!(
        (&lines[2]["host"], &lines[2]["page"]),
        (&"log".into(), &2.into())
    );
}

#[tokio::test]
async fn the_same_page_has_the_same_bytes_and_the_asked_for_size() {
    let mut spec = host("pages", LimitSpec::None {});
    spec.page_bytes = 5000;
    let target = Target::start(Town::new(vec![spec])).await.unwrap();
    let mut client = Client::connect(target.hosts()[0].addr).await;
    let first = client.get("/page/7").await.body;
    assert_eq!(first.len(), 5000);
    assert_eq!(client.get("/page/7").await.body, first);
    assert_ne!(client.get("/page/8").await.body, first);
    assert_eq!(client.get("/").await.body.matches("<a href").count(), 150);
}
