//! Tests of retries: the requests that are sent again, the ones that are not, and the state after a
//! dropped call.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{Empty, Full};
use politely::attempts::{Attempts, NotSent};
use politely::core::gate::HoldReason;
use politely::core::retry::{BudgetRule, Methods, Policy};
use politely::core::signal::Classifier;
use politely::layer::PoliteLayer;
use politely::{AcquireError, Key, Limiter, Signal};
use tower::{Layer, Service, ServiceExt};

use crate::support::{books, client, get, in_virtual_time, limiter, quick, service, unlimited};

fn quickly(limiter: &Limiter) -> Attempts {
    Attempts::new(limiter.clone()).policy(quick())
}

#[tokio::test]
async fn a_failing_page_is_tried_five_times_and_then_handed_over() {
    let server = unlimited().await;
    let limiter = limiter(500.0);
    let response = get(&service(quickly(&limiter)), &server.url("/status/500")).await;
    assert_eq!(response.status(), 500);
    assert_eq!(server.count(500), 5);
    assert_eq!(books(&limiter, &server), (5, 5, 0, 0));
}

#[tokio::test]
async fn what_will_not_change_is_asked_once() {
    let server = unlimited().await;
    let limiter = limiter(500.0);
    let service = service(quickly(&limiter));
    for status in [301, 400, 403, 404, 410, 501] {
        let response = get(&service, &server.url(&format!("/status/{status}"))).await;
        assert_eq!(response.status(), status);
        assert_eq!(server.count(status), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_word_on_retries_and_an_account_without_credit_are_obeyed() {
    for (status, word, body, sends) in [
        (409, "true", "", 5),
        (503, "false", "", 1),
        (429, "false", "", 1),
        (429, "", "{\"code\":\"insufficient_quota\"}", 1),
    ] {
        let inner = tower::service_fn(move |_: Request<Empty<Bytes>>| {
            let mut response = http::Response::new(Full::<Bytes>::from(body));
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            let word = http::HeaderValue::from_static(word);
            response.headers_mut().insert("x-should-retry", word);
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        let limiter = in_virtual_time(100.0, 1.0);
        let service = PoliteLayer::new(limiter.clone()).layer(inner);
        let request = Request::get("http://a.example/").body(Empty::new());
        let response = service.oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(limiter.stats().granted, sends, "{status} {word}");
    }
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    let server = unlimited().await;
    let client = client(quickly(&limiter(500.0)));
    for status in [429, 500] {
        let url = server.url(&format!("/status/{status}"));
        let response = client.post(url).body("x").send().await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(server.count(status), 1);
    }
}

#[tokio::test]
async fn a_body_that_comes_once_is_sent_once() {
    let server = unlimited().await;
    let policy = Policy {
        methods: Methods::Idempotent,
        ..quick()
    };
    let attempts = Attempts::new(limiter(500.0)).policy(policy);
    let client = client(attempts);
    let url = server.url("/status/500");
    let put = |body: reqwest::Body| client.put(&url).body(body).send();
    put(reqwest::Body::wrap(Empty::<Bytes>::new()))
        .await
        .unwrap();
    assert_eq!(server.count(500), 1);
    put("bytes can be had again".into()).await.unwrap();
    assert_eq!(server.count(500), 1 + 5);
}

#[tokio::test]
async fn a_layer_for_bodies_that_cannot_be_cloned() {
    struct NotClone(Empty<Bytes>);
    let inner = tower::service_fn(|request: Request<NotClone>| async move {
        let _ = request.into_body().0;
        let mut response = http::Response::new(Empty::<Bytes>::new());
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        Ok::<_, std::convert::Infallible>(response)
    });
    let limiter = limiter(500.0);
    let service = PoliteLayer::new(quickly(&limiter)).once().layer(inner);
    let request = Request::get("http://a.example/").body(NotClone(Empty::new()));
    let response = service.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(limiter.stats().granted, 1);
}

#[tokio::test]
async fn a_spent_budget_ends_the_retries() {
    let server = unlimited().await;
    let limiter = limiter(500.0);
    let policy = Policy {
        budget_patience: Duration::ZERO,
        ..quick()
    };
    let two = BudgetRule::new(0.0, 0.0, 2.0).unwrap();
    let attempts = Attempts::new(limiter.clone()).policy(policy);
    let service = service(attempts.budgets(two, BudgetRule::GLOBAL));
    for _ in 0..3 {
        get(&service, &server.url("/status/500")).await;
    }
    assert_eq!(server.count(500), 3 + 2);
}

#[tokio::test]
async fn a_dropped_call_gives_its_slot_back_and_keeps_its_token_spent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let limiter = limiter(1.0);
    let service = service(limiter.clone());
    let request = Request::get(&url).body(Empty::new()).unwrap();
    let call = tokio::spawn(service.clone().oneshot(request));
    // The connection is open and the server sends nothing: the request is in flight.
    let (_connection, _) = listener.accept().await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let key = Key::host(&url).unwrap();
    let known = limiter.explain(&key).unwrap();
    assert_eq!((known.tally.cancelled, known.tally.live), (1, 0));
    assert!(known.wait.is_some(), "the next waits for its own token");
}

#[tokio::test]
async fn a_call_dropped_in_the_line_takes_nothing() {
    let limiter = limiter(1.0);
    let key = Key::host("a.example").unwrap();
    limiter
        .hold(&key, Duration::from_mins(1), HoldReason::Operator)
        .unwrap();
    let service = service(limiter.clone());
    let request = Request::get("http://a.example/")
        .body(Empty::new())
        .unwrap();
    let mut call = Box::pin(service.oneshot(request));
    std::future::poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(limiter.stats().waiting, 1);
    drop(call);
    let stats = limiter.stats();
    assert_eq!((stats.waiting, stats.granted), (0, 0));
}

#[tokio::test]
async fn ready_at_once_though_a_host_is_held() {
    let limiter = limiter(1.0);
    let key = Key::host("a.example").unwrap();
    limiter
        .hold(&key, Duration::from_mins(1), HoldReason::Operator)
        .unwrap();
    let server = unlimited().await;
    let mut service = service(limiter);
    let held = Request::get("http://a.example/")
        .body(Empty::new())
        .unwrap();
    let _waits = service.call(held);
    assert_eq!(get(&service, &server.url("/")).await.status(), 200);
}

#[tokio::test]
async fn nobody_waits_for_a_parked_key() {
    let limiter = limiter(1.0);
    let key = Key::host("a.example").unwrap();
    limiter
        .hold(&key, Duration::from_hours(2), HoldReason::Operator)
        .unwrap();
    let error = client(limiter).get("http://a.example/").send().await;
    let Err(reqwest_middleware::Error::Middleware(error)) = error else {
        panic!("{error:?}")
    };
    let not_sent = error.downcast::<NotSent>().unwrap();
    let NotSent::Acquire(AcquireError::Parked(parked, left)) = not_sent else {
        panic!("{not_sent}")
    };
    assert_eq!(parked, key);
    assert!(left > Duration::from_hours(1));
}

#[tokio::test]
async fn a_request_to_nowhere_is_not_sent() {
    let limiter = limiter(1.0);
    let request = Request::get("/path").body(Empty::new()).unwrap();
    let error = service(limiter.clone()).oneshot(request).await.unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(NotSent::Key(_))),
        "{error}"
    );
    assert_eq!(limiter.stats().granted, 0);
}

#[tokio::test]
async fn a_path_is_completed_by_its_host_header() {
    let limiter = limiter(1.0);
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(Empty::<Bytes>::new()))
    });
    let request = Request::get("/path").header("host", "A.example:80");
    let service = PoliteLayer::new(limiter.clone()).layer(inner);
    service
        .oneshot(request.body(Empty::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(limiter.keys(), [Key::host("a.example").unwrap()]);
}

#[tokio::test]
async fn a_key_named_twice_does_not_wait_for_itself() {
    let server = unlimited().await;
    let mut config = politely::Config::fixed(100.0, 1.0);
    config.limits.in_flight = 1;
    let limiter = Limiter::builder().config(config).build().unwrap();
    let own = |asked: &politely::attempts::Asked<'_>| {
        assert_eq!(asked.method, Method::GET);
        Ok(vec![Key::of_url(asked.url)?, Key::of_url(asked.url)?])
    };
    let service = service(Attempts::new(limiter.clone()).keys_by(own));
    let url = server.url("/");
    let call = tokio::time::timeout(Duration::from_secs(5), get(&service, &url));
    call.await.expect("before this, it waited for itself");
    assert_eq!(books(&limiter, &server), (1, 1, 0, 0));
}

