//! Parses any bytes as a robots.txt, with any path. Nothing panics, and each refusal has its line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{MAX_CRAWL_DELAY, Robots};

fuzz_target!(|input: (&[u8], &str, &str)| {
    let (body, agent, path) = input;
    let robots = Robots::from_response(Some(200), body, agent);
    let verdict = robots.allows_path(path);
    assert!(verdict.allowed || verdict.rule.is_some());
    let delay = robots.crawl_delay();
    assert!(delay.is_none_or(|delay| !delay.is_zero() && delay <= MAX_CRAWL_DELAY));
});
