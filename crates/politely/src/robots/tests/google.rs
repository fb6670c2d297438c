//! The checks of google/robotstxt's `robots_test.cc`, under similar names. The tests say where this
//! parser differs on purpose.

use url::Url;

use super::{allows, check, robots};
use crate::robots::pattern::{Rule, normalise_path};

#[test]
fn system_test() {
    let all = "user-agent: FooBot\ndisallow: /\n";
    assert!(robots("", "FooBot").allows_path("").allowed);
    assert!(
        robots(all, "").allows_path("").allowed,
        "no token of ours is named"
    );
    assert!(
        !robots(all, "FooBot").allows_path("").allowed,
        "an empty path is the root"
    );
    assert!(robots("", "").allows_path("").allowed);
    assert!(
        robots("user-agent:\ndisallow: /\n", "")
            .allows_path("/")
            .allowed,
        "an empty name names nobody"
    );
}

#[test]
fn line_syntax_line() {
    assert!(!allows("user-agent: FooBot\ndisallow: /\n", "/x/y"));
    assert!(allows("foo: FooBot\nbar: /\n", "/x/y"));
    assert!(
        !allows("user-agent FooBot\ndisallow /\n", "/x/y"),
        "a forgotten colon"
    );
}

#[test]
fn line_syntax_groups() {
    let body = "allow: /foo/bar/\n\n\
        user-agent: FooBot\ndisallow: /\nallow: /x/\n\
        user-agent: BarBot\ndisallow: /\nallow: /y/\n\n\nallow: /w/\n\
        user-agent: BazBot\n\n\
        user-agent: FooBot\nallow: /z/\ndisallow: /\n";
    check(body, "FooBot", &["/x/b", "/z/d"], &["/y/c", "/foo/bar/"]);
    check(body, "BarBot", &["/y/c", "/w/a"], &["/z/d", "/foo/bar/"]);
    check(body, "BazBot", &["/z/d"], &["/foo/bar/"]);
}

#[test]
fn line_syntax_groups_other_rules() {
    for between in [
        "Sitemap: https://foo.bar/sitemap",
        "Invalid-Unknown-Line: unknown",
        "Crawl-delay: 5",
    ] {
        let body = format!("User-agent: BarBot\n{between}\nUser-agent: *\nDisallow: /\n");
        check(&body, "FooBot", &[], &["/"]);
        check(&body, "BarBot", &[], &["/"]);
    }
}

#[test]
fn rep_line_names_case_insensitive() {
    let lower = "user-agent: FooBot\nallow: /x/\ndisallow: /\n";
    for body in [
        lower.to_owned(),
        lower.to_uppercase().replace("/X/", "/x/"),
        lower.replace("allow", "aLLoW"),
    ] {
        check(&body, "FooBot", &["/x/y"], &["/a/b"]);
    }
}

/// Google's parser refuses an agent that is no product token. This one takes the token at its
/// beginning.
#[test]
fn valid_user_agents_to_obey() {
    for ours in [
        "Foobot",
        "foobot/2.1",
        " Foobot ",
        "Foobot Bar",
        "foobot*",
        "foobot (+https://foo.bar)",
    ] {
        check("user-agent: foobot\ndisallow: /\n", ours, &[], &["/"]);
    }
    for other in ["Foobot-Bar", "Foo_Bar", "foobot2", "foo", "", "ツ", "*"] {
        check("user-agent: foobot\ndisallow: /\n", other, &["/"], &[]);
    }
}

#[test]
fn user_agent_value_case_insensitive() {
    for written in ["FOO BAR", "foo bar", "FoO bAr"] {
        let body = format!("User-Agent: {written}\nAllow: /x/\nDisallow: /\n");
        check(&body, "Foo", &["/x/y"], &["/a/b"]);
        check(&body, "foo", &["/x/y"], &["/a/b"]);
    }
}

/// Google's parser refuses an agent called `Foo Bar`. Here it is `Foo`.
#[test]
fn accept_user_agent_up_to_first_space() {
    let body = "User-Agent: *\nDisallow: /\nUser-Agent: Foo Bar\nAllow: /x/\nDisallow: /\n";
    check(body, "Foo", &["/x/y"], &["/y"]);
    check(body, "Foo Bar", &["/x/y"], &["/y"]);
    check(body, "Bar", &[], &["/x/y"]);
}

#[test]
fn global_groups_secondary() {
    let global = "user-agent: *\nallow: /\nuser-agent: FooBot\ndisallow: /\n";
    let specific = "user-agent: FooBot\nallow: /\nuser-agent: BarBot\ndisallow: /\nuser-agent: BazBot\ndisallow: /\n";
    check("", "FooBot", &["/x/y"], &[]);
    check(global, "FooBot", &[], &["/x/y"]);
    check(global, "BarBot", &["/x/y"], &[]);
    check(specific, "QuxBot", &["/x/y"], &[]);
}

#[test]
fn allow_disallow_value_case_sensitive() {
    assert!(!allows("user-agent: FooBot\ndisallow: /x/\n", "/x/y"));
    assert!(allows("user-agent: FooBot\ndisallow: /X/\n", "/x/y"));
}

