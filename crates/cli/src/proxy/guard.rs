//! The addresses that may be connected to.
//!
//! A caller that chooses the host must not reach what only this machine reaches: its own services,
//! its network, and the metadata service of its cloud. Names are checked by the addresses that are
//! connected to, so a name that changes its meaning is refused as well.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

use crate::fetch::{Connectable, Resolver, connectable};

/// The prefix of IPv6 addresses that stand for IPv4 addresses behind a translator (RFC 6052).
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
/// The prefix of IPv4 addresses that are translated without state (RFC 2765).
const SIIT: [u16; 6] = [0, 0, 0, 0, 0xffff, 0];
/// The services of Azure's machines, in a public block.
const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// A resolver of names whose addresses may be connected to.
#[derive(Clone)]
pub(super) struct Guard {
    resolver: Resolver,
    allows_private: bool,
}

impl Guard {
    pub(super) const fn new(resolver: Resolver, allows_private: bool) -> Self {
        Self {
            resolver,
            allows_private,
        }
    }

    /// Returns the same resolver for hosts that the operator named.
    pub(super) fn open(&self) -> Self {
        Self::new(self.resolver.clone(), true)
    }

    /// Returns the addresses of `host`, which is a name or an address.
    ///
    /// # Errors
    /// The name cannot be resolved, or an address is private: `PermissionDenied`.
    pub(super) async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let host = host.trim_matches(['[', ']']);
        let found = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.lookup(host).await?,
        };
        let private = found.iter().find(|address| is_private(**address));
        match private.filter(|_| !self.allows_private) {
            Some(address) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{address} is a private address; --allow-private or a --route allows it"),
            )),
            None => Ok(found),
        }
    }
}

impl Service<Name> for Guard {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Connectable;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.clone();
        connectable(async move { guard.addresses(name.as_str()).await })
    }
}

/// Returns whether `address` is not one of the public Internet.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

/// Returns whether `address` is in a block of the special-purpose registry (RFC 6890).
fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address == AZURE
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || matches!(
            (a, b, c),
            (0 | 240.., ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _)
        )
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_private_v4(inner);
    }
    let parts = address.segments();
    let low = Ipv4Addr::from(address.to_bits() as u32);
    if [NAT64, SIIT, [0; 6]]
        .iter()
        .any(|prefix| parts[..6] == *prefix)
    {
        return is_private_v4(low);
    }
    // 6to4 has the IPv4 address behind its prefix. Teredo and local NAT64 hide theirs.
    let high = Ipv4Addr::from((address.to_bits() >> 80) as u32);
    (parts[0] == 0x2002 && is_private_v4(high))
        || (parts[0] == 0x2001 && matches!(parts[1], 0 | 0xdb8))
        || (parts[0] == 0x3fff && parts[1] < 0x1000)
        || parts[..4] == [0x100, 0, 0, 0]
        || (parts[0] == 0x64 && parts[1] == 0xff9b)
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || address.is_multicast()
        || parts[0] & 0xffc0 == 0xfec0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        let is_private = |text: &str| is_private(text.parse().unwrap());
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.0.0.192",
            "192.168.1.1",
            "192.88.99.1",
            "168.63.129.16",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001:0:1::1",
            "::ffff:0:7f00:1",
            "100::1",
            "2001:db8::1",
            "3fff:fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(is_private(private), "{private}");
        }
        for public in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2002:101:101::1",
            "64:ff9b::101:101",
        ] {
            assert!(!is_private(public), "{public}");
        }
    }
}
