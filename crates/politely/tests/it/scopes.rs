//! Parts of a host with quotas of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use politely::core::Timestamp;
use politely::core::signal::{Quota, Scope, ScopeName};
use politely::{
    Clock, Config, Key, Limiter, Plan, Refusal, RefusalReason, Report, RequestView, Signal,
};
use url::Url;

/// Routes that a host refuses at a time before it is held whole.
const REFUSED_MAX: usize = 8;
const MINUTE: Duration = Duration::from_mins(1);

fn limiter_at(seconds: &Arc<AtomicU64>) -> Limiter {
    let seconds = Arc::clone(seconds);
    let clock =
        Clock::given(move || Timestamp::from_micros(seconds.load(Ordering::Relaxed) * 1_000_000));
    let config = Config::fixed(1e6, 1e6);
    let builder = Limiter::builder().config(config).clock(clock);
    builder.build().expect("a limiter")
}

fn limiter() -> Limiter {
    limiter_at(&Arc::new(AtomicU64::new(1_000)))
}

fn planned(limiter: &Limiter, method: &Method, url: &str) -> Plan {
    let url = Url::parse(url).expect("a URL");
    let view = RequestView {
        keys: vec![Key::of_url(&url).expect("a key")],
        url: Some(&url),
        method,
        labels: &|_| None,
    };
    limiter.plan(view).expect("no label is needed")
}

/// Returns when the request may leave, if it must wait.
fn waits(limiter: &Limiter, method: &Method, url: &str) -> Option<Refusal> {
    let plan = planned(limiter, method, url);
    limiter.try_acquire(plan.keys()).err()
}

fn resource(name: &str) -> Scope {
    Scope::Resource(ScopeName::read(name).expect("a name"))
}

fn bucket(name: &str) -> Scope {
    Scope::Bucket(ScopeName::read(name).expect("a name"))
}

/// Reports a response to `url` that names `scope`, with nothing left for a minute.
fn spend(limiter: &Limiter, method: &Method, url: &str, scope: Scope, signal: Signal) -> Report {
    let quota = Quota {
        remaining: Some(0),
        reset: Some(MINUTE),
        ..Quota::default()
    };
    let mut report = Report {
        quotas: quota.into(),
        scope: Some(scope),
        retry_after: (signal == Signal::RateLimited).then_some(MINUTE),
        ..Report::of(signal)
    };
    let plan = planned(limiter, method, url);
    let permit = limiter.try_acquire(plan.keys());
    limiter.hear_scope(&plan, &mut report);
    if let Ok(permit) = permit {
        permit.report(&report);
    }
    report
}

#[test]
fn a_spent_part_holds_its_route_and_no_other() {
    for signal in [Signal::Ok, Signal::RateLimited] {
        let limiter = limiter();
        let search = "https://api.example.com/search/issues";
        spend(&limiter, &Method::GET, search, resource("search"), signal);
        let same = waits(&limiter, &Method::GET, &format!("{search}?q=2"));
        let same = same.expect("the same route waits");
        assert!(matches!(same.reason, RefusalReason::Wait(_)));
        assert_eq!(same.key.as_str(), "custom/quota/api.example.com/search");
        assert_eq!(same.at, limiter.now() + MINUTE);
        for url in [
            "https://api.example.com/repos/a",
            "https://api.example.com/",
        ] {
            assert!(waits(&limiter, &Method::GET, url).is_none(), "{url}");
        }
        assert!(waits(&limiter, &Method::POST, search).is_none());
    }
}

#[test]
fn a_route_that_was_seen_in_a_part_waits_with_it() {
    let limiter = limiter();
    let [search, users, core] = ["search/issues", "search/users", "repos/a"]
        .map(|path| format!("https://api.example.com/{path}"));
    for (url, name) in [(&users, "search"), (&core, "core"), (&search, "search")] {
        let mut report = Report {
            scope: Some(resource(name)),
            ..Report::of(Signal::Ok)
        };
        let plan = planned(&limiter, &Method::GET, url);
        limiter.hear_scope(&plan, &mut report);
    }
    spend(
        &limiter,
        &Method::GET,
        &search,
        resource("search"),
        Signal::Ok,
    );
    assert!(waits(&limiter, &Method::GET, &users).is_some());
    assert!(waits(&limiter, &Method::GET, &core).is_none());
    spend(&limiter, &Method::GET, &core, resource("core"), Signal::Ok);
    assert!(waits(&limiter, &Method::GET, &core).is_some());
    assert!(waits(&limiter, &Method::GET, "https://api.example.com/graphql").is_none());
}