#[test]
fn longest_match() {
    let page = "/x/page.html";
    for (rules, allowed, disallowed) in [
        ("disallow: /x/page.html\nallow: /x/", "/x/", page),
        ("allow: /x/page.html\ndisallow: /x/", page, "/x/"),
        ("disallow: /x\nallow: /x/", "/x/", "/x"),
        ("allow: /page\ndisallow: /*.html", "/page", "/page.html"),
        ("allow: /x/page.\ndisallow: /*.html", page, "/x/y.html"),
    ] {
        check(
            format!("user-agent: FooBot\n{rules}\n"),
            "FooBot",
            &[allowed],
            &[disallowed],
        );
    }
    for tie in [
        "disallow: \nallow: ",
        "disallow: /\nallow: /",
        "disallow: /x/page.html\nallow: /x/page.html",
    ] {
        check(
            format!("user-agent: FooBot\n{tie}\n"),
            "FooBot",
            &[page],
            &[],
        );
    }
    let ours_beats_everyones = "User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\n";
    check(ours_beats_everyones, "FooBot", &["/x/page"], &["/y/page"]);
}

/// Google's parser leaves the escaping of the URL to the caller, and keeps unreserved escapes. The
/// RFC's own table (2.2.2) normalises both sides, so here every spelling of a path is the same
/// path.
#[test]
fn encoding() {
    let only = |path: &str| format!("User-agent: FooBot\nDisallow: /\nAllow: {path}\n");
    let query = "/foo/bar?qux=taz&baz=http://foo.bar?tar&par";
    check(only(query), "FooBot", &[query], &["/foo/bar?qux=taz"]);
    for rule in ["/foo/bar/ツ", "/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84"] {
        check(
            only(rule),
            "FooBot",
            &["/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84", "/foo/bar/ツ"],
            &["/foo/bar/"],
        );
    }
    for rule in ["/foo/bar/%62%61%7A", "/foo/bar/baz"] {
        check(
            only(rule),
            "FooBot",
            &["/foo/bar/baz", "/foo/bar/%62%61%7a"],
            &["/foo/bar/b"],
        );
    }
}

#[test]
fn special_characters() {
    let star = "User-agent: FooBot\nDisallow: /foo/bar/quz\nAllow: /foo/*/qux\n";
    check(
        star,
        "FooBot",
        &["/foo/quz", "/foo//quz", "/foo/bax/quz"],
        &["/foo/bar/quz"],
    );
    let end = "User-agent: FooBot\nDisallow: /foo/bar$\nAllow: /foo/bar/qux\n";
    check(
        end,
        "FooBot",
        &["/foo/bar/qux", "/foo/bar/", "/foo/bar/baz"],
        &["/foo/bar"],
    );
    let comment = "User-agent: FooBot\n# Disallow: /\nDisallow: /foo/quz#qux\nAllow: /\n";
    check(comment, "FooBot", &["/foo/bar"], &["/foo/quz"]);
}

/// Google's parser opens the directory too. This parser does not, because the rule does not say so.
#[test]
fn index_html_is_not_its_directory() {
    let body = "User-Agent: *\nAllow: /allowed-slash/index.html\nDisallow: /\n";
    check(
        body,
        "foobot",
        &["/allowed-slash/index.html"],
        &["/allowed-slash/", "/allowed-slash/index.htm", "/other"],
    );
}

/// Google's parser cuts a line at 16 KiB, which makes an `Allow` wider than written. Here only the
/// size of the file bounds a line.
#[test]
fn line_too_long() {
    let long = format!("/x/{}", "a".repeat(20_000));
    check(
        format!("user-agent: FooBot\ndisallow: {long}/qux\n"),
        "FooBot",
        &["/fux", &format!("{long}/fux")],
        &[&format!("{long}/qux")],
    );
    let body = format!("user-agent: FooBot\ndisallow: /\nallow: {long}/qux\n");
    check(
        body,
        "FooBot",
        &[&format!("{long}/qux")],
        &["/", &format!("{long}/fux")],
    );
}

#[test]
fn documentation_checks() {
    let only = |path: &str| format!("user-agent: FooBot\ndisallow: /\nallow: {path}\n");
    let fish = [
        "/fish",
        "/fish.html",
        "/fish/salmon.html",
        "/fishheads",
        "/fishheads/yummy.html",
        "/fish.html?id=x",
    ];
    for rule in ["/fish", "/fish*"] {
        check(
            only(rule),
            "FooBot",
            &fish,
            &["/bar", "/Fish.asp", "/catfish", "/?id=fish"],
        );
    }
    check(
        only("/fish/"),
        "FooBot",
        &["/fish/", "/fish/salmon", "/fish/?salmon", "/fish/?id=x"],
        &["/fish", "/fish.html", "/Fish/Salmon.html"],
    );
    let php = ["/filename.php", "/folder/filename.php"];
    let php_inside = [
        "/folder/filename.php?p",
        "//folder/any.php.file.html",
        "/filename.php/",
        "/index?f=filename.php/",
    ];
    check(
        only("/*.php"),
        "FooBot",
        &[&php[..], &php_inside].concat(),
        &["/php/", "/index?php", "/windows.PHP"],
    );
    check(
        only("/*.php$"),
        "FooBot",
        &php,
        &[
            "/filename.php?p",
            "/filename.php/",
            "/filename.php5",
            "/php/",
            "/filename?php",
            "/aaaphpaaa",
            "//windows.PHP",
        ],
    );
    check(
        only("/fish*.php"),
        "FooBot",
        &["/fish.php", "/fishheads/catfish.php?p"],
        &["/bar", "/Fish.PHP"],
    );

    for (rules, allowed, disallowed) in [
        ("allow: /p\ndisallow: /", &["/page"][..], &["/x"][..]),
        ("allow: /folder\ndisallow: /folder", &["/folder/page"], &[]),
        ("allow: /page\ndisallow: /*.htm", &["/page"], &["/page.htm"]),
        ("allow: /$\ndisallow: /", &["/"], &["/page.html"]),
    ] {
        check(
            format!("user-agent: FooBot\n{rules}\n"),
            "FooBot",
            allowed,
            disallowed,
        );
    }
}

