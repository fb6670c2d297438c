//! Tests of access: every route is called without a token, with a wrong one, and with one in its
//! URL.

use std::net::SocketAddr;

use politely_server::{Certificate, Coordinator, Options, ServeError, Server, Settings, Token};
use reqwest::Method;
use serde_json::Value;

use crate::client::{Served, serve};

const TOKEN: &str = "a-token-of-24-characters";

/// Returns every route and method of the API description, and the dashboard.
async fn routes(served: &Served) -> Vec<(Method, String)> {
    let request = served
        .http
        .get(served.url("/api/v1/openapi.json"))
        .bearer_auth(TOKEN);
    let described: Value =
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap();
    let paths = described["paths"].as_object().unwrap();
    assert!(paths.len() >= 14, "{paths:?}");
    let mut routes = vec![
        (Method::GET, "/".to_owned()),
        (Method::GET, "/api/v1/openapi.json".to_owned()),
        (Method::GET, "/there/is/no/such".to_owned()),
    ];
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            routes.push((method, path.replace("{key}", "h.example")));
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_every_route_is_shut() {
    let served = serve(Settings::default(), Some(TOKEN)).await;
    for (method, path) in routes(&served).await {
        let ask = |path: &str| served.http.request(method.clone(), served.url(path));
        let wrong = [
            ask(&path),
            ask(&path).bearer_auth("another-token-of-24-char"),
            ask(&path).basic_auth(TOKEN, Some("")),
            ask(&format!("{path}?token={TOKEN}&access_token={TOKEN}")),
        ];
        for request in wrong {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{method} {path}");
            assert!(response.headers().contains_key("www-authenticate"));
        }
        let right = ask(&path).bearer_auth(TOKEN).send().await.unwrap();
        assert_ne!(right.status(), 401, "{method} {path}");
    }
    served.end().await;
}

/// Regression: a call in HTTP/2 was refused, because it has no Host header. Browsers use HTTP/2
/// over TLS, so the dashboard was empty.
#[tokio::test(flavor = "multi_thread")]
async fn in_http_2_the_host_is_the_authority() {
    let served = serve(Settings::default(), None).await;
    let http = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let stats = || http.get(served.url("/api/v1/stats"));
    let of = |origin: &str| stats().header("origin", origin.to_owned()).send();
    let plain = stats().send().await.unwrap();
    assert_eq!(plain.version(), reqwest::Version::HTTP_2);
    let own = of(&served.url("")).await.unwrap();
    let strange = of("http://evil.example").await.unwrap();
    let said = [plain.status(), own.status(), strange.status()];
    assert_eq!(said, [200, 200, 403]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_pages_are_refused() {
    let served = serve(Settings::default(), None).await;
    let ask = |name: &str, value: &str| {
        served
            .http
            .get(served.url("/api/v1/config"))
            .header(name, value)
            .send()
    };
    assert_eq!(ask("host", "evil.example").await.unwrap().status(), 403);
    assert_eq!(
        ask("origin", "http://evil.example").await.unwrap().status(),
        403
    );
    // A form on another page cannot send JSON.
    let form = served
        .http
        .post(served.url("/api/v1/acquire"))
        .header("content-type", "text/plain")
        .body("{}");
    assert_eq!(form.send().await.unwrap().status(), 415);
    served.end().await;
}

#[tokio::test]
async fn other_machines_need_a_token_and_a_token_is_a_secret() {
    let open = |bind: &str, token| {
        let coordinator = Coordinator::new(Settings::default()).unwrap();
        let bind: SocketAddr = bind.parse().unwrap();
        Server::bind(
            coordinator,
            Options {
                bind,
                token,
                certificate: None,
                frontier: None,
                grpc: None,
                commit: "unknown",
                collector: None,
            },
        )
    };
    assert!(matches!(
        open("0.0.0.0:0", None).await,
        Err(ServeError::NoToken(_))
    ));
    assert!(open("[::1]:0", None).await.is_ok());
    for short in ["", "short", "with a space in the middle"] {
        assert!(
            matches!(Token::new(short), Err(ServeError::Token)),
            "{short}"
        );
    }
    assert!(!format!("{:?}", Token::new(TOKEN).unwrap()).contains(TOKEN));
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let coordinator = Coordinator::new(Settings::default()).unwrap();
    let certificate = Certificate {
        chain: "/nowhere/chain.pem".into(),
        key: "/nowhere/key.pem".into(),
    };
    let options = Options {
        bind: "127.0.0.1:0".parse().unwrap(),
        token: None,
        certificate: Some(certificate),
        frontier: None,
        grpc: None,
        commit: "unknown",
        collector: None,
    };
    let wrong = Server::bind(coordinator, options)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(wrong.starts_with("/nowhere/chain.pem: "), "{wrong}");
}
