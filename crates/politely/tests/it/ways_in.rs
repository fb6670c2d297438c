//! Thirty requests through each way in, to a server that means its limit.

use std::time::Duration;

use politely::core::signal::classify;
use politely::{Key, Limiter, Outcome, Signal};

use crate::server::{Limit, Server};
use crate::support::{books, client, get, limiter, service};

const REQUESTS: usize = 30;

/// Refusals that are few: the first tells the limit, a second may come of what was under way.
const FEW: usize = 3;

async fn limited() -> (Server, Limiter) {
    let limit = Limit {
        rate: 40.0,
        burst: 4.0,
        retry_after: Some(1),
    };
    (Server::start(limit).await.unwrap(), limiter(30.0))
}

fn judge(server: &Server, limiter: &Limiter) {
    assert_eq!(server.count(200), REQUESTS, "none lost");
    assert!(server.count(429) <= FEW, "{} refused", server.count(429));
    let arrivals = server.arrivals().len() as u64;
    assert_eq!(books(limiter, server), (arrivals, arrivals, 0, 0));
}

#[tokio::test]
async fn through_the_layer() {
    let (server, limiter) = limited().await;
    let service = service(limiter.clone());
    let tasks = (0..REQUESTS).map(|page| {
        let (service, url) = (service.clone(), server.url(&format!("/{page}")));
        tokio::spawn(async move { get(&service, &url).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap().status(), 200);
    }
    judge(&server, &limiter);
}

#[tokio::test]
async fn through_the_client() {
    let (server, limiter) = limited().await;
    let client = client(limiter.clone());
    let tasks = (0..REQUESTS).map(|page| {
        let (client, url) = (client.clone(), server.url(&format!("/{page}")));
        tokio::spawn(async move {
            let response = client.get(&url).send().await.unwrap();
            assert_eq!(response.url().as_str(), url);
            assert!(response.remote_addr().is_some(), "the extensions are kept");
            response.text().await.unwrap()
        })
    });
    for (page, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), format!("GET /{page}"));
    }
    judge(&server, &limiter);
}

#[tokio::test]
async fn through_the_library() {
    let (server, limiter) = limited().await;
    let key = Key::host(&server.url("/")).unwrap();
    crate::server::tls_provider();
    let inner = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut pages = 0;
    while pages < REQUESTS {
        let permit = limiter.acquire(&key).await.unwrap();
        let response = inner.get(server.url("/")).send().await.unwrap();
        let outcome = Outcome::Answered {
            status: response.status(),
            headers: response.headers(),
            body_start: &[],
        };
        let report = classify(&outcome, politely::wall_clock(), Duration::ZERO, 0);
        pages += usize::from(report.signal == Signal::Ok);
        permit.report(&report);
    }
    judge(&server, &limiter);
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
