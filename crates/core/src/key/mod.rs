//! Keys: the names that limits attach to.
//!
//! A [`Key`] is a name in canonical text, so two spellings of one host are one key. Users read this
//! text, engines store under it, and [`Key::parse`] reads it back.
//!
//! | kind | text | made by |
//! | --- | --- | --- |
//! | host | `example.com`, `example.com:8080`, `[2001:db8::1]` | [`Key::host`], [`Key::of_url`] |
//! | site (registrable domain) | `site/example.co.uk` | [`Key::site`], [`Key::site_of_url`] |
//! | address | `address/192.0.2.7` | [`Key::address`] |
//! | egress and host | `egress/proxy-1/example.com` | [`Key::egress_host`] |
//! | custom | `custom/account-7` | [`Key::custom`] |
//!
//! Kinds cannot collide: a slash ends every prefix, and no host contains one. (A colon would not
//! do: a host named `custom` at port 7 is `custom:7`.) An egress may contain slashes, because the
//! host after the last one has none.
//!
//! [`KeyKind`] selects the kind of a run. `host.rs` makes a host canonical. Without the feature
//! `url`, `plain.rs` reads plain ASCII hosts, and there are no sites.

mod host;
mod kind;
mod place;
#[cfg(any(test, not(feature = "url")))]
mod plain;
#[cfg(feature = "url")]
mod site;

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
#[cfg(feature = "url")]
use url::Url;

use self::place::Place;

pub use kind::{KeyKind, UnknownKeyKind};
#[cfg(feature = "url")]
pub use site::registrable_domain;

const SITE: &str = "site/";
const ADDRESS: &str = "address/";
const EGRESS: &str = "egress/";
const CUSTOM: &str = "custom/";

/// The most bytes of a custom text or an egress name. It equals the longest host name, so that no
/// key is longer than 520 bytes.
pub const TEXT_LEN_MAX: usize = 253;

/// The name that a limit attaches to, in canonical text.
///
/// Up to 24 bytes are stored inline. A longer key owns one allocation, and a clone copies it.
///
/// A key that is kept remembers where its state was found ([`Key::place`]), which makes the next
/// call faster. Clippy's `mutable_key_type` reports this in maps by key; it changes nothing that is
/// compared or hashed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    text: CompactString,
    place: Place,
}

/// Why a text or URL names no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The host or name is empty.
    #[error("the host or name is empty")]
    Empty,
    /// The text is too long. The bound is 253 bytes for a host (RFC 1035) and for a text, and 8,192
    /// for a whole URL.
    #[error("the host or name is too long")]
    TooLong,
    /// The URL has no host that is reached over HTTP.
    #[error("only http and https URLs have a host to be polite to")]
    Scheme,
    /// The text is not a host name or address (RFC 3986, IDNA).
    #[error("not a host: {0}")]
    #[cfg(feature = "url")]
    Host(#[from] url::ParseError),
    /// The text is no plain ASCII host name or address, or it names a site. Only the feature `url`
    /// reads it.
    #[error("not a plain host name or address; enable the feature `url` for other spellings")]
    NeedsUrl,
    /// The host has an empty label, such as `a..b` or `.a`. No resolver knows such a name.
    #[error("the host has an empty label")]
    EmptyLabel,
    /// The text after the host is not a port.
    #[error("the port is not a number from 0 to 65535")]
    Port,
    /// The name has a control character or an invisible one. Control characters would break logs
    /// and line protocols. Characters that are invisible or that reverse the text would make two
    /// keys look alike.
    #[error("the name has a control character, or one that is not seen")]
    Control,
    /// The text after `address/` is not an IP address.
    #[error("not an IP address")]
    Address,
    /// A key by address needs the address that was connected to. Behind a proxy it is not known.
    #[error("the address of the host is not known")]
    AddressUnknown,
}

impl Key {
    /// Returns the key of a host, from a URL or from a host text with or without a port:
    /// `https://Example.COM:443/a`, `example.com.`, `EXAMPLE.com:8080`, `[::1]:80`, `::1`.
    /// Names that are not ASCII need the feature `url`.
    pub fn host(text: &str) -> Result<Self, KeyError> {
        host::of_text(text).map(Self::of)
    }

    /// Returns the key of a parsed URL's host. Each request calls this; it allocates only for hosts
    /// over 24 bytes.
    #[cfg(feature = "url")]
    pub fn of_url(url: &Url) -> Result<Self, KeyError> {
        host::of_url(url).map(Self::of)
    }

