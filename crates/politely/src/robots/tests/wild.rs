//! Files as found in the wild: the cases that Protego and crawler-commons check.

use url::Url;

use super::{check, robots};

#[test]
fn a_version_behind_the_name_is_not_part_of_it() {
    for name in [
        "foobot/1.2",
        "FooBot/1.2 (+https://foo.bar)",
        "foobot;x",
        "foobot<BR>",
        "foobot ",
    ] {
        check(
            format!("User-agent: {name}\nDisallow: /x\nUser-agent: *\nDisallow: /\n"),
            "foobot",
            &["/y"],
            &["/x"],
        );
    }
    check(
        "User-agent: Mozilla/5.0 (compatible; Butterfly/1.0)\nDisallow: /\n",
        "butterfly",
        &["/"],
        &[],
    );
}

#[test]
fn names_are_whole_tokens_in_any_order() {
    let (long, short) = (
        "User-agent: crawlerbot\nDisallow: /foo\n",
        "User-agent: crawler\nAllow: /foo\n",
    );
    for body in [[long, short].concat(), [short, long].concat()] {
        check(&body, "crawlerbot", &[], &["/foo"]);
        check(&body, "crawler", &["/foo"], &[]);
    }
    check("User-agent: MJ12bot\nDisallow: /\n", "MJ13bot", &["/"], &[]);
    check(
        "User-agent: UnicödeBöt\nDisallow: /\n",
        "UnicödeBöt/2",
        &[],
        &["/"],
    );
}

#[test]
fn misspelled_fields() {
    for field in [
        "Disallow",
        "Dissallow",
        "Dissalow",
        "Disalow",
        "Diasllow",
        "Disallaw",
        "desallow",
        "disallow ",
    ] {
        check(
            format!("User-agent: *\n{field}: /two\n"),
            "foobot",
            &["/"],
            &["/two"],
        );
    }
    for field in [
        "useragent:",
        "useg-agent:",
        "User Agent:",
        "user_agent:",
        "useragent",
        "User-agent :",
    ] {
        check(
            format!("{field} foobot\nDisallow: /\n"),
            "foobot",
            &[],
            &["/"],
        );
    }
    check(
        "User-agent: *\nDisallow: /\nAlow: /x\nAllowed: /x\n",
        "foobot",
        &[],
        &["/x"],
    );
    check(
        "User-agent: *\nDisallow: /x\nAllow all robots\n",
        "foobot",
        &["/"],
        &["/x"],
    );
    check(
        "User-agent: *\nDisallow /wiki/Talk:x\n",
        "foobot",
        &["/wiki/"],
        &["/wiki/Talk:x"],
    );
}

#[test]
fn rules_before_any_group_bind_nobody() {
    let body = "Disallow: /a\nCrawl-delay: 5.2\nUser-agent: testbot\nDisallow: /b\n";
    for agent in ["testbot", "other"] {
        check(body, agent, &["/a"], &[]);
        assert_eq!(robots(body, agent).crawl_delay(), None);
    }
}

#[test]
fn an_empty_disallow_allows_and_ends_the_list_of_names() {
    let body = "User-agent: one\nDisallow:\nUser-agent: two\nDisallow: /\nUser-agent: three\n";
    check(body, "one", &["/", "/x"], &[]);
    check(body, "two", &[], &["/"]);
    check(body, "three", &["/"], &[]);
    check(
        "User-agent: one\nDisallow: /x\nDisallow:\n",
        "one",
        &["/"],
        &["/x"],
    );
}

#[test]
fn a_name_alone_frees_from_the_rules_of_everyone() {
    check(
        "User-agent: *\nDisallow: /\nUser-agent: foobot\n",
        "foobot",
        &["/"],
        &[],
    );
}

#[test]
fn groups_of_one_name_add_up() {
    let body = "User-agent: *\nDisallow: /a\n\nUser-agent: foobot\nDisallow: /b\n\nUser-agent: *\nDisallow: /c\n\nUser-agent: bar\nUser-agent: FOOBOT\nDisallow: /d\n";
    check(body, "foobot", &["/a", "/c"], &["/b", "/d"]);
    check(body, "other", &["/b", "/d"], &["/a", "/c"]);
    check(body, "bar", &["/a", "/b"], &["/d"]);
}

