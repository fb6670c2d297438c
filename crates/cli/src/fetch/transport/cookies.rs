//! Cookies, kept for the length of the run as a browser keeps them (RFC 6265, by the crate
//! `cookie_store`).
//!
//! Each egress has its own jar. So a server that ties a session to an address sees each session
//! from one address. A jar holds a store per site (registrable domain). So a `Domain` above the
//! site, such as `co.uk`, reaches no other site. A site without cookies costs nothing. The cookies
//! and bytes per site, the bytes per cookie, and the bytes of all jars are bounded. Beyond the
//! bounds of a site, the cookies that were set first leave. Beyond the last bound, the sites whose
//! cookies are unused for longest are evicted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use cookie_store::CookieStore;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};
use politely::core::key::registrable_domain;
use url::{Host, Url};

/// The maximum number of cookies per site: at least what RFC 6265, section 6.1, asks for.
const PER_SITE_MAX: usize = 64;
/// The maximum size of a `Set-Cookie` field. Browsers accept half of it for name and value
/// together. The other half is for the attributes.
const FIELD_MAX: usize = 8 * 1024;
/// The maximum size of a site's cookies together, in bytes as a `Cookie` field has them. nginx and
/// Apache refuse a field of 8 KiB.
const SITE_BYTES_MAX: usize = 7 * 1024;
/// The approximate maximum size of all jars together.
const ALL_MAX: usize = 16 << 20;
/// The estimated cost of a cookie beside its text, in bytes. It has three nested maps of at least
/// four places each, and its attributes.
const COOKIE_COST: usize = 2048;
/// Over the limit, one site in this many is evicted at once, since a search visits all sites.
const EVICTED_SHARE: usize = 16;

/// The jars of all egresses.
pub(super) struct Cookies {
    jars: Vec<Mutex<Jar>>,
    /// The maximum size of one jar, in bytes.
    jar_max: usize,
    /// Some jar holds a cookie. Most runs meet no cookie for a long time.
    any: AtomicBool,
}

#[derive(Default)]
struct Jar {
    sites: HashMap<Box<str>, Site>,
    /// Sites whose cookies were forgotten because they refused a request with them.
    forgotten: HashSet<Box<str>>,
    /// The approximate size of all sites.
    bytes: usize,
    /// The number of uses so far.
    clock: u64,
}

struct Site {
    store: CookieStore,
    /// Domain, path and name of each cookie, the one that was set first in front.
    order: VecDeque<[String; 3]>,
    bytes: usize,
    used: u64,
}

impl Cookies {
    /// Returns empty jars for `egresses` egresses, at least one.
    pub(super) fn new(egresses: usize) -> Self {
        let egresses = egresses.max(1);
        Self {
            jars: (0..egresses).map(|_| Mutex::default()).collect(),
            jar_max: ALL_MAX / egresses,
            any: AtomicBool::new(false),
        }
    }

