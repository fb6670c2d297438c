//! Hosts without the feature `url`: ASCII names and addresses that all readers of URLs read alike.
//!
//! Anything else is [`KeyError::NeedsUrl`]. So a text that names a key here names the same key with
//! the feature.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compact_str::CompactString;

use super::KeyError;
use super::host::{INPUT_LEN_MAX, is_canonical, of_address, split_port, with_port};

pub(super) fn of_text(text: &str) -> Result<CompactString, KeyError> {
    let text = text.trim();
    if text.len() > INPUT_LEN_MAX {
        return Err(KeyError::TooLong);
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(of_address(address.into()));
    }
    let (name, port) = split_port(authority(text)?)?;
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let host = if name.is_empty() {
        return Err(KeyError::Empty);
    } else if let Some(Ok(address)) = bare.map(str::parse::<Ipv6Addr>) {
        of_address(IpAddr::V6(address))
    } else if let Ok(address) = name.parse::<Ipv4Addr>() {
        of_address(IpAddr::V4(address))
    } else {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if !is_canonical(&name) {
            return Err(KeyError::NeedsUrl);
        }
        CompactString::from(name)
    };
    Ok(with_port(host, port))
}

/// Returns the part of a URL between `://` and the path, or the whole text of a host.
fn authority(text: &str) -> Result<&str, KeyError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok(text);
    };
    if !["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return Err(KeyError::Scheme);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Ok(&rest[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_hosts_are_read_and_others_need_the_feature() {
        for (text, host) in [
            ("Example.COM", "example.com"),
            ("https://Example.com.:8080/a?b#c", "example.com:8080"),
            ("http://example.com:443", "example.com"),
            ("127.0.0.1:81", "127.0.0.1:81"),
            ("[::1]:80", "[::1]"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(of_text(text).as_deref(), Ok(host), "{text}");
        }
        for text in [
            "bücher.example",
            "xn--bcher-kva.example",
            "0x7f.1",
            "a%41.example",
            "a..b",
        ] {
            assert_eq!(of_text(text), Err(KeyError::NeedsUrl), "{text}");
        }
        assert_eq!(of_text("ftp://a.example"), Err(KeyError::Scheme));
        assert_eq!(of_text("http://:80"), Err(KeyError::Empty));
    }

    #[cfg(feature = "url")]
    proptest! {
        #[test]
        fn a_host_is_the_same_with_the_feature(
            text in "(https?://|HTTP://)?[a-zA-Z0-9.:@_\\[\\]%-]{0,12}(:[0-9]{1,5})?([/?#\\\\][a-z]{0,3})?"
        ) {
            if let Ok(host) = of_text(&text) {
                prop_assert_eq!(super::super::host::of_text(&text), Ok(host));
            }
        }
    }
}
