//! URLs of the addresses in pages and sitemaps.

use url::Url;

/// Returns the URL of an address, if it may be a page.
pub(crate) fn page_url(base: &Url, address: &str) -> Option<Url> {
    let mut url = base.join(address).ok()?;
    url.set_fragment(None);
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    (matches!(url.scheme(), "http" | "https") && has_host).then_some(url)
}

/// Returns whether two URLs are of one host. The default ports of http and https count as one.
pub(crate) fn is_same_host(one: &Url, other: &Url) -> bool {
    one.host_str() == other.host_str() && one.port() == other.port()
}
