//! The judge's best possible time against a client that tries all the time.

use std::time::Duration;

use politely_target::{HostReport, HostSpec, LimitSpec, Record, Service, Target, Town, Verdict};

use crate::client::Client;

const PAGES: u32 = 24;

/// Small limits of each kind, so that 24 pages take about half a second.
fn town() -> Town {
    let bucket = LimitSpec::TokenBucket {
        rate: 50.0,
        burst: 3,
    };
    let limits = [
        ("bucket", bucket.clone()),
        (
            "aligned",
            LimitSpec::FixedWindow {
                count: 5,
                window_s: 0.1,
                aligned: true,
            },
        ),
        (
            "first-hit",
            LimitSpec::FixedWindow {
                count: 5,
                window_s: 0.1,
                aligned: false,
            },
        ),
        (
            "log",
            LimitSpec::SlidingLog {
                count: 5,
                window_s: 0.1,
            },
        ),
        (
            "counter",
            LimitSpec::SlidingCounter {
                count: 5,
                window_s: 0.1,
            },
        ),
        (
            "delay",
            LimitSpec::Leaky {
                rate: 50.0,
                queue: 4,
                nodelay: false,
            },
        ),
        (
            "nodelay",
            LimitSpec::Leaky {
                rate: 50.0,
                queue: 4,
                nodelay: true,
            },
        ),
        ("reject", LimitSpec::ConcurrencyReject { slots: 2 }),
        ("queue", LimitSpec::ConcurrencyQueue { slots: 2, queue: 3 }),
        (
            "all",
            LimitSpec::All {
                of: vec![bucket.clone(), LimitSpec::ConcurrencyReject { slots: 3 }],
            },
        ),
        (
            "steps",
            LimitSpec::Steps {
                at: vec![(0.0, bucket), (0.2, LimitSpec::None {})],
            },
        ),
        ("none", LimitSpec::None {}),
    ];
    let host = |(name, limit)| {
        let mut host = HostSpec::new(name, limit);
        host.pages = PAGES;
        host.service = Service {
            mean_ms: 10.0,
            cv: 0.0,
        };
        host
    };
    Town::new(limits.into_iter().map(host).collect())
}

#[tokio::test]
async fn a_client_that_tries_all_the_time_gets_every_page_and_never_beats_the_best_time() {
    let target = Target::start_with(town(), Record::Memory).await.unwrap();
    let mut clients = Vec::new();
    for host in target.hosts() {
        // Four connections a host share its pages.
        for first in 0..4 {
            let addr = host.addr;
            clients.push(tokio::spawn(async move {
                let mut client = Client::connect(addr).await;
                for page in (first..PAGES).step_by(4) {
                    while client.get(&format!("/page/{page}")).await.status != 200 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
            }));
        }
    }
    for client in clients {
        client.await.unwrap();
    }
    // Each delayed request stayed as long as the model says for its arrival, and worked on
    // afterwards.
    let mut entries = target.entries("delay");
    entries.sort_by_key(|entry| entry.arrived_us);
    let mut fresh = LimitSpec::Leaky {
        rate: 50.0,
        queue: 4,
        nodelay: false,
    }
    .build()
    .unwrap();
    for entry in &entries {
        let Verdict::Serve { after } = fresh.arrive(entry.arrived()) else {
            panic!("{entry:?}")
        };
        let stayed = Duration::from_micros(entry.departed_us - entry.arrived_us);
        assert!(
            stayed >= after + Duration::from_millis(10),
            "{entry:?} {after:?}"
        );
    }

    let report = target.shutdown();
    for row in &report.hosts {
        let HostReport {
            host,
            pages,
            accepted,
            took_s,
            best_s,
            ..
        } = row;
        assert_eq!(
            (*pages, *accepted),
            (u64::from(PAGES), u64::from(PAGES)),
            "{host}"
        );
        assert!(
            took_s.unwrap() >= best_s.unwrap(),
            "{host} was served faster than possible"
        );
    }
}
