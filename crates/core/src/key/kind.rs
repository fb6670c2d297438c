//! The kind of key that limits attach to: the meaning of `--key`.

use std::fmt;
#[cfg(feature = "url")]
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
#[cfg(feature = "url")]
use url::{Host, Url};

#[cfg(feature = "url")]
use super::{Key, KeyError};

/// The kind of key that limits attach to in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyKind {
    /// Each host, with its port if that is not a web port. The default, because robots.txt and most
    /// limiters apply to a host.
    #[default]
    #[serde(rename = "host")]
    Host,
    /// Each registrable domain: `a.example.com` and `b.example.com` share a key.
    #[serde(rename = "site")]
    Site,
    /// Each address that is connected to: a thousand small sites on one machine share a key.
    #[serde(rename = "address")]
    Address,
    /// Each host as seen from each egress, for servers that limit the client's address.
    #[serde(rename = "egress+host")]
    EgressHost,
}

impl KeyKind {
    /// Every kind, in the order of the help texts.
    pub const ALL: [Self; 4] = [Self::Host, Self::Site, Self::Address, Self::EgressHost];

    /// Returns the key of a request to `url`.
    ///
    /// `address` is the one that is connected to; a URL with an address as its host needs none.
    /// `egress` is the operator's name for the egress. A direct request has none, and its key is
    /// then that of the plain host.
    #[cfg(feature = "url")]
    pub fn key(
        self,
        url: &Url,
        address: Option<IpAddr>,
        egress: Option<&str>,
    ) -> Result<Key, KeyError> {
        match (self, egress) {
            (Self::Host, _) | (Self::EgressHost, None) => Key::of_url(url),
            (Self::Site, _) => Key::site_of_url(url),
            (Self::EgressHost, Some(egress)) => Key::of_egress(egress, Key::of_url(url)?.as_str()),
            (Self::Address, _) => {
                // Refuses a URL that no kind accepts, before its address is used.
                Key::of_url(url)?;
                let literal = match url.host() {
                    Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
                    Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
                    _ => None,
                };
                literal
                    .or(address)
                    .map(Key::address)
                    .ok_or(KeyError::AddressUnknown)
            }
        }
    }

    /// Returns the word as written after `--key`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Site => "site",
            Self::Address => "address",
            Self::EgressHost => "egress+host",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is no [`KeyKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is one of host, site, address, egress+host")]
pub struct UnknownKeyKind;

impl FromStr for KeyKind {
    type Err = UnknownKeyKind;

    fn from_str(word: &str) -> Result<Self, UnknownKeyKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == word)
            .ok_or(UnknownKeyKind)
    }
}
