//! Tests of the cache: the choice of the fetcher, failed fetches, and records across restarts.

use std::sync::Arc;
use std::time::Duration;

use politely_core::Timestamp;
use url::Url;

use crate::robots::{
    Availability, Lookup, MAX_TTL, Origin, RETRY_FIRST, RETRY_MAX, RecordError, Robots, RobotsCache,
};

const RULES: &[u8] =
    b"User-agent: foobot\nDisallow: /b%C3%BCcher/\nAllow: /b*/free$\nCrawl-delay: 0.05\n";
const WALL: u64 = 1_700_000_000;

fn origin(url: &str) -> Origin {
    Origin::of(&Url::parse(url).unwrap()).unwrap()
}

fn host(n: usize) -> Origin {
    origin(&format!("http://host{n}.example/"))
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_micros(secs * 1_000_000)
}

fn cache() -> RobotsCache {
    RobotsCache::new("FooBot/1.2", 100, MAX_TTL)
}

fn fresh(lookup: Lookup) -> Arc<Robots> {
    match lookup {
        Lookup::Fresh(robots) => robots,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_origin_is_scheme_host_and_port() {
    assert_eq!(
        origin("http://Example.com:80/x?y").as_str(),
        "http://example.com"
    );
    assert_eq!(
        origin("https://u:p@example.com/").robots_url(),
        "https://example.com/robots.txt"
    );
    assert_eq!(
        origin("http://[::1]:8080/").to_string(),
        "http://[::1]:8080"
    );
    assert_ne!(
        origin("http://example.com/"),
        origin("https://example.com/")
    );
    assert_ne!(
        origin("http://example.com/"),
        origin("http://example.com:8080/")
    );
    assert_eq!(Origin::of(&Url::parse("ftp://example.com/").unwrap()), None);
    assert_eq!(Origin::of(&Url::parse("data:x").unwrap()), None);
}

#[test]
fn one_caller_fetches_and_the_rest_wait() {
    let (mut cache, origin) = (cache(), host(1));
    assert_eq!(cache.lookup(&origin, at(0)), Lookup::Fetch);
    assert_eq!(cache.lookup(&origin, at(1)), Lookup::Pending);
    cache.abandon(&origin);
    assert!(cache.is_empty());
    assert_eq!(cache.lookup(&origin, at(2)), Lookup::Fetch);
    let robots = fresh(cache.insert(&origin, Some(200), RULES, at(3)));
    assert!(!robots.allows_path("/bücher/x").allowed);
    assert_eq!(cache.lookup(&origin, at(4)), Lookup::Fresh(robots));
}

#[test]
fn a_copy_lasts_a_day_and_no_longer() {
    let (mut cache, origin) = (RobotsCache::new("foobot", 10, Duration::MAX), host(1));
    cache.insert(&origin, Some(404), b"", at(0));
    assert_eq!(
        fresh(cache.lookup(&origin, at(86_399))).availability(),
        Availability::Unavailable
    );
    assert_eq!(cache.lookup(&origin, at(86_400)), Lookup::Fetch);
    assert_eq!(cache.lookup(&origin, at(86_400)), Lookup::Pending);
    cache.abandon(&origin);
    assert_eq!(
        cache.lookup(&origin, at(86_400)),
        Lookup::Fetch,
        "an abandoned fetch counts as none"
    );
}

/// Other crawlers read the page of a 503 as rules, or as permission.
#[test]
fn unreachable_closes_the_origin_for_longer_and_longer() {
    let (mut cache, origin) = (cache(), host(1));
    let mut now = at(0);
    let mut waits = Vec::new();
    for status in [
        Some(503),
        Some(429),
        None,
        Some(500),
        Some(500),
        Some(500),
        Some(500),
        Some(500),
    ] {
        assert_eq!(cache.lookup(&origin, now), Lookup::Fetch);
        let Lookup::Unreachable { retry_at } = cache.insert(&origin, status, RULES, now) else {
            panic!("{status:?}")
        };
        let just_before = retry_at - Duration::from_micros(1);
        assert_eq!(
            cache.lookup(&origin, just_before),
            Lookup::Unreachable { retry_at }
        );
        waits.push(retry_at.since(now).as_secs() / 60);
        now = retry_at;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    cache.insert(&origin, Some(200), RULES, now);
    assert_eq!(
        cache.insert(&origin, None, b"", now),
        Lookup::Fresh(fresh(cache.lookup(&origin, now)))
    );
    assert_eq!(
        cache.lookup(&origin, now + RETRY_FIRST),
        Lookup::Fetch,
        "a good answer forgets the failures before it"
    );
}

#[test]
fn an_origin_unreachable_for_months_stays_closed() {
    let (mut cache, origin) = (cache(), host(1));
    let mut now = at(0);
    while now < at(60 * 86_400) {
        let Lookup::Unreachable { retry_at } = cache.insert(&origin, None, b"", now) else {
            panic!("open at {now}")
        };
        now = retry_at;
    }
    assert_eq!(RETRY_MAX, Duration::from_hours(1));
}

#[test]
fn an_older_copy_serves_while_unreachable() {
    let (mut cache, origin) = (cache(), host(1));
    let copy = fresh(cache.insert(&origin, Some(200), RULES, at(0)));
    assert_eq!(cache.lookup(&origin, at(90_000)), Lookup::Fetch);
    assert_eq!(
        cache.insert(&origin, Some(500), b"", at(90_000)),
        Lookup::Fresh(Arc::clone(&copy))
    );
    assert_eq!(cache.lookup(&origin, at(90_059)), Lookup::Fresh(copy));
    assert_eq!(cache.lookup(&origin, at(90_060)), Lookup::Fetch);
    let gone = fresh(cache.insert(&origin, Some(404), b"", at(90_061)));
    assert_eq!(gone.availability(), Availability::Unavailable);
}

#[test]
fn over_capacity_the_oldest_go() {
    let mut cache = RobotsCache::new("foobot", 32, MAX_TTL);
    for n in 0..200 {
        cache.insert(&host(n), Some(404), b"", at(n as u64));
        assert!(cache.len() <= 32, "{}", cache.len());
    }
    assert_eq!(cache.lookup(&host(150), at(200)), Lookup::Fetch);
    for n in 180..200 {
        fresh(cache.lookup(&host(n), at(200)));
    }
    let mut one = RobotsCache::new("foobot", 0, MAX_TTL);
    one.insert(&host(1), Some(404), b"", at(0));
    one.insert(&host(2), Some(404), b"", at(0));
    assert_eq!(one.len(), 1);
}

/// One owner can name a million hosts and give each a full 500 KiB.
#[test]
fn huge_files_do_not_fill_the_memory() {
    let rules: Vec<_> = (0..5_000).map(|n| format!("Disallow: /{n}\n")).collect();
    let huge = format!("User-agent: *\n{}", rules.concat());
    let mut cache = RobotsCache::new("foobot", 100, MAX_TTL);
    for n in 0..20 {
        let robots = fresh(cache.insert(&host(n), Some(200), huge.as_bytes(), at(n as u64)));
        assert!(!robots.allows_path("/4999").allowed);
        assert!(cache.len() <= 2, "each takes more than half of the 400 KiB");
    }
    cache.insert(&host(20), Some(404), b"", at(20));
    fresh(cache.lookup(&host(19), at(20)));
}

/// In other crawlers an evicted host loses its delay and is fetched again at once.
#[test]
fn eviction_does_not_shorten_a_backoff() {
    let mut cache = RobotsCache::new("foobot", 32, MAX_TTL);
    let Lookup::Unreachable { retry_at } = cache.insert(&host(0), Some(503), b"", at(0)) else {
        panic!()
    };
    for n in 1..500 {
        cache.insert(&host(n), Some(404), b"", at(1));
    }
    assert_eq!(
        cache.lookup(&host(0), at(2)),
        Lookup::Unreachable { retry_at }
    );
}

#[test]
fn eviction_leaves_fetches_alone() {
    let mut cache = RobotsCache::new("foobot", 2, MAX_TTL);
    for n in 0..10 {
        assert_eq!(cache.lookup(&host(n), at(0)), Lookup::Fetch);
    }
    for n in 10..20 {
        cache.insert(&host(n), Some(404), b"", at(0));
    }
    assert_eq!(cache.len(), 11, "ten fetches and the answer just taken in");
    assert_eq!(cache.lookup(&host(0), at(0)), Lookup::Pending);
}

#[test]
fn a_killed_run_resumes_with_what_it_had_asked() {
    let mut before = cache();
    let (rules, none, down) = (host(1), host(2), host(3));
    let copy = fresh(before.insert(&rules, Some(200), RULES, at(1_000)));
    before.insert(&none, Some(404), b"", at(1_000));
    before.insert(&down, None, b"", at(1_000));
    before.insert(&down, Some(503), b"", at(1_060));
    let saved = |origin| before.save(origin, at(1_060), WALL).unwrap();

    // The new process's clock starts at zero; 30 s have passed.
    let mut after = cache();
    for origin in [&rules, &none, &down] {
        after
            .restore(origin, &saved(origin), at(5), WALL + 30)
            .unwrap();
    }
    assert_eq!(after.lookup(&rules, at(5)), Lookup::Fresh(copy));
    assert_eq!(
        fresh(after.lookup(&none, at(5))).availability(),
        Availability::Unavailable
    );
    assert_eq!(
        after.lookup(&down, at(5)),
        Lookup::Unreachable {
            retry_at: at(5 + 90)
        }
    );
    assert_eq!(after.lookup(&rules, at(5 + 86_400 - 90)), Lookup::Fetch);
    let Lookup::Unreachable { retry_at } = after.insert(&down, None, b"", at(95)) else {
        panic!()
    };
    assert_eq!(retry_at, at(95 + 240), "the third failure, not the first");
}

#[test]
fn a_copy_that_ran_out_is_asked_for_again_but_kept() {
    let (mut before, origin) = (cache(), host(1));
    let copy = fresh(before.insert(&origin, Some(200), RULES, at(0)));
    let record = before.save(&origin, at(0), WALL).unwrap();
    let mut after = cache();
    after
        .restore(&origin, &record, at(0), WALL + 100_000)
        .unwrap();
    assert_eq!(after.lookup(&origin, at(0)), Lookup::Fetch);
    assert_eq!(after.insert(&origin, None, b"", at(1)), Lookup::Fresh(copy));
}

#[test]
fn a_wall_clock_set_back_prolongs_nothing() {
    let (mut before, origin) = (cache(), host(1));
    before.insert(&origin, Some(200), RULES, at(0));
    let record = before.save(&origin, at(0), WALL).unwrap();
    let mut after = cache();
    after.restore(&origin, &record, at(0), WALL / 2).unwrap();
    fresh(after.lookup(&origin, at(0)));
    assert_eq!(after.lookup(&origin, at(86_400)), Lookup::Fetch);
}

#[test]
fn a_record_is_a_small_robots_txt() {
    let (mut cache, origin) = (cache(), host(1));
    cache.insert(&origin, Some(200), RULES, at(0));
    assert_eq!(
        cache.save(&origin, at(0), WALL).unwrap(),
        "politely-robots/1 rules due=1700086400 failures=0 agent=foobot\n\
         User-agent: *\nDisallow: /b%C3%BCcher/\nAllow: /b*/free$\nCrawl-delay: 0.05\n"
    );
    assert_eq!(cache.save(&host(2), at(0), WALL), None);
    cache.lookup(&host(2), at(0));
    assert_eq!(
        cache.save(&host(2), at(0), WALL),
        None,
        "nothing is known yet"
    );
}

#[test]
fn foreign_records_are_refused() {
    let origin = host(1);
    let mut other = RobotsCache::new("otherbot", 10, MAX_TTL);
    other.insert(&origin, Some(200), RULES, at(0));
    let theirs = other.save(&origin, at(0), WALL).unwrap();
    for (record, error) in [
        (theirs.as_str(), RecordError::Agent),
        ("", RecordError::Version),
        ("User-agent: *\nDisallow: /", RecordError::Version),
        (
            "politely-robots/2 rules due=1 failures=0 agent=foobot\n",
            RecordError::Version,
        ),
        ("politely-robots/1", RecordError::Malformed),
        (
            "politely-robots/1 rules due=1 failures=0",
            RecordError::Malformed,
        ),
        (
            "politely-robots/1 rules due=-1 failures=0 agent=foobot\n",
            RecordError::Malformed,
        ),
        (
            "politely-robots/1 unreachable due=1 failures=0 agent=foobot\n",
            RecordError::Malformed,
        ),
        (
            "politely-robots/1 maybe due=1 failures=0 agent=foobot\n",
            RecordError::Malformed,
        ),
    ] {
        let mut cache = cache();
        assert_eq!(
            cache.restore(&origin, record, at(0), WALL),
            Err(error),
            "{record}"
        );
        assert!(cache.is_empty());
    }
}
