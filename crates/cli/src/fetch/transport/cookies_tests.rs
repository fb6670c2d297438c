use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn set(cookies: &Cookies, egress: usize, at: &str, fields: &[&str]) {
    let fields = fields
        .iter()
        .map(|field| (SET_COOKIE, field.parse().unwrap()));
    cookies.keep(egress, &url(at), &fields.collect());
}

fn sent(cookies: &Cookies, egress: usize, at: &str) -> Option<String> {
    let field = cookies.for_url(egress, &url(at))?;
    Some(field.to_str().unwrap().to_owned())
}

#[test]
fn a_cookie_goes_where_a_browser_sends_it() {
    let cookies = Cookies::new(1);
    assert_eq!(sent(&cookies, 0, "http://a.example.com/"), None);
    let fields = [
        "a=1",
        "b=2; Domain=example.com",
        "c=3; Secure",
        "d=4; Path=/deep/",
    ];
    set(&cookies, 0, "http://a.example.com/deep/page", &fields);
    let at = |at| sent(&cookies, 0, at);
    // `a` and `b` have the default path, /deep. A page over http cannot get a Secure cookie
    // back.
    assert_eq!(
        at("http://a.example.com/deep/x").as_deref(),
        Some("d=4; a=1; b=2")
    );
    assert_eq!(at("http://b.example.com/deep").as_deref(), Some("b=2"));
    assert_eq!(at("http://a.example.com/"), None);
    assert_eq!(at("http://example.org/deep"), None);
}

#[test]
fn a_cookie_whose_prefix_promises_more_than_its_attributes_is_refused() {
    let cookies = Cookies::new(1);
    let at = "https://a.example.com/";
    let refused = [
        "__Host-a=1; Path=/",
        "__Host-b=1; Secure",
        "__Host-c=1; Secure; Path=/; Domain=example.com",
        "__secure-d=1",
    ];
    set(&cookies, 0, at, &refused);
    assert_eq!(sent(&cookies, 0, at), None);
    set(&cookies, 0, at, &["__Host-a=1; Secure; Path=/"]);
    set(&cookies, 0, at, &["__Secure-b=2; Secure"]);
    let both = "__Host-a=1; __Secure-b=2";
    assert_eq!(sent(&cookies, 0, at).as_deref(), Some(both));
}

#[test]
fn a_cookie_is_replaced_and_removed() {
    let cookies = Cookies::new(1);
    set(&cookies, 0, "http://a.example/", &["a=1"]);
    set(&cookies, 0, "http://a.example/", &["a=2"]);
    assert_eq!(
        sent(&cookies, 0, "http://a.example/").as_deref(),
        Some("a=2")
    );
    set(&cookies, 0, "http://a.example/", &["a=2; Max-Age=0"]);
    assert_eq!(sent(&cookies, 0, "http://a.example/"), None);
}

#[test]
fn a_public_suffix_reaches_no_other_site() {
    let cookies = Cookies::new(1);
    set(&cookies, 0, "http://a.co.uk/", &["a=1; Domain=co.uk"]);
    assert_eq!(sent(&cookies, 0, "http://b.co.uk/"), None);
    set(&cookies, 0, "http://127.0.0.1:8080/", &["a=1"]);
    assert!(sent(&cookies, 0, "http://127.0.0.1:9090/").is_some());
    assert_eq!(sent(&cookies, 0, "http://127.0.1.1/"), None);
}

#[test]
fn a_site_that_sets_many_cookies_gets_the_latest_back() {
    let cookies = Cookies::new(1);
    for n in 0..90 {
        let field = format!("seen_{n}={}", "x".repeat(220));
        set(&cookies, 0, "http://a.example/", &[&field]);
    }
    let field = sent(&cookies, 0, "http://a.example/").unwrap();
    assert!(
        (6_000..=SITE_BYTES_MAX).contains(&field.len()),
        "{}",
        field.len()
    );
    assert!(field.contains("seen_89=") && !field.contains("seen_0="));
}

/// Has the server refuse a request with its cookies. Returns whether it was tried without them.
fn refuse(cookies: &Cookies, at: &str, is_served_without: bool) -> bool {
    let field = cookies.for_url(0, &url(at)).unwrap();
    let is_tried = cookies.may_be_refused(0, &url(at), &field);
    if is_tried {
        cookies.tried_without(0, &url(at), &field, is_served_without);
    }
    is_tried
}

/// Sets so many cookies of 1 KB.
fn grow(cookies: &Cookies, at: &str, count: usize) {
    for n in 0..count {
        let field = format!("seen_{n}={}; Path=/", "x".repeat(1000));
        set(cookies, 0, at, &[&field]);
    }
}

