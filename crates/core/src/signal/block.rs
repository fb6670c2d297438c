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
//! | Vercel | `x-vercel-mitigated: challenge` or `deny`, the title of its page | 202, errors |
//! | Anubis, Imunify360, DDoS-Guard | the words or scripts of their pages | errors |
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
    } else if says("x-vercel-mitigated", &["challenge", "deny"]) {
        Some("Vercel")
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
const MARKERS: [(&[u8], Proof); 64] = [
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
    (b"error code: 1020", Proof::Vendor("Cloudflare")),
    (
        b"used Cloudflare to restrict access",
        Proof::Words("Cloudflare"),
    ),
    (b"<title>Vercel Security Checkpoint", Proof::Words("Vercel")),
    (b"anubis_challenge", Proof::Vendor("Anubis")),
    (b"Imunify360 bot-protection", Proof::Vendor("Imunify360")),
    (b"check.ddos-guard.net", Proof::Vendor("DDoS-Guard")),
    (
        b"<title>Making sure you&#39;re not a bot!",
        Proof::Interstitial,
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
#[path = "block_tests.rs"]
mod tests;