#[tokio::test]
async fn a_soft_block_in_a_body_is_a_signal() {
    let server = unlimited().await;
    let limiter = limiter(50.0);
    let classifier = Classifier::with_soft_block(|outcome| match outcome {
        politely::Outcome::Answered { body_start, .. } if body_start.ends_with(b"/slow") => {
            Some(Signal::Blocked)
        }
        _ => None,
    });
    let service = service(Attempts::new(limiter.clone()).classifier(classifier));
    let response = get(&service, &server.url("/slow")).await;
    assert_eq!(&response.body()[..], b"GET /slow", "read from its start");
    assert_eq!(server.count(200), 1, "a shut door is not knocked at again");
    let key = Key::host(&server.url("/")).unwrap();
    assert!(limiter.explain(&key).unwrap().event.is_some());
}

/// P11: one page that is always refused costs the other pages one Retry-After, through the layer
/// too.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the runtime is virtual"
)]
#[tokio::test(start_paused = true)]
async fn a_refused_page_waits_alone() {
    let inner = tower::service_fn(|request: Request<Empty<Bytes>>| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut response = http::Response::new(Empty::<Bytes>::new());
        if request.uri().path() == "/bad" {
            *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            let wait = http::HeaderValue::from_static("2");
            response.headers_mut().insert("retry-after", wait);
        }
        Ok::<_, std::convert::Infallible>(response)
    });
    let limiter = in_virtual_time(10.0, 1.0);
    let service = PoliteLayer::new(limiter).layer(inner);
    let call = |path: String| {
        let url = format!("http://a.example{path}");
        let request = Request::get(url).body(Empty::new()).unwrap();
        service.clone().oneshot(request)
    };
    let refused = tokio::spawn(call("/bad".to_owned()));
    let began = tokio::time::Instant::now();
    let pages: Vec<_> = (0..100)
        .map(|page| tokio::spawn(call(format!("/{page}"))))
        .collect();
    for page in pages {
        assert_eq!(page.await.unwrap().unwrap().status(), 200);
    }
    // The time allows for a hundred departures at ten per second, one hold, and the retries of the
    // refused page.
    let took = began.elapsed();
    assert!(
        took < Duration::from_millis(10_000 + 2_200 + 1_000),
        "{took:?}"
    );
    refused.abort();
}

