//! Cookies, kept for the length of the run as a browser keeps them (RFC 6265, by the crate
//! `cookie_store`).
//!
//! Each egress has its own jar. So a server that ties a session to an address sees each session
//! from one address. A jar holds a store per site (registrable domain). So a `Domain` above the
//! site, such as `co.uk`, reaches no other site. A site without cookies costs nothing. The cookies
//! and bytes per site, the bytes per cookie, and the bytes of all jars are bounded. Beyond the
//! bounds of a site, the cookies that were set first leave. Beyond the last bound, the sites whose
//! cookies are unused for longest are evicted.

use std::collections::{HashMap, VecDeque};
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
/// The smallest size of a refused `Cookie` field, in bytes, at which a host's cookies are forgotten
/// again. Servers accept more. So small cookies, which often are a session, are forgotten once.
const REFUSED_AGAIN_MIN: usize = 1024;
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
    /// The hosts that refused a field, and the size from which on they may refuse one again.
    refused: HashMap<Box<str>, usize>,
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
        let field = HeaderValue::from_bytes(&site.field(url));
        field.ok().filter(|field| !field.is_empty())
    }

    /// Returns whether a request that the host of `url` refused with `field` is worth a try without
    /// it.
    pub(super) fn may_be_refused(&self, egress: usize, url: &Url, field: &HeaderValue) -> bool {
        let jar = self.jar(egress);
        let least = url.host_str().and_then(|host| jar.refused.get(host));
        least.is_none_or(|least| field.len() >= *least)
    }

    /// Records whether such a try was served. If so, the host's cookies are forgotten, and again
    /// once they have grown to half of that size. If not, larger ones are tried next.
    pub(super) fn tried_without(
        &self,
        egress: usize,
        url: &Url,
        field: &HeaderValue,
        is_served: bool,
    ) {
        let (Some(name), Some(host)) = (site_of(url), url.host_str()) else {
            return;
        };
        let mut jar = self.jar(egress);
        let least = if is_served {
            REFUSED_AGAIN_MIN.max(field.len() / 2)
        } else {
            field.len() + 1
        };
        jar.refused.insert(host.into(), least);
        // They are fewer if another request forgot them meanwhile.
        if let Some(site) = jar.sites.get_mut(name)
            && is_served
            && site.field(url).len() >= field.len()
        {
            site.forget_host(url);
            jar.weigh(name);
        }
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

/// Returns whether the attributes of `cookie` fit the prefix of its name (RFC 6265bis, section
/// 4.1.3).
fn fits_prefix(cookie: &cookie_store::Cookie<'_>) -> bool {
    let name = cookie.name().to_ascii_lowercase();
    let is_secure = cookie.secure() == Some(true);
    if name.starts_with("__host-") {
        return is_secure && cookie.domain().is_none() && cookie.path() == Some("/");
    }
    is_secure || !name.starts_with("__secure-")
}

impl Jar {
    fn set(&mut self, name: &str, url: &Url, field: &str) {
        let Ok(cookie) = cookie_store::Cookie::parse(field, url) else {
            return;
        };
        if !fits_prefix(&cookie) {
            return;
        }
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
        self.weigh(name);
    }

    /// Updates the sizes after a change of the site `name`, and drops it if it is empty.
    fn weigh(&mut self, name: &str) {
        let Some(site) = self.sites.get_mut(name) else {
            return;
        };
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
    /// Returns the bytes of the `Cookie` field for `url`.
    fn field(&self, url: &Url) -> Vec<u8> {
        let mut cookies = self.store.matches(url);
        // Longer paths go first (RFC 6265, section 5.4). The name makes the order the same in every
        // run.
        cookies.sort_by_key(|cookie| {
            let path: &str = &cookie.path;
            (usize::MAX - path.len(), cookie.name().to_owned())
        });
        let pairs = cookies.iter().map(|cookie| {
            let (name, value) = cookie.name_value();
            format!("{name}={value}")
        });
        let field = pairs.collect::<Vec<_>>().join("; ");
        field.chars().map(|byte| byte as u8).collect()
    }

    /// Removes all cookies that `url`'s host gets for some path.
    fn forget_host(&mut self, url: &Url) {
        let store = &mut self.store;
        self.order.retain(|[domain, path, name]| {
            let cookie = store.get_any(domain, path, name);
            let is_of_host = cookie.is_some_and(|cookie| cookie.domain.matches(url));
            if is_of_host {
                store.remove(domain, path, name);
            }
            !is_of_host
        });
    }

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
#[path = "cookies_tests.rs"]
mod tests;
