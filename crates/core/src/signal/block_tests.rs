//! Tests of `block.rs`.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn page(status: u16, body: &str) -> Option<&'static str> {
    let status = StatusCode::from_u16(status).expect("a status");
    block_page(status, &HeaderMap::new(), body.as_bytes())
}

fn header(status: u16, name: &'static str, value: &'static str) -> Option<&'static str> {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_static(value));
    block_page(
        StatusCode::from_u16(status).expect("a status"),
        &headers,
        b"",
    )
}

#[test]
fn row_headers() {
    for status in [202, 401, 403, 405, 428, 429, 503] {
        assert_eq!(
            header(status, "cf-mitigated", "challenge"),
            Some("Cloudflare")
        );
        assert_eq!(
            header(status, "x-amzn-waf-action", "captcha"),
            Some("AWS WAF")
        );
        assert_eq!(
            header(status, "x-amzn-waf-action", " Challenge"),
            Some("AWS WAF")
        );
    }
    assert_eq!(header(403, "cf-mitigated", ""), None);
    assert_eq!(header(403, "cf-ray", "challenge"), None);
    for status in [200, 301, 404, 500, 502] {
        assert_eq!(header(status, "cf-mitigated", "challenge"), None);
    }
}

#[test]
fn row_vendors_pages() {
    for (status, body, vendor) in [
        (
            403,
            "<html><head><title>Just a moment...</title>",
            "Cloudflare",
        ),
        (
            503,
            "<script>window._cf_chl_opt={cvId:'3'}</script>",
            "Cloudflare",
        ),
        (
            403,
            "<title>Attention Required! | Cloudflare</title>",
            "Cloudflare",
        ),
        (
            403,
            "<H1>Access Denied</H1> Reference&#32;&#35;18&#46;1 https://errors.edgesuite.net/18.1",
            "Akamai",
        ),
        (
            428,
            "<iframe src=\"/_sec/cp_challenge/crypto_message-4-3.htm\">",
            "Akamai",
        ),
        (
            403,
            "{\"url\":\"https://geo.captcha-delivery.com/captcha/?initialCid=A\"}",
            "DataDome",
        ),
        (
            401,
            "<script src=\"https://ct.captcha-delivery.com/c.js\"></script>",
            "DataDome",
        ),
        (
            403,
            r#"{"appId":"PX1","blockScript":"/1/captcha.js"}"#,
            "PerimeterX",
        ),
        (429, "<div id=\"PX-captcha\"></div>", "PerimeterX"),
        (
            403,
            "<iframe src=\"/_Incapsula_Resource?SWUDNSAI=31\">",
            "Incapsula",
        ),
        (
            405,
            "<script>window.gokuProps = {\"key\":\"A\"};</script>",
            "AWS WAF",
        ),
    ] {
        assert_eq!(page(status, body), Some(vendor), "{body}");
        assert_eq!(page(200, body), None, "a page about it: {body}");
        assert_eq!(page(404, body), None, "{body}");
    }
}

#[test]
fn row_other_captchas_need_words_too() {
    let widget = "<div class=\"g-recaptcha\" data-sitekey=\"k\"></div>";
    let words = "Our systems have detected Unusual Traffic from your network.";
    assert_eq!(page(429, &format!("{words}{widget}")), Some("a captcha"));
    assert_eq!(page(403, widget), None);
    assert_eq!(page(403, words), None);
    assert_eq!(
        page(401, &format!("Log in. Show you are human {widget}")),
        None
    );
}

#[test]
fn row_more_vendors_pages() {
    for (status, body, vendor) in [
        (
            429,
            "<title>Sorry...</title>Our systems have detected unusual traffic from your computer network.",
            "Google",
        ),
        (
            503,
            "We're sorry... but your computer or network may be sending automated queries.",
            "Google",
        ),
        (
            403,
            "<title>Sucuri WebSite Firewall - Access Denied</title>",
            "Sucuri",
        ),
        (
            503,
            "<h1>Your access to this site has been limited by the site owner</h1>",
            "Wordfence",
        ),
        (403, "<title>Pardon Our Interruption</title>", "Imperva"),
        (
            429,
            "<script src=\"/149e9513/ips.js?KP_UIDz=0a\">",
            "Kasada",
        ),
        (
            403,
            "<script src=\"https://captcha.px-cdn.net/PX1/captcha.js\">",
            "PerimeterX",
        ),
    ] {
        assert_eq!(page(status, body), Some(vendor), "{body}");
        assert_eq!(page(404, body), None, "{body}");
    }
}

