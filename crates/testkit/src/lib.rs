//! Real servers for the tests and benchmarks of this workspace: processes ([`process`]), Redis and
//! Valkey ([`redis`]), `PostgreSQL` ([`postgres`]), `ZooKeeper` ([`zookeeper`]), an OpenTelemetry
//! collector ([`collector`]), and hosts with real limits ([`RealTown`]).
//!
//! The hosts are nginx, express-rate-limit and Flask-Limiter, configured as their users do.
//!
//! A limiter that is tested against a model in the same repository shows only that two files agree.
//! These servers were written by other people and round in their own ways. Each keeps a log of the
//! requests that arrived. The tests judge by that log, not by the client's view.
//!
//! Each host listens on its own loopback address and a free port. So a limit that attaches to a
//! host or an address keeps the hosts apart, and several towns can run at once.
//! `tests/servers/README.md` describes the hosts.
//!
//! | file | its part |
//! | --- | --- |
//! | `lib.rs`, `kind.rs` | the sixteen hosts of a [`RealTown`] and their true limits |
//! | `nginx.rs`, `express.rs`, `flask.rs` | the servers behind these hosts |
//! | `log.rs` | the requests that a host saw |
//! | `steady.rs` | the share of its limit that a client used, and its refusals |
//! | `redis/`, `postgres.rs`, `zookeeper.rs` | engines that tests stop |
//! | `collector.rs` | a collector that tests stop |
//! | `process.rs` | processes that end with the test, and the programs that tests need |
//!
//! # What is not here
//!
//! For hosts in this process with any limit, and for a judge, use `politely-target`. For virtual
//! time, use `politely-sim`.
#![expect(clippy::disallowed_methods, reason = "real servers run in real time")]
// A test fails by a panic, which names what is missing.
#![allow(clippy::missing_panics_doc)]

pub mod collector;
mod express;
mod flask;
mod kind;
mod log;
mod nginx;
pub mod postgres;
pub mod process;
pub mod redis;
mod steady;
pub mod zookeeper;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use process::Server;

pub use kind::Kind;
pub use log::Truth;
pub use process::repository;

/// The set of sixteen hosts. Fifteen are the same for both profiles, and one differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Includes a host that blocks fast clients. The profile `crawler` stays below its limit.
    Crawler,
    /// Includes a host with a quota instead. The profile `api` uses limits in full, and a blocking
    /// host would ban it.
    Api,
}

/// Number of pages of each host.
const PAGES: u32 = 150;

/// A host with a known limit.
#[derive(Clone, Debug)]
pub struct RealHost {
    /// The name in `tests/servers/README.md`.
    pub name: &'static str,
    /// `http://127.x.y.z:port`, without a slash at the end. The pages are `/page/1` to `/page/150`,
    /// or to the number with which the town was started.
    pub url_prefix: String,
    /// The limit.
    pub kind: Kind,
}

impl RealHost {
    /// Returns the URL of page `n`.
    pub fn page(&self, n: u32) -> String {
        format!("{}/page/{n}", self.url_prefix)
    }

    /// Returns the largest number of requests in flight, if the host limits it.
    pub fn in_flight_cap(&self) -> Option<u32> {
        self.kind.in_flight_cap()
    }

    /// Returns the least time for `requests` answers. A request for robots.txt counts too.
    pub fn best_time(&self, requests: u32) -> Duration {
        self.kind.best_time(requests)
    }
}

/// The address and the log file of a host. The server gets them at its start.
#[derive(Clone)]
struct Place {
    name: &'static str,
    address: SocketAddr,
    log: Option<PathBuf>,
}

/// Returns the places in the form that the servers read: `{"name": {"address", "port", "log"}}`.
fn as_json(places: &[Place]) -> String {
    let entries = places.iter().map(|place| {
        let value = serde_json::json!({
            "address": place.address.ip().to_string(),
            "port": place.address.port(),
            "log": place.log,
        });
        (place.name.to_owned(), value)
    });
    serde_json::Value::Object(entries.collect()).to_string()
}

/// The running servers. They stop when this value is dropped, and also when the test process ends
/// in any way.
pub struct RealTown {
    /// The sixteen hosts.
    pub hosts: Vec<RealHost>,
    barrier: SocketAddr,
    // This field is dropped before the directory, so the servers stop before their logs are
    // deleted.
    servers: Vec<Server>,
    folder: tempfile::TempDir,
}

