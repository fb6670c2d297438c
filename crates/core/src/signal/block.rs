//! Recognises challenge and block pages.
//!
//! A limit goes away when a client slows down. A challenge or block page does not. A client that
//! treats it as a limit keeps sending to a host that blocks it on purpose. But a key that is
//! wrongly taken for blocked is lost until a person looks. So only evidence counts that the vendors
//! put there themselves, and only on the statuses that they use. In the table, *errors* means 401,
//! 403, 405, 428, 429 and 503.
//!
//! | vendor | evidence | on |
//! | --- | --- | --- |
//! | Cloudflare | `cf-mitigated: challenge` | 202, errors |
//! | AWS WAF | `x-amzn-waf-action: captcha` or `challenge` | 202, errors |
//! | Cloudflare | script variables of its challenge, titles of both pages | errors |
//! | Akamai | its denial (`errors.edgesuite.net`), its challenge's address | errors |
//! | `DataDome` | the address of its captcha | errors |
//! | `PerimeterX` (HUMAN) | its captcha's element, the block script in its JSON | errors |
//! | Imperva Incapsula | its challenge's frame or incident number | errors |
//! | AWS WAF | its challenge's variables | errors |
//! | Google | the words of its "sorry" page | errors |
//! | Sucuri, Wordfence, Kasada, F5 | the words or scripts of their block pages | errors |
//! | others | a captcha widget *and* words that ask for a human, no login form | 403, 429, 503 |
//! | all of these vendors | evidence *and* words of the page, on a whole short page | 200 |
//!
//! A short page has fewer bytes than [`BODY_SCANNED`]. A 403 without such evidence is a URL that is
//! not readable. Three things look alike and do not count:
//!
//! * Cloudflare's error 1015, which is a rate limit in the form of a block page.
//! * Scripts that vendors put into every page they protect, plain 403s included: Cloudflare's
//!   `/cdn-cgi/challenge-platform/`, `PerimeterX`'s `_pxAppId`, Incapsula's
//!   `_Incapsula_Resource?SWJIYLWA`, AWS WAF's `awsWafCookieDomainList`.
//! * A captcha widget alone: login and contact forms have one.
//!
//! A server can hide the evidence behind more than [`BODY_SCANNED`] bytes of comment. Its answer is
//! then an ordinary refusal, and the breaker handles it.

use http::{HeaderMap, StatusCode};

use super::words::Words;

/// Bytes of a body that are scanned. Real challenge pages show their evidence within the first 8
/// KiB.
pub const BODY_SCANNED: usize = 16 * 1_024;

/// Returns the vendor of a challenge or block page, for the operator to read. `None` if it is not
/// known to be one.
///
/// The work is bounded and allocates nothing. Statuses not in the table cost one comparison. The
/// body of a 200 is scanned only if the caller passes one.
pub fn block_page(
    status: StatusCode,
    headers: &HeaderMap,
    body_start: &[u8],
) -> Option<&'static str> {
    if status == StatusCode::OK {
        // A longer page has content of its own.
        let is_short = !body_start.is_empty() && body_start.len() < BODY_SCANNED;
        let found = is_short.then(|| Evidence::in_body(body_start))?;
        return found
            .vendor
            .filter(|_| found.is_interstitial && !found.rate_limit);
    }
    if !matches!(status.as_u16(), 202 | 401 | 403 | 405 | 428 | 429 | 503) {
        return None;
    }
    by_header(headers).or_else(|| {
        let body = &body_start[..body_start.len().min(BODY_SCANNED)];
        if status == StatusCode::ACCEPTED || body.is_empty() {
            None
        } else {
            by_body(status, body)
        }
    })
}

fn by_header(headers: &HeaderMap) -> Option<&'static str> {
    let says = |name: &str, words: &[&str]| {
        let value = headers
            .get(name)
            .map_or(&[][..], |value| value.as_bytes().trim_ascii());
        words
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    };
    if says("cf-mitigated", &["challenge"]) {
        Some("Cloudflare")
    } else if says("x-amzn-waf-action", &["captcha", "challenge"]) {
        Some("AWS WAF")
    } else {
        None
    }
}

fn by_body(status: StatusCode, body: &[u8]) -> Option<&'static str> {
    let found = Evidence::in_body(body);
    if found.rate_limit {
        None
    } else if let Some(vendor) = found.vendor.or(found.words) {
        Some(vendor)
    } else if found.captcha
        && found.asks_for_human
        && !found.logs_in
        && matches!(status.as_u16(), 403 | 429 | 503)
    {
        Some("a captcha")
    } else {
        None
    }
}

