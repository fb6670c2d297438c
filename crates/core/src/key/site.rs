//! The registrable domain of a canonical host.

use compact_str::CompactString;
use psl::Psl as _;

/// `site/` and the registrable domain; the host unchanged where there is none.
///
/// Only suffixes the list names count. Its default rule (any last label is a suffix) would make `a.internal` and
/// `b.internal` sites by guess.
pub(super) fn of_host(host: CompactString) -> CompactString {
    if host.starts_with('[') {
        return host;
    }
    let name = host.split_once(':').map_or(host.as_str(), |(name, _)| name);
    if name.parse::<std::net::Ipv4Addr>().is_ok() {
        return host;
    }
    let domain = psl::List
        .domain(name.as_bytes())
        .filter(|domain| domain.suffix().is_known())
        .and_then(|domain| std::str::from_utf8(domain.as_bytes()).ok());
    match domain {
        Some(domain) => super::joined(&[super::SITE, domain]),
        None => host,
    }
}
