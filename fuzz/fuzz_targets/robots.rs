//! Parses any bytes as a robots.txt, with any path. Nothing panics, and a stored record is read
//! back unchanged.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use politely::robots::{Lookup, Origin, RobotsCache};
use politely_core::Timestamp;
use url::Url;

fuzz_target!(|input: (&[u8], &str, &str)| {
    let (body, agent, path) = input;
    let origin = Origin::of(&Url::parse("http://host.example/").expect("a URL")).expect("http");
    let (now, day) = (Timestamp::ZERO, Duration::from_secs(86_400));

    let mut cache = RobotsCache::new(agent, 4, day);
    let Lookup::Fresh(robots) = cache.insert(&origin, Some(200), body, now) else {
        panic!("a 200 is an answer")
    };
    let verdict = robots.allows_path(path);
    assert!(verdict.allowed || verdict.rule.is_some());
    assert!(
        robots
            .crawl_delay()
            .is_none_or(|delay| !delay.is_zero() && delay <= politely::robots::MAX_CRAWL_DELAY)
    );

    let record = cache.save(&origin, now, 0).expect("an answer");
    let mut resumed = RobotsCache::new(agent, 4, day);
    resumed
        .restore(&origin, &record, now, 0)
        .expect("our own record");
    assert_eq!(resumed.lookup(&origin, now), Lookup::Fresh(robots));

    // A stored record may be damaged in any way.
    let _ = resumed.restore(&origin, &String::from_utf8_lossy(body), now, 0);
});
