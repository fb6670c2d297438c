//! The settings of connections.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::Knobs;

/// The default maximum time to connect. A slower connection is not worth its slot.
const CONNECT_DEFAULT: Duration = Duration::from_secs(10);

/// An address in place of what a name resolves to: `HOST:PORT:ADDRESS`, as curl has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Resolve {
    host: String,
    port: u16,
    pub(crate) address: IpAddr,
}

impl Resolve {
    /// Returns whether this is the address for a host and port.
    pub(crate) fn covers(&self, host: &str, port: u16) -> bool {
        self.host.eq_ignore_ascii_case(host) && self.port == port
    }
}

impl FromStr for Resolve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let (host, port, address) = (parts.next(), parts.next(), parts.next());
        let port = port.and_then(|port| port.parse().ok());
        let address = address.map(|it| it.trim_start_matches('[').trim_end_matches(']'));
        match (host, port, address.and_then(|it| it.parse().ok())) {
            (Some(host), Some(port), Some(address)) if !host.is_empty() => Ok(Self {
                host: host.to_owned(),
                port,
                address,
            }),
            _ => Err(format!(
                "`{text}`: write it as HOST:PORT:ADDRESS, as in a.example:443:127.0.0.1"
            )),
        }
    }
}

impl TryFrom<String> for Resolve {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The settings of connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectSettings {
    /// The maximum time to connect, TLS included.
    pub(crate) timeout: Duration,
    pub(crate) is_http1: bool,
    pub(crate) resolve: Vec<Resolve>,
    /// A file with authorities that are trusted beside those of the machine.
    pub(crate) ca: Option<PathBuf>,
    /// Whether every certificate is accepted.
    pub(crate) is_insecure: bool,
    /// Whether only IPv6 addresses are used, or with `false` only IPv4 ones.
    pub(crate) is_ipv6: Option<bool>,
}

impl ConnectSettings {
    pub(super) fn checked(knobs: &mut Knobs) -> Result<Self, String> {
        if knobs.ipv4 && knobs.ipv6 {
            return Err("--ipv4 cannot be combined with --ipv6; give one".to_owned());
        }
        if !knobs.resolve.is_empty() && !knobs.proxy.is_empty() {
            return Err(
                "--resolve cannot be combined with --proxy, which connects itself".to_owned(),
            );
        }
        if knobs.ca.is_some() && knobs.insecure {
            return Err("--ca has no effect with --insecure; give one".to_owned());
        }
        Ok(Self {
            ca: knobs.ca.take(),
            is_insecure: knobs.insecure,
            timeout: knobs.connect_timeout.map_or(CONNECT_DEFAULT, |span| span.0),
            is_http1: knobs.http1,
            resolve: std::mem::take(&mut knobs.resolve),
            is_ipv6: (knobs.ipv4 || knobs.ipv6).then_some(knobs.ipv6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_replaces_that_of_one_port() {
        let rule: Resolve = "a.example:443:[::1]".parse().unwrap();
        assert!(rule.covers("A.example", 443) && !rule.covers("a.example", 80));
        for wrong in ["a:443", ":443:127.0.0.1", "a:x:127.0.0.1", "a:443:b"] {
            assert!(
                wrong
                    .parse::<Resolve>()
                    .unwrap_err()
                    .contains("HOST:PORT:ADDRESS")
            );
        }
    }
}