#[test]
fn refused_cookies_are_forgotten_again_once_they_have_grown_again() {
    let cookies = Cookies::new(1);
    let page = "http://a.example/page";
    for _ in 0..3 {
        grow(&cookies, page, 6);
        assert!(refuse(&cookies, page, true));
        assert_eq!(sent(&cookies, 0, page), None);
        grow(&cookies, page, 1);
        assert!(!refuse(&cookies, page, true), "they have not grown yet");
        assert!(sent(&cookies, 0, page).is_some());
    }
}

#[test]
fn a_request_that_was_under_way_with_forgotten_cookies_leaves_those_that_came_since() {
    let cookies = Cookies::new(1);
    let page = url("http://a.example/page");
    grow(&cookies, page.as_str(), 6);
    let field = cookies.for_url(0, &page).unwrap();
    for _ in 0..2 {
        assert!(cookies.may_be_refused(0, &page, &field));
        cookies.tried_without(0, &page, &field, true);
        set(&cookies, 0, page.as_str(), &["a=1"]);
    }
    assert_eq!(sent(&cookies, 0, page.as_str()).as_deref(), Some("a=1"));
}

#[test]
fn small_cookies_are_forgotten_once() {
    let cookies = Cookies::new(1);
    for is_first in [true, false, false] {
        set(&cookies, 0, "http://a.example/", &["a=1"]);
        assert_eq!(refuse(&cookies, "http://a.example/", true), is_first);
    }
}

#[test]
fn cookies_without_which_a_page_is_refused_too_stay_and_are_tried_again_only_when_larger() {
    let cookies = Cookies::new(1);
    let page = "http://a.example/page";
    for count in 1..=5 {
        grow(&cookies, page, count);
        for is_larger in [true, false, false] {
            assert_eq!(refuse(&cookies, page, false), is_larger);
        }
    }
    assert!(sent(&cookies, 0, page).is_some_and(|field| field.len() > 5000));
}

#[test]
fn a_host_that_refuses_its_cookies_leaves_those_of_others() {
    let cookies = Cookies::new(1);
    for host in ["a", "b"] {
        let fields = ["own=1; Path=/deep", "site=1; Domain=example.com"];
        set(&cookies, 0, &format!("http://{host}.example.com/"), &fields);
    }
    assert!(refuse(&cookies, "http://a.example.com/", true));
    assert_eq!(sent(&cookies, 0, "http://a.example.com/deep"), None);
    let others = sent(&cookies, 0, "http://b.example.com/deep");
    assert_eq!(others.as_deref(), Some("own=1"));
    assert!(refuse(&cookies, "http://b.example.com/deep", true));
    let jar = cookies.jar(0);
    assert!(jar.bytes == 0 && jar.sites.is_empty());
}

#[test]
fn the_bytes_of_a_cookie_go_back_as_they_came() {
    let cookies = Cookies::new(1);
    let field = HeaderValue::from_bytes(b"a=caf\xe9\xff\"q\"").unwrap();
    let headers = HeaderMap::from_iter([(SET_COOKIE, field)]);
    cookies.keep(0, &url("http://a.example/"), &headers);
    let sent = cookies.for_url(0, &url("http://a.example/")).unwrap();
    assert_eq!(sent.as_bytes(), b"a=caf\xe9\xff\"q\"");
}

#[test]
fn each_egress_has_its_own() {
    let cookies = Cookies::new(2);
    set(&cookies, 1, "http://a.example/", &["a=1"]);
    assert_eq!(sent(&cookies, 0, "http://a.example/"), None);
    assert!(sent(&cookies, 1, "http://a.example/").is_some());
}

#[test]
fn a_site_and_all_sites_are_bounded() {
    let cookies = Cookies::new(1);
    for n in 0..10_000 {
        set(&cookies, 0, "http://a.example/", &[&format!("c{n}={n}")]);
    }
    let count = |cookies: &Cookies, site| cookies.jar(0).sites[site].store.iter_any().count();
    assert_eq!(count(&cookies, "a.example"), PER_SITE_MAX);
    let large = format!("a={}", "x".repeat(4000));
    for n in 0..20_000 {
        set(&cookies, 0, &format!("http://h{n}.example/"), &[&large]);
    }
    let jar = cookies.jar(0);
    assert!(
        jar.bytes <= ALL_MAX && jar.bytes > ALL_MAX / 2,
        "{}",
        jar.bytes
    );
    assert!(jar.sites.contains_key("h19999.example") && !jar.sites.contains_key("h0.example"));
}

#[test]
fn what_is_no_cookie_costs_nothing() {
    let cookies = Cookies::new(1);
    for field in [
        "",
        "=",
        "; Path=/",
        "a=1; Domain=other.example",
        "a=1; Max-Age=0",
    ] {
        set(&cookies, 0, "http://a.example/", &[field]);
    }
    set(&cookies, 0, "http://a.example/", &[&"a=x".repeat(5000)]);
    let empty = cookies.jar(0).sites.is_empty();
    assert!(empty);
}
