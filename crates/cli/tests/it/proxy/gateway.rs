//! Routes, whole URLs, and what passes unchanged.

use super::host::Host;
use super::{Proxy, builder, client, problem, through};

#[tokio::test]
async fn a_route_leads_to_its_url_with_path_and_query_byte_for_byte() {
    let host = Host::start().await;
    let base = format!("deep={}/base/", host.url);
    let proxy = Proxy::of(&host, &["--route", &base]);
    for (path, seen) in [
        ("/host/v1/a%2Fb?q=%7e&x=a+b", "GET /v1/a%2Fb?q=%7e&x=a+b"),
        ("/host", "GET /"),
        ("/deep/v1?x", "GET /base/v1?x"),
    ] {
        let answer = client().get(format!("{}{path}", proxy.url)).send().await;
        assert_eq!(answer.unwrap().text().await.unwrap(), seen);
    }
    let (_, head) = host.heads().remove(0);
    assert_eq!(head["host"], host.address());
    assert_eq!(head["via"], "1.1 politely");
    let plain = "GET /host/plain HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    assert!(proxy.raw(plain).await.ends_with("GET /plain"));
    let mut names: Vec<_> = host.heads()[3].1.keys().map(ToString::to_string).collect();
    names.sort();
    assert_eq!(names, ["host", "via"], "no field is added");
}

#[tokio::test]
async fn an_unknown_route_is_told_with_the_known_ones() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let answer = client().get(format!("{}/other/v1", proxy.url)).send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 404);
    let problem = problem(answer).await;
    assert_eq!(problem["detail"], "no route begins so: there are /host/");
}

#[tokio::test]
async fn a_whole_url_in_the_path_is_requested() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    let url = format!("{}/{}/page?x=1", proxy.url, host.url);
    let answer = client().get(url).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "GET /page?x=1");
}

#[tokio::test]
async fn a_redirect_to_the_origin_of_its_route_stays_in_the_gateway() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--allow-private"]);
    let client = builder().build().unwrap();
    let own = format!("{}/login", host.url);
    let other = "http://elsewhere.example/login".to_owned();
    for (to, expected) in [
        ("/login?a=b".to_owned(), "/host/login?a=b"),
        (own.clone(), "/host/login"),
        (other.clone(), &other),
    ] {
        let moved = client.get(proxy.at(&format!("/moved-to?{to}"))).send();
        let moved = moved.await.unwrap();
        assert_eq!(moved.headers()["location"], expected);
    }
    let url = format!("{}/{}/moved-to?/login", proxy.url, host.url);
    let moved = client.get(url).send().await.unwrap();
    assert_eq!(moved.headers()["location"], format!("/{own}"));
    let url = format!("{}/moved-to?/login", host.url);
    let moved = through(&proxy.url).get(url).send().await.unwrap();
    assert_eq!(moved.headers()["location"], "/login", "a forward proxy");
    let back = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = back.get(proxy.at("/moved")).send().await.unwrap();
    assert_eq!(page.text().await.unwrap(), "GET /elsewhere?a=b");
}

#[tokio::test]
async fn the_proxy_answers_options_about_itself() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let request = "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let answer = proxy.raw(request).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert!(host.heads().is_empty());
}

#[tokio::test]
async fn cookies_codings_and_errors_pass_as_they_are() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--retries", "0"]);
    let client = builder().build().unwrap();
    let moved = client.get(proxy.at("/moved")).send().await.unwrap();
    assert_eq!(moved.status(), 302);
    assert_eq!(moved.headers()["set-cookie"], "a=1");
    let coded = builder().no_gzip().build().unwrap();
    let coded = coded.get(proxy.at("/coded")).send().await.unwrap();
    assert_eq!(coded.headers()["content-encoding"], "gzip");
    assert_eq!(coded.bytes().await.unwrap()[..2], [0x1f, 0x8b]);
    for status in [204, 304, 404, 418, 500] {
        let answer = client.get(proxy.at(&format!("/status/{status}"))).send();
        assert_eq!(answer.await.unwrap().status(), status);
    }
    let head = client.head(proxy.at("/page")).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-length"], "10");
    assert!(!host.heads().last().unwrap().1.contains_key("cookie"));
}

#[tokio::test]
async fn http2_callers_are_served_too() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let client = builder().http2_prior_knowledge().build().unwrap();
    let answer = client.post(proxy.at("/echo")).body("hello").send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    assert_eq!(answer.text().await.unwrap(), "hello");
    assert_eq!(host.heads()[0].1["via"], "2 politely");
}

#[tokio::test]
async fn a_refused_request_is_sent_again_with_its_body_and_the_caller_sees_none_of_it() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &[]);
    let answer = client()
        .get(proxy.at("/refuses-once"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(host.heads().len(), 2);
    let put = client().put(proxy.at("/refuses-once")).body("x");
    assert_eq!(
        put.send().await.unwrap().status(),
        429,
        "no policy resends a PUT"
    );
}