#[test]
fn row_challenges_with_status_200() {
    for (body, vendor) in [
        (
            "<title>Just a moment...</title><script>window._cf_chl_opt={}</script>",
            "Cloudflare",
        ),
        (
            "<p>Please enable JS and disable any ad blocker</p><script src=\"https://ct.captcha-delivery.com/c.js\">",
            "DataDome",
        ),
        (
            "<title>Access to this page has been denied</title><div id=\"px-captcha\">",
            "PerimeterX",
        ),
        (
            "<iframe src=\"/_Incapsula_Resource?SWUDNSAI=31\">Request unsuccessful. Incapsula incident ID: 0-1</iframe>",
            "Incapsula",
        ),
        (
            "<title>Human Verification</title><script>window.gokuProps = {}</script>",
            "AWS WAF",
        ),
        (
            "<meta http-equiv=\"refresh\" content=\"5; URL='/?bm-verify=AAQAAAAE'\" />",
            "Akamai",
        ),
        (
            "<title>Request Rejected</title>The requested URL was rejected. Please consult with your administrator.",
            "F5",
        ),
    ] {
        assert_eq!(page(200, body), Some(vendor), "{body}");
        let long = format!("{body}{}", " ".repeat(BODY_SCANNED));
        assert_eq!(page(200, &long), None, "a page with content: {body}");
    }
}

#[test]
fn trap_a_captcha_in_a_form_is_no_block() {
    let widget = "<div class=\"h-captcha\" data-sitekey=\"k\"></div>";
    let contact = format!("<form>Tell us that you are human {widget}<button>Send</button></form>");
    assert_eq!(page(200, &contact), None);
    let log_in = format!("<form>Confirm you are human <input type=\"password\"> {widget}</form>");
    for status in [200, 401, 403] {
        assert_eq!(page(status, &log_in), None, "{status}");
    }
}

#[test]
fn trap_plain_403_is_no_block() {
    assert_eq!(page(403, ""), None);
    assert_eq!(page(403, "<h1>403 Forbidden</h1><hr>nginx"), None);
    assert_eq!(page(403, "<h1>Access Denied</h1>"), None);
}

#[test]
fn trap_cloudflare_1015_is_a_rate_limit() {
    let body = "<title>Access denied | x.com used Cloudflare to restrict access</title>\
                <h2>Error 1015</h2><h1>You are being rate limited</h1><a class=\"cf-chl-x\">";
    assert_eq!(page(429, body), None);
    assert_eq!(page(429, "error code: 1015"), None);
}

#[test]
fn trap_scripts_on_every_protected_page_are_no_challenge() {
    let body = "<h1>403</h1><script>window.__CF$cv$params={};\
                a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';</script>";
    assert_eq!(page(403, body), None);
    for script in [
        "<script>window._pxAppId = 'PX1';</script>",
        "<script src=\"/_Incapsula_Resource?SWJIYLWA=719d34d31c8e3a6e6fffd425f7e032f3\"></script>",
        "<script>window.awsWafCookieDomainList = ['example.com']</script>",
    ] {
        assert_eq!(page(403, script), None, "{script}");
    }
}

#[test]
fn only_the_beginning_is_read() {
    let marker = "_cf_chl_opt";
    let at = |at: usize| format!("{}{marker}", " ".repeat(at));
    assert_eq!(
        page(403, &at(BODY_SCANNED - marker.len())),
        Some("Cloudflare")
    );
    assert_eq!(page(403, &at(BODY_SCANNED - marker.len() + 1)), None);
}

proptest! {
    #[test]
    fn any_body_is_read_without_harm(body in any::<Vec<u8>>(), status in 100_u16..1000) {
        let status = StatusCode::from_u16(status).expect("a status");
        let _ = block_page(status, &HeaderMap::new(), &body);
    }
}
