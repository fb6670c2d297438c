//! Tests of redirects: every hop is a request of its own, to its own host, without the secrets of
//! other hosts.

use std::time::Duration;

use politely::middleware::PoliteMiddleware;
use politely::redirect::{HOPS_MAX, RedirectError};
use politely::{Config, Limiter};

use crate::support::{books, client, limiter, unlimited};

#[tokio::test]
async fn every_hop_is_paced_under_its_own_key() {
    let (old, new) = (unlimited().await, unlimited().await);
    let limiter = Limiter::builder().config(Config::fixed(20.0, 1.0)).build();
    let limiter = limiter.unwrap();
    let client = client(limiter.clone());
    let chain = format!("/to/{}", old.url(&format!("/to/{}", new.url("/page"))));
    let response = client.get(old.url(&chain)).send().await.unwrap();
    assert_eq!(response.url().as_str(), new.url("/page"));
    assert_eq!(response.text().await.unwrap(), "GET /page");
    assert_eq!(books(&limiter, &old), (2, 2, 0, 0));
    assert_eq!(books(&limiter, &new), (1, 1, 0, 0));
    let hops = old.arrivals();
    assert!(hops[1].at - hops[0].at >= Duration::from_millis(45));
}

/// Starts a server that redirects to the same URL `times` times and then serves the page. Returns
/// the URL.
async fn redirects_to_itself(times: usize) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("http://{}/", listener.local_addr().unwrap());
    let to = here.clone();
    tokio::spawn(async move {
        for visit in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let status = if visit < times { "302 Found" } else { "200 OK" };
            let answer = format!(
                "HTTP/1.1 {status}\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            crate::failures::answer_raw(&mut stream, answer.as_bytes()).await;
        }
    });
    here
}

/// Regression: a page that sets a cookie and redirects to itself counted as a loop.
#[tokio::test]
async fn once_back_is_no_loop() {
    let here = redirects_to_itself(1).await;
    let response = client(limiter(500.0)).get(&here).send().await.unwrap();
    assert_eq!(response.status(), 200);
}

/// Regression: the second return to a URL counted as a loop.
#[tokio::test]
async fn only_the_hops_are_counted() {
    let here = redirects_to_itself(10).await;
    let response = client(limiter(500.0)).get(&here).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let here = redirects_to_itself(11).await;
    let error = client(limiter(500.0)).get(&here).send().await.unwrap_err();
    let (to, max) = (here.parse().unwrap(), HOPS_MAX);
    assert_eq!(redirect_error(error), RedirectError::TooMany { to, max });
}

/// Regression: the response had the URL of the first request.
#[tokio::test]
async fn a_client_that_follows_redirects_itself_says_where_it_came() {
    let server = unlimited().await;
    crate::server::tls_provider();
    let follows = reqwest::Client::builder().no_proxy().build().unwrap();
    let client = reqwest_middleware::ClientBuilder::new(follows)
        .with(PoliteMiddleware::new(limiter(500.0)))
        .build();
    let url = server.url(&format!("/to/{}", server.url("/page")));
    let response = client.get(url).send().await.unwrap();
    assert_eq!(response.url().as_str(), server.url("/page"));
}

/// Regression: through reqwest, a redirect response kept its slot until it was dropped. That could
/// block the request for its own target.
#[tokio::test]
async fn an_answer_without_a_body_holds_no_slot() {
    let (server, limiter) = (unlimited().await, limiter(500.0));
    let client = client(limiter.clone());
    let head = client.head(server.url("/page")).send().await.unwrap();
    let none = client.get(server.url("/status/204")).send().await.unwrap();
    let (granted, ended, _, _) = books(&limiter, &server);
    assert_eq!((granted, ended), (2, 2));
    drop((head, none));
}

#[tokio::test]
async fn eleven_hops_are_too_many() {
    let server = unlimited().await;
    let client = client(limiter(500.0));
    let chain = |hops: usize| {
        (0..hops).fold(server.url("/end"), |url, _| {
            server.url(&format!("/to/{url}"))
        })
    };
    let response = client.get(chain(10)).send().await.unwrap();
    assert_eq!(response.url().as_str(), server.url("/end"));
    let before = server.arrivals().len();
    let error = client.get(chain(11)).send().await.unwrap_err();
    assert!(matches!(
        redirect_error(error),
        RedirectError::TooMany { .. }
    ));
    assert_eq!(server.arrivals().len() - before, 11);
}

#[tokio::test]
async fn secrets_stay_with_their_origin() {
    let (old, new) = (unlimited().await, unlimited().await);
    let client = client(limiter(500.0));
    let within = old.url(&format!("/to/{}", old.url("/home")));
    client.get(within).bearer_auth("x").send().await.unwrap();
    let abroad = old.url(&format!("/to/{}", new.url("/abroad")));
    client.get(abroad).bearer_auth("x").send().await.unwrap();
    assert!(old.arrivals().iter().all(|one| one.authorized));
    assert!(new.arrivals().iter().all(|one| !one.authorized));
}

#[tokio::test]
async fn methods_and_bodies_follow_rfc_9110() {
    let server = unlimited().await;
    let client = client(limiter(500.0));
    let (to, end) = (
        |how: &str| server.url(&format!("/{how}/{}", server.url("/end"))),
        "/end",
    );
    for (how, becomes) in [("to", "GET"), ("see", "GET"), ("keep", "POST")] {
        let response = client.post(to(how)).body("x").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), format!("{becomes} {end}"));
    }
    // A body that cannot be copied cannot be sent again, so the caller receives the redirect
    // response.
    let once = reqwest::Body::wrap(http_body_util::Full::new(bytes::Bytes::from("x")));
    let response = client.post(to("keep")).body(once).send().await.unwrap();
    assert_eq!(response.status(), 307);
}

fn redirect_error(error: reqwest_middleware::Error) -> RedirectError {
    match error {
        reqwest_middleware::Error::Middleware(error) => error.downcast().unwrap(),
        error @ reqwest_middleware::Error::Reqwest(_) => panic!("{error}"),
    }
}
