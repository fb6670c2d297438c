//! The registrable domain of a canonical host.

use compact_str::CompactString;

/// Returns the registrable domain of a host name, as browsers see it: the last label is a public
/// suffix if the Public Suffix List has no longer one. `None` for a suffix itself.
pub fn registrable_domain(name: &str) -> Option<&str> {
    Some(politely_suffix::registrable_domain(name)?.name)
}

/// Returns `site/` and the registrable domain, or the host unchanged if it has none.
///
/// Only suffixes on the list count. The list's default rule (any last label is a suffix) would make
/// sites of `a.internal` and `b.internal` by guess.
pub(super) fn of_host(host: CompactString) -> CompactString {
    if host.starts_with('[') {
        return host;
    }
    let name = host.split_once(':').map_or(host.as_str(), |(name, _)| name);
    if name.parse::<std::net::Ipv4Addr>().is_ok() {
        return host;
    }
    match politely_suffix::registrable_domain(name) {
        Some(domain) if domain.is_listed => super::joined(&[super::SITE, domain.name]),
        _ => host,
    }
}
