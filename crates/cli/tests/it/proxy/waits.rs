//! The longest wait, what is told after it, and failures of hosts and of the coordinator.

use std::time::{Duration, Instant};

use politely_testkit::process::free_place;

use super::host::Host;
use super::{Proxy, client, problem};
use crate::coordinator_fetch::{Coordinator, TOKEN};
use crate::run::write_secret;

#[tokio::test]
async fn after_the_longest_wait_the_answer_is_429_with_the_reason() {
    let host = Host::start().await;
    let slow = ["--rate", "0.01", "--burst", "1", "--in-flight", "4"];
    let route = format!("host={}", host.url);
    let mut args = vec!["--route", &route, "--law", "fixed", "--wait", "2s"];
    args.extend(slow);
    let proxy = Proxy::start(&args);
    let get = |prefer: &'static str| {
        let request = client().get(proxy.at("/page")).header("prefer", prefer);
        request.send()
    };
    assert_eq!(get("wait=0").await.unwrap().status(), 200);
    for (prefer, at_least_ms, at_most_ms) in [("wait=0", 0, 1_000), ("wait=9", 2_000, 8_000)] {
        let answer = get(prefer).await.unwrap();
        assert_eq!(answer.status(), 429);
        let head = answer.headers().clone();
        let number = |name: &str| head[name].to_str().unwrap().parse::<u64>().unwrap();
        assert!((90..=100).contains(&number("retry-after")), "{head:?}");
        assert_eq!(head["politely-key"], host.address());
        let waited = number("politely-wait-ms");
        assert!((at_least_ms..at_most_ms).contains(&waited), "{waited}");
        let problem = problem(answer).await;
        assert_eq!(problem["status"], 429);
        assert_eq!(problem["key"], host.address());
        let reason = problem["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("waits ") && reason.ends_with(": pace"),
            "{reason}"
        );
        assert!(
            problem["retry_after_ms"].as_u64().unwrap() > 90_000,
            "{problem}"
        );
    }
    assert_eq!(host.heads().len(), 1);
}

#[tokio::test]
async fn a_request_that_waited_says_how_long_and_why() {
    let host = Host::start().await;
    let route = format!("host={}", host.url);
    let pace = ["--law", "fixed", "--rate", "2", "--burst", "1"];
    let proxy = Proxy::start(&[&["--route", &route][..], &pace].concat());
    let get = || client().get(proxy.at("/page")).send();
    let (first, second) = tokio::join!(get(), get());
    let waits = [first.unwrap(), second.unwrap()].map(|answer| {
        assert_eq!(answer.status(), 200);
        let reason = answer.headers().get("politely-reason");
        (
            answer.headers()["politely-wait-ms"]
                .to_str()
                .unwrap()
                .parse()
                .unwrap(),
            reason.map(|reason| reason.to_str().unwrap().to_owned()),
        )
    });
    let longer: &(u64, Option<String>) = waits.iter().max().unwrap();
    assert!((300..2_000).contains(&longer.0), "{waits:?}");
    let reason = longer.1.as_ref().unwrap();
    assert!(reason.ends_with(": pace"), "{reason}");
}

#[tokio::test]
async fn a_refusal_that_lasts_longer_than_the_wait_goes_to_the_caller() {
    let host = Host::start().await;
    let proxy = Proxy::of(&host, &["--wait", "0"]);
    let answer = client()
        .get(proxy.at("/refuses-once"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &http::HeaderValue::from_static("1"))
    );
    assert_eq!(answer.text().await.unwrap(), "slow down");
    let held = client().get(proxy.at("/page")).send().await.unwrap();
    assert_eq!(held.status(), 429);
    let reason = problem(held).await["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.contains("hold") && reason.contains("429"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_failure_of_the_host_is_named() {
    let host = Host::start().await;
    let nowhere = format!("nowhere=http://{}", free_place());
    let nameless = "nameless=http://does-not-exist.invalid";
    let args = [
        "--route",
        &nowhere,
        "--route",
        nameless,
        "--timeout",
        "300ms",
    ];
    let proxy = Proxy::of(&host, &[&args[..], &["--retries", "0"]].concat());
    for (path, status, told) in [
        ("/nowhere/x", 502, "no connection to the host: "),
        ("/nameless/x", 502, "the host has no address: "),
        ("/host/never", 504, "no answer of the host in time: "),
    ] {
        let answer = client().get(format!("{}{path}", proxy.url)).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        let problem = problem(answer).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(told), "{path}: {detail}");
        assert_eq!(problem["fault"], "host");
    }
    host.until_live(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_coordinator_stops_requests_and_the_next_one_lets_them_go_on() {
    let host = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let args = ["--profile", "api", "--law", "fixed", "--rate", "500"];
    let coordinator = Coordinator::start_with(folder.path(), "127.0.0.1:0", &args);
    let (url, bind) = (coordinator.url.clone(), coordinator.address().to_owned());
    let token = folder.path().join("client-token");
    write_secret(&token, TOKEN);
    let route = format!("host={}", host.url);
    let token = token.to_str().unwrap();
    let mut proxy = Proxy::start(&[
        "--route",
        &route,
        "--coordinator",
        &url,
        "--coordinator-token-file",
        token,
        "--wait",
        "30s",
    ]);
    let page = proxy.at("/page");
    let get = || client().get(&page);
    assert_eq!(get().send().await.unwrap().status(), 200);
    drop(coordinator);
    let began = Instant::now();
    let late = get().header("prefer", "wait=1").send().await.unwrap();
    assert_eq!(late.status(), 429);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(
        host.heads().len(),
        1,
        "nothing leaves without a coordinator"
    );
    proxy.server.says("the coordinator does not answer");
    let waits = tokio::spawn(get().send());
    let _next = Coordinator::start_with(folder.path(), &bind, &args);
    assert_eq!(waits.await.unwrap().unwrap().status(), 200);
    proxy.server.says("the coordinator answers again");
}
