//! Header fields of one hop, the caller's wishes, and Max-Forwards.

use super::host::Host;
use super::{Proxy, client, problem};

#[tokio::test]
async fn fields_of_one_hop_end_at_the_proxy() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let request = format!(
        "GET /host/page HTTP/1.1\r\nHost: {}\r\nConnection: close, x-private\r\nX-Private: secret\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: close\r\nProxy-Authorization: Basic eDp5\r\n\
         TE: trailers, deflate\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX-Public: yes\r\n\r\n",
        proxy.address()
    );
    let answer = proxy.raw(&request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, head) = host.heads().remove(0);
    for name in [
        "x-private",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
        "http2-settings",
    ] {
        assert!(!head.contains_key(name), "{name}");
    }
    assert_eq!(
        (&head["te"], &head["x-public"]),
        (
            &http::HeaderValue::from_static("trailers"),
            &http::HeaderValue::from_static("yes")
        )
    );
    assert_eq!(head["connection"], "te");
    let answer = client().get(proxy.at("/of-one-hop")).send().await.unwrap();
    for name in [
        "x-private",
        "keep-alive",
        "proxy-authenticate",
        "connection",
    ] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    assert_eq!(answer.headers()["x-public"], "yes");
    assert!(
        !answer.headers().contains_key("via"),
        "a gateway is the server"
    );
}

#[tokio::test]
async fn wishes_are_taken_out_and_wrong_ones_are_named() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let request = client().get(proxy.at("/page"));
    let request = request
        .header("x-politely-client", "ci")
        .header("x-politely-labels", "team=a")
        .header("x-politely-priority", "3")
        .header("x-politely-cost", "2")
        .header("x-politely-cost", "tokens=5")
        .header("x-politely-token", "unused-unused-unused");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let (_, head) = host.heads().remove(0);
    let ours = |name: &http::HeaderName| name.as_str().starts_with("x-politely");
    assert!(!head.keys().any(ours), "{head:?}");
    for (name, value) in [("x-politely-cost", "tokns=5"), ("x-politely-foo", "1")] {
        let wrong = client().get(proxy.at("/page")).header(name, value);
        assert_eq!(wrong.send().await.unwrap().status(), 400, "{name}");
    }
    let wrong = client()
        .get(proxy.at("/page"))
        .header("x-politely-cost", "much");
    let wrong = wrong.send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    let problem = problem(wrong).await;
    let told = "x-politely-cost: \"much\" is not N or UNIT=N";
    assert_eq!(problem["detail"], told);
    assert_eq!(host.heads().len(), 1);
}

#[tokio::test]
async fn max_forwards_counts_down_and_ends_at_the_proxy() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let options = |left: &'static str| {
        let request = client().request(reqwest::Method::OPTIONS, proxy.at("/page"));
        request.header("max-forwards", left).send()
    };
    assert_eq!(options("0").await.unwrap().status(), 204);
    assert!(host.heads().is_empty());
    assert_eq!(options("2").await.unwrap().status(), 200);
    assert_eq!(host.heads()[0].1["max-forwards"], "1");
}

#[tokio::test]
async fn the_fields_about_waits_can_be_left_out() {
    let host = Host::start().await;
    for (flag, told) in [(&[][..], true), (&["--no-wait-headers"], false)] {
        let proxy = Proxy::of(&host, flag);
        let answer = client().get(proxy.at("/page")).send().await.unwrap();
        for name in ["politely-wait-ms", "politely-key"] {
            assert_eq!(answer.headers().contains_key(name), told, "{name}");
        }
        assert!(!answer.headers().contains_key("politely-reason"), "no wait");
    }
}
