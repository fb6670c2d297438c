//! Limits are kept, found and shared among the callers of a proxy.

use politely_target::{HostSpec, LimitSpec, RetryAfter, Signals, Target, Town};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::host::Host;
use super::{Proxy, client, problem};

const PAGES: u32 = 60;
const CALLERS: usize = 8;
/// Maximum number of refusals at a hidden limit. The first one shows the limit, and more may come
/// from requests in flight.
const FEW: u64 = 4;

/// Requests all pages of a host by several callers at once, and returns the host's report.
async fn crawl(limit: LimitSpec, args: &[&str]) -> politely_target::HostReport {
    let mut spec = HostSpec::new("shop", limit);
    spec.pages = PAGES;
    spec.signals = Signals {
        retry_after: RetryAfter::Seconds,
        ..Signals::default()
    };
    let target = Target::start(Town::new(vec![spec])).await.unwrap();
    let route = format!("shop=http://{}", target.hosts()[0].addr);
    let proxy = Proxy::start(&[&["--route", &route][..], args].concat());
    let prefix = format!("http://{}", target.hosts()[0].addr);
    let urls = target.hosts()[0].page_urls();
    let urls: Vec<_> = urls
        .map(|url| url.replace(&prefix, &format!("{}/shop", proxy.url)))
        .collect();
    let mut callers = JoinSet::new();
    for urls in urls.chunks(urls.len().div_ceil(CALLERS)) {
        let urls = urls.to_vec();
        callers.spawn(async move {
            let client = client();
            for url in urls {
                let answer = client.get(&url).send().await.unwrap();
                assert_eq!(answer.status(), 200, "{url}");
                answer.bytes().await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let report = target.shutdown().hosts.remove(0);
    assert_eq!((report.pages, report.duplicates), (u64::from(PAGES), 0));
    assert_eq!(report.during_hold, 0, "no Retry-After undercut");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_limit_is_never_exceeded() {
    let limit = LimitSpec::TokenBucket {
        rate: 20.0,
        burst: 4,
    };
    let rate = ["--profile", "api", "--law", "fixed", "--rate", "18"];
    let report = crawl(limit, &rate).await;
    assert_eq!(report.refused, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hidden_limit_is_found_and_no_caller_sees_a_refusal() {
    let limit = LimitSpec::TokenBucket {
        rate: 10.0,
        burst: 4,
    };
    let report = crawl(limit, &["--profile", "api"]).await;
    assert!((1..=FEW).contains(&report.refused), "{}", report.refused);
}

/// Starts a proxy with the route `host` and a policy of one rule.
pub(super) fn with_rule(host: &Host, rule: &str) -> (Proxy, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    let rule = format!("[[rule]]\nmatch = [\"{}\"]\n{rule}\n", host.address());
    std::fs::write(&file, rule).unwrap();
    let args = ["--policy", file.to_str().unwrap()];
    (Proxy::of(host, &args), folder)
}

#[tokio::test]
async fn the_cost_of_a_request_is_taken_from_the_budget_of_its_rule() {
    let host = Host::start().await;
    let rule = "account = \"llm/{team}\"\nlimits = [\"100 tokens/h\"]\ncost = { tokens = 10 }";
    let (proxy, _folder) = with_rule(&host, rule);
    let get = async |team: &str, cost: &str| {
        let request = client().get(proxy.at("/page"));
        let request = request.header("x-politely-labels", format!("team={team}"));
        let request = request.header("prefer", "wait=0");
        let answer = request
            .header("x-politely-cost", cost)
            .send()
            .await
            .unwrap();
        (answer.status().as_u16(), answer.headers().clone())
    };
    assert_eq!(get("a", "tokens=85").await.0, 200);
    assert_eq!(get("a", "requests=1").await.0, 200, "the rule's 10");
    let (status, head) = get("a", "tokens=6").await;
    assert_eq!(status, 429);
    assert_eq!(head["politely-key"], "custom/llm/a");
    let reason = head["politely-reason"].to_str().unwrap();
    assert!(reason.contains("budget"), "{reason}");
    assert_eq!(get("b", "tokens=85").await.0, 200, "another account");
    let without = client().get(proxy.at("/page")).send().await.unwrap();
    assert_eq!(without.status(), 400);
    let problem = problem(without).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.ends_with("send the label \"team\""), "{detail}");
}

#[tokio::test]
async fn sighup_puts_a_changed_policy_into_force_and_a_wrong_one_not() {
    let host = Host::start().await;
    let (mut proxy, folder) = with_rule(&host, "limits = [\"2/h\"]");
    let page = proxy.at("/page");
    let get = async || {
        let request = client().get(&page).header("prefer", "wait=0");
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!([get().await, get().await, get().await], [200, 200, 429]);
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, "[[rule]]\nlimits = 3").unwrap();
    proxy.server.hang_up();
    proxy.server.says("what was read before stays in force");
    assert_eq!(get().await, 429);
    let rule = format!(
        "[[rule]]\nmatch = [\"{}\"]\nlimits = [\"3/h\"]",
        host.address()
    );
    std::fs::write(&file, rule).unwrap();
    proxy.server.hang_up();
    proxy.server.says("policy.toml is in force");
    assert_eq!([get().await, get().await], [200, 429]);
}

#[tokio::test]
async fn a_rule_lets_a_refused_post_be_sent_again_while_its_body_is_kept() {
    let host = Host::start().await;
    let (proxy, _folder) = with_rule(&host, "resend = [\"POST\"]");
    let post = client().post(proxy.at("/refuses-once")).body("x");
    assert_eq!(post.send().await.unwrap().status(), 200);
    assert_eq!(host.heads().len(), 2);
}

#[tokio::test]
async fn a_long_body_is_sent_once() {
    let host = Host::start().await;
    let (proxy, _folder) = with_rule(&host, "resend = [\"POST\"]");
    let post = client().post(proxy.at("/refuses-once"));
    let post = post.body(vec![b'x'; 300 << 10]).send().await.unwrap();
    assert_eq!(post.status(), 429);
    assert_eq!(host.heads().len(), 1);
}
