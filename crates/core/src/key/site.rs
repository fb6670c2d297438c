//! The registrable domain of a canonical host.

use compact_str::CompactString;
use psl::{Domain, Psl as _};

/// Returns the registrable domain of a host name, as browsers see it: the last label is a public
/// suffix if the Public Suffix List has no longer one. `None` for a suffix itself.
pub fn registrable_domain(name: &str) -> Option<&str> {
    str::from_utf8(domain(name)?.as_bytes()).ok()
}

fn domain(name: &str) -> Option<Domain<'_>> {
    psl::List.domain(name.as_bytes())
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
    let domain = domain(name)
        .filter(|domain| domain.suffix().is_known())
        .and_then(|domain| str::from_utf8(domain.as_bytes()).ok());
    match domain {
        Some(domain) => super::joined(&[super::SITE, domain]),
        None => host,
    }
}
