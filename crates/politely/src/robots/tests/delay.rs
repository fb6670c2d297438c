//! Crawl-delay and Request-rate: the vectors of crawler-commons and Protego, and the traps others
//! fell into.

use std::time::Duration;

use super::{check, robots};
use crate::robots::MAX_CRAWL_DELAY;

fn delay(body: &str, agent: &str) -> Option<f64> {
    robots(body, agent)
        .crawl_delay()
        .map(|delay| delay.as_secs_f64())
}

fn delay_of(line: &str) -> Option<f64> {
    delay(&format!("User-agent: *\n{line}\nDisallow: /x\n"), "foobot")
}

#[test]
fn crawl_delay() {
    assert_eq!(
        delay(
            "User-agent: bixo\nCrawl-delay: 10\nUser-agent: foobot\nCrawl-delay: 20\nUser-agent: *\nDisallow: /x\n",
            "bixo"
        ),
        Some(10.0)
    );
    assert_eq!(
        delay(
            "User-agent: foobot\nCrawl-delay: 20\nUser-agent: *\nDisallow: /x\n",
            "bixo"
        ),
        None
    );
    assert_eq!(
        delay(
            "User-agent: *\nCrawl-delay: 10\nDisallow: /y\nUser-agent: testbot\nCrawl-delay: 15\n",
            "testbot"
        ),
        Some(15.0)
    );
}

/// Other crawlers read `0.5` as 0 and send without a pause, or drop every page of a site that asks
/// for more than 30 s.
#[test]
fn fractions_and_long_delays_are_obeyed() {
    for (value, secs) in [
        ("0.5", 0.5),
        ("0.05", 0.05),
        (".5", 0.5),
        ("5.", 5.0),
        ("+5", 5.0),
        ("3600", 3600.0),
        ("86400", 86_400.0),
    ] {
        assert_eq!(
            delay_of(&format!("Crawl-delay: {value}")),
            Some(secs),
            "{value}"
        );
    }
    for (line, secs) in [
        ("crawl-delay:5#x", 5.0),
        ("CRAWLDELAY: 10 seconds", 10.0),
        ("Crawl-Delay: 10s", 10.0),
        ("Crawl-Delay: 10<BR>", 10.0),
        ("crawl delay : 2", 2.0),
        ("Crawl-delay 3", 3.0),
    ] {
        assert_eq!(delay_of(line), Some(secs), "{line}");
    }
}

#[test]
fn absurd_delays() {
    for value in [
        "",
        "random_word",
        "NaN",
        "inf",
        "-inf",
        "-5",
        "-1e12",
        "0",
        "0.0",
        "-0",
        "1e-300",
        "--5",
        "1.2.3",
        "e",
        "\u{0665}",
    ] {
        assert_eq!(delay_of(&format!("Crawl-delay: {value}")), None, "{value}");
    }
    let digits = "9".repeat(400);
    for value in [
        "1e12",
        "1e308",
        "1e999",
        "86401",
        "18446744073709551616",
        &digits,
    ] {
        assert_eq!(
            robots(format!("User-agent: *\nCrawl-delay: {value}\n"), "foobot").crawl_delay(),
            Some(MAX_CRAWL_DELAY),
            "{value}"
        );
    }
    assert_eq!(MAX_CRAWL_DELAY, Duration::from_hours(24));
}

#[test]
fn the_largest_of_several_counts() {
    assert_eq!(
        delay_of("Crawl-delay: 1\nCrawl-delay: 7\nCrawl-delay: 2"),
        Some(7.0)
    );
    assert_eq!(
        delay_of("Crawl-delay: 1\nRequest-rate: 1/30\nCrawl-delay: x"),
        Some(30.0)
    );
    assert_eq!(
        delay(
            "User-agent: a\nCrawl-delay: 9\nDisallow: /x\nUser-agent: a\nCrawl-delay: 3\n",
            "a"
        ),
        Some(9.0)
    );
}

#[test]
fn select_crawl_delay_group() {
    let body = "User-Agent: bingbot\nCrawl-delay: 1\n\nUser-Agent: msnbot\nCrawl-delay: 2\n\nUser-Agent: pinterestbot\nCrawl-delay: 0.2\n\n\
        User-agent: *\nDisallow: /login\nSitemap: http://www.example.com/sitemap.xml\nDisallow: /assets/\n";
    for (agent, secs) in [
        ("bingbot", Some(1.0)),
        ("msnbot", Some(2.0)),
        ("pinterestbot", Some(0.2)),
        ("anybot", None),
    ] {
        assert_eq!(delay(body, agent), secs, "{agent}");
        check(body, agent, &["/"], &["/login", "/assets/x"]);
    }
}

/// A delay between two names applies to the names before it. The rules that follow apply to both.
#[test]
fn crawl_delay_group_merging() {
    let body = "User-agent: mybot\nCrawl-delay: 10\nUser-agent: yourbot\nDisallow: /private/\n\nUser-agent: *\nAllow: /\n\n\
        User-agent: yourbot\nDisallow: /login/\n\nUser-agent: *\nCrawl-delay: 30\n";
    for (agent, secs) in [
        ("mybot", Some(10.0)),
        ("yourbot", None),
        ("other", Some(30.0)),
    ] {
        assert_eq!(delay(body, agent), secs, "{agent}");
    }
    check(body, "mybot", &["/", "/login/"], &["/private/"]);
    check(body, "yourbot", &["/"], &["/private/", "/login/"]);
    check(body, "other", &["/", "/private/", "/login/"], &[]);
}

#[test]
fn a_delay_after_the_rules_still_belongs_to_the_group() {
    let body = "User-agent: delaybot\nDisallow: /\nCrawl-Delay: 20\nAllow: /images/\n";
    assert_eq!(delay(body, "delaybot"), Some(20.0));
    check(body, "delaybot", &["/images/x"], &["/"]);
}

#[test]
fn request_rate() {
    for (value, secs) in [
        ("1/5", Some(5.0)),
        ("10/60", Some(6.0)),
        ("90/180", Some(2.0)),
        ("1/10s", Some(10.0)),
        ("100/15m", Some(9.0)),
        ("400/1h", Some(9.0)),
        ("9000/1d", Some(9.6)),
        ("1/10s 1820-1940", Some(10.0)),
        ("1/10 0600-0845", Some(10.0)),
        ("1 / 5 m", Some(300.0)),
        ("0/5", None),
        ("1/0", None),
        ("-1/-5", None),
        ("1", None),
        ("/", None),
        ("x/5", None),
    ] {
        assert_eq!(delay_of(&format!("Request-rate: {value}")), secs, "{value}");
    }
    assert_eq!(
        delay(
            "User-agent: one\nRequest-rate: 1/10s\nDisallow: /x\nUser-agent: two\nDisallow: /y\n",
            "two"
        ),
        None
    );
}
