//! A host that takes more requests than a timer of a millisecond can space.

#![expect(clippy::disallowed_methods, reason = "a real server runs in real time")]

use std::time::Duration;

use politely::Key;

use crate::support::{get, limiter, service, unlimited};

/// The rate that the law must find, in requests per second. A wait of a millisecond is two
/// intervals at this rate.
const FOUND: f64 = 2_000.0;
/// Ends the test if the law has stopped climbing.
const GIVE_UP: Duration = Duration::from_mins(2);

/// Regression: a waiting request that its timer woke late counted as missing demand, and the law
/// stopped at some 700 requests a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_law_climbs_to_thousands_a_second_at_an_open_host() {
    let server = unlimited().await;
    let limiter = limiter(30.0);
    let service = service(limiter.clone());
    let url = server.url("/");
    let key = Key::host(&url).unwrap();
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let (service, url) = (service.clone(), url.clone());
            tokio::spawn(async move {
                loop {
                    assert_eq!(get(&service, &url).await.status(), 200);
                }
            })
        })
        .collect();
    let found = async {
        while limiter.rate(&key).is_none_or(|rate| rate < FOUND) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let end = tokio::time::timeout(GIVE_UP, found).await;
    for caller in &callers {
        assert!(!caller.is_finished(), "a request failed");
        caller.abort();
    }
    assert!(end.is_ok(), "{:?} requests a second", limiter.rate(&key));
}
