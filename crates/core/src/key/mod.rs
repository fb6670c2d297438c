//! What does a limit attach to?
//!
//! A [`Key`] is a name in canonical text: two spellings of one host are one key, and the text is what users
//! read, what engines store under and what [`Key::parse`] reads back.
//!
//! | kind | text | made by |
//! | --- | --- | --- |
//! | host | `example.com`, `example.com:8080`, `[2001:db8::1]` | [`Key::host`], [`Key::of_url`] |
//! | site (registrable domain) | `site/example.co.uk` | [`Key::site`], [`Key::site_of_url`] |
//! | address | `address/192.0.2.7` | [`Key::address`] |
//! | egress and host | `egress/proxy-1/example.com` | [`Key::egress_host`] |
//! | custom | `custom/account-7` | [`Key::custom`] |
//!
//! Kinds cannot collide: a slash ends every prefix, and no host contains one. (A colon would not do: a host named
//! `custom` at port 7 is `custom:7`.) An egress may contain slashes, since the host behind the last one has none.
//!
//! Which kind a run uses is [`KeyKind`]'s question; how a host is made canonical is told in `host.rs`.

mod host;
mod kind;
mod place;
mod site;

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use self::place::Place;

pub use kind::{KeyKind, UnknownKeyKind};

const SITE: &str = "site/";
const ADDRESS: &str = "address/";
const EGRESS: &str = "egress/";
const CUSTOM: &str = "custom/";

/// Bytes a custom text or an egress name may have: as long as the longest host name, so that no key is longer than
/// 520 bytes.
pub const TEXT_LEN_MAX: usize = 253;

/// What a limit attaches to, in canonical text.
///
/// Up to 24 bytes are held in place; a longer key owns one allocation, and a clone copies it.
///
/// A key that is kept remembers where its state was found ([`Key::place`]), which speeds the next call up. Clippy's
/// `mutable_key_type` sees that in maps by key; nothing that is compared or hashed changes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    text: CompactString,
    place: Place,
}

/// Why a text or URL names no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing there to name a key by.
    #[error("the host or name is empty")]
    Empty,
    /// Longer than the bound of its kind: 253 bytes for a host (RFC 1035) and for a text, 8,192 for a whole URL.
    #[error("the host or name is too long")]
    TooLong,
    /// A URL without a host that is asked over HTTP.
    #[error("only http and https URLs have a host to be polite to")]
    Scheme,
    /// Not a host name or address (RFC 3986, IDNA).
    #[error("not a host: {0}")]
    Host(#[from] url::ParseError),
    /// `a..b`, `.a`: no resolver knows such a name.
    #[error("the host has an empty label")]
    EmptyLabel,
    /// Behind the host stands something that is no port.
    #[error("the port is not a number from 0 to 65535")]
    Port,
    /// Control characters would break logs and line protocols; those that are not seen, or turn the text around, would make two
    /// keys look alike.
    #[error("the name has a control character, or one that is not seen")]
    Control,
    /// Behind `address/` stands none.
    #[error("not an IP address")]
    Address,
    /// Keys by address need the address that was connected to; behind a proxy nobody knows it.
    #[error("the address of the host is not known")]
    AddressUnknown,
}

impl Key {
    /// The host of a URL, or of a host's own text with or without a port: `https://Example.COM:443/a`,
    /// `example.com.`, `EXAMPLE.com:8080`, `[::1]:80`, `::1`.
    pub fn host(text: &str) -> Result<Self, KeyError> {
        host::of_text(text).map(Self::of)
    }

    /// The host of a parsed URL; the path taken for each request. Allocates only for hosts over 24 bytes.
    pub fn of_url(url: &Url) -> Result<Self, KeyError> {
        host::of_url(url).map(Self::of)
    }

    /// The registrable domain of a URL or host text, by the public suffix list including its private part
    /// (`a.b.example.co.uk` is `site/example.co.uk`, `me.github.io` is `site/me.github.io`); all ports are one site.
    ///
    /// Where there is none (an address, a single label, a public suffix itself, a suffix the list does not know) the
    /// host is its own site and the key is the host's, port and all: too fine a key limits each of its hosts,
    /// too coarse a one would make strangers share a limit.
    pub fn site(text: &str) -> Result<Self, KeyError> {
        host::of_text(text).map(site::of_host).map(Self::of)
    }

    /// [`Key::site`] of a parsed URL.
    pub fn site_of_url(url: &Url) -> Result<Self, KeyError> {
        host::of_url(url).map(site::of_host).map(Self::of)
    }

    /// An address that was connected to; an IPv4 address mapped into IPv6 is the IPv4 address.
    pub fn address(address: IpAddr) -> Self {
        let mut text = CompactString::const_new(ADDRESS);
        // Writing to a string in memory cannot fail.
        let _ = write!(text, "{}", address.to_canonical());
        Self::of(text)
    }

    /// A host as seen from one egress (a proxy, a source address): servers limit each address that asks.
    ///
    /// `egress` is the operator's name for the way out and appears in logs: leave credentials out of it.
    pub fn egress_host(egress: &str, host: &str) -> Result<Self, KeyError> {
        Self::of_egress(egress, &host::of_text(host)?)
    }

    /// A name the operator chose, kept as it is: an account, an API token's label, a job.
    pub fn custom(text: &str) -> Result<Self, KeyError> {
        free_text(text)?;
        Ok(Self::of(joined(&[CUSTOM, text])))
    }

    /// A key's own text, as printed or stored, back into the key; host spellings are made canonical.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if let Some(site) = text.strip_prefix(SITE) {
            Self::site(site)
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

    /// The canonical text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The place it was given last by whoever keeps a state for it; 0 if nobody did. It may be another's by now.
    #[inline]
    pub fn place(&self) -> u64 {
        self.place.get()
    }

    /// Its state was found at `place`. Clones made from now on know it too. Only for whoever keeps states: it is believed.
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

/// Of no width, or a mark of the text's direction (Unicode TR 9); joiners are letters' own.
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
        // A stored or sent text is a stranger's text: only canonical keys come in.
        let text = CompactString::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