#[test]
fn all_line_endings() {
    let lines = [
        "User-Agent: foo",
        "Allow: /some/path",
        "User-Agent: bar",
        "",
        "",
        "Disallow: /",
    ];
    let mixed =
        "User-Agent: foo\nAllow: /some/path\r\nUser-Agent: bar\n\r\n\nDisallow: /".to_owned();
    let mac_and_dos =
        "User-Agent: foo\rAllow: /some/path\n\rUser-Agent: bar\r\r\nDisallow: /\r\r".to_owned();
    for body in [
        lines.join("\n"),
        lines.join("\n") + "\n",
        lines.join("\r\n"),
        lines.join("\r"),
        mixed,
        mac_and_dos,
    ] {
        check(&body, "foo", &["/", "/some/path"], &[]);
        check(&body, "bar", &[], &["/", "/some/path"]);
    }
}

#[test]
fn utf8_byte_order_mark_is_skipped() {
    let body = b"User-Agent: foo\nDisallow: /AnyValue\n".as_slice();
    for mark in [
        b"\xEF\xBB\xBF".as_slice(),
        b"\xEF\xBB",
        b"\xEF",
        b"",
        b"\xEF\xBB\xBF\xEF\xBB\xBF",
        b" \r\n\xEF\xBB\xBF \xEF\xBB\xBF",
    ] {
        check([mark, body].concat(), "foo", &["/"], &["/AnyValue"]);
    }
    check(
        [b"\xEF\x11\xBF".as_slice(), body].concat(),
        "foo",
        &["/AnyValue"],
        &[],
    );
    check(
        "User-Agent: foo\n\u{feff}Disallow: /AnyValue\n",
        "foo",
        &["/AnyValue"],
        &[],
    );
}

#[test]
fn sitemap_lines_belong_to_no_group() {
    let file = "User-agent: a\nSitemap: http://foo.bar/1.xml # first\nDisallow: /\n\
        sitemap http://foo.bar/2.xml\nSITE-MAP:/3.xml\nSitemap\nSitemaps: http://foo.bar/4\n";
    let found = crate::robots::sitemaps(file.as_bytes());
    assert_eq!(
        found,
        ["http://foo.bar/1.xml", "http://foo.bar/2.xml", "/3.xml"]
    );
}

#[test]
fn sitemap_lines_may_appear_anywhere() {
    let groups = ["User-Agent: foo\nDisallow: /a\n", "Disallow: /b\n"];
    let sitemap = "Sitemap: http://foo.bar/sitemap.xml\n";
    for body in [
        format!("{sitemap}{}", groups.concat()),
        groups.join(sitemap),
        format!("{}{sitemap}", groups.concat()),
    ] {
        check(body, "foo", &["/"], &["/a", "/b"]);
    }
}

#[test]
fn path_params_query() {
    let robots = robots(
        "User-agent: *\nAllow: /a/b?c=d&e=f$\nAllow: /$\nDisallow: /\n",
        "foo",
    );
    for url in [
        "http://www.example.com",
        "http://www.example.com/",
        "https://u@example.com:10/a/b?c=d&e=f#fragment",
    ] {
        assert!(robots.allows(&Url::parse(url).unwrap()).allowed, "{url}");
    }
    assert!(
        !robots
            .allows(&Url::parse("http://www.example.com/a/b?c=d&e=f&g").unwrap())
            .allowed
    );
    assert!(
        robots.allows_path("a/b?c=d&e=f").allowed,
        "a first slash is understood"
    );
}

#[test]
fn escape_pattern() {
    let line = |value: &str| {
        Rule::parse(false, value.as_bytes())
            .unwrap()
            .line()
            .to_owned()
    };
    assert_eq!(
        line("http://www.example.com"),
        "Disallow: /http://www.example.com"
    );
    assert_eq!(line("/a/b/c"), "Disallow: /a/b/c");
    assert_eq!(line("/á"), "Disallow: /%C3%A1");
    assert_eq!(line("/%aa"), "Disallow: /%AA");
    assert_eq!(normalise_path("/á%aa"), "/%C3%A1%AA");
}