#[test]
fn a_bucket_is_counted_apart_for_each_first_identifier() {
    let limiter = limiter();
    let channel = |id: u32, rest: &str| format!("https://discord.com/api/v10/channels/{id}/{rest}");
    let delete = Method::DELETE;
    let spent = channel(1, "messages/100");
    spend(
        &limiter,
        &delete,
        &spent,
        bucket("abcd"),
        Signal::RateLimited,
    );
    assert!(waits(&limiter, &delete, &channel(1, "messages/200")).is_some());
    assert!(waits(&limiter, &delete, &channel(2, "messages/100")).is_none());
    assert!(waits(&limiter, &Method::POST, &channel(1, "messages")).is_none());
    let me = "https://discord.com/api/v10/users/@me";
    assert!(waits(&limiter, &Method::GET, me).is_none());
    // The same bucket of another channel has its own room.
    let other = channel(2, "messages/7");
    spend(&limiter, &delete, &other, bucket("abcd"), Signal::Ok);
    assert!(waits(&limiter, &delete, &channel(3, "messages/7")).is_none());
}

#[test]
fn the_host_learns_nothing_from_the_refusal_of_a_part() {
    let limiter = limiter();
    let url = "https://api.example.com/search";
    let report = spend(
        &limiter,
        &Method::GET,
        url,
        resource("search"),
        Signal::RateLimited,
    );
    assert!(report.of_scope && report.quotas.is_empty());
    assert_eq!(report.retry_after, Some(MINUTE), "for the request itself");
    let known = limiter.explain(&Key::host("api.example.com").expect("a key"));
    let hold = known.expect("a known key").hold;
    assert!(hold.is_none(), "{hold:?}");
}

#[test]
fn what_belongs_to_a_part_is_forgotten_after_its_reset() {
    let seconds = Arc::new(AtomicU64::new(1_000));
    let limiter = limiter_at(&seconds);
    let url = "https://api.example.com/search";
    spend(&limiter, &Method::GET, url, resource("search"), Signal::Ok);
    assert!(waits(&limiter, &Method::GET, url).is_some());
    seconds.store(1_060, Ordering::Relaxed);
    assert!(waits(&limiter, &Method::GET, url).is_none());
    assert_eq!(
        planned(&limiter, &Method::GET, url).keys().as_slice().len(),
        1
    );
}

/// A server that refuses everything with ever new names is held whole.
#[test]
fn refusals_by_ever_new_parts_hold_the_host() {
    let limiter = limiter();
    let page = |i: usize| format!("https://api.example.com/page-{i}");
    for i in 0..REFUSED_MAX {
        let part = bucket(&format!("part-{i}"));
        let report = spend(&limiter, &Method::GET, &page(i), part, Signal::RateLimited);
        assert!(report.of_scope, "{i}");
        assert!(waits(&limiter, &Method::GET, &page(i + 1)).is_none());
    }
    let more = spend(
        &limiter,
        &Method::GET,
        &page(99),
        bucket("more"),
        Signal::RateLimited,
    );
    assert!(!more.of_scope);
    assert!(waits(&limiter, &Method::GET, &page(100)).is_some());
}

/// Each answer names another part, which is spent for a second. The limiter has no capacity.
#[test]
fn ever_new_parts_fill_no_memory() {
    let seconds = Arc::new(AtomicU64::new(1_000));
    let limiter = limiter_at(&seconds);
    for i in 0..5_000 {
        let quota = Quota {
            remaining: Some(0),
            reset: Some(Duration::from_secs(1)),
            ..Quota::default()
        };
        let mut report = Report {
            quotas: quota.into(),
            scope: Some(bucket(&format!("part-{i}"))),
            ..Report::of(Signal::Ok)
        };
        let plan = planned(&limiter, &Method::GET, "https://api.example.com/page");
        limiter.hear_scope(&plan, &mut report);
        seconds.fetch_add(2, Ordering::Relaxed);
    }
    assert!(limiter.stats().keys < 1_100, "{}", limiter.stats().keys);
}