    /// Returns the `Cookie` field for a request to `url` through `egress`, if there are cookies for
    /// it.
    pub(super) fn for_url(&self, egress: usize, url: &Url) -> Option<HeaderValue> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut jar = self.jar(egress);
        jar.clock += 1;
        let now = jar.clock;
        let site = jar.sites.get_mut(site_of(url)?)?;
        site.used = now;
        let mut cookies = site.store.matches(url);
        // Longer paths go first (RFC 6265, section 5.4). The name makes the order the same in every
        // run.
        cookies.sort_by_key(|cookie| {
            let path: &str = &cookie.path;
            (usize::MAX - path.len(), cookie.name().to_owned())
        });
        let mut field = String::new();
        for cookie in cookies {
            let (name, value) = cookie.name_value();
            if !field.is_empty() {
                field.push_str("; ");
            }
            field.push_str(name);
            field.push('=');
            field.push_str(value);
        }
        let bytes: Vec<u8> = field.chars().map(|byte| byte as u8).collect();
        HeaderValue::from_bytes(&bytes)
            .ok()
            .filter(|field| !field.is_empty())
    }

    /// Forgets the cookies of the site of `url`, once per site. Returns whether there were any.
    pub(super) fn forget_once(&self, egress: usize, url: &Url) -> bool {
        let Some(name) = site_of(url) else {
            return false;
        };
        let mut jar = self.jar(egress);
        if jar.forgotten.contains(name) {
            return false;
        }
        let Some(site) = jar.sites.remove(name) else {
            return false;
        };
        jar.bytes -= site.bytes;
        jar.forgotten.insert(name.into());
        true
    }

    /// Stores the cookies that an answer to `url` through `egress` sets.
    pub(super) fn keep(&self, egress: usize, url: &Url, headers: &HeaderMap) {
        if !headers.contains_key(SET_COOKIE) {
            return;
        }
        let Some(site) = site_of(url) else { return };
        let mut jar = self.jar(egress);
        for field in headers.get_all(SET_COOKIE).iter().take(PER_SITE_MAX) {
            if field.len() <= FIELD_MAX {
                // Each byte becomes one character, so that it goes back as it came.
                let text: String = field.as_bytes().iter().copied().map(char::from).collect();
                jar.set(site, url, &text);
            }
        }
        if !jar.sites.is_empty() {
            self.any.store(true, Ordering::Relaxed);
        }
        jar.evict(self.jar_max);
    }

    fn jar(&self, egress: usize) -> std::sync::MutexGuard<'_, Jar> {
        let jar = &self.jars[egress % self.jars.len()];
        jar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jar {
    fn set(&mut self, name: &str, url: &Url, field: &str) {
        let Ok(cookie) = cookie_store::Cookie::parse(field, url) else {
            return;
        };
        self.clock += 1;
        // Most sites never set a cookie, so an entry is made only for a cookie.
        if !self.sites.contains_key(name) {
            if cookie.is_expired() {
                return;
            }
            let site = Site {
                store: CookieStore::new(),
                order: VecDeque::new(),
                bytes: 0,
                used: 0,
            };
            self.sites.insert(name.into(), site);
        }
        let Some(site) = self.sites.get_mut(name) else {
            return;
        };
        site.used = self.clock;
        let cookie = cookie.into_owned();
        let place = [
            String::from(&cookie.domain),
            String::from(&cookie.path),
            cookie.name().to_owned(),
        ];
        if site.store.insert(cookie, url).is_ok() {
            site.order.retain(|other| *other != place);
            site.order.push_back(place);
            site.make_room();
        }
        self.bytes -= site.bytes;
        site.bytes = site.cost();
        self.bytes += site.bytes;
        if site.bytes == 0 {
            self.sites.remove(name);
        }
    }

    fn evict(&mut self, max: usize) {
        if self.bytes <= max {
            return;
        }
        let mut by_use: Vec<_> = self.sites.values().map(|site| site.used).collect();
        by_use.sort_unstable();
        let last = by_use[by_use.len() / EVICTED_SHARE];
        self.sites.retain(|_, site| site.used > last);
        self.bytes = self.sites.values().map(|site| site.bytes).sum();
    }
}

impl Site {
    /// Removes expired cookies, and then the ones that were set first, until the rest fits.
    fn make_room(&mut self) {
        if self.fits() {
            return;
        }
        self.forget_expired();
        while !self.fits() {
            let Some([domain, path, name]) = self.order.pop_front() else {
                return;
            };
            self.store.remove(&domain, &path, &name);
        }
    }

    fn fits(&self) -> bool {
        let cookies = self.store.iter_any();
        let lengths = cookies.map(|cookie| {
            let (name, value) = cookie.name_value();
            name.len() + value.len() + 3
        });
        let (count, bytes) = lengths.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
        count <= PER_SITE_MAX && bytes <= SITE_BYTES_MAX
    }

    fn forget_expired(&mut self) {
        let left = self.store.iter_unexpired().cloned();
        let left = left.map(Ok::<_, std::convert::Infallible>);
        let Ok(store) = CookieStore::from_cookies(left, false);
        self.store = store;
    }

    /// Returns the approximate size in bytes.
    fn cost(&self) -> usize {
        let cookies = self.store.iter_any();
        let texts = cookies.map(|cookie| {
            let (name, value) = cookie.name_value();
            // The cookie's text, and its name once more as a map key.
            COOKIE_COST + 2 * name.len() + value.len()
        });
        texts.sum()
    }
}

/// Returns the registrable domain of `url`'s host, or the host if it has none.
fn site_of(url: &Url) -> Option<&str> {
    match url.host()? {
        Host::Domain(host) => Some(registrable_domain(host).unwrap_or(host)),
        Host::Ipv4(_) | Host::Ipv6(_) => url.host_str(),
    }
}

#[cfg(test)]
mod tests {
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
        assert!(cookies.forget_once(0, &url("http://a.example/page")));
        assert_eq!(sent(&cookies, 0, "http://a.example/"), None);
        set(&cookies, 0, "http://a.example/", &["a=1"]);
        assert!(!cookies.forget_once(0, &url("http://a.example/page")));
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
}