/// The server refuses a second search within a minute. Other pages have their own quota.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_host_whose_quota_is_spent_waits_alone() {
    let inner = tower::service_fn(|request: Request<Empty<Bytes>>| async move {
        let mut response = http::Response::new(Empty::<Bytes>::new());
        if request.uri().path() == "/search" {
            if request.uri().query() == Some("refused") {
                *response.status_mut() = http::StatusCode::FORBIDDEN;
            }
            for (name, value) in [
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "60"),
                ("x-ratelimit-resource", "search"),
            ] {
                let value = http::HeaderValue::from_static(value);
                response.headers_mut().insert(name, value);
            }
        }
        Ok::<_, std::convert::Infallible>(response)
    });
    for first in ["served", "refused"] {
        let limiter = in_virtual_time(1_000.0, 100.0);
        let attempts = Attempts::new(limiter).policy(Policy {
            attempts_max: 1,
            ..Policy::job_scraper()
        });
        let service = PoliteLayer::new(attempts).layer(inner);
        let began = politely::Clock::tokio();
        let call = async |path: &str| {
            let url = format!("http://a.example{path}");
            let request = Request::get(url).body(Empty::new()).unwrap();
            service.clone().oneshot(request).await.unwrap();
            began.now()
        };
        let begin = call(&format!("/search?{first}")).await;
        let page = call("/page").await;
        assert!(page.since(begin) < Duration::from_secs(1), "{page:?}");
        let search = call("/search?more").await;
        assert!(search.since(begin) >= Duration::from_mins(1), "{search:?}");
    }
}