    /// Returns the key of the registrable domain of a URL or host text. All ports are one site.
    ///
    /// The domain is taken from the public suffix list, including its private part:
    /// `a.b.example.co.uk` is `site/example.co.uk`, and `me.github.io` is `site/me.github.io`.
    ///
    /// A host without a registrable domain is its own site, and the key is the host's, with its
    /// port. Such hosts are an address, a single label, a public suffix itself, and a name whose
    /// suffix is not on the list. A key that is too fine still limits each of its hosts. A key that
    /// is too coarse would make unrelated hosts share a limit.
    #[cfg(feature = "url")]
    pub fn site(text: &str) -> Result<Self, KeyError> {
        host::of_text(text).map(site::of_host).map(Self::of)
    }

    /// Returns the key of a parsed URL's registrable domain; see [`Key::site`].
    #[cfg(feature = "url")]
    pub fn site_of_url(url: &Url) -> Result<Self, KeyError> {
        host::of_url(url).map(site::of_host).map(Self::of)
    }

    /// Returns the key of an address that was connected to. An IPv4 address mapped into IPv6
    /// becomes the IPv4 address.
    pub fn address(address: IpAddr) -> Self {
        let mut text = CompactString::const_new(ADDRESS);
        // Writing to a `CompactString` cannot fail.
        let _ = write!(text, "{}", address.to_canonical());
        Self::of(text)
    }

    /// Returns the key of a host as seen from one egress (a proxy, a source address). Many servers
    /// limit each client address.
    ///
    /// `egress` is the operator's name for the egress. It appears in logs, so it must contain no
    /// credentials.
    pub fn egress_host(egress: &str, host: &str) -> Result<Self, KeyError> {
        Self::of_egress(egress, &host::of_text(host)?)
    }

    /// Returns the key of a name that the operator chose, unchanged: an account, an API token's
    /// label, a job.
    pub fn custom(text: &str) -> Result<Self, KeyError> {
        free_text(text)?;
        Ok(Self::of(joined(&[CUSTOM, text])))
    }

    /// Parses a key's own text, as printed or stored. Spellings of hosts are made canonical.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if let Some(site) = text.strip_prefix(SITE) {
            of_site(site)
        } else if let Some(address) = text.strip_prefix(ADDRESS) {
            let address = IpAddr::from_str(address).map_err(|_| KeyError::Address)?;
            Ok(Self::address(address))
        } else if let Some(pair) = text.strip_prefix(EGRESS) {
            let (egress, host) = pair.rsplit_once('/').ok_or(KeyError::Empty)?;
            Self::egress_host(egress, host)
        } else if let Some(custom) = text.strip_prefix(CUSTOM) {
            Self::custom(custom)
        } else {
            Self::host(text)
        }
    }

    /// Returns the canonical text of a key that an operator names, or the text itself if it is no
    /// key's.
    pub fn canonical(text: &str) -> String {
        Self::parse(text).map_or_else(|_| text.to_owned(), |key| key.as_str().to_owned())
    }

    /// Returns the beginning of keys' canonical texts that an operator means by `prefix`. Hosts
    /// have small letters.
    pub fn canonical_prefix(prefix: &str) -> String {
        if prefix.starts_with(CUSTOM) || prefix.starts_with(EGRESS) {
            prefix.to_owned()
        } else {
            prefix.to_ascii_lowercase()
        }
    }

    /// Returns the canonical text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the place where a registry last found the key's state, or 0 for none. The place may
    /// hold another key's state by now.
    #[inline]
    pub fn place(&self) -> u64 {
        self.place.get()
    }

    /// Stores the place where a registry found the key's state. Later clones copy it.
    ///
    /// Only the registry may call this, because it relies on the value.
    #[inline]
    pub fn found_at(&self, place: u64) {
        self.place.set(place);
    }

    const fn of(text: CompactString) -> Self {
        let place = Place::unknown();
        Self { text, place }
    }

    fn of_egress(egress: &str, host: &str) -> Result<Self, KeyError> {
        free_text(egress)?;
        Ok(Self::of(joined(&[EGRESS, egress, "/", host])))
    }
}

#[cfg(feature = "url")]
fn of_site(text: &str) -> Result<Key, KeyError> {
    Key::site(text)
}

#[cfg(not(feature = "url"))]
fn of_site(_: &str) -> Result<Key, KeyError> {
    Err(KeyError::NeedsUrl)
}

fn free_text(text: &str) -> Result<(), KeyError> {
    if text.is_empty() {
        Err(KeyError::Empty)
    } else if text.len() > TEXT_LEN_MAX {
        Err(KeyError::TooLong)
    } else if text.chars().any(|c| c.is_control() || is_unseen(c)) {
        Err(KeyError::Control)
    } else {
        Ok(())
    }
}

/// Returns whether a character has no width, or marks the text's direction (Unicode TR 9). Joiners
/// are allowed, because letters need them.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn joined(parts: &[&str]) -> CompactString {
    let mut text = CompactString::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        text.push_str(part);
    }
    text
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.text)
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A stored or sent text is untrusted, so it is parsed: only canonical keys get in.
        let text = CompactString::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(all(test, feature = "url"))]
mod tests;