#[test]
fn wildcards() {
    for (rule, misses, matches) in [
        (
            "/disallowed/*/end$",
            &["/disallowed", "/disallowed/x/endlater"][..],
            &["/disallowed/x/end", "/disallowed/x/y/end"][..],
        ),
        (
            "/protego*work",
            &["/rotego_work", "/protego_wor"],
            &["/protegoworks", "/protego/works"],
        ),
        ("*m", &["/foo", "/foo/bar.txt"], &["/foo.htm", "/moo"]),
        ("*", &[], &["/", "/x"]),
        (
            "/foo*/*bar.html",
            &["/food/rebarf.htm"],
            &["/foo/bar.html", "/foo/a/b/rebar.html"],
        ),
        ("*****/****.js", &["/inlife/daily/"], &["/xyz/foo.js"]),
        ("*/p", &["/q"], &["/page", "/q/page"]),
        (
            "//folder/*",
            &["/folder/page", "//folder"],
            &["//folder/page"],
        ),
        ("/*s=", &["/", "/s/"], &["/?s=asd"]),
        ("/?", &["/"], &["/?query"]),
        ("/*ab*ab$", &["/ab"], &["/abab", "/ababab"]),
        ("/*aba*ba$", &["/aba"], &["/ababa"]),
        ("/a*$", &["/b"], &["/a", "/ab"]),
        ("$", &["/x"], &["/"]),
        ("private", &["/", "/x/private"], &["/private/x"]),
    ] {
        check(
            format!("User-agent: *\nDisallow: {rule}\n"),
            "foobot",
            misses,
            matches,
        );
    }
}

#[test]
fn a_dollar_is_special_only_at_the_end() {
    let body = "User-agent: *\nDisallow: /x$/abc\nDisallow: /y*y/abc$\n";
    check(
        body,
        "foobot",
        &["/yay/abcd"],
        &["/x$/abcdef", "/x%24/abcdef", "/yay/abc"],
    );
}

#[test]
fn escaped_characters() {
    for (rule, misses, matches) in [
        (
            "/x/abc%24",
            &["/x/abc"][..],
            &["/x/abc$", "/x/abc$abc", "/x/abc%24"][..],
        ),
        ("/x%2Ax/abc", &["/xabcx/abc"], &["/x*x/abc", "/x%2ax/abc"]),
        (
            "/file-%2A.html",
            &["/file-foo.html"],
            &["/file-*.html", "/file-%2A.html"],
        ),
        ("/*%20", &["/", "/foobar/"], &["/foobar%20/", "/foo bar"]),
        (
            "/topic/9%2F11/",
            &["/topic/9/11/"],
            &["/topic/9%2F11/x", "/topic/9%2f11/x"],
        ),
        (
            "/q?*mime=application%2Fpdf",
            &["/q?mime=application/pdf"],
            &["/q?a&mime=application%2Fpdf"],
        ),
        ("/a%3cd.html", &["/acd.html"], &["/a<d.html", "/a%3Cd.html"]),
        ("/a<*", &["/a"], &["/a<d.html", "/a%3cd.html"]),
        (
            "/k%C3%B6nyvek/Käyttäjä:",
            &["/k"],
            &["/könyvek/K%C3%A4ytt%C3%A4j%C3%A4:"],
        ),
        ("/100%", &["/100"], &["/100%", "/100%25"]),
    ] {
        check(
            format!("User-agent: *\nDisallow: {rule}\n"),
            "foobot",
            misses,
            matches,
        );
    }
}

/// The URL standard escapes `'` in a query and leaves `|` in a path: neither spelling may slip past
/// a rule.
#[test]
fn a_parsed_url_meets_the_rule_as_written() {
    let rules = robots(
        "User-agent: *\nDisallow: /?q='x\nDisallow: /a|b\nDisallow: /c^d\nDisallow: /e f\n",
        "foobot",
    );
    for url in [
        "http://h/?q='x",
        "http://h/a|b",
        "http://h/c^d",
        "http://h/e f",
        "http://h/e%20f#g",
    ] {
        assert!(!rules.allows(&Url::parse(url).unwrap()).allowed, "{url}");
    }
}

#[test]
fn latin1_in_one_rule_spoils_no_other() {
    let body = b"User-agent: *\r\nDisallow: /b\xFCcher/\r\nDisallow: /x/\r\n";
    check(body, "foobot", &["/b%C3%BCcher/"], &["/x/", "/b%FCcher/"]);
}

#[test]
fn utf16_with_a_mark_is_read() {
    let text = "\u{feff}User-agent: *\r\nDisallow: /profile\r\n";
    let le: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let be: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for body in [le, be] {
        check(&body, "foobot", &["/"], &["/profile"]);
        check(&body[..body.len() - 1], "foobot", &["/"], &["/profile"]);
    }
}

#[test]
fn html_is_no_rule() {
    let page = "<!DOCTYPE HTML><HTML><HEAD><TITLE>Site under Maintenance</TITLE></HEAD></HTML>";
    check(page, "foobot", &["/"], &[]);
}

#[test]
fn the_verdict_names_the_line_that_decided() {
    let robots = robots(
        "User-agent: *\nDisallow: /b\u{fc}cher/ # books\nAllow: /b*/free$\n",
        "foobot",
    );
    let rule = |path: &str| robots.allows_path(path).rule;
    assert_eq!(rule("/bücher/x"), Some("Disallow: /b%C3%BCcher/"));
    assert_eq!(rule("/b/free"), Some("Allow: /b*/free$"));
    assert_eq!(rule("/x"), None);
}

#[test]
fn robots_txt_itself_is_always_allowed() {
    check(
        "User-agent: *\nDisallow: /\n",
        "foobot",
        &["/robots.txt"],
        &["/robots.txt.bak", "/x/robots.txt"],
    );
}