/// A server that restarts answers 502 for two minutes, and one page answers 502 for ever.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the runtime is virtual"
)]
#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_page_and_a_bad_page_ends() {
    let began = tokio::time::Instant::now();
    let inner = tower::service_fn(move |request: Request<Empty<Bytes>>| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut response = http::Response::new(Empty::<Bytes>::new());
        let is_away = (1..120).contains(&began.elapsed().as_secs());
        if is_away || request.uri().path() == "/bad" {
            *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        }
        Ok::<_, std::convert::Infallible>(response)
    });
    let limiter = in_virtual_time(10.0, 1.0);
    let service = PoliteLayer::new(limiter.clone()).layer(inner);
    let call = |path: String| {
        let url = format!("http://a.example{path}");
        let request = Request::get(url).body(Empty::new()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    };
    let pages: Vec<_> = (0..50).map(|page| call(format!("/{page}"))).collect();
    let bad = call("/bad".to_owned());
    for page in pages {
        assert_eq!(page.await.unwrap().unwrap().status(), 200);
    }
    // Others go on, so the bad page is at fault.
    for page in 0..600 {
        assert_eq!(
            call(format!("/later/{page}"))
                .await
                .unwrap()
                .unwrap()
                .status(),
            200
        );
    }
    assert_eq!(bad.await.unwrap().unwrap().status(), 502);
    let granted = limiter.stats().granted;
    assert!(granted < 650 + 200, "{granted} requests");
}

/// RFC 9110, section 10.2.3: the wait that a redirect names is for its target alone.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the runtime is virtual"
)]
#[tokio::test(start_paused = true)]
async fn a_redirects_retry_after_delays_its_target() {
    let inner = tower::service_fn(|request: Request<Empty<Bytes>>| async move {
        let mut response = http::Response::new(Empty::<Bytes>::new());
        if request.uri().path() == "/old" {
            *response.status_mut() = http::StatusCode::FOUND;
            for (name, value) in [("location", "/new#part"), ("retry-after", "7")] {
                let value = http::HeaderValue::from_static(value);
                response.headers_mut().insert(name, value);
            }
        }
        Ok::<_, std::convert::Infallible>(response)
    });
    let limiter = in_virtual_time(100.0, 10.0);
    let service = PoliteLayer::new(limiter).layer(inner);
    let call = async |path: &str| {
        let began = tokio::time::Instant::now();
        let url = format!("http://a.example{path}");
        let request = Request::get(url).body(Empty::new()).unwrap();
        let status = service.clone().oneshot(request).await.unwrap().status();
        (status.as_u16(), began.elapsed().as_secs())
    };
    assert_eq!(call("/new").await, (200, 0));
    assert_eq!(call("/old").await, (302, 0));
    assert_eq!(call("/other").await, (200, 0));
    assert_eq!(call("/new").await, (200, 7));
    assert_eq!(call("/new").await, (200, 0));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the runtime is virtual"
)]
#[tokio::test(start_paused = true)]
async fn without_a_network_requests_wait_and_no_host_is_blamed() {
    let is_down = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU32::new(0));
    let (down, count) = (Arc::clone(&is_down), Arc::clone(&sent));
    let inner = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(if down.load(Ordering::Relaxed) {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        } else {
            Ok(http::Response::new(Full::<Bytes>::from("page")))
        })
    });
    let limiter = in_virtual_time(100.0, 1.0);
    let service = PoliteLayer::new(limiter.clone()).layer(inner);
    let page = |host: &str| {
        let request = Request::get(format!("http://{host}/")).body(Empty::new());
        service.clone().oneshot(request.unwrap())
    };
    let hosts = ["a.example", "b.example", "c.example", "d.example"];
    for host in hosts {
        page(host).await.unwrap();
    }
    is_down.store(true, Ordering::Relaxed);
    let back = async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        is_down.store(false, Ordering::Relaxed);
    };
    let pages = hosts.map(|host| tokio::spawn(page(host)));
    back.await;
    for page in pages {
        assert_eq!(page.await.unwrap().unwrap().status(), 200);
    }
    let sent = sent.load(Ordering::Relaxed);
    assert!(
        (24..=36).contains(&sent),
        "one probe every three seconds: {sent}"
    );
    let rate = limiter.rate(&Key::host("d.example").unwrap());
    assert_eq!(rate, Some(100.0));
}
