//! A town: the hosts that a target serves, as a file or a value.

mod demo;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::judge::PAGES_MAX;
use crate::model::{FaultSpec, LimitSpec, LimitedHost, Quota, Service, SpecError};

/// A list of hosts and their addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Town {
    /// The first host's address.
    ///
    /// On loopback each host gets the next address (Linux accepts all of 127.0.0.0/8), so a client
    /// that keeps limits per address sees different ones. Elsewhere all hosts share the address and
    /// get ports of their own.
    #[serde(default = "loopback")]
    pub bind: Ipv4Addr,
    /// The port; 0 takes free ones. Outside loopback it is the first host's port.
    #[serde(default)]
    pub port: u16,
    /// The seed of random failures and service times.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long after a Retry-After a request may still arrive that was sent before the client
    /// could read it, in milliseconds: a round trip and the client's own delays.
    #[serde(default = "grace_ms")]
    pub grace_ms: u64,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
}

const fn loopback() -> Ipv4Addr {
    Ipv4Addr::LOCALHOST
}

const fn one() -> u64 {
    1
}

/// Generous for loopback: a busy machine with two cores delays a client by tens of milliseconds.
const fn grace_ms() -> u64 {
    100
}

/// One host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// A unique name for the judge's table.
    pub name: String,
    /// The limit, counted over all requests and clients.
    pub limit: LimitSpec,
    /// How the host refuses, and what it announces.
    #[serde(default)]
    pub signals: Signals,
    /// The faults of the host.
    #[serde(default)]
    pub faults: Vec<FaultSpec>,
    /// The service time of an accepted request.
    #[serde(default)]
    pub service: Service,
    /// Size of a page's body in bytes.
    #[serde(default = "page_bytes")]
    pub page_bytes: usize,
    /// The pages `/page/0` to `/page/{pages - 1}` exist; other paths are answered 404.
    #[serde(default = "pages")]
    pub pages: u32,
    /// The answer to `/robots.txt`. It counts against the limit like every request.
    #[serde(default)]
    pub robots: Robots,
}

/// The size of the pages in benchmarks of other tools.
const fn page_bytes() -> usize {
    2048
}

/// The pages of a host in the full town.
const fn pages() -> u32 {
    150
}

/// How a host refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Signals {
    /// 429, or 503 as nginx by default.
    pub status: u16,
    /// The form of Retry-After.
    pub retry_after: RetryAfter,
    /// The headers on every answer that the limit decided.
    pub headers: Headers,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            status: 429,
            retry_after: RetryAfter::None,
            headers: Headers::None,
        }
    }
}

/// The form of Retry-After (RFC 9110, section 10.2.3). Both forms round up to a second. A limit
/// that cannot know the time announces one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfter {
    /// Not sent.
    None,
    /// Whole seconds.
    Seconds,
    /// An HTTP-date.
    Date,
    /// Ten years in seconds, as a broken or hostile host announces. The judge does not count it as
    /// a hold.
    Absurd,
}

impl RetryAfter {
    /// The time that [`Self::Absurd`] announces.
    pub const ABSURD: Duration = Duration::from_hours(10 * 365 * 24);
}

/// The dialect of announced quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Headers {
    /// Not sent.
    None,
    /// `RateLimit` and `RateLimit-Policy`, draft-ietf-httpapi-ratelimit-headers-10.
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` (seconds since 1970), as GitHub does.
    X,
    /// Like [`Self::Ietf`], but untrue: twice the limit, and always all of it left.
    Lying,
}

impl Headers {
    /// Returns what is announced when `quota` is true.
    pub const fn claim(self, quota: Quota) -> Quota {
        match self {
            Self::Lying => {
                let limit = quota.limit.saturating_mul(2);
                Quota {
                    limit,
                    remaining: limit,
                    ..quota
                }
            }
            Self::None | Self::Ietf | Self::X => quota,
        }
    }
}

/// The answer to `/robots.txt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Robots {
    /// 200 with this text.
    Text(String),
    /// This status without a body.
    Status(u16),
}

impl Default for Robots {
    fn default() -> Self {
        Self::Status(404)
    }
}

/// Why a town cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TownError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not the JSON of a town, or names an unknown field.
    #[error("{path}: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The place and the fault.
        source: serde_json::Error,
    },
    /// A value out of range.
    #[error("host {host}: {source}")]
    Host {
        /// The host's name.
        host: String,
        /// The value and the rule.
        source: SpecError,
    },
    /// Two hosts share a name, there are no hosts, or there are more hosts than addresses.
    #[error("{0}")]
    Hosts(String),
}

/// Bounds listeners and file handles. The host part of 127.0.0.0/8 has room for more.
const HOSTS_MAX: usize = 10_000;

impl Town {
    /// Creates a town on free ports of loopback.
    pub const fn new(hosts: Vec<HostSpec>) -> Self {
        Self {
            bind: loopback(),
            port: 0,
            seed: one(),
            grace_ms: grace_ms(),
            hosts,
        }
    }

    /// Loads `demo`, `full`, or a JSON file.
    pub fn named(name: &str) -> Result<Self, TownError> {
        match name {
            "demo" => Ok(Self::demo()),
            "full" => Ok(Self::full()),
            path => Self::load(Path::new(path)),
        }
    }

    /// Reads and checks a JSON file.
    pub fn load(path: &Path) -> Result<Self, TownError> {
        let text = std::fs::read_to_string(path).map_err(|source| TownError::Read {
            path: path.to_owned(),
            source,
        })?;
        let town: Self = serde_json::from_str(&text).map_err(|source| TownError::Parse {
            path: path.to_owned(),
            source,
        })?;
        town.validate()?;
        Ok(town)
    }

    /// Checks the rules that the types cannot express.
    pub fn validate(&self) -> Result<(), TownError> {
        if !(1..=HOSTS_MAX).contains(&self.hosts.len()) {
            return Err(TownError::Hosts(format!(
                "a town has 1 to {HOSTS_MAX} hosts, not {}",
                self.hosts.len()
            )));
        }
        let mut names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        names.sort_unstable();
        if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TownError::Hosts(format!("two hosts are called {name}")));
        }
        for host in &self.hosts {
            host.validate().map_err(|source| TownError::Host {
                host: host.name.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

impl HostSpec {
    /// Creates a host with this limit that refuses with a bare 429 and has no faults.
    pub fn new(name: &str, limit: LimitSpec) -> Self {
        Self {
            name: name.to_owned(),
            limit,
            signals: Signals::default(),
            faults: Vec::new(),
            service: Service::default(),
            page_bytes: page_bytes(),
            pages: pages(),
            robots: Robots::default(),
        }
    }

    fn validate(&self) -> Result<(), SpecError> {
        LimitedHost::new(
            &self.limit,
            &self.faults,
            self.service,
            politely_core::Rng::new(0),
        )?;
        if !(400..=599).contains(&self.signals.status) {
            return Err(SpecError::new("status", "400 to 599", self.signals.status));
        }
        if let Robots::Status(status) = self.robots
            && !(200..=599).contains(&status)
        {
            return Err(SpecError::new("robots", "a status of 200 to 599", status));
        }
        if self.page_bytes > 64 << 20 {
            return Err(SpecError::new(
                "page_bytes",
                "at most 64 MB",
                self.page_bytes,
            ));
        }
        if self.pages > PAGES_MAX {
            return Err(SpecError::new("pages", "at most 16000000", self.pages));
        }
        Ok(())
    }
}
