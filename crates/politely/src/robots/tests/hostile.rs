//! Tests of hostile sizes and bytes, and of responses that are not a robots.txt.

use super::{check, robots};
use crate::robots::{Availability, MAX_BYTES, Robots};

#[test]
fn statuses() {
    for (status, answer) in [
        (Some(200), Availability::Rules),
        (Some(204), Availability::Rules),
        (Some(301), Availability::Unavailable),
        (Some(401), Availability::Unavailable),
        (Some(403), Availability::Unavailable),
        (Some(404), Availability::Unavailable),
        (Some(410), Availability::Unavailable),
        (Some(429), Availability::Unreachable),
        (Some(500), Availability::Unreachable),
        (Some(503), Availability::Unreachable),
        (Some(999), Availability::Unreachable),
        (Some(100), Availability::Unreachable),
        (Some(0), Availability::Unreachable),
        (None, Availability::Unreachable),
    ] {
        let robots = Robots::from_response(
            status,
            b"User-agent: *\nDisallow: /x\nCrawl-delay: 5\n",
            "foobot",
        );
        assert_eq!(robots.availability(), answer, "{status:?}");
        assert_eq!(
            robots.allows_path("/y").allowed,
            answer != Availability::Unreachable,
            "{status:?}"
        );
        assert_eq!(
            robots.allows_path("/x").allowed,
            answer == Availability::Unavailable,
            "{status:?}"
        );
        assert_eq!(
            robots.crawl_delay().is_some(),
            answer == Availability::Rules,
            "an error page holds no rules"
        );
        assert!(robots.allows_path("/robots.txt").allowed, "{status:?}");
    }
}

#[test]
fn the_cut_leaves_no_half_line() {
    let head = "User-agent: *\nDisallow: /early\n#";
    // The last line begins within the limit and ends behind it.
    let padding = "x".repeat(MAX_BYTES - head.len() - "\nAllow: /early/bu".len());
    let body = format!("{head}{padding}\nAllow: /early/but/late\nDisallow: /late\n");
    check(
        &body,
        "foobot",
        &["/late"],
        &["/early", "/early/but/late", "/early/bu"],
    );
    let whole = &body[..MAX_BYTES - "\nAllow: /early/bu".len()];
    check(whole, "foobot", &[], &["/early"]);
    // A fetcher that stopped at the limit hands in the same bytes and gets the same rules.
    assert_eq!(
        robots(&body, "foobot"),
        robots(&body[..MAX_BYTES], "foobot")
    );
    check(
        format!(
            "{}{}",
            "User-agent: *\rDisallow: /x\r",
            "y".repeat(MAX_BYTES)
        ),
        "foobot",
        &["/"],
        &["/x"],
    );
}

#[test]
fn ten_megabytes() {
    let lines = "Disallow: /b/\n".repeat(10 * 1024 * 1024 / 14);
    let robots = robots(format!("User-agent: *\n{lines}Disallow: /late\n"), "foobot");
    assert!(!robots.allows_path("/b/").allowed);
    assert!(robots.allows_path("/late").allowed);
    check("x".repeat(10 * 1024 * 1024), "foobot", &["/"], &[]);
    check("\n".repeat(10 * 1024 * 1024), "foobot", &["/"], &[]);
}

#[test]
fn equal_rules_are_kept_once() {
    let robots = robots(
        format!(
            "User-agent: *\n{}",
            "Disallow: /%62/\nDisallow: /b/\n".repeat(1000)
        ),
        "foobot",
    );
    assert_eq!(robots.rules.len(), 1);
}

#[test]
fn nul_ends_a_line() {
    check(
        b"User-agent: *\0Disallow: /x\0y\n\0\0",
        "foobot",
        &["/y", "/"],
        &["/x", "/xy"],
    );
}

#[test]
fn utf16_without_a_mark_is_noise() {
    let body: Vec<u8> = "User-agent: *\nDisallow: /\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    check(body, "foobot", &["/"], &[]);
    check([0xFF, 0xFE, 0x00, 0xD8, 0x41], "foobot", &["/"], &[]);
    check([0xFE, 0xFF], "foobot", &["/"], &[]);
}

/// A rule is shown in logs and terminals: no byte of it may be a control character.
#[test]
fn a_rule_is_safe_to_print() {
    let robots = robots(
        b"User-agent: *\nDisallow: /\x1B[2J\x07\xE2\x80\xAE\x7F\n".as_slice(),
        "foobot",
    );
    let line = robots.rules[0].line();
    assert_eq!(line, "Disallow: /%1B[2J%07%E2%80%AE%7F");
}

/// Stars with near misses, for which a backtracking matcher would take exponential time.
#[test]
fn many_stars_do_not_backtrack() {
    let rule = format!("/{}b$", "*a".repeat(5_000));
    check(
        format!("User-agent: *\nDisallow: {rule}\n"),
        "foobot",
        &[&format!("/{}", "a".repeat(100_000))],
        &[],
    );
}
