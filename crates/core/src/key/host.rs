//! The canonical text of a host.
//!
//! The `url` crate does what browsers do: lower case, percent-decoding, IDNA to punycode, every
//! spelling of an IPv4 address, IPv6 compressed in brackets. This module adds four steps:
//!
//! * One trailing dot is removed, because `example.com.` reaches the same server.
//! * Ports 80 and 443 are removed, whatever the scheme. `http://h` and `https://h` share a key,
//!   because one server answers both. So `http://h:443`, which reaches the same socket as
//!   `https://h`, must not have a second budget. A bare `h:443`, which has no scheme, becomes the
//!   plain host too. Every other port is kept, because it is another server.
//! * An IPv4 address that is mapped into IPv6 becomes the IPv4 address.
//! * Names over 253 bytes (RFC 1035 section 2.3.4, without the root's dot) or with an empty label
//!   are refused. No resolver answers for them, and the bound limits a key's size.
//!
//! User names and passwords are not part of a host. In a URL they are dropped with the rest of it;
//! in a bare host text they are refused.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
#[cfg(feature = "url")]
use std::net::Ipv6Addr;

use compact_str::CompactString;
#[cfg(feature = "url")]
use url::{Host, Url};

use super::KeyError;

/// The most bytes of a host name: RFC 1035's 255 on the wire, as text.
pub(super) const HOST_LEN_MAX: usize = 253;
/// The most bytes of a URL or host text that are read. RFC 9110 section 4.1 recommends support for
/// URIs of at least 8,000.
pub(super) const INPUT_LEN_MAX: usize = 8_192;

pub(super) fn of_text(text: &str) -> Result<CompactString, KeyError> {
    if is_canonical(text) {
        return Ok(CompactString::new(text));
    }
    #[cfg(not(feature = "url"))]
    return super::plain::of_text(text);
    #[cfg(feature = "url")]
    of_other_text(text)
}

#[cfg(feature = "url")]
fn of_other_text(text: &str) -> Result<CompactString, KeyError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > INPUT_LEN_MAX {
        return Err(KeyError::TooLong);
    }
    if text.contains("://") {
        return of_url(&Url::parse(text)?);
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return canonical(&Host::<&str>::Ipv6(address), None);
    }
    let (name, port) = split_port(text)?;
    if name.is_empty() {
        return Err(KeyError::Empty);
    }
    canonical(&Host::parse(name)?, port)
}

/// Returns whether `name` is certainly canonical already.
///
/// Most names are, and this check takes a tenth of the time of the conversion. It returns `false`
/// for anything that a browser would change: upper case, punycode, a last label that may be part of
/// an address, a port.
pub(super) fn is_canonical(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    name.len() <= HOST_LEN_MAX
        && name.bytes().all(plain)
        && name
            .split('.')
            .all(|label| !label.is_empty() && !label.starts_with("xn--"))
        && name
            .rsplit('.')
            .next()
            .is_some_and(|last| last.starts_with(|first: char| first.is_ascii_lowercase()))
}

#[cfg(feature = "url")]
pub(super) fn of_url(url: &Url) -> Result<CompactString, KeyError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(KeyError::Scheme);
    }
    canonical(&url.host().ok_or(KeyError::Empty)?, url.port())
}

#[cfg(feature = "url")]
fn canonical<S: AsRef<str>>(host: &Host<S>, port: Option<u16>) -> Result<CompactString, KeyError> {
    let text = match host {
        Host::Domain(name) => CompactString::new(checked_name(name.as_ref())?),
        Host::Ipv4(address) => of_address(IpAddr::V4(*address)),
        Host::Ipv6(address) => of_address(IpAddr::V6(*address)),
    };
    Ok(with_port(text, port))
}

/// Returns the host of an address. IPv6 has brackets, unless it is a mapped IPv4 address.
pub(super) fn of_address(address: IpAddr) -> CompactString {
    match address.to_canonical() {
        IpAddr::V4(address) => displayed(format_args!("{address}")),
        IpAddr::V6(address) => displayed(format_args!("[{address}]")),
    }
}

/// Appends the port, unless it is a web port.
pub(super) fn with_port(mut host: CompactString, port: Option<u16>) -> CompactString {
    if let Some(port) = port.filter(|port| !matches!(port, 80 | 443)) {
        // Writing to a `CompactString` cannot fail.
        let _ = write!(host, ":{port}");
    }
    host
}

#[cfg(feature = "url")]
fn checked_name(name: &str) -> Result<&str, KeyError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        return Err(KeyError::Empty);
    }
    if name.len() > HOST_LEN_MAX {
        return Err(KeyError::TooLong);
    }
    if name.split('.').any(str::is_empty) {
        return Err(KeyError::EmptyLabel);
    }
    Ok(name)
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. An empty port counts as no port, as in URLs.
pub(super) fn split_port(text: &str) -> Result<(&str, Option<u16>), KeyError> {
    let name_end = match text.rfind(']') {
        Some(bracket) => bracket + 1,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (name, rest) = text.split_at(name_end);
    if rest.is_empty() {
        return Ok((name, None));
    }
    let digits = rest.strip_prefix(':').ok_or(KeyError::Port)?;
    if digits.is_empty() {
        return Ok((name, None));
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(KeyError::Port);
    }
    digits
        .parse()
        .map(|port| (name, Some(port)))
        .map_err(|_| KeyError::Port)
}

fn displayed(address: fmt::Arguments<'_>) -> CompactString {
    let mut text = CompactString::default();
    // Writing to a `String` cannot fail.
    let _ = text.write_fmt(address);
    text
}

#[cfg(all(test, feature = "url"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_taken_as_it_is_would_not_be_changed(text in "([a-z0-9-]{0,4}|xn--[a-z]{2}|0x[0-9a-f])(\\.[a-z0-9-]{0,4}){0,3}") {
            if is_canonical(&text) {
                let slowly = Host::parse(&text).map_err(KeyError::from).and_then(|host| canonical(&host, None));
                prop_assert_eq!(slowly, Ok(CompactString::new(&text)));
            }
        }
    }

    #[test]
    fn most_names_are_taken_as_they_are() {
        for name in ["localhost", "example.com", "a-b.1.example.co"] {
            assert!(is_canonical(name), "{name}");
        }
        for name in [
            "",
            ".",
            "a.",
            "a..b",
            "A.example",
            "127.0.0.1",
            "a.0x1",
            "xn--bcher-kva.example",
            "a.example:80",
            "a_b.example",
            " a.example",
        ] {
            assert!(!is_canonical(name), "{name}");
        }
    }
}