/// The proof that one marker gives.
#[derive(Clone, Copy)]
enum Proof {
    Vendor(&'static str),
    /// Words of a vendor's page, which an article may quote. With status 200 they need other
    /// evidence.
    Words(&'static str),
    RateLimit,
    Captcha,
    AsksForHuman,
    /// Words of a challenge or block page, which count beside the evidence of its vendor.
    Interstitial,
    /// A login form, which may have a captcha of its own.
    LogsIn,
}

/// The markers, compared without regard to ASCII case.
const MARKERS: [(&[u8], Proof); 57] = [
    (b"_cf_chl_opt", Proof::Vendor("Cloudflare")),
    (b"cf-chl-", Proof::Vendor("Cloudflare")),
    (
        b"<title>Just a moment...</title>",
        Proof::Words("Cloudflare"),
    ),
    (
        b"<title>Attention Required! | Cloudflare</title>",
        Proof::Words("Cloudflare"),
    ),
    (b"errors.edgesuite.net", Proof::Vendor("Akamai")),
    (b"/_sec/cp_challenge/", Proof::Vendor("Akamai")),
    (b"sec-if-cpt-container", Proof::Vendor("Akamai")),
    (b"captcha-delivery.com", Proof::Vendor("DataDome")),
    (b"px-captcha", Proof::Vendor("PerimeterX")),
    (b"\"blockScript\"", Proof::Vendor("PerimeterX")),
    (b"_Incapsula_Resource?SWUDNSAI", Proof::Vendor("Incapsula")),
    (b"_Incapsula_Resource?CWUDNSAI", Proof::Vendor("Incapsula")),
    (b"Incapsula incident ID", Proof::Words("Incapsula")),
    (b"gokuProps", Proof::Vendor("AWS WAF")),
    (b"You are being rate limited", Proof::RateLimit),
    (b"error code: 1015", Proof::RateLimit),
    (b"Error 1015", Proof::RateLimit),
    (b"g-recaptcha", Proof::Captcha),
    (b"recaptcha/api.js", Proof::Captcha),
    (b"recaptcha/enterprise.js", Proof::Captcha),
    (b"h-captcha", Proof::Captcha),
    (b"hcaptcha.com", Proof::Captcha),
    (b"cf-turnstile", Proof::Captcha),
    (b"arkoselabs.com", Proof::Captcha),
    (b"name=\"captcha", Proof::Captcha),
    (b"unusual traffic", Proof::AsksForHuman),
    (b"you are human", Proof::AsksForHuman),
    (b"you're human", Proof::AsksForHuman),
    (b"not a robot", Proof::AsksForHuman),
    (b"not a bot", Proof::AsksForHuman),
    (b"are a robot", Proof::AsksForHuman),
    (b"human verification", Proof::AsksForHuman),
    (b"complete the security check", Proof::AsksForHuman),
    (b"automated queries", Proof::AsksForHuman),
    (b"type=\"password\"", Proof::LogsIn),
    (b"type=password", Proof::LogsIn),
    (
        b"checking your browser before accessing",
        Proof::Words("Cloudflare"),
    ),
    (b"'/?bm-verify=", Proof::Vendor("Akamai")),
    (b"captcha.px-cdn.net", Proof::Vendor("PerimeterX")),
    (b"captcha.px-cloud.net", Proof::Vendor("PerimeterX")),
    (b"Pardon Our Interruption", Proof::Vendor("Imperva")),
    (
        b"have detected unusual traffic from your computer network",
        Proof::Vendor("Google"),
    ),
    (
        b"network may be sending automated queries",
        Proof::Vendor("Google"),
    ),
    (
        b"Sucuri WebSite Firewall - Access Denied",
        Proof::Vendor("Sucuri"),
    ),
    (
        b"Sucuri Website Firewall - Access Denied",
        Proof::Vendor("Sucuri"),
    ),
    (
        b"Your access to this site has been limited by the site owner",
        Proof::Vendor("Wordfence"),
    ),
    (b"KPSDK.start", Proof::Vendor("Kasada")),
    (b"ips.js?KP_UIDz=", Proof::Vendor("Kasada")),
    (
        b"The requested URL was rejected. Please consult with your administrator",
        Proof::Vendor("F5"),
    ),
    (b"<title>Pardon Our Interruption", Proof::Interstitial),
    (b"Access to this page has been denied", Proof::Interstitial),
    (
        b"Please enable JS and disable any ad blocker",
        Proof::Interstitial,
    ),
    (b"<title>Human Verification</title>", Proof::Interstitial),
    (b"<title>Request Rejected</title>", Proof::Interstitial),
    (b"<title>Sorry...</title>", Proof::Interstitial),
    (b"content=\"5; URL='/?bm-verify=", Proof::Interstitial),
    (b"<title>Access Denied</title>", Proof::Interstitial),
];

/// The texts of the markers.
const TEXTS: [&[u8]; MARKERS.len()] = {
    let mut texts: [&[u8]; MARKERS.len()] = [b""; MARKERS.len()];
    let mut i = 0;
    while i < MARKERS.len() {
        texts[i] = MARKERS[i].0;
        i += 1;
    }
    texts
};

static WORDS: Words<{ 4 * MARKERS.len() }> = Words::new(&TEXTS);

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent findings")]
struct Evidence {
    vendor: Option<&'static str>,
    words: Option<&'static str>,
    rate_limit: bool,
    captcha: bool,
    asks_for_human: bool,
    is_interstitial: bool,
    logs_in: bool,
}

impl Evidence {
    fn in_body(body: &[u8]) -> Self {
        let mut found = Self::default();
        WORDS.find(body, |_, marker| found.add(MARKERS[marker].1));
        found
    }

    fn add(&mut self, proof: Proof) {
        match proof {
            // The first vendor counts: it is the page's own, and later ones may be quoted.
            Proof::Vendor(vendor) => self.vendor = self.vendor.or(Some(vendor)),
            Proof::Words(vendor) => {
                self.words = self.words.or(Some(vendor));
                self.is_interstitial = true;
            }
            Proof::RateLimit => self.rate_limit = true,
            Proof::Captcha => self.captcha = true,
            Proof::AsksForHuman => self.asks_for_human = true,
            Proof::Interstitial => self.is_interstitial = true,
            Proof::LogsIn => self.logs_in = true,
        }
    }
}

#[cfg(test)]
mod tests {
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
        let contact =
            format!("<form>Tell us that you are human {widget}<button>Send</button></form>");
        assert_eq!(page(200, &contact), None);
        let log_in =
            format!("<form>Confirm you are human <input type=\"password\"> {widget}</form>");
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
}
