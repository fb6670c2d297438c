//! Thirty requests through each client integration, to a server that enforces its limit.

use std::time::Duration;

use politely::core::signal::classify;
use politely::{Key, Limiter, Outcome, Signal};
use politely_target::{HostSpec, LimitSpec, RetryAfter, Signals, Target, Town};

use crate::server::{Limit, Server};
use crate::support::{client, get, limiter, service};

const PAGES: u32 = 30;

/// Maximum number of refusals. The first one shows the limit, and more may come from requests in
/// flight.
const FEW: u64 = 3;

async fn limited() -> (Target, Vec<String>, Limiter) {
    let limit = LimitSpec::TokenBucket {
        rate: 40.0,
        burst: 4,
    };
    let mut host = HostSpec::new("shop", limit);
    host.pages = PAGES;
    host.signals = Signals {
        retry_after: RetryAfter::Seconds,
        ..Signals::default()
    };
    let target = Target::start(Town::new(vec![host])).await.unwrap();
    let urls = target.hosts()[0].page_urls().collect();
    (target, urls, limiter(30.0))
}

/// Compares the limiter's counts with the requests that the server received.
fn judge(target: Target, urls: &[String], limiter: &Limiter) {
    let key = Key::host(&urls[0]).unwrap();
    let tally = limiter.explain(&key).unwrap().tally;
    let seen = target.shutdown().hosts.remove(0);
    assert_eq!(
        (seen.pages, seen.duplicates),
        (u64::from(PAGES), 0),
        "none lost"
    );
    assert_eq!(seen.accepted + seen.refused, seen.arrivals);
    assert!(seen.refused <= FEW, "{} refused", seen.refused);
    assert_eq!(seen.during_hold, 0, "no Retry-After undercut");
    assert_eq!(
        (tally.granted, tally.reported, tally.live),
        (seen.arrivals, seen.arrivals, 0)
    );
}

#[tokio::test]
async fn through_the_layer() {
    let (target, urls, limiter) = limited().await;
    let service = service(limiter.clone());
    let tasks = urls.iter().cloned().map(|url| {
        let service = service.clone();
        tokio::spawn(async move { get(&service, &url).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap().status(), 200);
    }
    judge(target, &urls, &limiter);
}

#[tokio::test]
async fn through_the_client() {
    let (target, urls, limiter) = limited().await;
    let client = client(limiter.clone());
    let tasks = urls.iter().cloned().map(|url| {
        let client = client.clone();
        tokio::spawn(async move {
            let response = client.get(&url).send().await.unwrap();
            assert_eq!(response.url().as_str(), url);
            assert!(response.remote_addr().is_some(), "the extensions are kept");
            assert!(response.content_length().is_some(), "and the length");
            response.bytes().await.unwrap()
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert!(!task.await.unwrap().is_empty());
    }
    judge(target, &urls, &limiter);
}

#[tokio::test]
async fn through_the_library() {
    let (target, urls, limiter) = limited().await;
    crate::server::tls_provider();
    let inner = reqwest::Client::builder().no_proxy().build().unwrap();
    for url in &urls {
        let key = Key::host(url).unwrap();
        loop {
            let permit = limiter.acquire(&key).await.unwrap();
            let response = inner.get(url).send().await.unwrap();
            let outcome = Outcome::Answered {
                status: response.status(),
                headers: response.headers(),
                body_start: &[],
            };
            let report = classify(&outcome, politely::wall_clock(), Duration::ZERO, 0);
            permit.report(&report);
            if report.signal == Signal::Ok {
                break;
            }
        }
    }
    judge(target, &urls, &limiter);
}

#[tokio::test]
async fn a_retry_after_is_never_undercut() {
    let limit = Limit {
        rate: 1.0,
        burst: 3.0,
        retry_after: Some(1),
    };
    let server = Server::start(limit).await.unwrap();
    let limiter = limiter(50.0);
    let service = service(limiter.clone());
    for _ in 0..4 {
        assert_eq!(get(&service, &server.url("/")).await.status(), 200);
    }
    let arrivals = server.arrivals();
    assert_eq!(server.count(200), 4);
    let refused = arrivals.iter().position(|one| one.status == 429).unwrap();
    let next = &arrivals[refused + 1];
    assert!(next.at - arrivals[refused].at >= Duration::from_secs(1));
}

#[tokio::test]
async fn the_cap_counts_bodies_that_are_still_coming() {
    let server = crate::support::unlimited().await;
    let mut config = politely::Config::fixed(1000.0, 100.0);
    config.limits.in_flight = 2;
    let limiter = Limiter::builder().config(config).build().unwrap();
    let (client, service) = (client(limiter.clone()), service(limiter.clone()));
    let tasks = (0..12).map(|i| {
        let (client, service, url) = (client.clone(), service.clone(), server.url("/slow"));
        tokio::spawn(async move {
            if i % 2 == 0 {
                client.get(url).send().await.unwrap().text().await.unwrap();
            } else {
                get(&service, &url).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(server.count(200), 12);
    assert!(server.in_flight_peak() <= 2, "{}", server.in_flight_peak());
}