impl RealTown {
    /// Starts all servers and returns when every host accepts connections.
    pub fn start(set: Set) -> Self {
        Self::with_pages(set, PAGES)
    }

    /// Starts all servers with `pages` pages on the hosts that keep them as files. The other hosts
    /// generate any number of pages.
    pub fn with_pages(set: Set, pages: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder for the town");
        let place = |name: &'static str| Place {
            name,
            address: process::free_place(),
            log: Some(folder.path().join(format!("{name}.log"))),
        };
        let silent = |name| Place {
            log: None,
            ..place(name)
        };
        let places = |hosts: &[(&'static str, Kind)]| -> Vec<Place> {
            hosts.iter().map(|(name, _)| place(name)).collect()
        };

        let mut express_hosts = express::HOSTS.to_vec();
        express_hosts.push(match set {
            Set::Crawler => express::BLOCKS,
            Set::Api => express::QUOTA,
        });
        let kinds = [nginx::HOSTS, &express_hosts, flask::HOSTS].concat();

        let flask_places = places(flask::HOSTS);
        let mut express_places = places(&express_hosts);
        let upstream = silent("upstream");
        let barrier = silent("barrier");
        let mut nginx_places = places(nginx::HOSTS);

        let hosts = [&nginx_places, &express_places, &flask_places]
            .into_iter()
            .flatten()
            .zip(kinds)
            .map(|(place, (_, kind))| RealHost {
                name: place.name,
                url_prefix: format!("http://{}", place.address),
                kind,
            })
            .collect();

        let barrier_address = barrier.address;
        // nginx gets the address of its upstream in the same way as its own addresses.
        nginx_places.extend([barrier, upstream.clone()]);
        express_places.push(upstream);
        let mut servers = vec![
            flask::start(folder.path(), &flask_places),
            express::start(folder.path(), &express_places),
            nginx::start(folder.path(), &nginx_places, pages),
        ];
        let addresses = [&nginx_places, &express_places, &flask_places];
        process::wait_until_ready(
            &mut servers,
            addresses.into_iter().flatten().map(|place| place.address),
        );
        Self {
            hosts,
            barrier: barrier_address,
            servers,
            folder,
        }
    }

    /// Returns the host called `name`.
    pub fn host(&self, name: &str) -> &RealHost {
        let found = self.hosts.iter().find(|host| host.name == name);
        found.unwrap_or_else(|| panic!("no host is called {name}"))
    }

    /// Returns `processes` lists of URLs, one URL per line, with `pages` pages of each host in
    /// total. The hosts take turns, as in a real crawl.
    pub fn lists(&self, processes: usize, pages: impl Fn(&RealHost) -> u32) -> Vec<String> {
        let mut lists = vec![String::new(); processes];
        for page in 1..=self.hosts.iter().map(&pages).max().unwrap_or(0) {
            let list = &mut lists[page as usize % processes];
            for host in self.hosts.iter().filter(|host| page <= pages(host)) {
                list.push_str(&host.page(page));
                list.push('\n');
            }
        }
        lists
    }

    /// Returns the facts about each host, by name. They include every request that was answered
    /// before this call.
    pub fn truth(&self) -> BTreeMap<&'static str, Truth> {
        self.wait_for_the_logs();
        let truth_of = |host: &RealHost| log::read(&self.log_of(host.name));
        self.hosts
            .iter()
            .map(|host| (host.name, truth_of(host)))
            .collect()
    }

    /// Returns the log of a host. It has one line of JSON per request; see
    /// `tests/servers/README.md`.
    pub fn log_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Waits until all answered requests are logged. Express and Flask write the log before they
    /// answer. nginx writes it just after the answer, in the same iteration of its only event loop.
    /// So once nginx has answered one more request, the earlier ones are logged.
    fn wait_for_the_logs(&self) {
        let mut stream = TcpStream::connect(self.barrier).expect("nginx is there");
        stream
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("nginx takes a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("nginx answers");
        assert!(answer.starts_with(b"HTTP/1.1 204"), "the barrier answers");
    }

    /// Returns the process ids of the servers.
    pub fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }
}
