//! Tests of terms: the longest wait of a request, and the end of one that waited for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use politely::Key;
use politely::attempts::{NotSent, Terms, Waited};
use politely::layer::PoliteLayer;
use tower::{Layer, ServiceExt};

use crate::support::in_virtual_time;

#[tokio::test(start_paused = true)]
async fn a_request_waits_as_long_as_its_terms_allow_and_the_end_says_why() {
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| {
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(
            Empty::<Bytes>::new(),
        )))
    });
    let limiter = in_virtual_time(0.1, 1.0);
    let service = PoliteLayer::new(limiter.clone()).layer(inner);
    let get = |wait_max: u64| {
        let mut request = Request::get("http://a.example/")
            .body(Empty::new())
            .unwrap();
        request.extensions_mut().insert(Terms {
            wait_max: Some(Duration::from_secs(wait_max)),
            ..Terms::default()
        });
        service.clone().oneshot(request)
    };
    let waited = |response: &http::Response<_>| response.extensions().get::<Waited>().cloned();
    let first = waited(&get(0).await.unwrap()).unwrap();
    assert_eq!((first.length, first.reason), (Duration::ZERO, None));
    let late = get(4).await.unwrap_err();
    let Some(NotSent::Late(late)) = late.downcast_ref() else {
        panic!("{late}")
    };
    assert_eq!(late.key, Key::host("a.example").unwrap());
    assert_eq!(late.length.as_secs(), 4);
    assert_eq!(late.again.unwrap().as_millis().div_ceil(1_000), 6);
    assert_eq!(late.reason.as_deref(), Some("waits 6.0 s: pace"));
    let third = waited(&get(60).await.unwrap()).unwrap();
    assert_eq!(third.length.as_millis().div_ceil(1_000), 6);
    assert!(third.reason.unwrap().ends_with(": pace"));
    assert_eq!(limiter.stats().granted, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_outlasts_the_terms_goes_to_the_caller_at_once() {
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| {
        let mut response = http::Response::new(Empty::<Bytes>::new());
        *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        let after = http::HeaderValue::from_static("30");
        response.headers_mut().insert("retry-after", after);
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let limiter = in_virtual_time(100.0, 1.0);
    let service = PoliteLayer::new(limiter.clone()).layer(inner);
    let mut request = Request::get("http://a.example/")
        .body(Empty::new())
        .unwrap();
    request.extensions_mut().insert(Terms {
        wait_max: Some(Duration::from_secs(20)),
        ..Terms::default()
    });
    let began = limiter.now();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(limiter.now().since(began) < Duration::from_secs(1));
    assert_eq!(limiter.stats().granted, 1);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server is slow in virtual time"
)]
#[tokio::test(start_paused = true)]
async fn the_time_of_an_attempt_is_no_wait_of_its_request() {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let inner = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let count = Arc::clone(&count);
        async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            let mut response = http::Response::new(Empty::<Bytes>::new());
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let service = PoliteLayer::new(in_virtual_time(100.0, 1.0)).layer(inner);
    let mut request = Request::get("http://a.example/")
        .body(Empty::new())
        .unwrap();
    request.extensions_mut().insert(Terms {
        wait_max: Some(Duration::from_secs(30)),
        ..Terms::default()
    });
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(sent.load(Ordering::Relaxed), 2);
    let waited = response.extensions().get::<Waited>().unwrap();
    assert!(waited.length < Duration::from_secs(30), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_twice_names_the_longer_wait() {
    let sent = Arc::new(AtomicU32::new(0));
    let inner = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let mut response = http::Response::new(Empty::<Bytes>::new());
        let after = ["50", "2"].get(sent.fetch_add(1, Ordering::Relaxed) as usize);
        if let Some(after) = after {
            *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            let after = http::HeaderValue::from_static(after);
            response.headers_mut().insert("retry-after", after);
        }
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let service = PoliteLayer::new(in_virtual_time(100.0, 1.0)).layer(inner);
    let mut request = Request::get("http://a.example/")
        .body(Empty::new())
        .unwrap();
    request.extensions_mut().insert(Terms::default());
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let waited = response.extensions().get::<Waited>().unwrap();
    assert!(waited.length >= Duration::from_secs(52), "{waited}");
    assert!(
        waited.reason.as_ref().unwrap().starts_with("waits 5"),
        "{waited}"
    );
}
